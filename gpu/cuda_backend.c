// gpu/cuda_backend.c: the CUDA backend's table of operations, logits, draws, and the choice of steps that run as
// graphs.
#include "gpu/cuda_batch.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_kv.h"
#include "gpu/cuda_layers.h"
#include "gpu/cuda_model.h"
#include "gpu/cuda_states.h"

#include <assert.h>
#include <math.h>

static void wait(void) { rt_sync(cuda_device.stream); }

// ---- logits and tokens ----------------------------------------------------------------------------------------------

static void logits(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows) {
    (void)be, (void)b;
    CudaScratch *s = w->device;
    size_t n = (size_t)n_rows * (size_t)w->n_vocab;
    rt_upload(s->rows, rows, (size_t)n_rows * sizeof *rows, cuda_device.stream);
    cuda_layers_head(w, e, s->rows, n_rows);
    rt_download(w->logits, s->logits, n * sizeof(float), cuda_device.stream);
    if (w->n_experts) rt_download(&w->experts.broken, s->experts.broken, sizeof(int), cuda_device.stream);
    cuda_device.counts.rows_fetched += n_rows;
    if (!rt_sync(cuda_device.stream) || cuda_device_failure())
        for (size_t i = 0; i < n; i++) w->logits[i] = NAN;
}

// Whether a graph may end with the head and the draws: with few rows and candidates the launches are always the same.
static bool may_end_graph(const CudaScratch *s) {
    return s->ends && s->n_out > 0 && s->n_out <= 2 * GPU_DECODE_ROWS && s->draws_want > 0 &&
           s->draws_want <= GPU_SAMPLE_TOP;
}

void cuda_queue_head(Workspace *w, const Ends *e) {
    const CudaScratch *s = w->device;
    cuda_layers_head(w, e, s->out_row, s->n_out);
}

// advance: the addresses of the first row's numbers; those of the other rows follow.
static void queue_draws(Workspace *w, GpuAdvance advance) {
    CudaScratch *s = w->device;
    for (int first = 0, n; first < s->n_out; first += n) {
        n = int_min(GPU_DRAW_ROWS, s->n_out - first);
        GpuAdvance a = advance;
        if (a.token) a.token += first, a.pos += first, a.slot += first;
        if (a.since) a.since += first;
        gpu_sample(s->sampled + first, s->logits + (size_t)first * (size_t)w->n_vocab, w->n_vocab, s->draws + first, n,
                   s->draws_want, a, s->sampling, cuda_device.stream);
    }
}

void cuda_queue_draws(Workspace *w) { queue_draws(w, (GpuAdvance){0}); }

static void draw(Workspace *w, const Ends *e, const Batch *b) {
    CudaScratch *s = w->device;
    CudaStaging *f = &s->staging[s->n_drawn++ % 2];
    if (!s->drew) {
        cuda_queue_head(w, e);
        queue_draws(w, cuda_batch_advance(s));
        if (may_end_graph(s)) s->graphs.drawn |= 1u << s->n_out;
    }
    cuda_batch_advanced(s);
    rt_download(f->tokens, s->sampled, (size_t)b->n_out * sizeof *f->tokens, cuda_device.stream);
    f->tokens[b->n_out] = 0;
    if (w->n_experts) rt_download(f->tokens + b->n_out, s->experts.broken, sizeof(int), cuda_device.stream);
    rt_mark(f->drawn, cuda_device.stream);
    f->n_tokens = b->n_out;
    cuda_device.counts.drawn += b->n_out;
    if (b->draw->pending) cuda_device.counts.drawn_ahead += b->n_out;
}

