// gpu/cuda_latent.c: see gpu/cuda_latent.h.
#include "gpu/cuda_latent.h"

#include "gpu/cuda_batch.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_products.h"

// Computes the first products of a step into s->latent: Q, and the vector that is stored.
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
        gpu_latent_in(s->latent[0] + at * stride, s->x + at * (size_t)w->dim, l, n, gpu_rounded, cuda_device.stream);
        if (l->q_a.n_out > 0)
            gpu_latent_q(s->latent[1] + at * all, s->latent[0] + at * stride, l, n, gpu_rounded, cuda_device.stream);
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

// ---- the absorbed form ----------------------------------------------------------------------------------------------

// y = each head's matrix of the stack times x. x is of `type`: that of the stack's product, or F32 if fused.
static void multiply_heads(CudaScratch *s, const Stack *k, int n_heads, GpuHeadRows x, GpuHeadRows y, int n_rows,
                           bool fused) {
    if (fused) gpu_latent_heads(y, x, &k->part[0], n_heads, n_rows, cuda_device.stream);
    else
        cuda_products_heads(
            s, k,
            &(HeadProducts){.n_heads = n_heads, .n = n_heads, .x = x, .y = y, .y_type = TYPE_F32, .n_rows = n_rows});
}

static void absorb(CudaScratch *s, const CudaLayer *c, const LatentProducts *p, const KvPool *on_gpu, const CudaRows *r,
                   bool fused) {
    const GpuLayer *l = &c->gpu;
    const Stack *k = &c->stack[K_B];
    int n_heads = l->heads.n_heads, n = r->batch.n_rows;
    size_t n_in = (size_t)k->n_in, hd = (size_t)l->heads.head_dim, row = (size_t)n_heads * hd;
    float *q = s->q + r->first * row;
    gpu_latent_split(q, s->xn, fused ? TYPE_F32 : k->type, p->q + r->first * p->q_stride, p->q_stride,
                     p->k + r->first * p->k_stride, p->k_stride, l, on_gpu, &r->batch, &r->scratch, cuda_device.stream);
    multiply_heads(s, k, n_heads, (GpuHeadRows){s->xn, n_in, n_in * (size_t)n}, (GpuHeadRows){q, row, hd}, n, fused);
}

float *cuda_latent_values(Workspace *w, const CudaLayer *c, const Batch *b, bool fused) {
    CudaScratch *s = w->device;
    const GpuLayer *l = &c->gpu;
    const Stack *k = &c->stack[V_B];
    int n_heads = l->heads.n_heads;
    size_t hd = (size_t)l->heads.head_dim, row = (size_t)n_heads * hd, v = (size_t)(l->v_b.n_out / n_heads);
    for (CudaLatentRun r = {0}; cuda_latent_next(s, b, &r);) {
        size_t first = (size_t)r.first;
        void *x = fused ? (void *)(s->a + first * row) : (uint8_t *)s->xn + first * row * dense_bytes(k->type);
        float *y = s->latent[0] + first * (size_t)n_heads * v;
        if (!r.expanded)
            multiply_heads(s, k, n_heads, (GpuHeadRows){x, row, hd}, (GpuHeadRows){y, (size_t)n_heads * v, v}, r.n,
                           fused);
    }
    return s->latent[0];
}

// ---- the expanded form ----------------------------------------------------------------------------------------------

static LatentSizes sizes_of(const GpuLayer *l) {
    int n_heads = l->heads.n_heads, rot = l->rope.n_rot;
    return (LatentSizes){l->k_b.n_in, rot, l->k_b.n_in + rot, l->v_b.n_out / n_heads, heads_v_dim(&l->heads), n_heads};
}

// Bytes of the compressed vectors of n_slots slots; of K and V of a head.
static size_t vector_bytes(const LatentSizes *z, int n_slots) {
    return round_up((size_t)n_slots * (size_t)z->rank * 2, 256);
}
static size_t head_bytes(const LatentSizes *z, int n_slots) { return (size_t)n_slots * (size_t)(z->query + z->v) * 2; }

// The most heads whose K and V fit at once.
static int heads_at_once(const CudaScratch *s, const LatentSizes *z, int n_slots) {
    size_t fixed = vector_bytes(z, n_slots) + 256, all = s->expansion_bytes;
    size_t n = all > fixed ? (all - fixed) / head_bytes(z, n_slots) : 0;
    return n < (size_t)z->n_heads ? (int)n : z->n_heads;
}

static bool expansion_can(const CudaLayer *c, const KvPool *on_gpu, const Batch *b, const LatentSizes *z) {
    const GpuLayer *l = &c->gpu;
    int type = c->stack[K_B].type, kv = on_gpu->type_k;
    bool types = type != TYPE_F32 && type == c->stack[V_B].type && (kv == TYPE_F16 || kv == TYPE_BF16);
    return types && !b->probe && l->heads.window == 0 && !l->sinks && z->query <= l->heads.head_dim &&
           gpu_latent_flash_can(z);
}

