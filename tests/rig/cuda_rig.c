// tests/rig/cuda_rig.c: see tests/rig/cuda_rig.h.
#include "cpu/backend.h"
#include "tests/rig/cuda_rig.h"

#include "gpu/cuda.h"
#include "tests/rig/gpu_rt_host.h"

#include <math.h>

TinyModel cuda_rig_shape(const char *arch) {
    return (TinyModel){.arch = arch, .n_heads = 6, .n_kv_heads = 2, .head_dim = 24, .dim = 64, .ffn = 96, .seed = 3};
}

// Removes the feed-forward of the first layer, and the mixer of the second layer with its K and V.
static void without_parts(Model *m) {
    Layer *first = &m->layers[0], *second = &m->layers[1];
    const Tensor none = {0};
    first->kind.ffn = FFN_NONE;
    first->w_gate = first->w_up = first->w_down = none;
    first->norm_ffn = first->norm_ffn_out = NULL;
    second->kind.mixer = MIXER_NONE;
    second->wq = second->wk = second->wv = second->wo = none;
    second->norm_att = second->norm_att_out = second->norm_q = second->norm_k = NULL;
    second->kv_kind = second->kv_layer = -1;
}

Status cuda_rig_try(Rig *r, const Gguf *g, CudaSetup s) {
    const Backend *cpu = s.host, *gpu = NULL;
    *r = (Rig){0};
    if (!cpu) TRY(cpu_backend("scalar", &cpu));
    TRY(model_load(&r->m, g, cpu));
    model_set_context(&r->m, s.n_ctx ? s.n_ctx : CUDA_CTX);
    if (s.bare) without_parts(&r->m);
    model_keep_experts(&r->m, s.n_kept);
    r->pool = threads_new(1);
    int n = int_min(s.n_gpu, r->m.c.n_layers);
    if (n > 0) TRY(cuda_backend(&gpu));
    if (n > 0) TRY(model_to_device(&r->m, gpu, n, (DeviceLoad){.pool = r->pool, .spare = s.spare}));
    KvShape shape = memory_plan_kv_shape(&r->m);
    shape.type_k = s.kv_type;
    shape.type_v = s.type_v ? s.type_v : s.kv_type;
    shape.rotate = s.rotate;
    shape.block = s.block;
    shape.n_ctx = CUDA_CTX;
    shape.n_seqs = 3;
    kvshape_set_device(&shape, r->m.layers, r->m.c.n_layers, n);
    shape.n_checkpoints = s.n_checkpoints;
    shape.be = gpu;
    shape.keep_partners = s.keep;
    if (s.scarce) shape.n_partners = kvshape_partners_needed(&shape, CUDA_MOST_ROWS);
    TRY(kvcache_new(&r->kv, &shape));
    poison_pools(&r->kv);
    for (int kind = 0; kind < KV_KINDS; kind++)
        if (r->kv.pool[kind].device) poison_pool(r->kv.pool[kind].device, twin_fill);
    if (s.shuffle) kvcache_shuffle(&r->kv, s.shuffle);
    return workspace_new(&r->w, &r->m, r->pool, CUDA_MOST_ROWS, CUDA_MOST_ROWS, CUDA_CTX);
}

void cuda_rig_open(Rig *r, const Gguf *g, CudaSetup s) {
    Status st = cuda_rig_try(r, g, s);
    if (st.code) fail_msg("code %d: %s", st.code, st.message);
}