static int *drawn(Workspace *w) {
    CudaScratch *s = w->device;
    assert(s->n_told != s->n_drawn && s->n_drawn - s->n_told <= 2);
    CudaStaging *f = &s->staging[s->n_told++ % 2];
    if (!rt_wait(f->drawn) || cuda_device_failure())
        for (int i = 0; i < f->n_tokens; i++) f->tokens[i] = -1;
    else if (f->tokens[f->n_tokens]) w->experts.broken = f->tokens[f->n_tokens];
    return f->tokens;
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

static LayersTodo layers_begin(Workspace *w, const Layer *l, int n, const KvPool kv[KV_KINDS], const Batch *b) {
    CudaScratch *s = w->device;
    if (cuda_device_failure()) return LAYERS_DONE; // results are invalid after a failure
    if (!cuda_layers_fused(w, l, n) || b->narrow) {
        cuda_layers_start(s);
        return LAYERS_RUN;
    }
    bool draws = may_end_graph(s) && s->graphs.drawn >> s->n_out & 1;
    CudaGraph step = {.layer = l->device,
                      .kv = {kv[KV_FULL].device, kv[KV_WINDOW].device},
                      .mass = b->probe ? b->probe->device : NULL,
                      .states = s->states.data,
                      .n_layers = n,
                      .n_rows = s->batch.n_rows,
                      .max_slots = s->batch.max_slots,
                      .table_step = s->batch.table_step,
                      .first_row = b->probe ? b->probe->first_row : 0,
                      .embeds = s->embeds != NULL,
                      .n_drawn = draws ? s->n_out : 0,
                      .advances = draws && s->advances};
    cuda_device.counts.steps++;
    LayersTodo todo = cuda_graphs_begin(&s->graphs, &step);
    s->drew = draws && (todo == LAYERS_DONE || s->graphs.recording);
    if (todo == LAYERS_RUN) cuda_layers_start(s); // launches the kernels, or captures the launches
    s->embeds = NULL;
    return todo;
}

static void layers_end(Workspace *w) {
    CudaScratch *s = w->device;
    if (s->graphs.recording && s->drew) {
        cuda_queue_head(w, s->ends);
        queue_draws(w, cuda_batch_advance(s));
    }
    cuda_graphs_end(&s->graphs);
}

// ---- the backend ----------------------------------------------------------------------------------------------------

// Counts the layers of a model that was loaded (sign 1) or is freed (-1).
static void count_layers(const CudaModel *m, int sign) {
    cuda_device.counts.n_layers += sign * m->n_layers;
    for (int i = 0; i < m->n_layers; i++) cuda_device.counts.dense_layers += sign * m->layers[i].dense;
}

static Status load(const Backend *be, const DeviceLoad *what, void **out) {
    (void)be;
    CudaModel *m = NULL;
    TRY(cuda_model_load(what, &m));
    count_layers(m, 1);
    *out = m;
    return OK;
}
static void unload(void *device) {
    rt_sync(cuda_device.stream);
    count_layers(device, -1);
    cuda_model_free(device);
}

static const DeviceMemory memory = {
    .load = load,
    .unload = unload,
    .kv_new = cuda_kv_new,
    .kv_free = cuda_kv_free,
    .kv_move = cuda_kv_move,
    .close_up = cuda_kv_close_up,
    .states_new = cuda_states_new,
    .states_free = cuda_states_free,
    .state_move = cuda_states_move,
    .probe_new = cuda_kv_probe_new,
    .probe_free = cuda_kv_probe_free,
    .probe_move = cuda_kv_probe_move,
    .scratch_new = cuda_scratch_new,
    .scratch_free = cuda_scratch_free,
    .receive = cuda_layers_receive,
    .fetch = cuda_layers_fetch,
    .give = cuda_layers_give,
    .layers_begin = layers_begin,
    .layers_end = layers_end,
    .draw = draw,
    .drawn = drawn,
    .wait = wait,
    .failure = cuda_device_failure,
};

Status cuda_backend(const Backend **out) {
    static Backend backend;
    static bool tried;
    static Status result;
    if (!tried) result = cuda_device_open();
    tried = true;
    backend = (Backend){.name = cuda_device.info.name,
                        .isa = cuda_device.isa,
                        .kernels = cuda_device.kernels,
                        .memory = &memory,
                        .copy_blocks = cuda_batch_copy_blocks,
                        .embed = cuda_layers_embed,
                        .attn_in = cuda_layers_attn_in,
                        .attention = cuda_layers_attention,
                        .attn_out = cuda_layers_attn_out,
                        .ffn_in = cuda_layers_ffn_in,
                        .ffn_out = cuda_layers_ffn_out,
                        .narrow = cuda_batch_narrow,
                        .whole_rows = CUDA_UNPACK_ROWS,
                        .logits = logits};
    *out = result.code ? NULL : &backend;
    return result;
}
