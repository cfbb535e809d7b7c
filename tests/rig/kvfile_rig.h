// tests/rig/kvfile_rig.h: greedy runs of an engine, files as bytes, and an engine that a refused file must not change.
// _GNU_SOURCE has to be defined before it is included (tests/rig/directory.h).
#ifndef QUILL_KVFILE_RIG_H
#define QUILL_KVFILE_RIG_H

#include "tests/rig/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kv/kvfile.h"
#include "kv/kvframes.h"
#include "kv/kvrows.h"
#include "tests/rig/directory.h"
#include "tests/rig/engine_rig.h"
#include "tests/rig/kv_bytes.h"

// ---- runs -----------------------------------------------------------------------------------------------------------

// Greedy tokens, their logits, and the number of rows that the forward computed for them.
typedef struct {
    float logits[32 * ENGINE_VOCAB];
    int n, n_rows;
} GreedyRun;

static inline Finish keep(Request *r, int token, const float *logits) {
    (void)token;
    GreedyRun *run = r->arg;
    memcpy(run->logits + run->n++ * ENGINE_VOCAB, logits, ENGINE_VOCAB * sizeof *logits);
    return RUNNING;
}

// `logits`: those after the last token, if all of s is computed; otherwise NULL.
static inline void generate_from(Engine *e, Sequence *s, const float *logits, int n_new, GreedyRun *run) {
    Request r = {
        .seq = s, .sampling = sampler_defaults(), .max_new = n_new, .logits = logits, .emit = keep, .arg = run};
    r.sampling.temp = 0;
    *run = (GreedyRun){0};
    scheduler_add(e->sched, &r);
    for (Batch *b; scheduler_next(e->sched, &b);) {
        run->n_rows += b->n_rows;
        scheduler_take(e->sched, model_forward(&e->model, &e->work, e->kv.pool, b));
    }
    assert_int_equal(r.n_new, n_new);
    timeline_free(&r.time);
}

static inline void generate(Engine *e, Sequence *s, int n_new, GreedyRun *run) {
    generate_from(e, s, NULL, n_new, run);
}

static inline void release(Engine *e, Sequence *s) {
    kvcache_release(&e->kv, s);
    sequence_free(s);
}

static inline void assert_same(const GreedyRun *a, const Sequence *s, const GreedyRun *b, const Sequence *t) {
    assert_int_equal(s->n_tokens, t->n_tokens);
    assert_memory_equal(s->tokens, t->tokens, (size_t)s->n_tokens * sizeof *s->tokens);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->logits, b->logits, (size_t)a->n * ENGINE_VOCAB * sizeof *a->logits);
}

// ---- files ----------------------------------------------------------------------------------------------------------

typedef struct {
    uint8_t *bytes;
    size_t n;
} Bytes;

static inline Bytes read_bytes(const char *path) {
    Buf b = {0};
    assert_ok(file_read(path, &b));
    return (Bytes){(uint8_t *)b.data, b.n};
}

static inline void write_bytes(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_ok(fd_write_all(fd, bytes, n));
    close(fd);
}

// ---- state that a refused load must not change ----------------------------------------------------------------------

// A cache that contains another sequence, with a copy of its state and rows from before a refused load.
typedef struct {
    Engine e;
    Sequence other;
    int *refs, n_free;
    KvLinks *ring;
    uint8_t *rows;
} Guard;

static inline void read_all_rows(const Guard *g, uint8_t *out) {
    const KvPool *kv = g->e.kv.pool;
    for (int layer = 0; layer < kv->n_layers; layer++, out += kvrows_bytes(kv, g->other.n_cached))
        kvrows_read(kv, layer, g->other.blocks, 0, g->other.n_cached, out);
}

static inline size_t guard_bytes(const Guard *g) {
    return (size_t)g->e.kv.pool->n_layers * kvrows_bytes(g->e.kv.pool, g->other.n_cached);
}

