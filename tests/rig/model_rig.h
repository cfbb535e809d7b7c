// tests/rig/model_rig.h: a model with everything that a forward needs, and steps of it, for tests that choose the rows
// themselves.
#ifndef QUILL_MODEL_RIG_H
#define QUILL_MODEL_RIG_H

#include "tests/rig/testing.h"

#include "engine.h"

typedef struct {
    Model m;
    ThreadPool *pool;
    Workspace w;
    KvCache kv;
    const Watch *watch; // Batch.watch of every step
} Rig;

// Fills a pool with NaN, so that reading slots that were not written shows. fill: memset, or that of the device's
// memory.
static inline void poison_pool(KvPool *p, void *(*fill)(void *, int, size_t)) {
    size_t tail = kv_tail_index(p, p->n_layers - p->n_device, 0, 0, 0) * sizeof(float);
    if (p->k) fill(p->k, 0xff, p->bytes_k);
    if (p->v) fill(p->v, 0xff, p->bytes_v);
    if (p->tail_k) fill(p->tail_k, 0xff, tail);
    if (p->tail_v) fill(p->tail_v, 0xff, tail);
}
static inline void poison_pools(KvCache *kv) {
    for (int kind = 0; kind < KV_KINDS; kind++) poison_pool(&kv->pool[kind], memset);
    const StatePool *p = &kv->states.pool;
    if (p->data)
        memset(p->data, 0xff, (size_t)p->n_states * (size_t)(p->n_layers - p->n_device) * p->floats * sizeof(float));
}

static inline void rig_close(Rig *r) {
    kvcache_free(&r->kv);
    workspace_free(&r->w);
    if (r->pool) threads_free(r->pool);
    model_free(&r->m);
}

// A part of a step: the next n uncomputed tokens of a sequence. logits: where the logits of all of them go, or NULL.
typedef struct {
    Sequence *s;
    int n;
    float *logits; // (n, n_vocab)
} RowsOfSequence;

// `narrow` NULL: narrows as model_forward does.
static inline void step_narrowed(Rig *r, const RowsOfSequence *parts, int n_parts, const Narrow *narrow) {
    int max_blocks = (r->kv.max_slots + r->kv.pool->block - 1) / r->kv.pool->block, most = r->w.max_rows;
    int *rows = malloc((size_t)(5 * most + n_parts + 2 * n_parts * max_blocks) * sizeof *rows);
    int *token = rows, *pos = token + most, *seq = pos + most, *out = seq + most, *table = out + most;
    int *window_table = table + n_parts * max_blocks, *states = window_table + n_parts * max_blocks;
    Batch b = {.watch = r->watch,
               .n_seqs = n_parts,
               .max_blocks = max_blocks,
               .token = token,
               .pos = pos,
               .slot = pos,
               .seq = seq,
               .out_row = out,
               .block_table = table,
               .window_table = window_table,
               .state_in = states,
               .state_out = states + n_parts,
               .narrow = narrow};
    for (int p = 0; p < n_parts; p++) {
        Sequence *s = parts[p].s;
        assert_true(kvcache_reserve(&r->kv, s, s->n_cached + parts[p].n));
        kvcache_table(&r->kv, s, KV_FULL, table + p * max_blocks);
        kvcache_table(&r->kv, s, KV_WINDOW, window_table + p * max_blocks);
        kvcache_put_states(&r->kv, s, s->n_cached, p, b.n_rows, &b);
        for (int i = 0; i < parts[p].n; i++, b.n_rows++) {
            token[b.n_rows] = s->tokens[s->n_cached + i];
            pos[b.n_rows] = s->n_cached + i;
            seq[b.n_rows] = p;
            if (parts[p].logits) out[b.n_out++] = b.n_rows;
        }
    }
    b.copy = r->kv.copies;
    b.window_copy = r->kv.partner_copies;
    b.n_copies = r->kv.n_copies;
    const float *logits = model_forward(&r->m, &r->w, r->kv.pool, &b);
    r->kv.n_copies = 0;
    for (int p = 0; p < n_parts; p++) {
        size_t n = (size_t)parts[p].n * (size_t)r->m.c.n_vocab;
        kvcache_advance(&r->kv, parts[p].s, parts[p].n);
        if (!parts[p].logits) continue;
        memcpy(parts[p].logits, logits, n * sizeof *logits);
        logits += n;
    }
    free(rows);
}

static inline void step(Rig *r, const RowsOfSequence *parts, int n_parts) { step_narrowed(r, parts, n_parts, NULL); }

static inline void random_tokens(int *out, int n, int n_vocab, uint64_t seed) {
    for (int i = 0; i < n; i++) out[i] = (int)(test_random(&seed) % (uint64_t)n_vocab);
}

#endif
