// tests/test_kvstore.c: blocks in a directory: found blocks, refused blocks, and directories that cannot be used.
#define _GNU_SOURCE
#include "tests/rig/kvstore_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- saving and loading ---------------------------------------------------------------------------------------------

static void test_lengths(void **state) {
    (void)state;
    static const struct {
        int saved, asked, found;
    } cases[] = {{40, 41, 40}, {40, 40, 32}, {40, 39, 32}, {39, 41, 32}, {41, 60, 40}, {8, 9, 8},
                 {8, 8, 0},    {7, 50, 0},   {0, 50, 0},   {40, 1, 0},   {40, 0, 0},   {199, 200, 192}};
    static const int layouts[] = {BLOCK, 0, 5, 32};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t from = 0; from < ARRAY_LEN(layouts); from++)
            for (size_t to = 0; to < ARRAY_LEN(layouts); to++) {
                Store s;
                Cache a, b;
                store_open(&s, 1 << 30);
                cache_open(&a, layouts[from], 0);
                cache_open(&b, layouts[to], 0);
                push(&a.seq, cases[i].saved, 7);
                compute(&a, cases[i].saved);
                assert_ok(kvstore_save(s.s, &a.kv, &a.seq));
                assert_int_equal(count_files(&s, ""), cases[i].saved / BLOCK);
                push(&b.seq, cases[i].asked, 7);
                assert_ok(kvstore_load(s.s, &b.kv, &b.seq, INT_MAX));
                assert_int_equal(b.seq.n_cached, cases[i].found);
                assert_true(rows_are_right(&b));
                KvStoreStats k = kvstore_stats(s.s);
                assert_int_equal(k.n_loaded, cases[i].found);
                assert_int_equal(k.n_saved, cases[i].saved / BLOCK * BLOCK);
                cache_close(&a);
                cache_close(&b);
                store_close(&s);
            }
}

// Existing blocks must not be written again; a growing sequence adds its new blocks.
static void test_adding(void **state) {
    (void)state;
    Store s;
    Cache c;
    store_open(&s, 1 << 30);
    save_one(&s, 40, 1);
    save_one(&s, 40, 1);
    assert_int_equal(kvstore_stats(s.s).n_saved, 40);
    cache_open(&c, 0, 0);
    push(&c.seq, 60, 1);
    assert_ok(kvstore_load(s.s, &c.kv, &c.seq, INT_MAX));
    assert_int_equal(c.seq.n_cached, 40);
    compute(&c, 60);
    assert_ok(kvstore_save(s.s, &c.kv, &c.seq));
    assert_int_equal(kvstore_stats(s.s).n_saved, 56);
    cache_close(&c);
    assert_int_equal(load_one(&s, 70, 1, NULL), 56);
    assert_int_equal(load_one(&s, 70, 2, NULL), 0); // another prompt
    store_close(&s);
}

// Loading may begin in the middle of a sequence, but not inside a block, and not in a cache that does not share.
static void test_where_it_begins(void **state) {
    (void)state;
    Store s;
    store_open(&s, 1 << 30);
    save_one(&s, 80, 1);
    for (int had = 0; had <= 40; had += 4) {
        Cache c;
        cache_open(&c, 0, 0);
        push(&c.seq, 60, 1);
        compute(&c, had);
        assert_ok(kvstore_load(s.s, &c.kv, &c.seq, INT_MAX));
        assert_int_equal(c.seq.n_cached, had % BLOCK ? had : 56);
        assert_true(rows_are_right(&c));
        c.seq.alone = true;
        int saved = kvstore_stats(s.s).n_saved;
        compute(&c, 60);
        assert_ok(kvstore_save(s.s, &c.kv, &c.seq));
        assert_int_equal(kvstore_stats(s.s).n_saved, saved);
        cache_close(&c);
    }
    Cache c;
    cache_open(&c, BLOCK, 0);
    push(&c.seq, 60, 1);
    c.seq.alone = true;
    assert_ok(kvstore_load(s.s, &c.kv, &c.seq, INT_MAX));
    assert_int_equal(c.seq.n_cached, 0);
    cache_close(&c);
    store_close(&s);
}

