// tests/rig/gaps.h: rows of a sequence with gaps between their slots: each row sees the slots before it and none
// after, whether another row of the batch computes them or they were computed before.
#ifndef QUILL_GAPS_H
#define QUILL_GAPS_H

#include "kv/kvrows.h"
#include "tests/rig/model_rig.h"

enum { GAPS_TOKENS = 96 };

// Overwrites K and V of slots [first, last) in every layer with huge values.
static inline void gaps_poison(Rig *r, const Sequence *s, int first, int last) {
    const KvPool *kv = r->kv.pool;
    int n = last - first;
    if (n <= 0) return;
    size_t bytes = kvrows_bytes(kv, n), count = (size_t)n * (size_t)kv->n_kv_heads * (size_t)kv->head_dim;
    uint8_t *rows = malloc(bytes);
    for (size_t i = 0; i < 2 * count; i++) {
        float v = i % 2 ? 1e4f : -1e4f;
        uint16_t half = kv->type_k == TYPE_F16 ? float_half(v) : float_bf16(v);
        if (kv->type_k == TYPE_F32) memcpy(rows + 4 * i, &v, 4);
        else memcpy(rows + 2 * i, &half, 2);
    }
    for (int l = 0; l < kv_n_layers(r->kv.pool); l++) kvcache_store_rows(&r->kv, s, l, first, n, rows);
    free(rows);
}

// Computes the rows at these slots of a computed sequence again, with logits for all of them.
static inline void gaps_forward(Rig *r, const Sequence *s, int *slots, int n, float *logits) {
    int seq[GAPS_TOKENS] = {0}, token[GAPS_TOKENS], out[GAPS_TOKENS],
        *table = malloc((size_t)s->n_blocks * 2 * sizeof(int));
    for (int i = 0; i < n; i++) token[i] = s->tokens[slots[i]], out[i] = i;
    kvcache_table(&r->kv, s, KV_FULL, table);
    kvcache_table(&r->kv, s, KV_WINDOW, table + s->n_blocks);
    Batch b = {.n_rows = n,
               .n_out = n,
               .n_seqs = 1,
               .max_blocks = s->n_blocks,
               .token = token,
               .pos = slots,
               .slot = slots,
               .seq = seq,
               .out_row = out,
               .block_table = table,
               .window_table = table + s->n_blocks};
    const float *got = model_forward(&r->m, &r->w, r->kv.pool, &b);
    memcpy(logits, got, (size_t)n * (size_t)r->m.c.n_vocab * sizeof *logits);
    free(table);
}

// Computes up to step_rows rows of n_tokens (GAPS_TOKENS at most). Rows with gaps, over a cache that holds the whole
// text, must have the logits of the whole text (within `limit`). The bits of these logits must not change when slots
// after a row are poisoned.
static inline void gaps_check(Rig *r, int n_tokens, int step_rows, double limit, const char *what) {
    int tokens[GAPS_TOKENS], slots[GAPS_TOKENS], n = 0;
    size_t n_vocab = (size_t)r->m.c.n_vocab;
    float *all = malloc(GAPS_TOKENS * n_vocab * sizeof *all), *plain = malloc(GAPS_TOKENS * n_vocab * sizeof *plain);
    float *poisoned = malloc(GAPS_TOKENS * n_vocab * sizeof *poisoned);
    uint64_t random = 11;
    Sequence s = {0};
    random_tokens(tokens, GAPS_TOKENS, r->m.c.n_vocab, 4);
    sequence_push(&s, tokens, n_tokens);
    step(r, &(RowsOfSequence){&s, n_tokens, all}, 1);
    for (int i = 0; i < n_tokens && n < step_rows; i++)
        if (test_random(&random) % 3) slots[n++] = i;
    gaps_forward(r, &s, slots, n, plain);
    for (int i = 0; i < n; i++) {
        double d = test_distance(plain + (size_t)i * n_vocab, all + (size_t)slots[i] * n_vocab, n_vocab);
        if (!(d <= limit)) fail_msg("%s: slot %d of %d rows: up to %g expected, %g found", what, slots[i], n, limit, d);
    }
    for (int turn = 0; turn < 3; turn++) {
        int row = n - 1 - turn * (n / 3);
        // Poisons the gaps after the row, slot by slot, and all slots after the last row.
        for (int i = row; i + 1 < n; i++) gaps_poison(r, &s, slots[i] + 1, slots[i + 1]);
        gaps_poison(r, &s, slots[n - 1] + 1, n_tokens);
        gaps_forward(r, &s, slots, n, poisoned);
        if (memcmp(poisoned, plain, (size_t)(row + 1) * n_vocab * sizeof *plain) != 0)
            fail_msg("%s: %d rows: one up to slot %d sees slots behind it", what, n, slots[row]);
    }
    kvcache_release(&r->kv, &s);
    sequence_free(&s);
    free(all), free(plain), free(poisoned);
}

#endif