static inline void guard_open(Guard *g, const EngineSetup *u) {
    *g = (Guard){0};
    open_engine(&g->e, u);
    GreedyRun *run = mem_alloc(sizeof *run);
    push_random(&g->other, 7, 99);
    generate(&g->e, &g->other, 2, run);
    free(run);
    const KvCache *kv = &g->e.kv;
    size_t n = (size_t)kv->pool->n_blocks;
    g->n_free = kv->n_free;
    g->ring = mem_alloc((n + 1) * sizeof *g->ring);
    g->refs = mem_alloc(n * sizeof *g->refs);
    memcpy(g->ring, kv->ring, (n + 1) * sizeof *g->ring);
    memcpy(g->refs, kv->refs, n * sizeof *g->refs);
    g->rows = mem_alloc(guard_bytes(g));
    read_all_rows(g, g->rows);
}

static inline void guard_close(Guard *g) {
    release(&g->e, &g->other);
    engine_close(&g->e);
    free(g->ring);
    free(g->refs);
    free(g->rows);
}

// Asserts that the load fails with this code and these words, names the file, and changes nothing.
static inline void assert_refused(Guard *g, const char *path, int code, const char *words) {
    Sequence s = {0};
    Status st = kvfile_load(path, &g->e, &s);
    if (st.code != code || !strstr(st.message, words) || !strstr(st.message, path) || strchr(st.message, '\n'))
        fail_msg("%s: code %d with \"%s\" expected, %d found: %s", path, code, words, st.code, st.message);
    if (code == QUILL_MODEL && !strstr(st.message, ": byte ")) fail_msg("no offset: %s", st.message);
    assert_true(s.n_tokens == 0 && s.n_cached == 0 && s.n_blocks == 0);
    const KvCache *kv = &g->e.kv;
    assert_int_equal(kv->n_free, g->n_free);
    for (int i = 0, b = kv->pool->n_blocks; i < g->n_free; i++, b = kv->ring[b].next)
        assert_int_equal(kv->ring[b].next, g->ring[b].next);
    assert_memory_equal(kv->refs, g->refs, (size_t)kv->pool->n_blocks * sizeof(int));
    uint8_t *rows = mem_alloc(guard_bytes(g));
    read_all_rows(g, rows);
    assert_memory_equal(rows, g->rows, guard_bytes(g));
    free(rows);
    sequence_free(&s);
}

static inline void assert_bytes_refused(Guard *g, const void *bytes, size_t n, int code, const char *words) {
    const char *path = test_tmp("refused.kv");
    write_bytes(path, bytes, n);
    assert_refused(g, path, code, words);
}

#define SMALLEST                                                                                                       \
    { .dim = 8, .n_heads = 2, .n_kv_heads = 1, .head_dim = 4, .ffn = 8, .vocab = ENGINE_VOCAB }
static const EngineSetup smallest = {.model = SMALLEST, .block = 4};
static const EngineSetup smallest_sealed = {.model = SMALLEST, .block = 4, .type_k = TYPE_Q8_0, .type_v = TYPE_KIVI2};
enum { SEALED_TOKENS = 36 }; // one group, and three slots of the next

// A saved file of n tokens and n - 1 slots of this setup.
static inline Bytes saved(const EngineSetup *u, int n) {
    Engine e;
    Sequence s = {0};
    GreedyRun *run = mem_alloc(sizeof *run);
    const char *path = test_tmp("saved.kv");
    open_engine(&e, u);
    push_random(&s, n - 1, 5);
    generate(&e, &s, 1, run);
    assert_ok(kvfile_save(path, &e, &s));
    release(&e, &s);
    engine_close(&e);
    free(run);
    return read_bytes(path);
}

// Sets the 32 bits at an offset to v, corrects all checksums, and asserts that the file is refused.
static inline void assert_number_refused(Guard *g, const Bytes *f, size_t at, uint32_t v, int code, const char *words) {
    uint8_t *copy = (uint8_t *)mem_copy((const char *)f->bytes, f->n);
    char where[40];
    memcpy(copy + at, &v, sizeof v);
    kv_mend(copy, f->n);
    const char *path = test_tmp("hostile.kv");
    write_bytes(path, copy, f->n);
    assert_refused(g, path, code, words);
    snprintf(where, sizeof where, "byte %zu:", at);
    assert_refused(g, path, code, where);
    free(copy);
}

#endif
