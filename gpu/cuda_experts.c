// gpu/cuda_experts.c: see gpu/cuda_experts.h.
#include "gpu/cuda_experts.h"

#include "gpu/cuda_batch.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_products.h"

static bool has_shared(const CudaLayer *c) { return c->gpu.shared_down.n_out > 0; }

// Whether the step's pairs are multiplied in tiles on the tensor cores.
static bool by_tiles(const CudaLayer *c, bool fused) {
    return !fused && gpu_expert_tiles_type(&c->gpu, false) && gpu_expert_tiles_type(&c->gpu, true);
}

// The shared expert's part of the scratch array h, after the pairs. `type` is the type of its product with w_down.
static void *shared_h(const Workspace *w, const CudaScratch *s, const CudaLayer *c) {
    size_t width = (size_t)(c->gpu.w_gate.n_out / c->gpu.kind.n_experts);
    return s->h + round_up((size_t)s->batch.n_rows * (size_t)w->n_used * width, 4);
}

// The shared expert's output in the scratch array y, after the outputs of the pairs.
static float *shared_y(const Workspace *w, const CudaScratch *s) {
    return s->y + round_up((size_t)s->batch.n_rows * (size_t)w->n_used * (size_t)w->dim, 4);
}

// ---- few rows -------------------------------------------------------------------------------------------------------

static void few_logits(Workspace *w, const CudaLayer *c) {
    CudaScratch *s = w->device;
    size_t stride = (size_t)c->stack[ROUTER].n_out;
    for (CudaRows p = {0}; cuda_batch_next(s, &c->gpu.heads, GPU_DECODE_ROWS, &p);)
        gpu_expert_logits(s->experts.logits + p.first * stride, s->x + p.first * (size_t)w->dim, &c->gpu, &p.batch,
                          cuda_device.stream);
}

static void few_in(Workspace *w, const CudaLayer *c) {
    CudaScratch *s = w->device;
    size_t width = (size_t)c->gpu.shared_gate.n_out;
    float *h = shared_h(w, s, c);
    gpu_experts_in(s->h, s->x, &c->gpu, &s->batch, &s->experts, cuda_device.stream);
    for (CudaRows p = {0}; has_shared(c) && cuda_batch_next(s, &c->gpu.heads, GPU_DECODE_ROWS, &p);)
        gpu_shared_in(h + p.first * width, s->x + p.first * (size_t)w->dim, &c->gpu, &p.batch, gpu_rounded,
                      cuda_device.stream);
}

static void few_out(Workspace *w, const CudaLayer *c) {
    CudaScratch *s = w->device;
    size_t width = (size_t)c->gpu.shared_gate.n_out;
    const float *h = shared_h(w, s, c);
    gpu_experts_out(s->y, s->h, &c->gpu, &s->batch, &s->experts, cuda_device.stream);
    for (CudaRows p = {0}; has_shared(c) && cuda_batch_next(s, &c->gpu.heads, GPU_DECODE_ROWS, &p);)
        gpu_shared_out(shared_y(w, s) + p.first * (size_t)w->dim, h + p.first * width, &c->gpu, &p.batch, gpu_rounded,
                       cuda_device.stream);
}

// ---- many rows ------------------------------------------------------------------------------------------------------

// xn = norm(x), by norm_ffn if the input has no norm of its own (NULL)
static void normalise(Workspace *w, const CudaLayer *c, int type, const float *norm) {
    CudaScratch *s = w->device;
    gpu_rmsnorm(s->xn, type, s->x, norm ? norm : c->gpu.norm_ffn, c->gpu.kind.eps, w->dim, NULL, s->batch.n_rows,
                cuda_device.stream);
}

// Computes the router in f32, whatever the type of its weights.
static void many_logits(Workspace *w, const CudaLayer *c) {
    CudaScratch *s = w->device;
    const Stack *k = &c->stack[ROUTER];
    normalise(w, c, TYPE_F32, c->gpu.norm_router);
    cuda_products_multiply(s, k, 0, k->n_out, s->xn, s->batch.n_rows, s->experts.logits, (size_t)k->n_out, false);
}

static void shared_in(Workspace *w, const CudaLayer *c) {
    CudaScratch *s = w->device;
    const Stack *k = &c->stack[GATE_UP];
    normalise(w, c, k->type, NULL);
    cuda_products_gated(s, k, s->xn, s->batch.n_rows, &c->gpu.kind, shared_h(w, s, c), c->stack[DOWN].type);
}

static void shared_out(Workspace *w, const CudaLayer *c) {
    CudaScratch *s = w->device;
    float *y = shared_y(w, s);
    cuda_products_multiply(s, &c->stack[DOWN], 0, w->dim, shared_h(w, s, c), s->batch.n_rows, y, (size_t)w->dim, false);
    gpu_add(y, NULL, c->gpu.shared_down.bias, w->dim, s->batch.n_rows, cuda_device.stream);
}

// ---- the layer ------------------------------------------------------------------------------------------------------

void cuda_experts_in(Workspace *w, const CudaLayer *c, bool fused) {
    CudaScratch *s = w->device;
    bool tiles = by_tiles(c, fused);
    if (fused) few_logits(w, c);
    else many_logits(w, c);
    gpu_route(&s->experts, &c->gpu, &s->batch, !fused, tiles, cuda_device.stream);
    if (fused) return few_in(w, c);
    if (tiles) {
        normalise(w, c, gpu_expert_tiles_type(&c->gpu, false), c->gpu.norm_experts);
        gpu_expert_tiles_in(s->h, s->xn, s->y, &c->gpu, &s->batch, &s->experts, cuda_device.stream);
    } else gpu_experts_in(s->h, s->x, &c->gpu, &s->batch, &s->experts, cuda_device.stream);
    if (has_shared(c)) shared_in(w, c);
}

void cuda_experts_out(Workspace *w, const CudaLayer *c, bool fused) {
    CudaScratch *s = w->device;
    if (fused) few_out(w, c);
    else if (by_tiles(c, fused)) gpu_expert_tiles_out(s->y, s->h, &c->gpu, &s->batch, &s->experts, cuda_device.stream);
    else gpu_experts_out(s->y, s->h, &c->gpu, &s->batch, &s->experts, cuda_device.stream);
    if (!fused && has_shared(c)) shared_out(w, c);
    gpu_experts_combine(s->x, s->y, shared_y(w, s), &c->gpu, &s->batch, &s->experts, cuda_device.stream);
}
