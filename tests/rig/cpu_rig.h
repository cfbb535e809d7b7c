// tests/rig/cpu_rig.h: a model on one of the CPU's tables of kernels, and the logits of a sequence.
#ifndef QUILL_CPU_RIG_H
#define QUILL_CPU_RIG_H

#include "tests/rig/isas.h"
#include "tests/rig/model_rig.h"

enum { MOST_ROWS = 160, N_CTX = 128 };

typedef struct {
    const char *isa;   // NULL: "scalar"
    const Backend *be; // NULL: that of `isa`
    bool deterministic;
    int threads; // 0: 1
    int kv_type;
    int block;         // 0: contiguous
    uint64_t shuffle;  // of the blocks; 0: as they come
    int window;        // of every layer's attention; 0: the model's own
    int n_ctx;         // and rows in a step; 0: N_CTX and MOST_ROWS
    int n_seqs;        // 0: 5
    int n_checkpoints; // of recurrent layers' states
    bool share;
    int step_rows;     // blocks for windows as steps of so many rows need them; 0: one for each block
} Setup;

// False: this CPU cannot run it.
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

// All logits of one sequence, computed `chunk` tokens a step; (n, n_vocab), the caller frees.
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
