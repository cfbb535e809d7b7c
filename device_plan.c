// device_plan.c: decides between the CPU and a GPU, and splits the layers between them. See device_plan.h.
#include "device_plan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/paragraph.h"
#include "base/progress.h"
#include "gpu/cuda.h"

enum {
    GPU_WORTH = 200000000, // with fewer bytes of weights `auto` stays on the CPU: they fit into its caches, and opening
                           // a GPU takes a good part of a second
    RESERVE = 256 << 20,   // bytes for the driver, cuBLAS and the kernels' code
    KEEP_FREE = 2000000000, // bytes that additional copies of weights leave free
    LEAST_CONTEXT = 4096,   // `auto` shortens the context no further to get more layers onto the GPU
    CPU_ROWS = 512,         // default rows of a step
    GPU_ROWS = 2048,
};

// ---- which device ---------------------------------------------------------------------------------------------------

static bool wants(const EngineConfig *config, const char *device) {
    return config->device && strcmp(config->device, device) == 0;
}

Status device_plan_open(DevicePlan *p, const EngineConfig *config, const Model *m) {
    bool insists = wants(config, "cuda") || config->gpu_layers > 0;
    *p = (DevicePlan){.asked = insists};
    if (wants(config, "cpu") || config->gpu_layers == 0) {
        snprintf(p->why, sizeof p->why, "the CPU was asked for");
        return OK;
    }
    if (config->deterministic) {
        snprintf(p->why, sizeof p->why, "--deterministic works only on the CPU");
        return OK;
    }
    if (!insists && !m) return OK;
    if (!insists && model_weight_bytes(m) < GPU_WORTH) {
        Status there = config->verbose ? cuda_available() : OK; // a driver takes its time
        snprintf(p->why, sizeof p->why, "%.300s",
                 there.code ? there.message : "a small model; --device cuda insists on the GPU");
        return OK;
    }
    Status st = cuda_backend(&p->gpu);
    if (!st.code || st.code == QUILL_USAGE) return st; // a wrong QUILL_GPU_TRY, also with --device auto
    snprintf(p->why, sizeof p->why, "no usable GPU: %.300s", st.message);
    if (!insists) return OK;
    return status_error(QUILL_MODEL, "%s: no usable GPU: %.800s", wants(config, "cuda") ? "--device cuda" : "-ngl",
                        st.message);
}

int device_plan_ubatch(const DevicePlan *p, const EngineConfig *config) {
    return config->ubatch ? config->ubatch : p->gpu ? GPU_ROWS : CPU_ROWS;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// The shape of the cache with the last n layers on the device; only some of them may have K and V of their own.
static KvShape with_device(const KvShape *s, const Model *m, int n) {
    KvShape on = *s;
    kvshape_set_device(&on, m->layers, m->c.n_layers, n);
    return on;
}

// Sets the memory that n layers on the GPU need in *p, and returns the sum in bytes; SIZE_MAX: too large to count.
static size_t need(DevicePlan *p, const Model *m, const KvShape *s, int max_rows, int max_out, int n) {
    int n_all = m->c.n_layers;
    size_t all;
    KvShape on = with_device(s, m, n);
    Workspace w = workspace_shape(m, max_rows, max_out, s->n_ctx);
    Heads widest = model_widest_heads(m);
    p->n_layers = n;
    p->n_all = n_all;
    p->n_kept = 0;
    p->weights = cuda_ends_bytes(&m->ends, n == n_all);
    for (int i = n_all - n; i < n_all; i++) {
        p->weights += cuda_layer_bytes(&m->layers[i]);
        p->n_kept += m->layers[i].host_ffn;
    }
    p->scratch = cuda_scratch_bytes(&w, &widest);
    p->kv = kvshape_bytes(s) == SIZE_MAX ? SIZE_MAX : kvshape_bytes(s) - kvshape_host_bytes(&on);
    return size_add(p->weights + p->scratch + RESERVE, p->kv, &all) ? all : SIZE_MAX;
}

static Status too_little(const DevicePlan *p, const EngineConfig *config, const KvShape *s, int fits) {
    char layers[32] = "--device cpu", asked[16];
    snprintf(asked, sizeof asked, "%d", config->gpu_layers);
    if (fits > 0) snprintf(layers, sizeof layers, "-ngl %d", fits);
    Status st = status_error(QUILL_MEMORY, "-ngl %s: %d layers with a context of %d do not fit on the GPU; try %s%s",
                             config->gpu_layers < 0          ? "auto"
                             : config->gpu_layers == INT_MAX ? "all"
                                                             : asked,
                             p->n_layers, s->n_ctx, layers, " or a smaller -c");
    Buf budget = {0};
    device_plan_budget(p, &budget);
    status_append(&st, budget.data);
    buf_free(&budget);
    return st;
}

// With `auto` the CPU computes, and p->why is the message of `st`; if the user requested a GPU, returns `st`.
static Status give_up(DevicePlan *p, Status st) {
    if (p->asked) return st;
    snprintf(p->why, sizeof p->why, "%.300s", st.message);
    p->gpu = NULL;
    return OK;
}

// Whether the device has kernels for the layer's recurrence.
static bool recurs(const Layer *l) { return int_max(l->rec.key_dim, l->rec.value_dim) <= CUDA_MAX_STATE; }

// Whether the device has kernels for all layers.
static Status can_compute(const Model *m) {
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
        if (mixer_is_recurrent(l->kind.mixer) && !recurs(l))
            return status_error(QUILL_MODEL,
                                "layer %d: states with heads of at most %d expected, %d found; such layers are "
                                "computed on the CPU so far: leave out --device cuda and -ngl",
                                i, CUDA_MAX_STATE, int_max(l->rec.key_dim, l->rec.value_dim));
        if ((l->kind.gate && (l->wq.bias || l->w_mix.bias)) ||
            (l->kind.mixer == MIXER_LATENT && (l->k_b.bias || l->v_b.bias)))
            return status_error(QUILL_MODEL,
                                "layer %d: attn_q with gates, attn_k_b and attn_v_b without a bias expected, one "
                                "found; such layers are computed on the CPU so far: leave out --device cuda and -ngl",
                                i);
        if (mixer_is_recurrent(l->kind.mixer) && (l->w_mix.bias || l->w_z.bias || l->w_beta.bias || l->w_alpha.bias))
            return status_error(
                QUILL_MODEL,
                "layer %d: input matrices of a recurrent layer without a bias expected, one found; such "
                "layers are computed on the CPU so far: leave out --device cuda and -ngl",
                i);
        if (layer_attends(l)) TRY(cuda_supports(&l->heads));
    }
    return OK;
}

