// tests/rig/small_kv.h: a small shape of a KV cache, and the slots of a sequence counted as computed without a model.
#ifndef QUILL_SMALL_KV_H
#define QUILL_SMALL_KV_H

#include "tests/rig/testing.h"

#include "kvcache.h"

enum { N_LAYERS = 2, N_HEADS = 2, HEAD_DIM = 3 };

static inline KvShape small_kv_shape(int block, int n_ctx, int n_blocks, int n_seqs) {
    return (KvShape){.n_layers = N_LAYERS,
                     .n_kv_heads = N_HEADS,
                     .head_dim = HEAD_DIM,
                     .type_k = TYPE_F32,
                     .type_v = TYPE_F16,
                     .block = block,
                     .n_ctx = n_ctx,
                     .n_blocks = n_blocks,
                     .n_seqs = n_seqs};
}

// Counts slots up to n_slots as computed, `rows` in a step, and gives the full blocks names.
static inline void small_kv_compute(KvCache *kv, Sequence *s, int n_slots, int rows) {
    while (s->n_cached < n_slots) {
        int n = int_min(rows, n_slots - s->n_cached);
        assert_true(kvcache_reserve(kv, s, s->n_cached + n));
        kvcache_advance(kv, s, n);
        kvcache_commit(kv, s, s->n_cached);
    }
}

#endif
