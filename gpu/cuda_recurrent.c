// gpu/cuda_recurrent.c: see gpu/cuda_recurrent.h.
#include "gpu/cuda_recurrent.h"

#include "gpu/cuda_batch.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_products.h"

// ---- the layer ------------------------------------------------------------------------------------------------------

// y = the stack's product with the normalised rows. type: the type in which CudaScratch.xn already has these rows; -1:
// it does not have them.
static void many_products(Workspace *w, const CudaLayer *c, int which, int type, float *y) {
    CudaScratch *s = w->device;
    const Stack *k = &c->stack[which];
    if (k->n_out == 0) return;
    if (type != k->type)
        gpu_rmsnorm(s->xn, k->type, s->x, c->gpu.norm_att, c->gpu.kind.eps, w->dim, NULL, s->batch.n_rows,
                    cuda_device.stream);
    cuda_products_multiply(s, k, 0, k->n_out, s->xn, s->batch.n_rows, y, s->mix_step, false);
}

void cuda_recurrent_in(Workspace *w, const CudaLayer *c, bool fused) {
    CudaScratch *s = w->device;
    const Stack *mix = &c->stack[MIX];
    if (!fused) {
        many_products(w, c, MIX, -1, s->y);
        many_products(w, c, RATES, mix->type, s->y + mix->n_out);
        return;
    }
    for (CudaRows p = {0}; cuda_batch_next(s, &c->gpu.heads, gpu_decode_rows(&c->gpu), &p);)
        gpu_recurrent_in(s->y + p.first * s->mix_step, s->mix_step, s->x + p.first * (size_t)w->dim, &c->gpu, &p.batch,
                         gpu_rounded, cuda_device.stream);
}

// The result goes to `a` in f32 if attn_out uses the fused kernel, otherwise to `xn` in the type of its product.
void cuda_recurrent_run(Workspace *w, const CudaLayer *c, bool fused) {
    CudaScratch *s = w->device;
    void *to = fused ? (void *)s->a : s->xn;
    int type = fused ? TYPE_F32 : c->stack[OUT].type;
    gpu_convolve(to, type, s->mix, s->y, s->mix_step, &c->gpu, &s->batch, &s->states, cuda_device.stream);
    if (c->gpu.kind.mixer != MIXER_CONV)
        gpu_delta(to, type, s->a, s->mix, s->y, s->mix_step, &c->gpu, &s->batch, &s->states, cuda_device.stream);
}

// ---- gated attention ------------------------------------------------------------------------------------------------

void cuda_recurrent_gate_in(Workspace *w, const CudaLayer *c, bool fused) {
    CudaScratch *s = w->device;
    if (!fused) {
        many_products(w, c, MIX, c->stack[QKV].type, s->mix);
        return;
    }
    for (CudaRows p = {0}; cuda_batch_next(s, &c->gpu.heads, gpu_decode_rows(&c->gpu), &p);)
        gpu_gate_in(s->mix + p.first * s->mix_step, s->mix_step, s->x + p.first * (size_t)w->dim, &c->gpu, &p.batch,
                    gpu_rounded, cuda_device.stream);
}

void cuda_recurrent_gate(Workspace *w, const CudaLayer *c, void *a, int type) {
    CudaScratch *s = w->device;
    gpu_gate(a, type, s->mix, s->mix_step, c->gpu.wo.n_in, s->batch.n_rows, cuda_device.stream);
}
