// tests/rig/blend_rig.h: prompts made of chunks with a random model, computed with blending and as a whole.
#ifndef QUILL_BLEND_RIG_H
#define QUILL_BLEND_RIG_H

#include "tests/rig/engine_rig.h"

#include "blend/blend.h"
#include "kv/fingerprint.h"
#include "kv/kvrows.h"
#include "tests/rig/isas.h"

enum { BLEND_CTX = 160, BLEND_MOST_SPANS = 4 };

typedef struct {
    TinyModel model;
    const char *isa; // NULL: "scalar"
    bool fast;       // not --deterministic
    int type, block; // type: of K and V, 0: F32; block: slots of a block, 0: a contiguous cache
    int ubatch, gpu; // ubatch: 0: 64; gpu: number of layers on the device
    const char *dir; // --kv-dir
    int n_ctx;       // 0: BLEND_CTX
} BlendSetup;

static inline bool blend_open(Engine *e, const BlendSetup *u) {
    EngineConfig o = {.device = u->gpu ? "cuda" : "cpu",
                      .gpu_layers = u->gpu,
                      .isa = u->isa ? u->isa : "scalar",
                      .quiet = true,
                      .threads = 2,
                      .ubatch = u->ubatch ? u->ubatch : 64,
                      .deterministic = !u->fast && !u->gpu,
                      .type_k = u->type,
                      .type_v = u->type,
                      .paged = u->block > 0,
                      .kv_dir = u->dir,
                      .kv_dir_size = 1 << 30,
                      .kv_block = u->block ? u->block : 32};
    EngineNeeds needs = {.need_tokenizer = true, .n_ctx = u->n_ctx ? u->n_ctx : BLEND_CTX, .n_seqs = 3, .whole = true};
    if (engine_open_view(e, &o, needs, tiny_model(&u->model)).code) return false;
    kvcache_shuffle(&e->kv, 3);
    return true;
}

// A prompt: `head` tokens, then chunks with `between` tokens between them, then `tail` tokens.
typedef struct {
    int tokens[BLEND_CTX], n;
    BlendSpan spans[BLEND_MOST_SPANS];
    int n_spans;
} BlendText;

static inline void blend_text(BlendText *t, int head, const int *sizes, int n_sizes, int between, int tail,
                              uint64_t seed) {
    *t = (BlendText){.n_spans = n_sizes};
    t->n = head;
    for (int i = 0; i < n_sizes; i++) {
        t->spans[i] = (BlendSpan){t->n, sizes[i]};
        t->n += sizes[i] + (i + 1 < n_sizes ? between : 0);
    }
    t->n += tail;
    for (int i = 0; i < t->n; i++) t->tokens[i] = 3 + (int)(test_random(&seed) % (ENGINE_VOCAB - 3));
    if (head > 0) t->tokens[0] = 1;
}

// The results of a prompt: the logits after it, and its K and V, layer by layer in the order of files.
typedef struct {
    float logits[ENGINE_VOCAB];
    uint8_t *rows;
    size_t layer_bytes, n_bytes;
    BlendStats stats;
    double flops; // of the prompt
} BlendResult;

static inline void blend_assert_same(const BlendResult *a, const BlendResult *b, const char *what) {
    if (memcmp(a->rows, b->rows, a->n_bytes) != 0) fail_msg("%s: other K and V", what);
    if (memcmp(a->logits, b->logits, sizeof a->logits) != 0) fail_msg("%s: other logits", what);
}

static inline Finish blend_keep_logits(Request *r, int token, const float *logits) {
    (void)token;
    memcpy(((BlendResult *)r->arg)->logits, logits, ENGINE_VOCAB * sizeof *logits);
    return FINISH_STOP;
}

static inline void blend_read(const Engine *e, const Sequence *q, int n, BlendResult *out) {
    int layers = kv_n_layers(e->kv.pool);
    out->layer_bytes = kvrows_bytes(e->kv.pool, n);
    out->n_bytes = (size_t)layers * out->layer_bytes;
    out->rows = malloc(out->n_bytes);
    for (int l = 0; l < layers; l++) kvcache_load_rows(&e->kv, q, l, 0, n, out->rows + (size_t)l * out->layer_bytes);
}

// Computes tokens with the policy of `b`, or with the engine's if it is NULL.
static inline void blend_run(Engine *e, const int *tokens, int n, Blend *b, BlendResult *out) {
    Sequence q = {0};
    Request r = {.seq = &q, .sampling = sampler_defaults(), .max_new = 1, .emit = blend_keep_logits, .arg = out};
    memset(out, 0, sizeof *out);
    if (b) r.policy = blend_policy(b);
    sequence_push(&q, tokens, n);
    scheduler_add(e->sched, &r);
    engine_run(e);
    assert_int_equal(r.finish, FINISH_STOP);
    blend_read(e, &q, n, out);
    if (b) out->stats = blend_stats(b);
    out->flops = r.time.prefill_flops;
    kvcache_release(&e->kv, &q);
    sequence_free(&q);
    timeline_free(&r.time);
}

// Computes a chunk after the lead-in, without other text, and stores it.
static inline void blend_add_chunk(Engine *e, ChunkStore *store, const int *lead, int n_lead, const int *tokens,
                                   int n) {
    Sequence q = {.alone = true};
    Request r = {.seq = &q, .sampling = sampler_defaults(), .max_new = 0};
    sequence_push(&q, lead, n_lead);
    sequence_push(&q, tokens, n);
    scheduler_add(e->sched, &r);
    engine_run(e);
    assert_int_equal(q.n_cached, n_lead + n);
    assert_ok(chunkstore_save(store, &e->kv, &q));
    kvcache_release(&e->kv, &q);
    sequence_free(&q);
    timeline_free(&r.time);
}

static const int blend_lead[] = {1};

typedef struct {
    Engine e;
    ChunkStore *store;
    BlendContext context;
    KvHead head;
} BlendRig;

// False: this CPU does not have the instruction set.
static inline bool blend_rig_open(BlendRig *r, const BlendSetup *u) {
    *r = (BlendRig){0};
    if (!blend_open(&r->e, u)) return false;
    r->head = fingerprint(&r->e.model, r->e.kv.pool);
    r->store = chunkstore_new(r->e.kv_dir.store, CHUNKSTORE_MEMORY, &r->head);
    r->context = (BlendContext){
        .m = &r->e.model, .kv = &r->e.kv, .store = r->store, .lead = blend_lead, .n_lead = 1, .quiet = true};
    return true;
}

static inline void blend_rig_close(BlendRig *r) {
    assert_int_equal(r->e.kv.n_free, r->e.kv.pool->n_blocks);
    chunkstore_free(r->store);
    engine_close(&r->e);
}

static inline void blend_rig_add(BlendRig *r, const BlendText *t) {
    for (int i = 0; i < t->n_spans; i++)
        blend_add_chunk(&r->e, r->store, blend_lead, 1, t->tokens + t->spans[i].first, t->spans[i].n);
}

static inline void blend_rig_run(BlendRig *r, const BlendText *t, const char *plan, BlendResult *out) {
    assert_ok(plan_parse(plan, &r->context.plan));
    Blend *b = blend_new(&r->context, t->spans, t->n_spans, r->e.policy);
    blend_run(&r->e, t->tokens, t->n, b, out);
    blend_free(b);
}

#endif
