// gpu/cuda_per_layer.c: see gpu/cuda_per_layer.h.
#include "gpu/cuda_per_layer.h"

#include "gpu/cuda_device.h"
#include "gpu/cuda_products.h"

// y (n, n_out) = W x, x (n, n_in) in f32. xn has room for x.
static void multiply(CudaScratch *s, const Stack *k, const float *x, float *y, bool fused) {
    int n = s->batch.n_rows;
    size_t n_in = (size_t)k->n_in, n_out = (size_t)k->n_out;
    if (!fused) {
        gpu_convert(s->xn, k->type, x, (size_t)n * n_in, cuda_device.stream);
        cuda_products_multiply(s, k, 0, k->n_out, s->xn, n, y, n_out, false);
        return;
    }
    for (int first = 0; first < n; first += GPU_DECODE_ROWS)
        gpu_product(y + (size_t)first * n_out, x + (size_t)first * n_in, &k->part[0], NULL, 0,
                    int_min(GPU_DECODE_ROWS, n - first), gpu_rounded, cuda_device.stream);
}

void cuda_per_layer_embed(CudaScratch *s, const Ends *e) {
    static const GpuRopes none;
    if (e->per == 0) return;
    const CudaMatrix *proj = e->per_proj.device, *embd = e->per_embd.device;
    int n = s->batch.n_rows;
    size_t parts = (size_t)n * (size_t)(e->per_proj.n_out / e->per);
    float eps = e->eps * (float)e->per_proj.n_in; // as in cpu/layer.c, which does not divide the input by sqrt(dim)
    multiply(s, &proj->stack, s->x, s->per, n <= CUDA_UNPACK_ROWS || !cuda_device_has_products());
    gpu_embed(s->y, &embd->t, 1, 0, &none, &s->batch, &s->gpu, cuda_device.stream);
    gpu_per_layer_embed(s->per, s->y, embd->norm, eps, e->per, parts, cuda_device.stream);
}

void cuda_per_layer_end(Workspace *w, const CudaLayer *c, bool fused) {
    CudaScratch *s = w->device;
    const GpuLayer *l = &c->gpu;
    int n = s->batch.n_rows, width = l->per_gate.n_out;
    float scale = l->kind.out_scale != 0 ? l->kind.out_scale : 1;
    if (width == 0) {
        if (scale != 1) gpu_per_layer_end(s->x, NULL, NULL, 0, scale, w->dim, n, cuda_device.stream);
        return;
    }
    multiply(s, &c->stack[PER_GATE], s->x, s->y, fused);
    gpu_per_layer_gate(s->h, TYPE_F32, l->kind.act, s->y, s->per + (size_t)l->number * (size_t)width,
                       (size_t)w->per_dim, width, n, cuda_device.stream);
    multiply(s, &c->stack[PER_OUT], s->h, s->y, fused);
    gpu_per_layer_end(s->x, s->y, l->norm_per, l->kind.eps, scale, w->dim, n, cuda_device.stream);
}
