// gpu/cuda_scratch.c: see gpu/cuda_scratch.h.
#include "gpu/cuda_scratch.h"

#include "gpu/cuda_device.h"

#include <stdlib.h>

enum {
    ATTEND_ROWS = 32,         // most rows of a launch of gpu_attention
    LEAST_SLOTS = 256,        // smallest bound on slots that a graph is captured for
    SLICE_BYTES = 256 << 20,  // dense weights that are unpacked at a time
    EXPAND_BYTES = 256 << 20, // expanded K and V of a layer
};

typedef struct {
    void **to;
    size_t bytes;
} ScratchPart;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t place_parts(const ScratchPart *parts, size_t n, uint8_t *base) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (base) *parts[i].to = base + at;
        at += round_up(parts[i].bytes, 256);
    }
    return at;
}

static int power_of_two(int n) {
    int p = 1;
    while (p < n && p < 1 << 30) p *= 2;
    return p;
}

int cuda_scratch_slots(int n_slots) { return power_of_two(int_max(n_slots, LEAST_SLOTS)); }

int cuda_scratch_padded_rows(int n_rows) { return n_rows <= CUDA_UNPACK_ROWS ? power_of_two(n_rows) : n_rows; }

static size_t most_rows(const Workspace *w) {
    return (size_t)int_max(w->max_rows, cuda_scratch_padded_rows(int_min(w->max_rows, CUDA_UNPACK_ROWS)));
}

// Points the arrays of the scratch into the memory at `base` and returns their bytes. base NULL: only counts.
static size_t lay_out(CudaScratch *s, const Workspace *w, const Heads *h, uint8_t *base) {
    size_t rows = most_rows(w), turns = (size_t)w->n_ropes * rows * (size_t)(w->n_rot / 2);
    size_t q_dim = (size_t)w->q_dim, kv_dim = (size_t)w->kv_dim, dim = (size_t)w->dim, ffn = (size_t)w->ffn;
    size_t qkv = q_dim + 2 * kv_dim, a_dim = (size_t)w->a_dim, mix = round_up((size_t)w->mix_dim, 4);
    size_t y = larger(larger(qkv, 2 * ffn), larger(larger(dim, mix), (size_t)w->per_dim));
    size_t latent = (size_t)w->latent_dim, latent_k = latent > 0 ? kv_dim : 0;
    size_t xn = larger(larger(dim, a_dim), larger(latent, w->per_dim > 0 ? ffn : 0));
    size_t shared = w->kv_step > 0 ? rows * qkv * 4 : 0, inner = larger(larger(dim, ffn), larger(a_dim, latent));
    size_t widest = larger(y, latent) * inner * 4, given = (size_t)(w->n_used + 1) * dim;
    if (w->n_experts > 0 && y < given) y = given;
    void *experts = NULL;
    s->mix_step = mix;
    s->attend_rows = int_min((int)rows, ATTEND_ROWS);
    s->slice_bytes = widest < SLICE_BYTES ? widest : SLICE_BYTES;
    // K and V of a slot are shorter than two stored vectors in each head, and are read as one more
    size_t expanded = (size_t)w->max_slots * kv_dim * 2 * (size_t)(2 * w->latent_heads + 1);
    s->expansion_bytes = expanded < EXPAND_BYTES ? expanded : EXPAND_BYTES;
    if (latent == 0) s->expansion_bytes = 0;
    const ScratchPart parts[] = {
        {(void **)&s->x, rows * dim * 4},
        {(void **)&s->y, rows * y * 4 + 16},             // the shared expert's part begins at 16 bytes
        {(void **)&s->q, rows * larger(q_dim, dim) * 4}, // in parallel layers later the input of the feed-forward
        {(void **)&s->a, rows * a_dim * 4},
        {(void **)&s->mix, rows * mix * 4},
        {(void **)&s->per, rows * (size_t)w->per_dim * 4},
        {(void **)&s->latent[0], rows * (latent + latent_k) * 4},
        {(void **)&s->latent[1], rows * latent * 4},
        {(void **)&s->expansion, s->expansion_bytes},
        {(void **)&s->no_blocks, sizeof(int)},
        {(void **)&s->shared_qkv[KV_FULL], shared},
        {(void **)&s->shared_qkv[KV_WINDOW], shared},
        {(void **)&s->h, rows * ffn * 4 + 16}, // so does that of h
        {&s->xn, rows * xn * 4},
        {(void **)&s->logits, (size_t)w->max_out * (size_t)w->n_vocab * 4},
        {(void **)&s->rows, (size_t)w->max_out * sizeof(int)},
        {&s->sampling, gpu_sample_bytes(w->n_vocab, int_min(w->max_out, GPU_DRAW_ROWS))},
        {(void **)&s->sampled, (size_t)w->max_out * sizeof(int)},
        {(void **)&s->slice, s->slice_bytes},
        {(void **)&s->gpu.rope_cos, turns * 4},
        {(void **)&s->gpu.rope_sin, turns * 4},
        {(void **)&s->gpu.partial, gpu_attention_bytes(h, s->attend_rows, cuda_scratch_slots(w->max_slots))},
        {(void **)&s->gpu.counters, (size_t)gpu_n_counters(h, s->attend_rows) * sizeof(unsigned)},
        {&experts, w->n_experts ? gpu_experts_place(&s->experts, w->n_experts, w->n_used, (int)rows, NULL) : 0},
    };
    size_t n = place_parts(parts, ARRAY_LEN(parts), base);
    if (base && w->n_experts) gpu_experts_place(&s->experts, w->n_experts, w->n_used, (int)rows, experts);
    s->gpu.qkv = s->gpu.behind = s->y;
    s->gpu.rope_rows = (int)rows;
    s->gpu.rope_step = w->n_rot / 2;
    return n;
}