// Fills CudaScratch.expands.
static void choose_forms(CudaScratch *s, const CudaLayer *c, const KvPool *on_gpu, const Batch *b, bool fused) {
    LatentSizes z = sizes_of(&c->gpu);
    bool possible = !fused && expansion_can(c, on_gpu, b, &z);
    for (int row = 0, n; row < b->n_rows; row += n) {
        double seen = 0;
        for (n = 0; row + n < b->n_rows && b->seq[row + n] == b->seq[row]; n++) seen += b->slot[row + n] + 1;
        int n_slots = b->slot[row + n - 1] + 1;
        s->expands[b->seq[row]] =
            possible && latent_sizes_expand(&z, seen, n, n_slots) && heads_at_once(s, &z, n_slots) > 0;
    }
}

bool cuda_latent_next(const CudaScratch *s, const Batch *b, CudaLatentRun *r) {
    int first = r->first + r->n, n_rows = s->batch.n_rows, end = first + 1;
    if (first >= n_rows) return false;
    bool expanded = first < b->n_rows && s->expands[b->seq[first]];
    for (; end < n_rows; end++) { // padding is absorbed
        bool other = end >= b->n_rows || !s->expands[b->seq[end]] ? expanded : !expanded;
        if (other || (expanded && b->seq[end] != b->seq[first])) break;
    }
    *r = (CudaLatentRun){first, end - first, expanded};
    return true;
}

void cuda_latent_attend(Workspace *w, const CudaLayer *c, const KvPool *on_gpu, const Batch *b,
                        const CudaLatentRun *r) {
    CudaScratch *s = w->device;
    const GpuLayer *l = &c->gpu;
    LatentSizes z = sizes_of(l);
    int n_slots = b->slot[r->first + r->n - 1] + 1, most = heads_at_once(s, &z, n_slots), type = c->stack[K_B].type;
    size_t slots = (size_t)n_slots, query = (size_t)z.query, v = (size_t)z.v, rank = (size_t)z.rank;
    size_t q_row = (size_t)z.n_heads * (size_t)l->heads.head_dim, out_row = (size_t)z.n_heads * v;
    uint8_t *vectors = s->expansion, *keys = vectors + vector_bytes(&z, n_slots);
    CudaRows rows = {.first = (size_t)r->first};
    cuda_batch_next(s, &l->heads, r->n, &rows);
    GpuBatch part = rows.batch;
    part.block_table = s->no_blocks;
    part.table_step = 0;
    for (int head = 0, n; head < z.n_heads; head += n) {
        n = int_min(most, z.n_heads - head);
        uint8_t *values = keys + round_up((size_t)n * slots * query * 2, 256);
        KvPool expanded = {.n_layers = 1,
                           .n_blocks = 1,
                           .n_kv_heads = n,
                           .block = n_slots,
                           .head_dim = z.query,
                           .v_dim = z.v,
                           .type_k = type,
                           .type_v = type,
                           .k = keys,
                           .v = values};
        HeadProducts p = {.n_heads = z.n_heads, .first = head, .n = n, .y_type = type, .n_rows = n_slots};
        p.x = (GpuHeadRows){vectors, rank, 0};
        gpu_latent_read(head == 0 ? vectors : NULL, keys, type, &z, n, b->seq[r->first], n_slots, l, on_gpu, &s->batch,
                        cuda_device.stream);
        p.y = (GpuHeadRows){values, v, slots * v};
        cuda_products_heads(s, &c->stack[V_B], &p);
        p.y = (GpuHeadRows){keys, query, slots * query};
        p.transposed = true;
        cuda_products_heads(s, &c->stack[K_B], &p);
        gpu_latent_flash(s->latent[0] + rows.first * out_row + (size_t)head * v, out_row,
                         s->q + rows.first * q_row + (size_t)head * query, q_row, l, n, &expanded, &part,
                         cuda_device.stream);
    }
}

// ---- before attention -----------------------------------------------------------------------------------------------

void cuda_latent_in(Workspace *w, const CudaLayer *c, const KvPool *on_gpu, const Batch *b, bool fused) {
    CudaScratch *s = w->device;
    const GpuLayer *l = &c->gpu;
    size_t q_row = (size_t)l->heads.n_heads * (size_t)l->heads.head_dim;
    LatentProducts p = fused ? few_products(w, l) : many_products(w, c);
    choose_forms(s, c, on_gpu, b, fused);
    for (CudaLatentRun r = {0}; cuda_latent_next(s, b, &r);) {
        CudaRows rows = {.first = (size_t)r.first};
        cuda_batch_next(s, &l->heads, r.n, &rows);
        if (r.expanded)
            gpu_latent_split(s->q + rows.first * q_row, NULL, TYPE_F32, p.q + rows.first * p.q_stride, p.q_stride,
                             p.k + rows.first * p.k_stride, p.k_stride, l, on_gpu, &rows.batch, &rows.scratch,
                             cuda_device.stream);
        else absorb(s, c, &p, on_gpu, &rows, fused);
    }
}