// A small cache loads as much as it has room for; loaded blocks are shared in memory afterwards.
static void test_small_cache(void **state) {
    (void)state;
    Store s;
    Cache c;
    store_open(&s, 1 << 30);
    save_one(&s, 80, 1);
    cache_open(&c, BLOCK, 6);
    push(&c.seq, 81, 1);
    assert_ok(kvstore_load(s.s, &c.kv, &c.seq, INT_MAX));
    assert_int_equal(c.seq.n_cached, 48);
    assert_true(rows_are_right(&c));
    Sequence other = {0};
    push(&other, 30, 1);
    assert_int_equal(kvcache_match_prefix(&c.kv, &other), 24);
    sequence_end(&c.kv, &other);
    cache_close(&c);
    store_close(&s);
}

static void test_modes(void **state) {
    (void)state;
    Store s;
    struct stat info;
    store_open(&s, 1 << 30);
    save_one(&s, 8, 1);
    Sequence q = {0};
    push(&q, 8, 1);
    assert_int_equal(stat(s.dir, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700); // only the user may read prompts
    assert_int_equal(stat(block_path(&s, &like, q.tokens, 0), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    sequence_free(&q);
    store_close(&s);
}

// A block that is loaded counts as used, before the answer ends; of one sequence the last is the oldest.
static void test_loading_is_use(void **state) {
    (void)state;
    Store s;
    Sequence q = {0};
    struct timespec last = {0};
    store_open(&s, 1 << 30);
    save_one(&s, 40, 5);
    push(&q, 40, 5);
    for (int i = 0; i < 5; i++)
        utimensat(AT_FDCWD, block_path(&s, &like, q.tokens, i), (struct timespec[2]){{1, 0}, {1, 0}}, 0);
    load_one(&s, 60, 5, NULL);
    for (int i = 4; i >= 0; i--) {
        struct stat info;
        assert_int_equal(stat(block_path(&s, &like, q.tokens, i), &info), 0);
        assert_true(labs((long)(info.st_mtim.tv_sec - time(NULL))) < 60);
        assert_true(info.st_mtim.tv_sec > last.tv_sec ||
                    (info.st_mtim.tv_sec == last.tv_sec && info.st_mtim.tv_nsec >= last.tv_nsec) || i == 4);
        last = info.st_mtim;
    }
    sequence_free(&q);
    store_close(&s);
}

// ---- refused input --------------------------------------------------------------------------------------------------

typedef struct {
    Store store;
    int tokens[40];
    uint8_t *bytes; // bytes of the file of block 2 of 5
    size_t n;
    char path[1200];
} Victim;

static void victim_open(Victim *v) {
    Sequence q = {0};
    Buf b = {0};
    store_open(&v->store, 1 << 30);
    save_one(&v->store, 40, 5);
    push(&q, 40, 5);
    memcpy(v->tokens, q.tokens, sizeof v->tokens);
    sequence_free(&q);
    snprintf(v->path, sizeof v->path, "%s", block_path(&v->store, &like, v->tokens, 2));
    assert_ok(file_read(v->path, &b));
    v->bytes = (uint8_t *)b.data;
    v->n = b.n;
}

static void victim_close(Victim *v) {
    free(v->bytes);
    store_close(&v->store);
}

// If the third block's file has these bytes, two blocks are loaded, the file is named and removed, and saving writes it
// again.
static void assert_block_refused(Victim *v, const void *bytes, size_t n, const char *words) {
    Status st;
    write_bytes(v->path, bytes, n);
    assert_int_equal(load_one(&v->store, 60, 5, &st), 2 * BLOCK);
    if (st.code != QUILL_MODEL || !strstr(st.message, words) || !strstr(st.message, v->path))
        fail_msg("\"%s\" expected, code %d found: %s", words, st.code, st.message);
    assert_int_not_equal(access(v->path, F_OK), 0);
}

static void assert_mended(Victim *v) {
    save_one(&v->store, 40, 5);
    assert_int_equal(load_one(&v->store, 60, 5, NULL), 40);
}

static void test_every_flipped_byte(void **state) {
    (void)state;
    Victim v;
    victim_open(&v);
    for (size_t i = 0; i < v.n; i++) {
        v.bytes[i] ^= (uint8_t)(1 << i % 8);
        assert_block_refused(&v, v.bytes, v.n, "");
        v.bytes[i] ^= (uint8_t)(1 << i % 8);
    }
    assert_mended(&v);
    victim_close(&v);
}

static void test_every_cut(void **state) {
    (void)state;
    Victim v;
    victim_open(&v);
    for (size_t n = 0; n < v.n; n += n < 200 ? 1 : 13) assert_block_refused(&v, v.bytes, n, "cut");
    assert_mended(&v);
    victim_close(&v);
}

// Right checksums, but other content than the name says: another block, parent, place, token, model, type or length.
static void test_other_blocks(void **state) {
    (void)state;
    Victim v;
    victim_open(&v);
    Buf other = {0};
    assert_ok(file_read(block_path(&v.store, &like, v.tokens, 3), &other));
    assert_block_refused(&v, other.data, other.n, "other blocks before it");
    buf_free(&other);
    enum { LINK = KV_START + 16 + KV_HEAD + 8, TOKS = LINK + 36 + 16 };
    static const struct {
        size_t at;
        const char *words;
    } cases[] = {{LINK, "blocks before it"},
                 {LINK + 32, "blocks before it"},
                 {TOKS, "other tokens"},
                 {TOKS + 28, "other tokens"},
                 {KV_BYTES_HEAD, "model's fingerprint"},
                 {KV_BYTES_HEAD + 8, "tokenizer's fingerprint"},
                 {KV_BYTES_HEAD + 16, "RoPE's fingerprint"},
                 {KV_BYTES_HEAD + 24, "K in F32 expected, F16 found"},
                 {KV_BYTES_HEAD + 32, "class of exactness"},
                 {KV_BYTES_HEAD + 48, "other slots"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        v.bytes[cases[i].at] ^= 1;
        kv_mend(v.bytes, v.n);
        assert_block_refused(&v, v.bytes, v.n, cases[i].words);
        v.bytes[cases[i].at] ^= 1;
        kv_mend(v.bytes, v.n);
    }
    assert_mended(&v);
    victim_close(&v);
}

// Another model finds no blocks and changes none.
static void test_another_model(void **state) {
    (void)state;
    Store s;
    store_open(&s, 1 << 30);
    save_one(&s, 40, 5);
    static const size_t fields[] = {offsetof(KvHead, model), offsetof(KvHead, tokenizer), offsetof(KvHead, rope)};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        KvHead head = like;
        ((uint8_t *)&head)[fields[i]] ^= 1;
        Store other = s;
        assert_ok(kvstore_open(s.dir, 1 << 30, BLOCK, &head, "test", &other.s));
        assert_int_equal(load_one(&other, 60, 5, NULL), 0);
        save_one(&other, 24, 5);
        assert_int_equal(load_one(&other, 60, 5, NULL), 24);
        kvstore_close(other.s);
    }
    Store other = s;
    assert_ok(kvstore_open(s.dir, 1 << 30, BLOCK / 2, &like, "test", &other.s)); // another block size
    assert_int_equal(load_one(&other, 60, 5, NULL), 0);
    kvstore_close(other.s);
    assert_ok(kvstore_open(s.dir, 1 << 30, BLOCK, &like, "best", &other.s)); // other kernels have other names
    assert_int_equal(load_one(&other, 60, 5, NULL), 0);
    kvstore_close(other.s);
    assert_int_equal(load_one(&s, 60, 5, NULL), 40);
    store_close(&s);
}

// Entries that are not files are skipped without waiting, and are not removed.
static void test_no_files(void **state) {
    (void)state;
    Victim v;
    Status st;
    victim_open(&v);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(unlink(v.path), 0);
        if (i == 0) assert_int_equal(mkfifo(v.path, 0600), 0);
        if (i == 1) assert_int_equal(mkdir(v.path, 0700), 0);
        if (i == 2) assert_int_equal(symlink("/dev/zero", v.path), 0);
        assert_int_equal(load_one(&v.store, 60, 5, &st), 2 * BLOCK);
        assert_int_equal(st.code, QUILL_IO);
        assert_non_null(strstr(st.message, v.path));
        const char *const why[] = {"found a device, pipe or socket; remove it", "found a directory; remove it",
                                   "cannot open"};
        assert_non_null(strstr(st.message, why[i]));
        save_one(&v.store, 40, 5);
        struct stat info;
        assert_int_equal(lstat(v.path, &info), 0);
        assert_false(S_ISREG(info.st_mode));
        if (i == 1) assert_int_equal(rmdir(v.path), 0), write_bytes(v.path, "", 0);
    }
    victim_close(&v);
}

// ---- directories that cannot be used --------------------------------------------------------------------------------

static void test_unusable_directories(void **state) {
    (void)state;
    KvStore *s;
    write_bytes(test_tmp("file"), "x", 1);
    const char *const paths[] = {test_tmp("file"), test_tmp("file/below"), test_tmp("no-such/below"), ""};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        Status st = kvstore_open(paths[i], 1, BLOCK, &like, "test", &s);
        assert_int_equal(st.code, QUILL_IO);
        assert_non_null(strstr(st.message, "--kv-dir"));
        assert_null(s);
    }
    unlink(test_tmp("file"));
    // A block in a file must consist of whole groups.
    KvHead sealed = like;
    sealed.type_k = TYPE_Q8_0;
    sealed.group = kv_group(TYPE_Q8_0, TYPE_F16);
    Status st = kvstore_open(test_tmp("store"), 1, BLOCK, &sealed, "test", &s);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_non_null(strstr(
        st.message, "--kv-dir with Q8_0 and F16: blocks of whole groups of 32 slots expected, found --kv-block 8"));
    assert_int_equal(access(test_tmp("store"), F_OK), -1);
}

static Status try_to_save(Store *s, int n, uint64_t seed) {
    Cache c;
    cache_open(&c, BLOCK, 0);
    push(&c.seq, n, seed);
    compute(&c, n);
    Status st = kvstore_save(s->s, &c.kv, &c.seq);
    cache_close(&c);
    return st;
}

// A failed write is reported once; reading continues.
static void test_refused_writes(void **state) {
    (void)state;
    Store s;
    store_open(&s, 1 << 30);
    save_one(&s, 24, 5);
    struct rlimit old, low = {1000, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &low); // like a full disk
    Status st = try_to_save(&s, 40, 5);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "File too large"));
    assert_int_equal(count_files(&s, ""), 3); // no temporary file is left
    assert_ok(try_to_save(&s, 40, 5));
    assert_int_equal(count_files(&s, ""), 3); // no further write is tried
    assert_int_equal(load_one(&s, 60, 5, NULL), 24);
    kvstore_close(s.s);
    assert_ok(kvstore_open(s.dir, 1 << 30, BLOCK, &like, "test", &s.s));
    remove_directory(s.dir); // the directory is removed while it is in use
    assert_int_equal(load_one(&s, 60, 5, NULL), 0);
    st = try_to_save(&s, 40, 5);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, s.dir));
    store_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_adding),
        cmocka_unit_test(test_where_it_begins),
        cmocka_unit_test(test_small_cache),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_loading_is_use),
        cmocka_unit_test(test_every_flipped_byte),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_other_blocks),
        cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_unusable_directories),
        cmocka_unit_test(test_refused_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
