// tests/rig/kvstore_rig.h: caches whose K and V are computed from the tokens, and directories with blocks of them.
//
// A slot holds a hash of all tokens up to it, so that a wrong or incomplete block is noticed. _GNU_SOURCE has to be
// defined before it is included (tests/rig/directory.h).
#ifndef QUILL_KVSTORE_RIG_H
#define QUILL_KVSTORE_RIG_H

#include "tests/rig/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kv/kvrows.h"
#include "kv/kvstore.h"
#include "tests/rig/directory.h"
#include "tests/rig/kv_bytes.h"

enum { BLOCK = 8, N_CTX = 200, N_LAYERS = 3, N_HEADS = 2, HEAD_DIM = 4 };

// ---- caches ---------------------------------------------------------------------------------------------------------

typedef struct {
    KvCache kv;
    Sequence seq;
} Cache;

static inline void cache_open(Cache *c, int block, int n_blocks) {
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

static inline void cache_close(Cache *c) {
    kvcache_release(&c->kv, &c->seq);
    assert_int_equal(c->kv.n_free, c->kv.pool->n_blocks); // all blocks are free again
    sequence_free(&c->seq);
    kvcache_free(&c->kv);
}

static inline uint64_t hash_to(const int *tokens, int slot) {
    uint64_t h = 1;
    for (int i = 0; i <= slot; i++) {
        h ^= (uint64_t)tokens[i] + 7;
        h = test_random(&h);
    }
    return h;
}

// The expected K and V of a slot in a layer.
static inline void expected_row(const int *tokens, int slot, int layer, float *k, uint16_t *v) {
    uint64_t h = hash_to(tokens, slot) + (uint64_t)layer;
    for (int i = 0; i < N_HEADS * HEAD_DIM; i++) {
        k[i] = (float)(test_random(&h) >> 41);
        v[i] = (uint16_t)(test_random(&h) & 0x3fff);
    }
}

typedef struct {
    float k[N_HEADS * HEAD_DIM];
    uint16_t v[N_HEADS * HEAD_DIM];
} StoreRow;

static inline void compute(Cache *c, int n_slots) {
    Sequence *s = &c->seq;
    assert_true(kvcache_reserve(&c->kv, s, n_slots));
    for (int slot = s->n_cached; slot < n_slots; slot++)
        for (int layer = 0; layer < N_LAYERS; layer++) {
            StoreRow row;
            expected_row(s->tokens, slot, layer, row.k, row.v);
            kvrows_write(c->kv.pool, layer, s->blocks, slot, 1, &row);
        }
    s->n_cached = n_slots;
    kvcache_commit(&c->kv, s, n_slots);
}

// False: a cached slot does not hold the hash of its tokens.
static inline bool rows_are_right(const Cache *c) {
    for (int slot = 0; slot < c->seq.n_cached; slot++)
        for (int layer = 0; layer < N_LAYERS; layer++) {
            StoreRow want, got;
            expected_row(c->seq.tokens, slot, layer, want.k, want.v);
            kvrows_read(c->kv.pool, layer, c->seq.blocks, slot, 1, &got);
            if (memcmp(&want, &got, sizeof want) != 0) return false;
        }
    return true;
}

static inline void push(Sequence *s, int n, uint64_t seed) {
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
                            .v_dim = HEAD_DIM,
                            .group = 1};

typedef struct {
    char dir[1024];
    KvStore *s;
} Store;

static inline void store_open(Store *s, size_t most_bytes) {
    snprintf(s->dir, sizeof s->dir, "%s", test_tmp("store"));
    remove_directory(s->dir);
    assert_ok(kvstore_open(s->dir, most_bytes, BLOCK, &like, "test", &s->s));
}

static inline void store_close(Store *s) {
    kvstore_close(s->s);
    remove_directory(s->dir);
}

static inline int count_files(const Store *s, const char *ending) {
    DIR *d = opendir(s->dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name), m = strlen(ending);
        n += e->d_name[0] != '.' && length >= m && strcmp(e->d_name + length - m, ending) == 0;
    }
    closedir(d);
    return n;
}

// Sets the time of use of all files with this ending that were used after `after`.
static inline void set_used(const Store *s, const char *ending, time_t after, struct timespec at) {
    DIR *dir = opendir(s->dir);
    for (struct dirent *d; (d = readdir(dir));) {
        struct stat info;
        if (!strstr(d->d_name, ending) || fstatat(dirfd(dir), d->d_name, &info, 0) != 0) continue;
        if (info.st_mtim.tv_sec > after) utimensat(dirfd(dir), d->d_name, (struct timespec[]){at, at}, 0);
    }
    closedir(dir);
}

// The path of the nth block's file; the test computes the chain of names itself.
static inline const char *block_path(const Store *s, const KvHead *head, const int *tokens, int nth) {
    static char path[1200];
    uint8_t bytes[KV_START + KV_HEAD + 4];
    kv_start(bytes); // blocks of another version of the format have other names
    memcpy(bytes + KV_START, head, KV_HEAD);
    memcpy(bytes + KV_START + KV_HEAD, "test", 4);
    ChainHash h = chain_root(bytes, sizeof bytes);
    for (int i = 0; i <= nth; i++) h = chain_next(&h, tokens + i * BLOCK, BLOCK);
    int n = snprintf(path, sizeof path, "%s/", s->dir);
    for (int i = 0; i < 32; i++) n += snprintf(path + n, 3, "%02x", h.bytes[i]);
    memcpy(path + n, ".kv", 4);
    return path;
}

// Computes and saves a sequence of n tokens.
static inline void save_one(Store *s, int n, uint64_t seed) {
    Cache c;
    cache_open(&c, BLOCK, 0);
    push(&c.seq, n, seed);
    compute(&c, n);
    assert_ok(kvstore_save(s->s, &c.kv, &c.seq));
    cache_close(&c);
}

// The number of slots of such a sequence that are loaded.
static inline int load_one(Store *s, int n, uint64_t seed, Status *st) {
    Cache c;
    cache_open(&c, BLOCK, 0);
    push(&c.seq, n, seed);
    Status got = kvstore_load(s->s, &c.kv, &c.seq, INT_MAX);
    assert_int_equal(c.seq.n_tokens, n);
    assert_true(rows_are_right(&c));
    int n_cached = c.seq.n_cached, need = (n_cached + BLOCK - 1) / BLOCK;
    assert_int_equal(c.seq.n_blocks, need); // no further block stays reserved
    if (st) *st = got;
    else assert_ok(got);
    cache_close(&c);
    return n_cached;
}

static inline void write_bytes(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_ok(fd_write_all(fd, bytes, n));
    close(fd);
}

#endif