// The first layer whose K and V layer i uses: i itself, unless it shares those of an earlier one.
static int source_of(const Model *m, int i) {
    const Layer *l = &m->layers[i];
    for (int k = 0; k < i && layer_attends(l) && !layer_owns_kv(l); k++)
        if (layer_owns_kv(&m->layers[k]) && m->layers[k].kv_kind == l->kv_kind && m->layers[k].kv_layer == l->kv_layer)
            return k;
    return i;
}

// Whether the last n layers use no K and V of the layers before them.
static bool stands_alone(const Model *m, int n) {
    int first = m->c.n_layers - n;
    for (int i = first; i < m->c.n_layers; i++)
        if (source_of(m, i) < first) return false;
    return true;
}

// QUILL_USAGE: the last n layers do not stand alone.
static Status check_alone(const Model *m, int n) {
    int more = n;
    while (!stands_alone(m, more)) more++; // all layers do
    if (more == n) return OK;
    return status_error(QUILL_USAGE,
                        "-ngl %d: layers that share K and V on one device expected, the last %d use K and V of earlier "
                        "ones; try -ngl %d, or -ngl 0",
                        n, n, more);
}

Status device_plan_make(DevicePlan *p, const EngineConfig *config, const Model *m, KvShape *s, bool may_shorten,
                        int max_rows, int max_out) {
    if (!p->gpu) return OK;
    Status able = can_compute(m);
    if (able.code) return give_up(p, able);
    int n = int_min(config->gpu_layers < 0 ? INT_MAX : config->gpu_layers, m->c.n_layers), wanted = n;
    if (config->gpu_layers >= 0) TRY(check_alone(m, n));
    p->free_bytes = cuda_free_bytes();
    KvShape t = *s; // `s` stays as it is if the model runs without the GPU
    while (may_shorten && t.n_ctx > LEAST_CONTEXT && need(p, m, &t, max_rows, max_out, n) > p->free_bytes) {
        t.n_ctx = int_max(LEAST_CONTEXT, t.n_ctx / 8 * 7);
        if (t.n_blocks) t.n_blocks = kvshape_blocks_of_one(&t);
    }
    while (n > 0 && (need(p, m, &t, max_rows, max_out, n) > p->free_bytes || !stands_alone(m, n))) n--;
    bool refused = config->gpu_layers >= 0 ? n < wanted : n == 0 && p->asked;
    need(p, m, &t, max_rows, max_out, refused ? wanted : n);
    if (refused) return too_little(p, config, &t, n);
    if (n == 0) return give_up(p, status_error(QUILL_MEMORY, "the GPU's memory has no room for a single layer"));
    *s = with_device(&t, m, n);
    s->be = p->gpu;
    return OK;
}

