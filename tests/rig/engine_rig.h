// tests/rig/engine_rig.h: an engine with a random model and settings that tests vary.
#ifndef QUILL_ENGINE_RIG_H
#define QUILL_ENGINE_RIG_H

#include "tests/rig/testing.h"

#include "engine.h"
#include "tests/rig/tiny_model.h"

enum { ENGINE_CTX = 200, ENGINE_VOCAB = 320 };

// The settings; zeros mean a contiguous cache in F32 with the scalar kernels.
typedef struct {
    TinyModel model;
    int block, type_k, type_v, n_ctx, ubatch;
    bool rotate;
    const char *isa;
} EngineSetup;

static inline void open_engine(Engine *e, const EngineSetup *u) {
    EngineConfig o = {.device = "cpu",
                      .isa = u->isa ? u->isa : "scalar",
                      .quiet = true,
                      .threads = 1,
                      .ubatch = u->ubatch ? u->ubatch : 64,
                      .type_k = u->type_k,
                      .type_v = u->type_v,
                      .kv_rotate = u->rotate,
                      .paged = u->block > 0,
                      .kv_block = u->block};
    EngineNeeds needs = {.need_tokenizer = true, .n_ctx = u->n_ctx ? u->n_ctx : ENGINE_CTX, .n_seqs = 3};
    assert_ok(engine_open_view(e, &o, needs, tiny_model(&u->model)));
    kvcache_shuffle(&e->kv, 3);
}

static inline void push_random(Sequence *s, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) sequence_push(s, &(int){(int)(test_random(&seed) % ENGINE_VOCAB)}, 1);
}

#endif
