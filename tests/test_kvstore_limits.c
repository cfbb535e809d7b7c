// tests/test_kvstore_limits.c: a directory of blocks: its size limit, several processes in it, and killed processes.
#define _GNU_SOURCE
#include "tests/rig/kvstore_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- the size limit -------------------------------------------------------------------------------------------------

static size_t file_bytes(void) {
    Store s;
    store_open(&s, 1 << 30);
    save_one(&s, 8, 1);
    size_t n = kvstore_stats(s.s).saved_bytes;
    store_close(&s);
    return n;
}

static void test_size(void **state) {
    (void)state;
    size_t one = file_bytes();
    Store s;
    store_open(&s, 10 * one * 16 / 15 + 16); // removal leaves a sixteenth free: ten blocks remain
    save_one(&s, 48, 1);                     // 6 blocks
    assert_int_equal(kvstore_stats(s.s).n_removed, 0);
    write_bytes(test_tmp("store/notes.txt"), "mine", 4); // a file that is neither counted nor removed
    usleep(2000);
    save_one(&s, 56, 2); // 7 blocks: the last three of the first sequence are removed
    assert_int_equal(kvstore_stats(s.s).n_removed, 3);
    assert_int_equal(load_one(&s, 100, 1, NULL), 24);
    assert_int_equal(load_one(&s, 100, 2, NULL), 56);
    usleep(2000);
    save_one(&s, 24, 1); // uses the first sequence again: now the second is older
    usleep(2000);
    save_one(&s, 40, 3);
    assert_int_equal(load_one(&s, 100, 1, NULL), 24);
    assert_int_equal(load_one(&s, 100, 2, NULL), 16);
    assert_int_equal(load_one(&s, 100, 3, NULL), 40);
    usleep(2000);
    save_one(&s, 160, 4); // larger than the limit: only its beginning remains
    assert_int_equal(load_one(&s, 200, 4, NULL), 80);
    assert_int_equal(count_files(&s, ".kv"), 10);
    assert_int_equal(access(test_tmp("store/notes.txt"), F_OK), 0);
    store_close(&s);
}

// A directory of exactly the size of 16 blocks holds 16. Blocks that would not fit are not written; those of a second
// sequence make room for themselves and for a sixteenth more.
static void test_exact_size(void **state) {
    (void)state;
    size_t one = file_bytes();
    Store s;
    store_open(&s, 16 * one);
    save_one(&s, 16 * BLOCK, 1);
    assert_int_equal(kvstore_stats(s.s).n_removed, 0);
    assert_int_equal(count_files(&s, ".kv"), 16);
    save_one(&s, 18 * BLOCK, 2);
    assert_int_equal(kvstore_stats(s.s).n_saved, (16 + 16) * BLOCK);
    assert_int_equal(kvstore_stats(s.s).n_removed, 16 + 1);
    assert_int_equal(load_one(&s, 19 * BLOCK, 2, NULL), 15 * BLOCK);
    store_close(&s);
}

// A block may fill the directory, but not be larger.
static void test_one_block(void **state) {
    (void)state;
    size_t one = file_bytes();
    for (int less = 0; less < 2; less++) {
        Store s;
        Cache c;
        store_open(&s, one - (size_t)less);
        cache_open(&c, BLOCK, 0);
        push(&c.seq, BLOCK, 1);
        compute(&c, BLOCK);
        Status st = kvstore_save(s.s, &c.kv, &c.seq);
        assert_int_equal(st.code, less ? QUILL_IO : 0);
        if (less) assert_non_null(strstr(st.message, "bytes at most expected (size=)"));
        assert_int_equal(count_files(&s, ""), !less);
        cache_close(&c);
        store_close(&s);
    }
}

// The age of a block is its seconds, then its nanoseconds.
static void test_age(void **state) {
    (void)state;
    Store s;
    store_open(&s, 10 * file_bytes() * 16 / 15 + 16); // as above: ten blocks remain
    save_one(&s, 24, 1);
    set_used(&s, ".kv", 0, (struct timespec){1000, 999999999});
    save_one(&s, 24, 2);
    set_used(&s, ".kv", 1000, (struct timespec){2000, 1});
    save_one(&s, 56, 3);
    assert_int_equal(kvstore_stats(s.s).n_removed, 3);
    assert_int_equal(load_one(&s, 100, 1, NULL), 0);
    assert_int_equal(load_one(&s, 100, 2, NULL), 24);
    assert_int_equal(load_one(&s, 100, 3, NULL), 56);
    store_close(&s);
}

