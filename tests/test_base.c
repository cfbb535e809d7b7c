// tests/test_base.c: errors, sizes, bytes, UTF-8, files.
#define _GNU_SOURCE // pipe2
#include "tests/rig/testing.h"

#include "base/hash.h"

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
                      "e"); // UTF-8 stays
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
    buf_append(&b, "", 0); // nothing, and yet NUL-terminated
    assert_string_equal(b.data, "");
    buf_str(&b, "abc");
    buf_printf(&b, "%s", "");
    assert_string_equal(b.data, "abc");
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
    char endless[1000]; // longer than any flag: bounded, no overflow
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    assert_true(nearest_distance(endless, "a") >= 63);
    assert_int_equal(nearest_distance(endless, endless), 0);
}

// ---- UTF-8 ----------------------------------------------------------------------------------------------------------

static size_t encode(uint32_t c, char out[4]) {
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

static bool surrogate(uint32_t c) { return c >= 0xd800 && c < 0xe000; }

// Every character there is, whole and cut off at each place.
static void test_utf8_next_every_character(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char s[4];
        size_t n = encode(c, s);
        if (utf8_next(s, n) != (surrogate(c) ? 0 : (int)n)) fail_msg("U+%04X", c);
        for (size_t cut = 1; cut < n; cut++) {
            int want = surrogate(c) && cut > 1 ? 0 : -1; // the second byte gives a surrogate away
            if (utf8_next(s, cut) != want) fail_msg("U+%04X after %zu bytes", c, cut);
        }
    }
    assert_int_equal(utf8_next("", 0), 0);
    assert_int_equal(utf8_next("\0", 1), 1);
}

// Every pair of bytes as a beginning: valid exactly where some character begins so.
static void test_utf8_next_every_pair(void **state) {
    (void)state;
    static bool begins[256][256], leads[256];
    for (uint32_t c = 0x80; c < 0x110000; c++) {
        char s[4];
        if (surrogate(c)) continue;
        encode(c, s);
        begins[(uint8_t)s[0]][(uint8_t)s[1]] = leads[(uint8_t)s[0]] = true;
    }
    for (int a = 0x80; a < 256; a++) {
        char one = (char)a;
        assert_int_equal(utf8_next(&one, 1), leads[a] ? -1 : 0);
        for (int b = 0; b < 256; b++) {
            char s[2] = {(char)a, (char)b};
            assert_int_equal(utf8_next(s, 2), !begins[a][b] ? 0 : a < 0xe0 ? 2 : -1);
        }
    }
}

static void test_utf8_next_invalid(void **state) {
    (void)state;
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5",
                                      "\xfe",
                                      "\xff",
                                      "\xe2\x82"
                                      "A",
                                      "\xf0\x9f\x98"
                                      "A",
                                      "\xc3"
                                      "A"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) assert_int_equal(utf8_next(bad[i], strlen(bad[i])), 0);
}

// Text in pieces: what is whole comes out at once, what is cut off waits, and nothing is lost.
static void test_utf8_whole_every_split(void **state) {
    (void)state;
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xe6\xad\xa3\xed\x9f\xbf\xf4\x8f\xbf\xbf!";
    bool boundary[sizeof text] = {false};
    size_t n = sizeof text - 1;
    for (size_t i = 0; i < n; i += (size_t)utf8_next(text + i, n - i)) boundary[i] = true;
    boundary[n] = true;
    for (size_t cut = 0; cut <= n; cut++) {
        size_t whole = utf8_whole(text, cut), want = cut;
        while (!boundary[want]) want--;
        assert_int_equal(whole, want);
    }
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++) {
            size_t first = utf8_whole(text, a), second = first + utf8_whole(text + first, b - first);
            size_t third = second + utf8_whole(text + second, n - second);
            assert_true(boundary[first] && boundary[second] && third == n);
        }
}

static void test_utf8_whole_invalid(void **state) {
    (void)state;
    assert_int_equal(utf8_whole("", 0), 0);
    assert_int_equal(utf8_whole("a\xff", 2), 2);        // cannot begin a character: whole
    assert_int_equal(utf8_whole("a\x80\x80", 3), 3);    // follows nothing
    assert_int_equal(utf8_whole("\xe2\xe2\x82", 3), 1); // the first is broken, the second cut off
    assert_int_equal(utf8_whole("\xed\xa0", 2), 2);     // half a surrogate will never be whole
    assert_int_equal(utf8_whole("\xf0\x9f\x98", 3), 0);
    assert_int_equal(utf8_whole("\xf0\x9f\x98x", 4), 4);
}

static void assert_repaired(const char *bytes, size_t n, const char *want) {
    Buf out = {0};
    utf8_repair(&out, bytes, n);
    assert_string_equal(out.data, want);
    assert_int_equal(out.n, strlen(want));
    buf_free(&out);
}

#define BAD "\xef\xbf\xbd"

static void test_utf8_repair(void **state) {
    (void)state;
    assert_repaired("", 0, "");
    assert_repaired("plain \xc3\xa9", 8, "plain \xc3\xa9");
    assert_repaired("\xff", 1, BAD);
    assert_repaired("a\x80\x80z", 4, "a" BAD BAD "z");
    assert_repaired("\xe2\x82", 2, BAD BAD); // cut off
    assert_repaired("\xed\xa0\x80", 3, BAD BAD BAD);
    assert_repaired("\xc3\xe2\x82\xac", 4, BAD "\xe2\x82\xac");
}

