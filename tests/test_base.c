// tests/test_base.c: errors, sizes, memory, bytes, suggestions for misspelt words, files, directories, hashes.
#define _GNU_SOURCE // pipe2
#include "tests/rig/testing.h"

#include "base/hash.h"
#include "base/pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- errors ---------------------------------------------------------------------------------------------------------

static void test_status_is_one_line(void **state) {
    (void)state;
    Status st = status_error(QUILL_MODEL, "%s: %d\nfound\t\x1b[31m\x7f\r", "a\nb", 7);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_string_equal(st.message, "a?b: 7?found??[31m??");
    st = status_error(QUILL_USAGE, "%s",
                      "Gr\xc3\xb6\xc3\x9f"
                      "e"); // UTF-8 is not escaped
    assert_string_equal(st.message, "Gr\xc3\xb6\xc3\x9f"
                                    "e");
}

static void test_status_cuts_long_messages(void **state) {
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    Status st = status_error(QUILL_IO, "%s", text);
    assert_int_equal(strlen(st.message), sizeof st.message - 1);
    assert_int_equal(OK.code, QUILL_OK);
}

static Status tries(int code, bool *passed) {
    *passed = false;
    TRY(code ? status_error(code, "no") : OK);
    *passed = true;
    return OK;
}

static void test_status_append(void **state) {
    (void)state;
    Status st = status_error(QUILL_MEMORY, "no room");
    status_append(&st, "one\ntwo\n");
    assert_string_equal(st.message, "no room\none\ntwo");
    for (int i = 0; i < 300; i++) status_append(&st, "more");
    assert_int_equal(strlen(st.message), sizeof st.message - 1);
}

static void test_try(void **state) {
    (void)state;
    bool passed;
    assert_int_equal(tries(0, &passed).code, 0);
    assert_true(passed);
    assert_int_equal(tries(QUILL_CONTEXT, &passed).code, QUILL_CONTEXT);
    assert_false(passed);
}

// ---- sizes, memory --------------------------------------------------------------------------------------------------

static void test_checked_sizes(void **state) {
    (void)state;
    size_t n;
    assert_true(size_mul(1u << 20, 1u << 20, &n) && n == (size_t)1 << 40);
    assert_true(size_mul(0, SIZE_MAX, &n) && n == 0);
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &n));
    assert_true(size_add(SIZE_MAX - 1, 1, &n) && n == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &n));
    assert_int_equal(round_up(0, 32), 0);
    assert_int_equal(round_up(33, 32), 64);
    assert_int_equal(round_up(64, 32), 64);
}

static void test_memory(void **state) {
    (void)state;
    char *p = mem_alloc(100);
    for (int i = 0; i < 100; i++) assert_int_equal(p[i], 0);
    p = mem_resize(p, 0);
    assert_non_null(p);
    free(p);
    free(mem_alloc(0));
    p = mem_copy("ab\0c", 4);
    assert_memory_equal(p, "ab\0c\0", 5);
    free(p);
    char *pages = pages_alloc(10000, true);
    assert_non_null(pages);
    assert_int_equal((uintptr_t)pages % 4096, 0);
    for (int i = 0; i < 10000; i++) assert_int_equal(pages[i], 0);
    pages[9999] = 1;
    pages_free(pages, 10000);
    pages_free(NULL, 5);
    assert_null(pages_alloc(SIZE_MAX / 2, false));
    assert_true(memory_available() > 1 << 20);
    assert_true(memory_peak() > 1 << 16);
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

static void test_str(void **state) {
    (void)state;
    assert_true(str_eq((Str){"a\0b", 3}, (Str){"a\0b", 3}));
    assert_false(str_eq((Str){"a\0b", 3}, (Str){"a\0c", 3}));
    assert_false(str_eq(str_of("ab"), str_of("abc")));
    assert_true(str_eq((Str){NULL, 0}, str_of("")));
    assert_true(str_is(str_of("llama"), "llama"));
    assert_false(str_is((Str){"llama", 4}, "llama"));
    assert_true(str_has_prefix(str_of("blk.0"), "blk."));
    assert_true(str_has_prefix((Str){NULL, 0}, ""));
    assert_false(str_has_prefix(str_of("bl"), "blk."));
}

// What all options of this form refuse: --evict, --blend, --slo.
static void test_pairs(void **state) {
    (void)state;
    static const char *const words[] = {"one", "two"};
    double n = 7, x = 0.5;
    bool by_auto = false;
    const PairsNumber numbers[] = {{"n", &n, 0, 10, .whole = true}, {"x", &x, 0.25, 1, .by_auto = &by_auto}};
    static const char *const bad[] = {"two,",       "two,n",    "two,n=",   "two,n=1,",  "two,n=1,n=2", "two,,n=1",
                                      "two,n=11",   "two,x=.2", "two,n=+1", "two,n=1.0", "two,x=1e0",   "two,x=nan",
                                      "two,n=auto", "two,y=1",  "two,=1",   "two,x=1=1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *at = bad[i];
        assert_int_equal(pairs_word(&at, words, 2), 1);
        if (pairs_read(at, numbers, 2)) fail_msg("\"%s\": an error expected", bad[i]);
    }
    const char *at = "three";
    assert_int_equal(pairs_word(&at, words, 2), -1);
    assert_string_equal(at, "three");
    n = 7, x = 0.5;
    at = "one";
    assert_int_equal(pairs_word(&at, words, 2), 0);
    assert_true(pairs_read(at, numbers, 2) && n == 7 && x == 0.5 && !by_auto);
    assert_true(pairs_read("x=auto,n=010", numbers, 2) && n == 10 && x == 0.5 && by_auto);
    assert_true(pairs_read("x=.75", numbers, 2) && x == 0.75);
}

static void test_buf_grows(void **state) {
    (void)state;
    Buf b = {0};
    for (int i = 0; i < 3000; i++) {
        buf_printf(&b, "%d,", i);
        assert_int_equal(b.data[b.n], 0);
        assert_true(b.n < b.cap);
    }
    char *at = b.data;
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(strtol(at, &at, 10), i);
        assert_int_equal(*at++, ',');
    }
    buf_append(&b, "x\0y", 3);
    assert_memory_equal(b.data + b.n - 3, "x\0y\0", 4);
    buf_free(&b);
    assert_null(b.data);
    buf_append(&b, "", 0); // an empty text is NUL-terminated too
    assert_string_equal(b.data, "");
    buf_str(&b, "abc");
    buf_printf(&b, "%s", "");
    assert_string_equal(b.data, "abc");
    buf_free(&b);
}