// A caller may load a sequence in parts: at most so many slots at a time, and the rest of a block.
static void test_loaded_parts(void **state) {
    (void)state;
    Store s;
    Cache c;
    store_open(&s, 1 << 30);
    save_one(&s, 56, 1);
    cache_open(&c, BLOCK, 0);
    push(&c.seq, 100, 1);
    static const int most[] = {1, 8, 9, 100}, loaded[] = {8, 16, 32, 56};
    for (size_t i = 0; i < ARRAY_LEN(most); i++) {
        assert_ok(kvstore_load(s.s, &c.kv, &c.seq, most[i]));
        assert_int_equal(c.seq.n_cached, loaded[i]);
    }
    cache_close(&c);
    store_close(&s);
}

// A growing sequence is saved in parts, at most as many slots at a time as the caller allows. Its first block must
// still count as the one used last.
static void test_parts(void **state) {
    (void)state;
    Store s;
    Cache c;
    int first = 0;
    double began = clock_now();
    static const struct {
        int computed, most, saved, first;
    } parts[] = {{7, 100, 0, 0}, {20, 1, 8, 8}, {20, 1, 16, 16}, {20, 1, 16, 16}, {60, 17, 40, 40}, {60, 100, 56, 56}};
    store_open(&s, 1 << 30);
    cache_open(&c, BLOCK, 0);
    push(&c.seq, 60, 5);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        compute(&c, parts[i].computed);
        assert_ok(kvstore_save_some(s.s, &c.kv, &c.seq, began, &first, parts[i].most));
        assert_int_equal(kvstore_stats(s.s).n_saved, parts[i].saved);
        assert_int_equal(first, parts[i].first);
        usleep(1000);
    }
    struct timespec before = {.tv_sec = INT64_MAX};
    for (int i = 0; i < 7; i++) {
        struct stat info;
        assert_int_equal(stat(block_path(&s, &like, c.seq.tokens, i), &info), 0);
        struct timespec at = info.st_mtim;
        assert_true(at.tv_sec < before.tv_sec || (at.tv_sec == before.tv_sec && at.tv_nsec < before.tv_nsec));
        before = at;
    }
    assert_ok(kvstore_save(s.s, &c.kv, &c.seq));
    KvStoreStats stats = kvstore_stats(s.s);
    assert_int_equal(stats.n_saved, 56);
    // A thousand slots a second pass 2^31 in 25 days.
    assert_true(sizeof stats.n_saved == 8 && sizeof stats.n_loaded == 8);
    assert_int_equal(load_one(&s, 61, 5, NULL), 56);
    cache_close(&c);
    store_close(&s);
}

// ---- several processes, and ones that die ---------------------------------------------------------------------------

// Saves and loads random beginnings of a few prompts, `rounds` times; 0: until it is killed. The exit code is 1 if
// other K and V were loaded than were computed.
static void work(const char *dir, size_t most_bytes, uint64_t seed, int rounds) {
    Store s;
    snprintf(s.dir, sizeof s.dir, "%s", dir);
    if (kvstore_open(dir, most_bytes, BLOCK, &like, "test", &s.s).code) _exit(2);
    for (int i = 0; rounds == 0 || i < rounds; i++) {
        Cache c;
        cache_open(&c, i % 2 ? BLOCK : 0, 0);
        push(&c.seq, 20 + (int)(test_random(&seed) % 180), test_random(&seed) % 4);
        Status st = kvstore_load(s.s, &c.kv, &c.seq, INT_MAX);
        if (st.code || !rows_are_right(&c)) _exit(1);
        compute(&c, c.seq.n_tokens);
        if (kvstore_save(s.s, &c.kv, &c.seq).code) _exit(3);
        cache_close(&c);
    }
    kvstore_close(s.s);
    _exit(0);
}

