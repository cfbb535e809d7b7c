// gpu/cuda_layers.c: see gpu/cuda_layers.h.
#include "gpu/cuda_layers.h"

#include "gpu/cuda_batch.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_experts.h"
#include "gpu/cuda_latent.h"
#include "gpu/cuda_model.h"
#include "gpu/cuda_per_layer.h"
#include "gpu/cuda_products.h"
#include "gpu/cuda_recurrent.h"

#include <assert.h>

// ---- the operations -------------------------------------------------------------------------------------------------

// Whether this layer uses the fused kernels for the step's rows.
static bool is_fused(const CudaScratch *s, const CudaLayer *c) {
    return s->batch.n_rows <= (c->dense ? gpu_decode_rows(&c->gpu) : CUDA_UNPACK_ROWS) || !cuda_device_has_products();
}

enum { LEAST_TILE = 8 }; // average rows per tile from which gpu_flash is used; with fewer, tiles are mostly empty

// Whether attention uses gpu_flash or gpu_wide_flash with tiles.
static bool by_tiles(const CudaScratch *s, const CudaLayer *c, const KvPool *on_gpu) {
    bool full = s->batch.n_rows >= LEAST_TILE * s->n_tiles;
    return full && !is_fused(s, c) && (gpu_flash_can(&c->gpu.heads, on_gpu) || gpu_wide_can(&c->gpu, on_gpu));
}

void cuda_layers_embed(Workspace *w, const Backend *be, const Ends *e, const KvPool kv[KV_KINDS], const Batch *b) {
    (void)be;
    CudaScratch *s = w->device;
    s->ends = e;
    s->embeds = cuda_batch_send(s, kv, b) ? e : NULL;
    s->drew = false;
}

void cuda_layers_start(CudaScratch *s) {
    const Ends *e = s->embeds;
    if (!e) return;
    const CudaMatrix *m = e->tok_embd.device;
    gpu_embed(s->x, &m->t, e->embd_scale, e->embd_eps, m->ropes, &s->batch, &s->gpu, cuda_device.stream);
    if (e->centred) gpu_centre(s->x, e->tok_embd.n_in, s->batch.n_rows, cuda_device.stream);
    cuda_per_layer_embed(s, e);
    s->embeds = NULL;
}

void cuda_layers_receive(Workspace *w, const Layer *l, const KvPool kv[KV_KINDS], const Batch *b) {
    CudaScratch *s = w->device;
    const CudaLayer *c = l->device;
    s->ends = s->embeds = NULL;
    s->drew = false;
    if (!cuda_batch_send(s, kv, b)) return;
    rt_upload(s->x, w->x, (size_t)b->n_rows * (size_t)w->dim * sizeof(float), cuda_device.stream);
    rt_upload(s->per, w->per, (size_t)b->n_rows * (size_t)w->per_dim * sizeof(float), cuda_device.stream);
    // x is NULL: only the RoPE tables are filled, and the tensor argument is not read
    gpu_embed(NULL, &c->gpu.wq, 1, 0, c->ropes, &s->batch, &s->gpu, cuda_device.stream);
}

void cuda_layers_fetch(Workspace *w, const Batch *b) {
    const CudaScratch *s = w->device;
    rt_download(w->x, s->x, (size_t)b->n_rows * (size_t)w->dim * sizeof(float), cuda_device.stream);
    rt_download(w->per, s->per, (size_t)b->n_rows * (size_t)w->per_dim * sizeof(float), cuda_device.stream);
    rt_sync(cuda_device.stream);
}

void cuda_layers_give(Workspace *w, const Batch *b) {
    const CudaScratch *s = w->device;
    rt_upload(s->x, w->x, (size_t)b->n_rows * (size_t)w->dim * sizeof(float), cuda_device.stream);
}

// The number of floats in a row of Q in this layer; the same for its products of Q, K and V together.
static size_t q_width(const Layer *l) { return (size_t)l->heads.n_heads * (size_t)l->heads.head_dim; }
static size_t qkv_width(const Layer *l) {
    return q_width(l) + 2 * (size_t)l->heads.n_kv_heads * (size_t)l->heads.head_dim;
}