static void test_buf_drop(void **state) {
    (void)state;
    Buf b = {0};
    buf_drop(&b, 0);
    assert_null(b.data);
    buf_str(&b, "abcdef");
    buf_drop(&b, 2);
    assert_string_equal(b.data, "cdef");
    buf_drop(&b, 0);
    assert_int_equal(b.n, 4);
    buf_drop(&b, 4);
    assert_string_equal(b.data, "");
    assert_int_equal(b.n, 0);
    buf_free(&b);
}

static void test_edit_distance(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        int distance;
    } cases[] = {
        {"", "", 0},          {"", "abc", 3},  {"abc", "", 3},      {"kitten", "sitting", 3}, {"--temp", "--tmp", 1},
        {"abc", "abc", 0},    {"ab", "ba", 1}, {"abcd", "badc", 2}, {"bench", "bnech", 1},    {"flaw", "lawn", 2},
        {"top-k", "top_k", 1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(nearest_distance(cases[i].a, cases[i].b), cases[i].distance);
        assert_int_equal(nearest_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
    char endless[1000]; // longer than any flag: must not overflow
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    assert_true(nearest_distance(endless, "a") >= 63);
    assert_int_equal(nearest_distance(endless, endless), 0);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static void write_file(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_ok(fd_write_all(fd, bytes, n));
    assert_int_equal(close(fd), 0);
}

static void test_file_map(void **state) {
    (void)state;
    const char *path = test_tmp("util_map.bin");
    FileMap m;
    write_file(path, "hello", 5);
    assert_ok(file_map(path, &m));
    assert_int_equal(m.n, 5);
    assert_memory_equal(m.data, "hello", 5);
    file_unmap(&m);
    assert_null(m.data);
    write_file(path, "", 0);
    assert_ok(file_map(path, &m));
    assert_null(m.data);
    assert_int_equal(m.n, 0);
    file_unmap(&m);
    assert_int_equal(unlink(path), 0);
}

static void assert_map_fails(const char *path, const char *why) {
    FileMap m = {(const uint8_t *)"x", 1};
    Status st = file_map(path, &m);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, path));
    assert_non_null(strstr(st.message, why));
    assert_null(m.data); // unmapping after an error is safe
    file_unmap(&m);
}

static void test_file_map_errors(void **state) {
    (void)state;
    const char *fifo = test_tmp("util_fifo");
    assert_map_fails(test_tmp("util_not_there"), "No such file");
    assert_map_fails(test_tmp("."), "directory");
    assert_map_fails("/dev/null", "device");
    unlink(fifo);
    assert_int_equal(mkfifo(fifo, 0666), 0);
    int keep = open(fifo, O_RDWR); // opening the reader must not wait for a writer
    assert_map_fails(fifo, "pipe");
    close(keep);
    unlink(fifo);
}

static void test_file_read(void **state) {
    (void)state;
    const char *path = test_tmp("util_read.bin");
    enum { N = 300000 };
    char *bytes = malloc(N);
    for (int i = 0; i < N; i++) bytes[i] = (char)(i * 7);
    write_file(path, bytes, N);
    Buf b = {0};
    buf_str(&b, "before ");
    assert_ok(file_read(path, &b));
    assert_int_equal(b.n, N + 7);
    assert_memory_equal(b.data, "before ", 7);
    assert_memory_equal(b.data + 7, bytes, N);
    assert_int_equal(b.data[b.n], 0);
    buf_free(&b);
    free(bytes);
    unlink(path);
    Status st = file_read(path, &b);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, path));
    st = file_read(test_tmp("."), &b);
    assert_int_equal(st.code, QUILL_IO);
    buf_free(&b);
}