static void test_two_processes(void **state) {
    (void)state;
    Store s;
    size_t most = 30 * file_bytes(); // so small that the processes remove each other's files
    store_open(&s, most);
    pid_t children[3];
    for (int i = 0; i < 3; i++)
        if ((children[i] = fork()) == 0) work(s.dir, most, (uint64_t)i, 40);
    for (int i = 0; i < 3; i++) {
        int how;
        assert_int_equal(waitpid(children[i], &how, 0), children[i]);
        assert_true(WIFEXITED(how));
        assert_int_equal(WEXITSTATUS(how), 0);
    }
    assert_int_equal(count_files(&s, ".kv"), count_files(&s, "")); // no temporary file is left
    assert_in_range(count_files(&s, ".kv"), 1, 33);
    store_close(&s);
}

// Whenever a writer is killed, it must leave only whole blocks and at most one temporary file.
static void test_kill(void **state) {
    (void)state;
    Store s;
    int n_temps = 0;
    store_open(&s, 1 << 30);
    for (int i = 0; i < 30; i++) {
        pid_t child = fork();
        if (child == 0) work(s.dir, 1 << 30, (uint64_t)i, 0);
        usleep((useconds_t)(500 + i * 700));
        kill(child, SIGKILL);
        int how;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        for (uint64_t prompt = 0; prompt < 4; prompt++) load_one(&s, 200, prompt, NULL); // right or missing
        if (i % 3 == 2) { // starts with an empty directory again, so that there is something to write
            n_temps += count_files(&s, "") - count_files(&s, ".kv");
            kvstore_close(s.s);
            store_open(&s, 1 << 30);
        }
    }
    print_message("%d temporary files were left by 30 dead writers\n", n_temps);
    assert_in_range(n_temps, 0, 30);
    store_close(&s);
}

// Temporary files of killed writers must not count as blocks and must be removed at the next listing; the file of a
// living writer must stay.
static void test_temporary_files(void **state) {
    (void)state;
    size_t one = file_bytes();
    Store s;
    Sequence q = {0};
    char temp[1300], half[4096] = "half";
    int fd = -1;
    store_open(&s, 10 * one);
    push(&q, 8, 1);
    snprintf(temp, sizeof temp, "%s", block_path(&s, &like, q.tokens, 0));
    char *ending = temp + strlen(temp) - 3;
    for (int i = 0; i < 20; i++) {
        snprintf(ending, 9, ".dead%02d", i);
        write_bytes(temp, half, one < sizeof half ? one : sizeof half);
    }
    memcpy(ending, ".living", 8);
    write_bytes(temp, half, 4);
    assert_true((fd = open(temp, O_RDONLY)) >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0); // locked, as a writer does
    save_one(&s, 64, 99);
    assert_int_equal(load_one(&s, 100, 99, NULL), 64);
    assert_int_equal(count_files(&s, ""), 9);
    assert_int_equal(access(temp, F_OK), 0);
    close(fd);          // the writer ends
    kvstore_close(s.s); // the directory is listed at the first write
    assert_ok(kvstore_open(s.dir, 10 * one, BLOCK, &like, "test", &s.s));
    save_one(&s, 8, 98);
    assert_int_not_equal(access(temp, F_OK), 0);
    sequence_free(&q);
    store_close(&s);
}

// A living writer's temporary file may be larger than the directory may be, and there may be no block to remove.
static void test_nothing_to_remove(void **state) {
    (void)state;
    Store s;
    Sequence q = {0};
    char temp[1300], bytes[4096] = "half";
    store_open(&s, sizeof bytes / 2);
    push(&q, 8, 1);
    snprintf(temp, sizeof temp, "%s", block_path(&s, &like, q.tokens, 0));
    memcpy(temp + strlen(temp) - 3, ".living", 8);
    write_bytes(temp, bytes, sizeof bytes);
    int fd = open(temp, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    save_one(&s, 64, 99);
    assert_int_equal(count_files(&s, ""), 1);
    assert_int_equal(access(temp, F_OK), 0);
    close(fd);
    sequence_free(&q);
    store_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_exact_size),
        cmocka_unit_test(test_one_block),
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_age),
        cmocka_unit_test(test_loaded_parts),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_temporary_files),
        cmocka_unit_test(test_nothing_to_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