size_t device_plan_kv_room(const DevicePlan *p) {
    if (!p->gpu) return SIZE_MAX;
    size_t others = p->weights + p->scratch + RESERVE;
    return p->free_bytes > others ? p->free_bytes - others : 0;
}

void device_plan_settle(DevicePlan *p, const KvShape *s) {
    if (!p->gpu) return;
    p->kv = kvshape_bytes(s) - kvshape_host_bytes(s);
    size_t room = device_plan_kv_room(p);
    p->spare = room > p->kv && room - p->kv > KEEP_FREE ? room - p->kv - KEEP_FREE : 0;
}

// ---- loading --------------------------------------------------------------------------------------------------------

typedef struct {
    Progress progress;
    double start;
} Loading;

static void show(void *arg, double done, double all) {
    Loading *w = arg;
    if (clock_now() - w->start > 1) progress_show(&w->progress, "load onto the GPU", done, all);
}

Status device_plan_load(const DevicePlan *p, Model *m, ThreadPool *pool, bool quiet) {
    if (!p->gpu) return OK;
    if (p->asked && p->n_layers < p->n_all && !quiet)
        fprintf(stderr, "quill: %d of %d layers are on the GPU, the others on the CPU\n", p->n_layers, p->n_all);
    Loading w = {progress_new(quiet), clock_now()};
    Status st = model_to_device(m, p->gpu, p->n_layers,
                                (DeviceLoad){.pool = pool, .spare = p->spare, .progress = show, .arg = &w});
    progress_erase(&w.progress);
    return st;
}

// ---- reports --------------------------------------------------------------------------------------------------------

void device_plan_kernels(const DevicePlan *p, const char *isa, Buf *out) {
    int n = p->gpu ? p->n_layers : 0;
    if (n > 0) cuda_open_products(); // before gpu->kernels is read: whether cuBLAS is used affects K and V
    if (n == 0 || n < p->n_all) buf_printf(out, "cpu %s", isa);
    if (n > 0 && n < p->n_all) buf_printf(out, "; layers from %d on ", p->n_all - n);
    if (n > 0) buf_printf(out, "%s %s, %s", p->gpu->name, p->gpu->isa, p->gpu->kernels);
    if (n > 0 && p->n_kept > 0) buf_printf(out, "; experts of %d layers cpu %s", p->n_kept, isa);
}

void device_plan_budget(const DevicePlan *p, Buf *out) {
    char kept[48] = "";
    if (!p->gpu) return;
    if (p->n_kept > 0) snprintf(kept, sizeof kept, " without the experts of %d", p->n_kept);
    buf_printf(out,
               "  on the GPU %9.2f MB  %d of %d layers%s: weights %.2f, KV cache %.2f, scratch %.2f, reserve %.2f; "
               "free %.2f\n",
               (double)(p->weights + p->kv + p->scratch + RESERVE) * 1e-6, p->n_layers, p->n_all, kept,
               (double)p->weights * 1e-6, (double)p->kv * 1e-6, (double)p->scratch * 1e-6, (double)RESERVE * 1e-6,
               (double)p->free_bytes * 1e-6);
}

void device_plan_report(const DevicePlan *p) {
    if (!p->gpu) return;
    CudaCounts c = cuda_counts();
    char kept[48] = "";
    if (p->n_kept > 0) snprintf(kept, sizeof kept, ", experts of %d on the CPU", p->n_kept);
    paragraph_item("gpu", "%s %s: layers %d to %d of %d%s, head%s; %s", p->gpu->name, p->gpu->isa,
                   p->n_all - p->n_layers, p->n_all - 1, p->n_all, kept, p->n_layers == p->n_all ? ", embedding" : "",
                   p->gpu->kernels);
    paragraph_item(
        "graphs",
        "%ld steps of few rows, %ld graph launches (%.2f a step), %ld captured; %d of %d layers need no unpacking",
        c.steps, c.replays, c.steps ? (double)c.replays / (double)c.steps : 0, c.captures, c.dense_layers, c.n_layers);
    paragraph_item("sampling", "%ld tokens on the GPU, %ld of them ahead of the host; %ld rows of logits for the host",
                   c.drawn, c.drawn_ahead, c.rows_fetched);
}