void cuda_layers_attn_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    CudaScratch *s = w->device;
    const CudaLayer *c = l->device;
    const Stack *k = &c->stack[QKV];
    int n = s->batch.n_rows;
    if (mixer_is_recurrent(l->kind.mixer)) return cuda_recurrent_in(w, c, is_fused(s, c));
    bool shares = l->kv_used_later || !layer_owns_kv(l);
    s->q_dim = (int)q_width(l);
    s->gpu.qkv = shares ? s->shared_qkv[l->kv_kind] : s->y;
    if (l->kind.mixer == MIXER_LATENT) cuda_latent_in(w, c, kv->device, b, is_fused(s, c));
    else if (is_fused(s, c))
        for (CudaRows p = {0}; cuda_batch_next(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
            gpu_attn_in(s->q + p.first * q_width(l), s->x + p.first * (size_t)w->dim, &c->gpu, kv->device, &p.batch,
                        &p.scratch, gpu_rounded, cuda_device.stream);
    else {
        gpu_rmsnorm(s->xn, k->type, s->x, c->gpu.norm_att, l->kind.eps, w->dim, NULL, n, cuda_device.stream);
        cuda_products_multiply(s, k, 0, k->n_out, s->xn, n, s->gpu.qkv, qkv_width(l), false);
        gpu_qkv_finish(s->q, &c->gpu, kv->device, &s->batch, &s->gpu, cuda_device.stream);
    }
    if (l->kind.gate) cuda_recurrent_gate_in(w, c, is_fused(s, c));
    if (layer_owns_kv(l)) gpu_seal(&c->gpu, kv->device, &s->batch, &s->gpu, cuda_device.stream);
}

// Adds the attention of the step's queries to Probe.mass on the device.
static void add_probe(CudaScratch *s, const Layer *l, const KvPool *on_gpu, const Probe *probe, size_t q_dim) {
    const CudaLayer *c = l->device;
    size_t layer = (size_t)c->at * (size_t)l->heads.n_kv_heads * (size_t)probe->n_slots;
    for (CudaRows p = {0}; cuda_batch_next(s, &l->heads, s->attend_rows, &p);) {
        int first = int_max(0, probe->first_row - (int)p.first);
        if (first < p.batch.n_rows)
            gpu_probe(probe->device + layer, probe->n_slots, first, s->q + p.first * q_dim, &c->gpu, on_gpu, &p.batch,
                      &p.scratch, cuda_device.stream);
    }
}

// Computes attention by tiles. The result goes to `xn` in `type`.
static void attend_tiles(CudaScratch *s, const Layer *l, const KvPool *on_gpu, int type) {
    const CudaLayer *c = l->device;
    if (gpu_wide_can(&c->gpu, on_gpu))
        gpu_wide_flash(s->xn, type, s->q, &c->gpu, on_gpu, &s->batch, &s->gpu, s->tiles, s->n_tiles,
                       cuda_device.stream);
    else
        gpu_flash(s->xn, type, s->q, q_width(l), &c->gpu, on_gpu, &s->batch, &s->gpu, s->tiles, s->n_tiles,
                  cuda_device.stream);
}

// Computes attention for a range of rows. The result goes to `a` in f32.
static void attend_rows(CudaScratch *s, const Layer *l, const KvPool *on_gpu, const CudaRows *p) {
    const CudaLayer *c = l->device;
    size_t at = p->first * q_width(l);
    if (gpu_wide_can(&c->gpu, on_gpu))
        gpu_wide_flash(s->a + at, TYPE_F32, s->q + at, &c->gpu, on_gpu, &p->batch, &p->scratch, NULL, 0,
                       cuda_device.stream);
    else gpu_attention(s->a + at, s->q + at, &c->gpu, on_gpu, &p->batch, &p->scratch, cuda_device.stream);
}

// Attention of n rows, to `a` in f32.
static void attend_range(CudaScratch *s, const Layer *l, const KvPool *on_gpu, int first, int n) {
    CudaRows p = {.first = (size_t)first};
    for (int left = n; left > 0; left -= p.batch.n_rows) {
        cuda_batch_next(s, &l->heads, int_min(s->attend_rows, left), &p);
        attend_rows(s, l, on_gpu, &p);
    }
}

// Whether rows of the step use the expanded form of compressed K and V.
static bool latent_expands(const CudaScratch *s, const Layer *l, const Batch *b) {
    if (l->kind.mixer != MIXER_LATENT) return false;
    for (CudaLatentRun r = {0}; cuda_latent_next(s, b, &r);)
        if (r.expanded) return true;
    return false;
}

// Attention of a step in which some rows use expanded K and V. The other rows, which are few, use compressed K and V;
// their results go to `xn` in `type`.
static void attend_latent(Workspace *w, const Layer *l, const KvPool *on_gpu, const Batch *b, int type) {
    CudaScratch *s = w->device;
    for (CudaLatentRun r = {0}; cuda_latent_next(s, b, &r);) {
        size_t at = (size_t)r.first * q_width(l), n = (size_t)r.n * q_width(l);
        if (r.expanded) {
            cuda_latent_attend(w, l->device, on_gpu, b, &r);
            continue;
        }
        attend_range(s, l, on_gpu, r.first, r.n);
        gpu_convert((uint8_t *)s->xn + at * dense_bytes(type), type, s->a + at, n, cuda_device.stream);
    }
}

// Stores the result in f32 in `a` if the step has few rows, otherwise in `xn` in the type of the next product.
// The last layer that reads the rows of open groups stores them in the tail pages.
void cuda_layers_attention(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    CudaScratch *s = w->device;
    const CudaLayer *c = l->device;
    int n = s->batch.n_rows, type = c->stack[l->kind.mixer == MIXER_LATENT ? V_B : OUT].type;
    size_t q_dim = q_width(l);
    if (mixer_is_recurrent(l->kind.mixer)) return cuda_recurrent_run(w, c, is_fused(s, c));
    if (latent_expands(s, l, b)) attend_latent(w, l, kv->device, b, type);
    else if (by_tiles(s, c, kv->device)) {
        attend_tiles(s, l, kv->device, type);
        if (l->kind.gate) cuda_recurrent_gate(w, c, s->xn, type);
    } else {
        attend_range(s, l, kv->device, 0, n);
        if (l->kind.gate) cuda_recurrent_gate(w, c, s->a, TYPE_F32);
        if (!is_fused(s, c)) gpu_convert(s->xn, type, s->a, (size_t)n * q_dim, cuda_device.stream);
    }
    if (!l->kv_used_later) gpu_keep(&c->gpu, kv->device, &s->batch, &s->gpu, cuda_device.stream);
    if (b->probe) add_probe(s, l, kv->device, b->probe, q_dim);
}

// x += norm(W from + bias); norm NULL: x += W from + bias.
static void add_product(Workspace *w, const Stack *k, const void *from, const float *norm, float eps) {
    CudaScratch *s = w->device;
    const float *bias = k->part[0].bias;
    int n = s->batch.n_rows;
    cuda_products_multiply(s, k, 0, w->dim, from, n, norm ? s->gpu.behind : s->x, (size_t)w->dim, !norm);
    if (norm) gpu_add_normed(s->x, s->gpu.behind, bias, norm, eps, w->dim, n, cuda_device.stream);
    else if (bias) gpu_add(s->x, NULL, bias, w->dim, n, cuda_device.stream);
}

void cuda_layers_attn_out(Workspace *w, const Layer *l, const Batch *b) {
    CudaScratch *s = w->device;
    const CudaLayer *c = l->device;
    const Stack *k = &c->stack[OUT];
    const float *from = s->a;
    if (l->kind.mixer == MIXER_LATENT) {
        from = cuda_latent_values(w, c, b, is_fused(s, c));
        if (!is_fused(s, c))
            gpu_convert(s->xn, k->type, from, (size_t)s->batch.n_rows * (size_t)k->n_in, cuda_device.stream);
    }
    if (!is_fused(s, c)) return add_product(w, k, s->xn, c->gpu.norm_att_out, kind_eps_out(&l->kind));
    for (CudaRows p = {0}; cuda_batch_next(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
        gpu_attn_out(s->x + p.first * (size_t)w->dim, from + p.first * (size_t)c->gpu.wo.n_in, &c->gpu, &p.batch,
                     &p.scratch, gpu_rounded, cuda_device.stream);
}

void cuda_layers_ffn_in(Workspace *w, const Layer *l, const Batch *b) {
    (void)b;
    CudaScratch *s = w->device;
    const CudaLayer *c = l->device;
    const Stack *k = &c->stack[GATE_UP];
    int n = s->batch.n_rows;
    size_t ffn = (size_t)l->w_gate.n_out;
    if (l->kind.ffn == FFN_EXPERTS) return cuda_experts_in(w, c, is_fused(s, c));
    if (is_fused(s, c)) {
        for (CudaRows p = {0}; cuda_batch_next(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
            gpu_ffn_in(s->h + p.first * ffn, s->x + p.first * (size_t)w->dim, &c->gpu, &p.batch, gpu_rounded,
                       cuda_device.stream);
        return;
    }
    void *xn = l->kind.parallel ? (void *)s->q : s->xn; // in a parallel layer xn has the result of attention
    gpu_rmsnorm(xn, k->type, s->x, c->gpu.norm_ffn, l->kind.eps, w->dim, NULL, n, cuda_device.stream);
    cuda_products_gated(s, k, xn, n, &l->kind, s->h, c->stack[DOWN].type);
}

// The feed-forward without experts.
static void dense_out(Workspace *w, const Layer *l, bool fused) {
    CudaScratch *s = w->device;
    const CudaLayer *c = l->device;
    if (!fused) return add_product(w, &c->stack[DOWN], s->h, c->gpu.norm_ffn_out, kind_eps_out(&l->kind));
    for (CudaRows p = {0}; cuda_batch_next(s, &l->heads, gpu_decode_rows(&c->gpu), &p);)
        gpu_ffn_out(s->x + p.first * (size_t)w->dim, s->h + p.first * (size_t)l->w_gate.n_out, &c->gpu, &p.batch,
                    &p.scratch, gpu_rounded, cuda_device.stream);
}

void cuda_layers_ffn_out(Workspace *w, const Layer *l, const Batch *b) {
    (void)b;
    const CudaLayer *c = l->device;
    bool fused = is_fused(w->device, c);
    if (l->kind.ffn == FFN_EXPERTS) cuda_experts_out(w, c, fused);
    else dense_out(w, l, fused);
    cuda_per_layer_end(w, c, fused);
    CudaScratch *s = w->device;
    if (l->kind.centred) gpu_centre(s->x, w->dim, s->batch.n_rows, cuda_device.stream);
}

// Many rows use cuBLAS, one slice of the head at a time, if their normalised copy fits into `xn`.
void cuda_layers_head(Workspace *w, const Ends *e, const int *rows, int n_rows) {
    CudaScratch *s = w->device;
    const CudaMatrix *m = e->head.device;
    size_t n_vocab = (size_t)w->n_vocab;
    int most = gpu_logits_rows(&m->t);
    assert(n_rows <= w->max_out);
    if (n_rows > 2 * GPU_DECODE_ROWS && n_rows <= w->max_rows && cuda_device_has_products()) {
        gpu_rmsnorm(s->xn, m->stack.type, s->x, m->norm, e->eps, w->dim, rows, n_rows, cuda_device.stream);
        cuda_products_multiply(s, &m->stack, 0, w->n_vocab, s->xn, n_rows, s->logits, n_vocab, false);
    } else
        for (int first = 0; first < n_rows; first += most)
            gpu_logits(s->logits + (size_t)first * n_vocab, s->x, &m->t, m->norm, e->eps, rows + first,
                       int_min(most, n_rows - first), gpu_rounded, cuda_device.stream);
    if (e->softcap != 0) gpu_softcap(s->logits, e->softcap, (size_t)n_rows * n_vocab, cuda_device.stream);
}

bool cuda_layers_fused(const Workspace *w, const Layer *l, int n) {
    const CudaScratch *s = w->device;
    for (int i = 0; i < n; i++)
        if (!is_fused(s, l[i].device) || l[i].host_ffn) return false; // a graph cannot contain the host's work
    return s->batch.n_rows <= CUDA_UNPACK_ROWS;
}