float *cuda_rig_run_tokens(Rig *r, const int *tokens, int n, int first, int chunk, bool strangers) {
    int strange[CUDA_CTX];
    size_t n_vocab = (size_t)r->m.c.n_vocab;
    float *logits = malloc((size_t)n * n_vocab * sizeof *logits);
    Sequence s = {0}, before = {0}, after = {0};
    random_tokens(strange, CUDA_CTX, r->m.c.n_vocab, 99);
    sequence_push(&s, tokens, n);
    sequence_push(&before, strange, 9);
    sequence_push(&after, strange + 9, 2);
    int most = r->m.c.n_recurrent ? 9 : 30; // 30: later it has no rows in a step, which recurrent layers do not allow
    while (s.n_cached < n) {
        RowsOfSequence parts[3];
        int n_parts = 0;
        if (strangers && before.n_cached < most)
            parts[n_parts++] = (RowsOfSequence){&before, int_min(6, 9 - before.n_cached), NULL};
        int rows = int_min(s.n_cached ? chunk : first, n - s.n_cached);
        parts[n_parts++] = (RowsOfSequence){&s, rows, logits + (size_t)s.n_cached * n_vocab};
        if (strangers && after.n_cached < 2) parts[n_parts++] = (RowsOfSequence){&after, 1, NULL};
        step(r, parts, n_parts);
    }
    Sequence *all[] = {&s, &before, &after};
    for (int i = 0; i < 3; i++) sequence_end(&r->kv, all[i]);
    assert_null(model_failure(&r->m));
    return logits;
}

float *cuda_rig_run_from(Rig *r, int n, int first, int chunk, bool strangers) {
    int tokens[CUDA_CTX];
    random_tokens(tokens, n, r->m.c.n_vocab, 5);
    return cuda_rig_run_tokens(r, tokens, n, first, chunk, strangers);
}

float *cuda_rig_run(Rig *r, int n, int chunk, bool strangers) {
    return cuda_rig_run_from(r, n, chunk, chunk, strangers);
}

static CudaSetup on_host(CudaSetup s) {
    s.n_gpu = s.n_kept = 0;
    s.scarce = false;
    return s;
}

float *cuda_rig_run_on_host(const Gguf *g, CudaSetup s, int n) {
    Rig r;
    cuda_rig_open(&r, g, on_host(s));
    float *logits = cuda_rig_run(&r, n, int_min(n, CUDA_MOST_ROWS), false);
    rig_close(&r);
    return logits;
}

void cuda_rig_compare(const Gguf *g, CudaSetup s, const CudaBatching *b, int n_batchings,
                      void (*each)(void *arg, const float *got, const float *want, int n), void *arg) {
    Rig r;
    int most = 0;
    for (int i = 0; i < n_batchings; i++) most = int_max(most, b[i].n);
    float *want = cuda_rig_run_on_host(g, s, most);
    size_t used = twin_used();
    cuda_rig_open(&r, g, s);
    for (int i = 0; i < n_batchings; i++) {
        float *got = cuda_rig_run_from(&r, b[i].n, b[i].first, b[i].chunk, b[i].strangers);
        each(arg, got, want, b[i].n);
        free(got);
    }
    rig_close(&r);
    free(want);
    assert_int_equal(twin_used(), used);
}

typedef struct {
    double worst;
    size_t n_vocab;
} CudaWorst;

static void keep_worst(void *arg, const float *got, const float *want, int n) {
    CudaWorst *w = arg;
    w->worst = test_worse(w->worst, test_distance(got, want, (size_t)n * w->n_vocab));
}

void cuda_rig_expect(const Gguf *g, CudaSetup s, const CudaBatching *b, int n_batchings, double limit,
                     const char *what) {
    CudaWorst w = {.n_vocab = (size_t)gguf_tensor(g, "token_embd.weight")->dims[1]};
    cuda_rig_compare(g, s, b, n_batchings, keep_worst, &w);
    print_message("  %-64s %.1e\n", what, w.worst);
    if (!(w.worst <= limit)) fail_msg("%s: distance up to %g expected, %g found", what, limit, w.worst);
}

Gguf *cuda_rig_open_texts(TwoTexts *t, const TinyModel *shape, CudaSetup s, int n, int alike) {
    Gguf *g = tiny_model(shape);
    *t = (TwoTexts){.limit = 1e-5};
    two_texts_random(t, n, alike);
    cuda_rig_open(&t->r, g, on_host(s));
    for (int i = 0; i < 2; i++) t->want[i] = cuda_rig_run_tokens(&t->r, t->tokens[i], n, n, n, false);
    rig_close(&t->r);
    cuda_rig_open(&t->r, g, s);
    return g;
}
