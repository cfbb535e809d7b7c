// tests/test_kvstore.c: blocks in a directory: what is found there again, what is refused, and what a directory
// survives.
//
// K and V follow from the tokens here, as in a model: a slot holds a hash of all tokens up to it, so that a block that
// is taken for another one, or half of one, shows.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <limits.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/kvstore.h"
#include "tests/rig/directory.h"
#include "tests/rig/kv_bytes.h"

enum { BLOCK = 8, N_CTX = 200, N_LAYERS = 3, N_HEADS = 2, HEAD_DIM = 4 };

// ---- caches ---------------------------------------------------------------------------------------------------------

typedef struct {
    KvCache kv;
    Sequence seq;
} Cache;

static void cache_open(Cache *c, int block, int n_blocks) {
    KvShape s = {.n_layers = N_LAYERS,
                 .n_kv_heads = N_HEADS,
                 .head_dim = HEAD_DIM,
                 .type_k = TYPE_F32,
                 .type_v = TYPE_F16,
                 .block = block,
                 .n_ctx = N_CTX,
                 .n_blocks = n_blocks,
                 .n_seqs = 1,
                 .share = true};
    *c = (Cache){0};
    assert_ok(kvcache_new(&c->kv, &s));
    memset(c->kv.pool->k, 0xff, c->kv.pool->bytes_k); // NaN
    memset(c->kv.pool->v, 0xff, c->kv.pool->bytes_v);
    kvcache_shuffle(&c->kv, 4);
}

static void cache_close(Cache *c) {
    kvcache_release(&c->kv, &c->seq);
    assert_int_equal(c->kv.n_free, c->kv.pool->n_blocks); // nothing was lost
    sequence_free(&c->seq);
    kvcache_free(&c->kv);
}

static uint64_t hash_to(const int *tokens, int slot) {
    uint64_t h = 1;
    for (int i = 0; i <= slot; i++) {
        h ^= (uint64_t)tokens[i] + 7;
        h = test_random(&h);
    }
    return h;
}

// K and V of a slot in a layer.
static void expected_row(const int *tokens, int slot, int layer, float *k, uint16_t *v) {
    uint64_t h = hash_to(tokens, slot) + (uint64_t)layer;
    for (int i = 0; i < N_HEADS * HEAD_DIM; i++) {
        k[i] = (float)(test_random(&h) >> 41);
        v[i] = (uint16_t)(test_random(&h) & 0x3fff);
    }
}

typedef struct {
    float k[N_HEADS * HEAD_DIM];
    uint16_t v[N_HEADS * HEAD_DIM];
} Row;

static void compute(Cache *c, int n_slots) {
    Sequence *s = &c->seq;
    assert_true(kvcache_reserve(&c->kv, s, n_slots));
    for (int slot = s->n_cached; slot < n_slots; slot++)
        for (int layer = 0; layer < N_LAYERS; layer++) {
            Row row;
            expected_row(s->tokens, slot, layer, row.k, row.v);
            kvrows_write(c->kv.pool, layer, s->blocks, slot, 1, &row);
        }
    s->n_cached = n_slots;
    kvcache_commit(&c->kv, s, n_slots);
}

// False: a cached slot holds something else than its tokens say.
static bool rows_are_right(const Cache *c) {
    for (int slot = 0; slot < c->seq.n_cached; slot++)
        for (int layer = 0; layer < N_LAYERS; layer++) {
            Row want, got;
            expected_row(c->seq.tokens, slot, layer, want.k, want.v);
            kvrows_read(c->kv.pool, layer, c->seq.blocks, slot, 1, &got);
            if (memcmp(&want, &got, sizeof want) != 0) return false;
        }
    return true;
}

static void push(Sequence *s, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) sequence_push(s, &(int){(int)(test_random(&seed) % 1000)}, 1);
}

// ---- directories ----------------------------------------------------------------------------------------------------

static const KvHead like = {.model = 11,
                            .tokenizer = 22,
                            .rope = 33,
                            .type_k = TYPE_F32,
                            .type_v = TYPE_F16,
                            .n_layers = N_LAYERS,
                            .n_kv_heads = N_HEADS,
                            .head_dim = HEAD_DIM,
                            .group = 1};

typedef struct {
    char dir[1024];
    KvStore *s;
} Store;

static void store_open(Store *s, size_t most_bytes) {
    snprintf(s->dir, sizeof s->dir, "%s", test_tmp("store"));
    remove_directory(s->dir);
    assert_ok(kvstore_open(s->dir, most_bytes, BLOCK, &like, "test", &s->s));
}

static void store_close(Store *s) {
    kvstore_close(s->s);
    remove_directory(s->dir);
}

static int count_files(const Store *s, const char *ending) {
    DIR *d = opendir(s->dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name), m = strlen(ending);
        n += e->d_name[0] != '.' && length >= m && strcmp(e->d_name + length - m, ending) == 0;
    }
    closedir(d);
    return n;
}