// Whatever goes in, valid UTF-8 comes out, and valid text stays as it was.
static void test_utf8_repair_random_bytes(void **state) {
    (void)state;
    uint64_t random = 3;
    for (int round = 0; round < 20000; round++) {
        char in[16];
        size_t n = test_random(&random) % sizeof in;
        for (size_t i = 0; i < n; i++)
            in[i] = (char)((test_random(&random) & (round & 1 ? 0xff : 0xbf)) | (round & 2 ? 0x80 : 0));
        Buf once = {0}, twice = {0};
        utf8_repair(&once, in, n);
        for (size_t i = 0; i < once.n;) {
            int len = utf8_next(once.data + i, once.n - i);
            assert_true(len > 0);
            i += (size_t)len;
        }
        utf8_repair(&twice, once.data, once.n);
        assert_string_equal(once.data, twice.data);
        buf_free(&once);
        buf_free(&twice);
    }
}

static void assert_escaped(const char *bytes, size_t n, const char *want) {
    Buf out = {0};
    utf8_escape(&out, bytes, n);
    assert_string_equal(out.data, want);
    buf_free(&out);
}

static void test_utf8_escape(void **state) {
    (void)state;
    assert_escaped("", 0, "");
    assert_escaped("a\n\t\r\\b", 6, "a\\n\\t\\r\\\\b");
    assert_escaped("\0\x1b\x7f", 3, "\\x00\\x1b\\x7f");
    assert_escaped("\xc3\xa9\xff\xe2\x82", 5, "\xc3\xa9\\xff\\xe2\\x82");
    Buf all = {0};
    for (int c = 0; c < 256; c++) utf8_escape(&all, &(char){(char)c}, 1);
    for (size_t i = 0; i < all.n; i++) assert_true(all.data[i] >= 0x20 && all.data[i] < 0x7f); // one line, printable
    buf_free(&all);
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
    int keep = open(fifo, O_RDWR); // a reader must not wait for a writer
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

// A pipe whose ends do not block, as a parent may leave them: reading waits for bytes, writing for room.
static void test_no_blocking(void **state) {
    (void)state;
    enum { N = 1 << 20 }; // more than a pipe holds
    int fds[2], status;
    char *bytes = mem_alloc(N);
    for (int i = 0; i < N; i++) bytes[i] = (char)(i % 251);
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        usleep(20000); // the reader is there first
        _exit(fd_write_all(fds[1], bytes, N).code);
    }
    close(fds[1]);
    Buf b = {0};
    usleep(60000); // and late: the pipe is full
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
    assert_int_equal(errno, EPIPE); // kept: the caller tells a closed pipe from a full disk
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
        assert_true(dirs_cache(out, sizeof out)); // there already
        assert_false(dirs_cache(out, 5));
        assert_int_equal(rmdir(want), 0);
        assert_int_equal(rmdir(dir), 0);
    }
    setenv("XDG_CACHE_HOME", "relative", 1); // the specification: not absolute counts as not set
    setenv("HOME", "", 1);
    assert_false(dirs_cache(out, sizeof out));
    for (int i = 0; i < 2; i++)
        if (saved[i][0]) setenv(names[i], saved[i], 1);
        else unsetenv(names[i]);
}

// Names that a file chose must not be obeyed by a terminal: C0, DEL and the two bytes of C1.
static void test_controls_are_escaped(void **state) {
    (void)state;
    Buf b = {0};
    const char text[] = "a\x1b[2J\xc2\x9b\xc3\xa9\x7f";
    utf8_escape(&b, text, sizeof text - 1);
    assert_string_equal(b.data, "a\\x1b[2J\\xc2\\x9b\xc3\xa9\\x7f");
    buf_free(&b);
    Status st = status_error(QUILL_MODEL, "%s", text);
    assert_string_equal(st.message, "a?[2J??\xc3\xa9?");
}

// Strings that collide under one key must not under another: these do whatever the key of a plain multiply-xor hash.
static void test_hash_depends_on_its_key(void **state) {
    (void)state;
    HashKey a = hash_key(), b = hash_key();
    assert_true(a.start != b.start && a.factor % 2 == 1);
    uint64_t words[4] = {1, 2, 1 ^ 1ull << 63, 2 ^ (1ull << 63 | 1ull << 34)};
    uint64_t first = hash_bytes(a, (const char *)words, 16), second = hash_bytes(a, (const char *)(words + 2), 16);
    assert_true(first != second);
    assert_true(first == hash_bytes(a, (const char *)words, 16) && first != hash_bytes(b, (const char *)words, 16));
    for (size_t n = 0; n < 16; n++) // every length counts
        assert_true(hash_bytes(a, "aaaaaaaaaaaaaaaa", n) != hash_bytes(a, "aaaaaaaaaaaaaaaa", n + 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_is_one_line),
        cmocka_unit_test(test_status_cuts_long_messages),
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_checked_sizes),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_buf_grows),
        cmocka_unit_test(test_edit_distance),
        cmocka_unit_test(test_utf8_next_every_character),
        cmocka_unit_test(test_utf8_next_every_pair),
        cmocka_unit_test(test_utf8_next_invalid),
        cmocka_unit_test(test_utf8_whole_every_split),
        cmocka_unit_test(test_utf8_whole_invalid),
        cmocka_unit_test(test_utf8_repair),
        cmocka_unit_test(test_utf8_repair_random_bytes),
        cmocka_unit_test(test_utf8_escape),
        cmocka_unit_test(test_file_map),
        cmocka_unit_test(test_file_map_errors),
        cmocka_unit_test(test_file_read),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_no_blocking),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_cache_dir),
        cmocka_unit_test(test_controls_are_escaped),
        cmocka_unit_test(test_hash_depends_on_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
