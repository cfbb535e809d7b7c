// tests/rig/cpu_rig.h: a model on one of the CPU's kernel tables, and the logits of a sequence.
#ifndef QUILL_CPU_RIG_H
#define QUILL_CPU_RIG_H

#include "tests/rig/isas.h"
#include "tests/rig/model_rig.h"

enum { MOST_ROWS = 160, N_CTX = 128 };

typedef struct {
    const char *isa;   // NULL: "scalar"
    const Backend *be; // NULL: that of `isa`
    bool deterministic;
    int threads; // 0: one
    int kv_type;
    int block;         // slots of a block; 0: a contiguous cache
    uint64_t shuffle;  // seed of a random order of the blocks; 0: the usual order
    int window;        // window of every layer's attention; 0: that of the model
    int n_ctx;         // context and rows of a step; 0: N_CTX and MOST_ROWS
    int n_seqs;        // number of sequences; 0: 5
    int n_checkpoints; // number of checkpoints of recurrent layers' states
    bool share;
    int step_rows; // the window pool has the blocks that steps of this many rows need; 0: one for each block
} Setup;

// False: this CPU does not have the instruction set.
static inline bool rig_open(Rig *r, const Gguf *g, Setup s) {
    *r = (Rig){0};
    if (!s.be && isa_backend(s.isa ? s.isa : "scalar", s.deterministic, &s.be).code) return false;
    assert_ok(model_load(&r->m, g, s.be));
    int n_ctx = s.n_ctx ? s.n_ctx : N_CTX, rows = int_max(n_ctx, MOST_ROWS);
    model_set_context(&r->m, n_ctx);
    for (int i = 0; i < r->m.c.n_layers && s.window; i++) r->m.layers[i].heads.window = s.window;
    r->pool = threads_new(s.threads ? s.threads : 1);
    assert_ok(workspace_new(&r->w, &r->m, r->pool, rows, rows, n_ctx));
    KvShape shape = memory_plan_kv_shape(&r->m);
    shape.type_k = shape.type_v = s.kv_type;
    shape.block = s.block;
    shape.n_ctx = n_ctx;
    shape.n_seqs = s.n_seqs ? s.n_seqs : 5;
    shape.n_checkpoints = s.n_checkpoints;
    shape.share = s.share;
    if (s.step_rows) shape.n_partners = kvshape_partners_needed(&shape, s.step_rows);
    assert_ok(kvcache_new(&r->kv, &shape));
    poison_pools(&r->kv);
    if (s.shuffle) kvcache_shuffle(&r->kv, s.shuffle);
    return true;
}

// All logits of one sequence, computed `chunk` tokens per step: (n, n_vocab), which the caller frees.
static inline float *run_tokens(Rig *r, const int *tokens, int n, int chunk) {
    size_t n_vocab = (size_t)r->m.c.n_vocab;
    float *logits = malloc((size_t)n * n_vocab * sizeof *logits);
    Sequence s = {0};
    sequence_push(&s, tokens, n);
    while (s.n_cached < n)
        step(r, &(RowsOfSequence){&s, int_min(chunk, n - s.n_cached), logits + (size_t)s.n_cached * n_vocab}, 1);
    kvcache_release(&r->kv, &s);
    sequence_free(&s);
    return logits;
}

#endif