// The path of the nth block's file, by a chain of names of the test's own.
static const char *block_path(const Store *s, const KvHead *head, const int *tokens, int nth) {
    static char path[1200];
    uint8_t bytes[12 + sizeof *head + 4] =
        "QUILLKV\n\2"; // the file's first bytes: blocks of another version are others'
    memcpy(bytes + 12, head, sizeof *head);
    memcpy(bytes + 12 + sizeof *head, "test", 4);
    ChainHash h = chain_root(bytes, sizeof bytes);
    for (int i = 0; i <= nth; i++) h = chain_next(&h, tokens + i * BLOCK, BLOCK);
    int n = snprintf(path, sizeof path, "%s/", s->dir);
    for (int i = 0; i < 32; i++) n += snprintf(path + n, 3, "%02x", h.bytes[i]);
    memcpy(path + n, ".kv", 4);
    return path;
}

// A sequence of n tokens, all computed and saved.
static void save_one(Store *s, int n, uint64_t seed) {
    Cache c;
    cache_open(&c, BLOCK, 0);
    push(&c.seq, n, seed);
    compute(&c, n);
    assert_ok(kvstore_save(s->s, &c.kv, &c.seq));
    cache_close(&c);
}

// How many slots of such a sequence come back.
static int load_one(Store *s, int n, uint64_t seed, Status *st) {
    Cache c;
    cache_open(&c, BLOCK, 0);
    push(&c.seq, n, seed);
    Status got = kvstore_load(s->s, &c.kv, &c.seq, INT_MAX);
    assert_int_equal(c.seq.n_tokens, n);
    assert_true(rows_are_right(&c));
    int n_cached = c.seq.n_cached, need = (n_cached + BLOCK - 1) / BLOCK;
    assert_int_equal(c.seq.n_blocks, need); // nothing more stays reserved
    if (st) *st = got;
    else assert_ok(got);
    cache_close(&c);
    return n_cached;
}

// ---- there and back -------------------------------------------------------------------------------------------------

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

// What is there already is not written again, and a sequence that goes on adds what is new.
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

// From the middle of a sequence on; not from inside a block, and not for a cache of its own kind.
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
        c.seq.own = true;
        int saved = kvstore_stats(s.s).n_saved;
        compute(&c, 60);
        assert_ok(kvstore_save(s.s, &c.kv, &c.seq));
        assert_int_equal(kvstore_stats(s.s).n_saved, saved);
        cache_close(&c);
    }
    Cache c;
    cache_open(&c, BLOCK, 0);
    push(&c.seq, 60, 1);
    c.seq.own = true;
    assert_ok(kvstore_load(s.s, &c.kv, &c.seq, INT_MAX));
    assert_int_equal(c.seq.n_cached, 0);
    cache_close(&c);
    store_close(&s);
}

// A cache without room takes what it can; what came is shared in memory from then on.
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
    kvcache_release(&c.kv, &other);
    sequence_free(&other);
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
    assert_int_equal(info.st_mode & 0777, 0700); // a prompt is its author's
    assert_int_equal(stat(block_path(&s, &like, q.tokens, 0), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    sequence_free(&q);
    store_close(&s);
}

// ---- what is refused ------------------------------------------------------------------------------------------------

typedef struct {
    Store store;
    int tokens[40];
    uint8_t *bytes; // of the file of block 2 of 5
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

static void write_bytes(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_ok(fd_write_all(fd, bytes, n));
    close(fd);
}

// With these bytes in the third block's place two blocks come, the file is named and gone, and saving mends it.
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

// Right checksums, wrong content: another block under the name, another parent, place, token, model, type or length.
static void test_other_blocks(void **state) {
    (void)state;
    Victim v;
    victim_open(&v);
    Buf other = {0};
    assert_ok(file_read(block_path(&v.store, &like, v.tokens, 3), &other));
    assert_block_refused(&v, other.data, other.n, "other blocks before it");
    buf_free(&other);
    enum { LINK = 12 + 16 + 64 + 8, TOKS = LINK + 36 + 16 };
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

// Another model finds nothing and disturbs nothing.
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
    assert_ok(kvstore_open(s.dir, 1 << 30, BLOCK / 2, &like, "test", &other.s)); // other blocks
    assert_int_equal(load_one(&other, 60, 5, NULL), 0);
    kvstore_close(other.s);
    assert_ok(kvstore_open(s.dir, 1 << 30, BLOCK, &like, "best", &other.s)); // other kernels
    assert_int_equal(load_one(&other, 60, 5, NULL), 0);
    kvstore_close(other.s);
    assert_int_equal(load_one(&s, 60, 5, NULL), 40);
    store_close(&s);
}

// What is no file is passed over, quickly, and stays.
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
        save_one(&v.store, 40, 5);
        struct stat info;
        assert_int_equal(lstat(v.path, &info), 0);
        assert_false(S_ISREG(info.st_mode));
        if (i == 1) assert_int_equal(rmdir(v.path), 0), write_bytes(v.path, "", 0);
    }
    victim_close(&v);
}

