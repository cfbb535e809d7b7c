// gpu/cuda_latent.c: see gpu/cuda_latent.h.
#include "gpu/cuda_latent.h"

#include "gpu/cuda_device.h"
#include "gpu/cuda_products.h"

static const GpuProduct rounded = {.exact = false}; // with quantised weights, activations are rounded to int8

// Computes the first products of the layer into s->latent: Q, and the vector that is stored.
typedef struct {
    const float *q, *k;
    size_t q_stride, k_stride;
} LatentProducts;

static LatentProducts few_products(Workspace *w, const GpuLayer *l) {
    CudaScratch *s = w->device;
    int first_out = l->q_a.n_out > 0 ? l->q_a.n_out : l->wq.n_out;
    size_t stride = (size_t)(first_out + l->wk.n_out), all = (size_t)l->wq.n_out;
    for (int first = 0, n; first < s->batch.n_rows; first += n) {
        size_t at = (size_t)first;
        n = int_min(GPU_DECODE_ROWS, s->batch.n_rows - first);
        gpu_latent_in(s->latent[0] + at * stride, s->x + at * (size_t)w->dim, l, n, rounded, cuda_device.stream);
        if (l->q_a.n_out > 0)
            gpu_latent_q(s->latent[1] + at * all, s->latent[0] + at * stride, l, n, rounded, cuda_device.stream);
    }
    LatentProducts p = {s->latent[0], s->latent[0] + first_out, stride, stride};
    if (l->q_a.n_out > 0) p.q = s->latent[1], p.q_stride = all;
    return p;
}

// y (n, n_out) = rows [first, first + n_out) of the stack times xn, with their bias.
static void multiply(CudaScratch *s, const Stack *k, int first, const DeviceTensor *part, float *y) {
    int n = s->batch.n_rows;
    cuda_products_multiply(s, k, first, part->n_out, s->xn, n, y, (size_t)part->n_out, false);
    gpu_add(y, NULL, part->bias, part->n_out, n, cuda_device.stream);
}

static LatentProducts many_products(Workspace *w, const CudaLayer *c) {
    CudaScratch *s = w->device;
    const GpuLayer *l = &c->gpu;
    const Stack *k = &c->stack[QKV];
    bool compressed = l->q_a.n_out > 0;
    const DeviceTensor *first = compressed ? &l->q_a : &l->wq;
    int n = s->batch.n_rows;
    gpu_rmsnorm(s->xn, k->type, s->x, l->norm_att, l->kind.eps, w->dim, NULL, n, cuda_device.stream);
    multiply(s, k, 0, first, s->latent[1]);
    multiply(s, k, first->n_out, &l->wk, s->latent[0]);
    if (compressed) {
        const Stack *q = &c->stack[Q_B];
        gpu_rmsnorm(s->xn, q->type, s->latent[1], l->norm_q_a, l->kind.eps, q->n_in, NULL, n, cuda_device.stream);
        multiply(s, q, 0, &l->wq, s->latent[1]);
    }
    return (LatentProducts){s->latent[1], s->latent[0], (size_t)l->wq.n_out, (size_t)l->wk.n_out};
}

// y = each head's matrix of the stack times x. x is of `type`: that of the stack's product, or F32 if fused.
static void multiply_heads(CudaScratch *s, const Stack *k, int n_heads, GpuHeadRows x, GpuHeadRows y, bool fused) {
    if (fused) gpu_latent_heads(y, x, &k->part[0], n_heads, s->batch.n_rows, cuda_device.stream);
    else cuda_products_heads(s, k, n_heads, x, y, s->batch.n_rows);
}

void cuda_latent_in(Workspace *w, const CudaLayer *c, const KvPool *on_gpu, bool fused) {
    CudaScratch *s = w->device;
    const GpuLayer *l = &c->gpu;
    const Stack *k = &c->stack[K_B];
    int n_heads = l->heads.n_heads, type = fused ? TYPE_F32 : k->type;
    size_t n_in = (size_t)k->n_in, hd = (size_t)l->heads.head_dim;
    LatentProducts p = fused ? few_products(w, l) : many_products(w, c);
    gpu_latent_split(s->q, s->xn, type, p.q, p.q_stride, p.k, p.k_stride, l, on_gpu, &s->batch, &s->gpu,
                     cuda_device.stream);
    multiply_heads(s, k, n_heads, (GpuHeadRows){s->xn, n_in, n_in * (size_t)s->batch.n_rows},
                   (GpuHeadRows){s->q, (size_t)n_heads * hd, hd}, fused);
}

float *cuda_latent_values(Workspace *w, const CudaLayer *c, bool fused) {
    CudaScratch *s = w->device;
    const GpuLayer *l = &c->gpu;
    const Stack *k = &c->stack[V_B];
    int n_heads = l->heads.n_heads;
    size_t hd = (size_t)l->heads.head_dim, row = (size_t)n_heads * hd, v = (size_t)(l->v_b.n_out / n_heads);
    void *x = fused ? (void *)s->a : s->xn;
    multiply_heads(s, k, n_heads, (GpuHeadRows){x, row, hd}, (GpuHeadRows){s->latent[0], (size_t)n_heads * v, v},
                   fused);
    return s->latent[0];
}