// The initial room for the numbers of a batch; cuda_scratch_reserve extends it when a batch needs more.
static size_t first_ints(const Workspace *w) { return 16 * most_rows(w) + 4096; }

size_t cuda_scratch_bytes(const Workspace *shape, const Heads *widest) {
    CudaScratch s = {0};
    return lay_out(&s, shape, widest, NULL) + first_ints(shape) * sizeof(int);
}

void cuda_scratch_free(Workspace *w) {
    CudaScratch *s = w->device;
    cuda_graphs_drop(&s->graphs);
    rt_free(s->memory);
    rt_free(s->ints);
    free(s->there);
    free(s->expands);
    for (int i = 0; i < 2; i++) {
        CudaStaging *f = &s->staging[i];
        rt_unpin(f->ints);
        rt_unpin(f->tokens);
        rt_mark_free(f->sent);
        rt_mark_free(f->drawn);
    }
    rt_unpin(w->logits);
    free(s);
    w->device = w->logits = NULL;
}

bool cuda_scratch_reserve(CudaScratch *s, size_t n) {
    if (n <= s->n_ints) return true;
    cuda_graphs_drop(&s->graphs); // graphs contain the old address
    s->n_ints = n + n / 2;
    rt_free(s->ints);
    s->ints = rt_alloc(s->n_ints * sizeof(int));
    free(s->there);
    s->there = mem_alloc(s->n_ints * sizeof(int));
    s->n_there = 0;
    bool good = s->ints != NULL;
    for (int i = 0; i < 2; i++) {
        rt_unpin(s->staging[i].ints);
        s->staging[i].ints = rt_pinned(s->n_ints * sizeof(int));
        good &= s->staging[i].ints != NULL;
    }
    if (good) return true;
    s->n_ints = 0;
    rt_fail(QUILL_MEMORY, "out of memory: a batch's block table");
    return false;
}

static bool staging_new(CudaScratch *s, int max_out) {
    bool good = true;
    for (int i = 0; i < 2; i++) {
        CudaStaging *f = &s->staging[i];
        f->sent = rt_mark_new();
        f->drawn = rt_mark_new();
        f->tokens = rt_pinned(((size_t)max_out + 1) * sizeof *f->tokens);
        good &= f->tokens != NULL;
    }
    return good;
}

Status cuda_scratch_new(Workspace *w, const Heads *h) {
    CudaScratch *s = w->device = mem_alloc(sizeof *s);
    s->max_rows = w->max_rows;
    s->expands = mem_alloc((size_t)w->max_rows * sizeof *s->expands);
    s->n_vocab = w->n_vocab;
    s->q_dim = w->q_dim; // that of the widest layer; each layer with attention sets its own
    s->max_slots = cuda_scratch_slots(w->max_slots);
    size_t n = lay_out(s, w, h, NULL);
    s->memory = rt_alloc(n);
    w->logits = rt_pinned((size_t)w->max_out * (size_t)w->n_vocab * sizeof(float));
    if (!staging_new(s, w->max_out) || !s->memory || !w->logits || !cuda_scratch_reserve(s, first_ints(w)))
        return status_error(
            QUILL_MEMORY,
            "the GPU: scratch: %zu bytes for steps of %d rows expected, %zu are free; try a smaller -ub, "
            "-c or -ngl",
            n, w->max_rows, rt_free_bytes());
    lay_out(s, w, h, s->memory);
    rt_zero(s->memory, n, cuda_device.stream); // the counters begin at zero
    if (rt_sync(cuda_device.stream)) return OK;
    const Status *why = cuda_device_failure();
    return status_error(why->code, "the GPU failed: %s", why->message);
}