// ---- directories that are of no use ---------------------------------------------------------------------------------

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
    // A block of a file is whole groups.
    KvHead sealed = like;
    sealed.type_k = TYPE_Q8_0;
    sealed.group = kv_group(TYPE_Q8_0, TYPE_F16);
    Status st = kvstore_open(test_tmp("store"), 1, BLOCK, &sealed, "test", &s);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_non_null(
        strstr(st.message, "whole groups of 32 slots of Q8_0 and F16 in a block expected, found --kv-block 8"));
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

// Said once; reading goes on.
static void test_refused_writes(void **state) {
    (void)state;
    Store s;
    store_open(&s, 1 << 30);
    save_one(&s, 24, 5);
    struct rlimit old, low = {1000, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &low); // as a full disk
    Status st = try_to_save(&s, 40, 5);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "File too large"));
    assert_int_equal(count_files(&s, ""), 3); // no temporary file is left
    assert_ok(try_to_save(&s, 40, 5));
    assert_int_equal(count_files(&s, ""), 3); // and nothing more is tried
    assert_int_equal(load_one(&s, 60, 5, NULL), 24);
    kvstore_close(s.s);
    assert_ok(kvstore_open(s.dir, 1 << 30, BLOCK, &like, "test", &s.s));
    remove_directory(s.dir); // somebody removes it while it is in use
    assert_int_equal(load_one(&s, 60, 5, NULL), 0);
    st = try_to_save(&s, 40, 5);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, s.dir));
    store_close(&s);
}

// ---- how much it may hold -------------------------------------------------------------------------------------------

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
    store_open(&s, 10 * one * 16 / 15 + 16); // what goes leaves a sixteenth free: ten blocks stay
    save_one(&s, 48, 1);                     // 6 blocks
    assert_int_equal(kvstore_stats(s.s).n_removed, 0);
    write_bytes(test_tmp("store/notes.txt"), "mine", 4); // neither counted nor touched
    usleep(2000);
    save_one(&s, 56, 2); // 7: the first one's last three go
    assert_int_equal(kvstore_stats(s.s).n_removed, 3);
    assert_int_equal(load_one(&s, 100, 1, NULL), 24);
    assert_int_equal(load_one(&s, 100, 2, NULL), 56);
    usleep(2000);
    save_one(&s, 24, 1); // used again: the second one is the older now
    usleep(2000);
    save_one(&s, 40, 3);
    assert_int_equal(load_one(&s, 100, 1, NULL), 24);
    assert_int_equal(load_one(&s, 100, 2, NULL), 16);
    assert_int_equal(load_one(&s, 100, 3, NULL), 40);
    usleep(2000);
    save_one(&s, 160, 4); // more than all: its beginning stays
    assert_int_equal(load_one(&s, 200, 4, NULL), 80);
    assert_int_equal(count_files(&s, ".kv"), 10);
    assert_int_equal(access(test_tmp("store/notes.txt"), F_OK), 0);
    store_close(&s);
}

// A sequence that goes on is saved in parts, no more at a time than is asked for; its first block counts as used last
// all the same.
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
    assert_int_equal(kvstore_stats(s.s).n_saved, 56);
    assert_int_equal(load_one(&s, 61, 5, NULL), 56);
    cache_close(&c);
    store_close(&s);
}

// ---- several processes, and ones that die ---------------------------------------------------------------------------

// Saves and loads random beginnings of few prompts until it has done so many; 0: never ends. The exit code is 1 where
// something came back that was not what had been computed.
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
    size_t most = 30 * file_bytes(); // so small that they remove each other's files
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

// Whenever a writer dies, what it leaves is whole blocks and at most one temporary file.
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
        for (uint64_t prompt = 0; prompt < 4; prompt++) load_one(&s, 200, prompt, NULL); // right, or not there
        if (i % 3 == 2) { // begin again, so that there is something to write
            n_temps += count_files(&s, "") - count_files(&s, ".kv");
            kvstore_close(s.s);
            store_open(&s, 1 << 30);
        }
    }
    print_message("%d temporary files were left by 30 dead writers\n", n_temps);
    assert_in_range(n_temps, 0, 30);
    store_close(&s);
}

// Temporary files of the dead take no room from blocks and are gone at the next look; that of a writer at work stays.
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
    assert_int_equal(flock(fd, LOCK_EX), 0); // as its writer does
    save_one(&s, 64, 99);
    assert_int_equal(load_one(&s, 100, 99, NULL), 64);
    assert_int_equal(count_files(&s, ""), 9);
    assert_int_equal(access(temp, F_OK), 0);
    close(fd);          // it dies
    kvstore_close(s.s); // one looks through the directory when it writes first
    assert_ok(kvstore_open(s.dir, 10 * one, BLOCK, &like, "test", &s.s));
    save_one(&s, 8, 98);
    assert_int_not_equal(access(temp, F_OK), 0);
    sequence_free(&q);
    store_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_adding),
        cmocka_unit_test(test_where_it_begins),
        cmocka_unit_test(test_small_cache),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_every_flipped_byte),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_other_blocks),
        cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_unusable_directories),
        cmocka_unit_test(test_refused_writes),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_temporary_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