// A pipe whose ends do not block, as a parent may pass it: reading waits for bytes, writing waits for room.
static void test_no_blocking(void **state) {
    (void)state;
    enum { N = 1 << 20 }; // more bytes than a pipe holds
    int fds[2], status;
    char *bytes = mem_alloc(N);
    for (int i = 0; i < N; i++) bytes[i] = (char)(i % 251);
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        usleep(20000); // the reader starts first
        _exit(fd_write_all(fds[1], bytes, N).code);
    }
    close(fds[1]);
    Buf b = {0};
    usleep(60000); // so that the pipe is full for a while
    assert_ok(fd_read_all(fds[0], "pipe", &b));
    assert_int_equal(b.n, N);
    assert_memory_equal(b.data, bytes, N);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    close(fds[0]);
    buf_free(&b);
    free(bytes);
}

static void test_pipes(void **state) {
    (void)state;
    int fds[2];
    Buf b = {0};
    assert_int_equal(pipe(fds), 0);
    assert_ok(fd_write_all(fds[1], "through a pipe", 14));
    close(fds[1]);
    assert_ok(fd_read_all(fds[0], "pipe", &b));
    assert_string_equal(b.data, "through a pipe");
    buf_free(&b);
    close(fds[0]);
    assert_int_equal(pipe(fds), 0);
    close(fds[0]);
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    Status st = fd_write_all(fds[1], "x", 1);
    assert_int_equal(errno, EPIPE); // errno must survive: it tells the caller a closed pipe from a full disk
    signal(SIGPIPE, before);
    assert_int_equal(st.code, QUILL_IO);
    close(fds[1]);
    assert_int_equal(fd_read_all(-1, "nothing", &b).code, QUILL_IO);
    buf_free(&b);
}

static void test_clock(void **state) {
    (void)state;
    double before = clock_now(), after = before;
    while (after == before) after = clock_now();
    assert_true(after > before && after - before < 10);
}

static void test_cache_dir(void **state) {
    (void)state;
    char out[1100], want[1100], saved[2][1100] = {"", ""};
    const char *names[] = {"XDG_CACHE_HOME", "HOME"};
    for (int i = 0; i < 2; i++)
        if (getenv(names[i])) snprintf(saved[i], sizeof saved[i], "%s", getenv(names[i]));
    const char *dir = test_tmp("util_cache");
    setenv("XDG_CACHE_HOME", dir, 1);
    if (dir[0] == '/') {
        snprintf(want, sizeof want, "%s/quill", dir);
        assert_true(dirs_cache(out, sizeof out));
        assert_string_equal(out, want);
        assert_true(dirs_cache(out, sizeof out)); // the directory exists already
        assert_false(dirs_cache(out, 5));
        assert_int_equal(rmdir(want), 0);
        assert_int_equal(rmdir(dir), 0);
    }
    setenv("XDG_CACHE_HOME", "relative", 1); // the XDG specification: a relative path counts as not set
    setenv("HOME", "", 1);
    assert_false(dirs_cache(out, sizeof out));
    for (int i = 0; i < 2; i++)
        if (saved[i][0]) setenv(names[i], saved[i], 1);
        else unsetenv(names[i]);
}

// Strings that collide under one key must not collide under another. These strings collide under every key of a plain
// multiply-xor hash.
static void test_hash_depends_on_its_key(void **state) {
    (void)state;
    HashKey a = hash_key(), b = hash_key();
    assert_true(a.start != b.start && a.factor % 2 == 1);
    uint64_t words[4] = {1, 2, 1 ^ 1ull << 63, 2 ^ (1ull << 63 | 1ull << 34)};
    uint64_t first = hash_bytes(a, (const char *)words, 16), second = hash_bytes(a, (const char *)(words + 2), 16);
    assert_true(first != second);
    assert_true(first == hash_bytes(a, (const char *)words, 16) && first != hash_bytes(b, (const char *)words, 16));
    for (size_t n = 0; n < 16; n++) // every length must change the hash
        assert_true(hash_bytes(a, "aaaaaaaaaaaaaaaa", n) != hash_bytes(a, "aaaaaaaaaaaaaaaa", n + 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_is_one_line),
        cmocka_unit_test(test_status_cuts_long_messages),
        cmocka_unit_test(test_status_append),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_checked_sizes),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_buf_grows),
        cmocka_unit_test(test_buf_drop),
        cmocka_unit_test(test_edit_distance),
        cmocka_unit_test(test_file_map),
        cmocka_unit_test(test_file_map_errors),
        cmocka_unit_test(test_file_read),
        cmocka_unit_test(test_no_blocking),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_cache_dir),
        cmocka_unit_test(test_hash_depends_on_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
