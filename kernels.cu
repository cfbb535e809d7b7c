// kernels.cu: the launch functions of gpu/launch.h, which decide the shapes of the grids. The kernels are in gpu/*.cuh.
#include "gpu/attend_tiles.cuh"
#include "gpu/attention.cuh"
#include "gpu/ceilings.cuh"
#include "gpu/flash.cuh"
#include "gpu/heads.cuh"
#include "gpu/probe.cuh"
#include "gpu/latent.cuh"
#include "gpu/moe_launch.cuh"
#include "gpu/per_layer.cuh"
#include "gpu/recurrent_launch.cuh"
#include "gpu/products.cuh"
#include "gpu/rows.cuh"
#include "gpu/sample.cuh"
#include "gpu/sealed.cuh"
#include "gpu/tensors.cuh"
#include "gpu/wide_flash.cuh"

#include <limits.h>
#include <stdio.h>

// ---- errors ---------------------------------------------------------------------------------------------------------

static Status first_error;
static bool has_error;

void gpu_launch_failed(const char *kernel, int code, const char *why) {
    if (has_error) return;
    first_error.code = code;
    snprintf(first_error.message, sizeof first_error.message, "%s: %s", kernel, why);
    has_error = true;
}

const Status *gpu_launch_error(void) {
    const Status *e = has_error ? &first_error : NULL;
    has_error = false;
    return e;
}

GpuTuning gpu_tune(GpuTuning t) {
    t.early = t.early && gpu_waits(gemv<TYPE_BF16, GEMV_FEW, 1, false, false>);
    t.wgmma = t.wgmma && flash_sm90_supported();
    return tuning = t;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

static const size_t PLANE_ALIGN = 256;

static size_t plane_size(size_t bytes) { return (bytes + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN; }

static bool has_units(const Tensor *t) { return t->group % UNIT == 0 && t->n_in % UNIT == 0; }

// Bytes of the planes in the order quants, high, scales, d.
static void plane_sizes(const DeviceTensor *t, size_t size[4]) {
    PlaneBytes p = plane_bytes(t->type);
    size_t units = (size_t)t->n_out * (size_t)(t->n_in / UNIT);
    if (is_dense(t->type)) {
        size[0] = (size_t)t->n_out * t->stride_bytes;
        size[1] = size[2] = size[3] = 0;
        return;
    }
    size[0] = units * (size_t)p.quants;
    size[1] = units * (size_t)p.high;
    size[2] = units * (size_t)p.scales;
    size[3] = (p.super ? units / SUPER_UNITS : units) * (size_t)p.d;
}

size_t gpu_tensor_bytes(const Tensor *t, DeviceTensor *out) {
    DeviceTensor d = {};
    d.type = t->type == TYPE_I8G && !has_units(t) ? (int)TYPE_F32 : t->type;
    assert(tensor_rows(t) <= INT_MAX);
    d.n_out = (int)tensor_rows(t);
    d.n_in = t->n_in;
    if (is_dense(d.type)) d.stride_bytes = ((size_t)t->n_in + 7) / 8 * 8 * (d.type == TYPE_F32 ? 4 : 2);
    *out = d;
    size_t size[4], sum = 0;
    plane_sizes(&d, size);
    for (int i = 0; i < 4; i++) sum += plane_size(size[i]);
    return sum;
}

void gpu_tensor_place(DeviceTensor *t, void *memory) {
    size_t size[4];
    plane_sizes(t, size);
    uint8_t *at = (uint8_t *)memory, **plane[4] = {&t->quants, &t->high, &t->scales, &t->d};
    for (int i = 0; i < 4; at += plane_size(size[i]), i++) *plane[i] = size[i] ? at : NULL;
}

void gpu_tensor_fill(const DeviceTensor *t, const Tensor *file, int first_row, int n_rows, const void *raw,
                     const float *scales, GpuStream stream) {
    FillJob j = {*t, (const uint8_t *)raw, file->row_bytes, scales, file->group, first_row, n_rows};
    if (is_dense(t->type)) {
        int padded = (t->n_in + 7) / 8 * 8;
        unsigned blocks = blocks_for((size_t)n_rows * (size_t)padded, THREADS);
        LAUNCH(fill_dense, blocks, THREADS, 0, stream, j, file->type, padded);
        return;
    }
    unsigned blocks = blocks_for((size_t)n_rows * (size_t)(t->n_in / UNIT), THREADS);
    switch (t->type) {
#define FILL(TYPE)                                                                                                     \
    case TYPE: LAUNCH(fill_units<TYPE>, blocks, THREADS, 0, stream, j); break;
        EACH_QUANT(FILL)
#undef FILL
    }
}

void gpu_dequantize(const DeviceTensor *t, int first_row, int n_rows, int type, void *out, size_t stride,
                    GpuStream stream) {
    unsigned blocks = blocks_for((size_t)n_rows * (size_t)((t->n_in + UNIT - 1) / UNIT), THREADS);
    switch (t->type) {
#define TO_DENSE(TYPE)                                                                                                 \
    case TYPE: LAUNCH(to_dense<TYPE>, blocks, THREADS, 0, stream, *t, first_row, n_rows, type, out, stride); break;
        EACH_QUANT(TO_DENSE)
        EACH_DENSE(TO_DENSE)
#undef TO_DENSE
    }
}

// ---- the batch ------------------------------------------------------------------------------------------------------

void gpu_copy_blocks(const KvPool *kv, const int (*copy)[2], const int (*tail_copy)[2], int n_copies,
                     GpuStream stream) {
    unsigned n_layers = (unsigned)kv->n_layers;
    for (int v = 0; v < kv_planes(kv); v++) {
        size_t layer = (v ? kv->bytes_v : kv->bytes_k) / n_layers, bytes = layer / (size_t)kv->n_blocks;
        uint8_t *plane = v ? kv->v : kv->k, *tail = (uint8_t *)(v ? kv->tail_v : kv->tail_k);
        dim3 words(blocks_for(bytes / 4, THREADS), n_layers), pairs(blocks_for(bytes / 2, THREADS), n_layers);
        if (bytes % 4 == 0)
            LAUNCH(copy_blocks<uint32_t>, words, THREADS, 0, stream, plane, bytes, layer, copy, n_copies);
        else LAUNCH(copy_blocks<uint16_t>, pairs, THREADS, 0, stream, plane, bytes, layer, copy, n_copies);
        if (!tail) continue;
        size_t page = kv_tail_at(kv, kv_plane_dim(kv, v), 0, 1, 0, 0) * sizeof(float);
        dim3 pages(blocks_for(page / 4, THREADS), n_layers);
        LAUNCH(copy_blocks<uint32_t>, pages, THREADS, 0, stream, tail, page, page * (size_t)kv->n_tails, tail_copy,
               n_copies);
    }
}

void gpu_close_up(const KvPool *kv, const int *blocks, const int *keep, int n, GpuStream stream) {
    for (int v = 0; v < 2; v++) {
        size_t words = kv_slot_bytes(v ? kv->type_v : kv->type_k, kv->head_dim) / 4;
        dim3 grid(blocks_for(words, 64), (unsigned)kv->n_kv_heads, (unsigned)kv->n_layers);
        LAUNCH(close_up_slots, grid, 64, 0, stream, *kv, v == 1, blocks, keep, n);
    }
}

void gpu_embed(float *x, const DeviceTensor *tok, float scale, float eps, const GpuRopes *ropes, const GpuBatch *b,
               const GpuScratch *s, GpuStream stream) {
    switch (tok->type) {
#define EMBED(TYPE)                                                                                                    \
    case TYPE:                                                                                                         \
        LAUNCH(embed_rows<TYPE>, (unsigned)b->n_rows, 128, 128 / WARP * 4, stream, x, *tok, scale, eps, *ropes, *b,    \
               *s);                                                                                                    \
        break;
        EACH_QUANT(EMBED)
        EACH_DENSE(EMBED)
#undef EMBED
    }
}

void gpu_move_rows(void *x, int width, const int *rows, int n, GpuStream stream) {
    LAUNCH(move_rows, blocks_for((size_t)width, THREADS), THREADS, 0, stream, (uint32_t *)x, (size_t)width, rows, n);
}

// ---- products of few rows -------------------------------------------------------------------------------------------

// The number of products of the layer. 1: Q; 2: Q and K, if V is K; 3: Q, K and V.
static int qkv_parts(const GpuLayer *l) { return l->wv.n_out > 0 ? 3 : l->wk.n_out > 0 ? 2 : 1; }

// The matrix whose product is multiplied by the activation of the gate's.
static const DeviceTensor &factor_of(const GpuLayer *l) { return l->w_up.n_out > 0 ? l->w_up : l->w_gate; }

int gpu_decode_rows(const GpuLayer *l) {
    const DeviceTensor *const in[] = {&l->wq, &l->wk, &l->wv}, *const out[] = {&l->wo}, *const down[] = {&l->w_down};
    const DeviceTensor *const ffn[] = {&l->w_gate, &factor_of(l)};
    bool all = skinny_type_of(in, qkv_parts(l)) && skinny_type_of(out, 1) && skinny_type_of(ffn, 2) &&
               skinny_type_of(down, 1) && (l->w_mix.n_out == 0 || skinny_type(l->w_mix.type));
    return tuning.skinny && all ? GPU_SKINNY_ROWS : GPU_DECODE_ROWS;
}

int gpu_logits_rows(const DeviceTensor *head) {
    return tuning.skinny && skinny_type(head->type) ? GPU_SKINNY_ROWS : GPU_DECODE_ROWS;
}

// Whether Q and K have norms over a whole row: then the kernel of the product cannot finish a head.
static bool norms_rows(const GpuLayer *l) { return l->kind.qk_norm == QK_NORM_ROW && l->norm_q && l->norm_k; }

static HeadJob head_job(const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s, float *q) {
    size_t table = gpu_rope_at(s, l->rope.table, 0);
    HeadJob j = {};
    j.heads = l->heads;
    j.rope = l->rope;
    j.norm_q = norms_rows(l) ? NULL : l->norm_q;
    j.norm_k = norms_rows(l) ? NULL : l->norm_k;
    j.norm_v = l->norm_v;
    j.norm_turned = l->kind.qk_norm == QK_NORM_TURNED;
    j.v_is_k = qkv_parts(l) == 2;
    j.n_finished = l->heads.n_heads + (qkv_parts(l) - 1) * l->heads.n_kv_heads;
    j.eps = l->kind.eps;
    j.layer = l->index;
    j.kv = *kv;
    j.b = in_pool(b, kv);
    j.rope_cos = s->rope_cos + table;
    j.rope_sin = s->rope_sin + table;
    j.rope_step = s->rope_step;
    j.q = q;
    j.qkv = s->qkv;
    return j;
}

// Whether heads need nothing but biases and RoPE of all elements, so that each pair of elements is finished by itself.
static bool finishes_pairs(const HeadJob &j) {
    bool sealed = kv_is_sealed(j.kv.type_k) || kv_is_sealed(j.kv.type_v);
    return !j.norm_q && !j.norm_k && !j.norm_v && !sealed && !j.kv.rotate && j.rope.temperature == 0 &&
           j.rope.n_rot == j.heads.head_dim;
}

// Finishes the heads of Q, K and V from the products in s->qkv; adds the biases first.
static void finish(float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                   HeadBiases biases, GpuStream stream) {
    HeadJob j = head_job(l, kv, b, s, q);
    size_t heads = (size_t)b->n_rows * (size_t)j.n_finished, warps = THREADS / WARP;
    size_t smem = warps * (size_t)l->heads.head_dim * 4;
    if (norms_rows(l)) {
        int n_q = l->heads.n_heads * l->heads.head_dim, n_k = l->heads.n_kv_heads * l->heads.head_dim;
        LAUNCH(norm_qk_rows, dim3((unsigned)b->n_rows, 2), THREADS, THREADS / WARP * 4, stream, s->qkv,
               qkv_stride(l->heads), n_q, n_k, biases.of[HEAD_Q], biases.of[HEAD_K], l->norm_q, l->norm_k, l->kind.eps);
        biases.of[HEAD_Q] = biases.of[HEAD_K] = NULL;
    }
    LAUNCH(finish_rows, blocks_for(heads, warps), THREADS, smem, stream, j, biases);
}

void gpu_attn_in(float *q, const float *x, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                 GpuProduct how, GpuStream stream) {
    // Norms behind RoPE, and V that is K: code for them in gemv would need more registers.
    bool behind = l->kind.qk_norm == QK_NORM_TURNED && (l->norm_q || l->norm_k);
    bool apart = norms_rows(l) || behind || qkv_parts(l) == 2;
    GemvJob g = gemv_job(l->wq, b->n_rows, x, s->qkv, qkv_stride(l->heads), apart ? GEMV_STACK : GEMV_QKV);
    g.w[1] = l->wk;
    g.w[2] = l->wv;
    g.norm = l->norm_att;
    g.eps = l->kind.eps;
    g.heads = head_job(l, kv, b, s, q);
    g.paired = !apart && finishes_pairs(g.heads);
    g.counters = s->counters;
    gemv_run(g, qkv_parts(l), how, stream);
    if (apart) finish(q, l, kv, b, s, HeadBiases(), stream);
}

void gpu_product(float *y, const float *x, const DeviceTensor *w, const float *norm, float eps, int n_rows,
                 GpuProduct how, GpuStream stream) {
    GemvJob g = gemv_job(*w, n_rows, x, y, (size_t)w->n_out, GEMV_STORE);
    g.norm = norm;
    g.eps = eps;
    gemv_run(g, 1, how, stream);
}

void gpu_latent_split(float *q, void *plain, int type, const float *from_q, size_t q_stride, const float *from_k,
                      size_t k_stride, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                      GpuStream stream) {
    int n_plain = l->k_b.n_in, warps = THREADS / WARP;
    LatentSplitJob j = {head_job(l, kv, b, s, q), from_q, from_k, q_stride, k_stride, plain, type, n_plain};
    size_t each = (size_t)b->n_rows * (size_t)(l->heads.n_heads + 1);
    size_t smem = (size_t)warps * (size_t)l->heads.head_dim * 4;
    LAUNCH_EARLY(tuning.early, latent_split, blocks_for(each, (size_t)warps), THREADS, smem, stream, j);
}

// x += norm(w from); without a norm x += w from.
static void add_product(float *x, const float *from, const DeviceTensor &w, const float *norm, const GpuLayer *l,
                        const GpuBatch *b, const GpuScratch *s, GpuProduct how, GpuStream stream) {
    float *y = norm ? s->behind : x;
    gemv_run(gemv_job(w, b->n_rows, from, y, (size_t)w.n_out, norm ? GEMV_STORE : GEMV_ADD), 1, how, stream);
    if (norm) gpu_add_normed(x, y, NULL, norm, kind_eps_out(&l->kind), w.n_out, b->n_rows, stream);
}

void gpu_attn_out(float *x, const float *a, const GpuLayer *l, const GpuBatch *b, const GpuScratch *s, GpuProduct how,
                  GpuStream stream) {
    add_product(x, a, l->wo, l->norm_att_out, l, b, s, how, stream);
}

void gpu_ffn_in(float *h, const float *x, const GpuLayer *l, const GpuBatch *b, GpuProduct how, GpuStream stream) {
    if (l->kind.act != ACT_XIELU) return glu(h, x, l->w_gate, factor_of(l), l, b->n_rows, how, stream);
    GemvJob g = gemv_job(l->w_gate, b->n_rows, x, h, (size_t)l->w_gate.n_out, GEMV_STORE);
    g.norm = l->norm_ffn;
    g.eps = l->kind.eps;
    gemv_run(g, 1, how, stream);
    gpu_xielu(h, TYPE_F32, &l->kind.xielu, h, TYPE_F32, NULL, l->w_gate.n_out, b->n_rows, stream);
}

void gpu_ffn_out(float *x, const float *h, const GpuLayer *l, const GpuBatch *b, const GpuScratch *s, GpuProduct how,
                 GpuStream stream) {
    add_product(x, h, l->w_down, l->norm_ffn_out, l, b, s, how, stream);
}

void gpu_logits(float *logits, const float *x, const DeviceTensor *head, const float *norm, float eps, const int *rows,
                int n, GpuProduct how, GpuStream stream) {
    GemvJob g = gemv_job(*head, n, x, logits, (size_t)head->n_out, GEMV_STORE);
    g.rows = rows;
    g.norm = norm;
    g.eps = eps;
    gemv_run(g, 1, how, stream);
}

// ---- attention ------------------------------------------------------------------------------------------------------

static int probe_n_splits(int max_slots) { return (max_slots + SPLIT - 1) / SPLIT; }

size_t gpu_attention_bytes(const Heads *h, int max_rows, int max_slots) {
    size_t rows = (size_t)max_rows * (size_t)h->n_heads, splits = (size_t)split_bound(max_slots);
    if (splits == 1) return rows * 2 * sizeof(float); // gpu_probe needs these
    return rows * splits * (size_t)partial_floats(h->head_dim) * sizeof(float);
}

int gpu_n_counters(const Heads *h, int max_rows) {
    int heads = h->n_heads + 2 * h->n_kv_heads, pairs = max_rows * h->n_heads;
    return heads > pairs ? heads : pairs;
}

static AttendJob attend_job(const float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                            int n_splits) {
    AttendJob j = {};
    j.q = q;
    j.partial = s->partial;
    j.heads = l->heads;
    j.kv = *kv;
    j.b = in_pool(b, kv);
    j.qkv = s->qkv;
    j.layer = l->index;
    j.n_splits = n_splits;
    j.sinks = l->sinks;
    return j;
}

template <int TYPE, int HEADS> static void attend_launch(const AttendJob &j, GpuStream stream) {
    int group = j.heads.n_heads / j.heads.n_kv_heads, passes = (group + HEADS - 1) / HEADS;
    size_t padded = (size_t)(j.heads.head_dim + 7) / 8 * 8, hd = (size_t)j.heads.head_dim;
    size_t smem = HEADS * padded * 4 + HEADS * SPLIT * 4 + COMBINE_FACTORS * 4 + (HEADS * hd * 4 + 15) / 16 * 16 + 112;
    dim3 grid((unsigned)j.n_splits, (unsigned)(j.heads.n_kv_heads * passes), (unsigned)j.b.n_rows);
    LAUNCH_EARLY(tuning.early, (attend<TYPE, HEADS>), grid, ATTEND_THREADS, smem, stream, j);
}

// The query heads of a group that one block computes: as many as registers allow.
template <int TYPE> static void attend_heads(const AttendJob &j, GpuStream stream) {
    int group = j.heads.n_heads / j.heads.n_kv_heads;
    if (group == 1) attend_launch<TYPE, 1>(j, stream);
    else if (group <= 4) attend_launch<TYPE, 4>(j, stream);
    else attend_launch<TYPE, 8>(j, stream);
}

template <int TYPE, int HEADS> static void attend_tiles_launch(const AttendJob &j, GpuStream stream) {
    int group = j.heads.n_heads / j.heads.n_kv_heads, hd = j.heads.head_dim;
    size_t smem = attend_tiles_smem(hd, HEADS, j.longest);
    dim3 grid((unsigned)j.n_splits, (unsigned)(j.heads.n_kv_heads * ((group + HEADS - 1) / HEADS)),
              (unsigned)j.b.n_rows);
    LAUNCH_EARLY(j.early, (attend_tiles<TYPE, HEADS>), grid, ATTEND_THREADS, smem, stream, j);
}

// Groups of more than 8 heads take two of an mma's operands, so that K and V are read once, if shared memory suffices
// for the longest splits. So a model has one of both kernels for every length of the context.
template <int TYPE> static void attend_by_tiles(const AttendJob &j, GpuStream stream) {
    bool large = j.heads.n_heads / j.heads.n_kv_heads > MMA_HEADS;
    if (large && attend_tiles_smem(j.heads.head_dim, 2 * MMA_HEADS, SPLIT) <= shared_memory())
        return attend_tiles_launch<TYPE, 2 * MMA_HEADS>(j, stream);
    attend_tiles_launch<TYPE, MMA_HEADS>(j, stream);
}

void gpu_attention(float *a, const float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
                   const GpuScratch *s, GpuStream stream) {
    AttendJob j = attend_job(q, l, kv, b, s, split_bound(b->max_slots));
    j.out = a;
    j.counters = s->counters;
    j.longest = split_of(b->max_slots - 1);
    j.early = tuning.early;
    bool whole = l->heads.head_dim % 8 == 0 && kv->type_k == kv->type_v;
    bool tiles = l->heads.head_dim <= TILE_HEAD && kv_v_dim(kv) == kv->head_dim && !kv->v_in_k;
    if (whole && tiles && kv->type_k == TYPE_F16) return attend_by_tiles<TYPE_F16>(j, stream);
    if (whole && tiles && kv->type_k == TYPE_BF16) return attend_by_tiles<TYPE_BF16>(j, stream);
    switch (whole ? kv->type_k : ANY_TYPE) {
    case TYPE_F32: attend_heads<TYPE_F32>(j, stream); break;
    case TYPE_FP8: attend_heads<TYPE_FP8>(j, stream); break;
    case TYPE_Q8_0: attend_heads<TYPE_Q8_0>(j, stream); break;
    case TYPE_Q4_0: attend_heads<TYPE_Q4_0>(j, stream); break;
    case TYPE_KIVI2: attend_heads<TYPE_KIVI2>(j, stream); break;
    default: attend_heads<ANY_TYPE>(j, stream);
    }
}

template <int TYPE> static void probe_launch(const ProbeJob &p, GpuStream stream) {
    const AttendJob &j = p.a;
    dim3 all((unsigned)j.n_splits, (unsigned)j.heads.n_heads, (unsigned)j.b.n_rows);
    dim3 slots((unsigned)j.n_splits, (unsigned)j.heads.n_kv_heads);
    size_t smem = probe_smem(j.heads.head_dim);
    LAUNCH(probe_splits<TYPE>, all, ATTEND_THREADS, smem, stream, p);
    LAUNCH(probe_mass<TYPE>, slots, ATTEND_THREADS, smem, stream, p);
}

void gpu_probe(float *mass, int n_slots, int first_row, const float *q, const GpuLayer *l, const KvPool *kv,
               const GpuBatch *b, const GpuScratch *s, GpuStream stream) {
    ProbeJob p = {attend_job(q, l, kv, b, s, probe_n_splits(b->max_slots)), mass, n_slots, first_row};
    switch (l->heads.head_dim % 8 == 0 ? kv->type_k : ANY_TYPE) {
    case TYPE_F32: probe_launch<TYPE_F32>(p, stream); break;
    case TYPE_F16: probe_launch<TYPE_F16>(p, stream); break;
    case TYPE_BF16: probe_launch<TYPE_BF16>(p, stream); break;
    default: probe_launch<ANY_TYPE>(p, stream);
    }
}

static bool is_sealed(const KvPool *kv) { return kv_is_sealed(kv->type_k) || kv_is_sealed(kv->type_v); }

void gpu_seal(const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s, GpuStream stream) {
    SealJob j = {l->heads, *kv, in_pool(b, kv), s->qkv, l->index};
    dim3 grid((unsigned)b->n_rows, (unsigned)l->heads.n_kv_heads, (unsigned)kv_planes(kv));
    if (is_sealed(kv)) LAUNCH(seal_groups, grid, SEAL_THREADS, seal_smem(l->heads.head_dim), stream, j);
}

void gpu_keep(const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s, GpuStream stream) {
    SealJob j = {l->heads, *kv, in_pool(b, kv), s->qkv, l->index};
    dim3 grid((unsigned)b->n_rows, (unsigned)l->heads.n_kv_heads);
    if (is_sealed(kv)) LAUNCH(keep_open, grid, 64, 0, stream, j);
}

int gpu_tiles(const Batch *b, GpuTile *tiles) {
    int n = 0;
    for (int first = 0, rows; first < b->n_rows; first += rows) {
        bool padding = b->slot[first] < 0;
        for (rows = 1; rows < GPU_TILE_ROWS && first + rows < b->n_rows; rows++)
            if (b->seq[first + rows] != b->seq[first] || (b->slot[first + rows] < 0) != padding) break;
        tiles[n++] = {first, rows};
    }
    // Sorts, longest first: reverses the tiles, which mostly come in ascending order, then sorts by insertion.
    for (int i = 0, k = n - 1; i < k; i++, k--) {
        GpuTile t = tiles[i];
        tiles[i] = tiles[k];
        tiles[k] = t;
    }
    for (int i = 1; i < n; i++) {
        GpuTile t = tiles[i];
        int newest = b->slot[t.first + t.n - 1], k = i;
        for (; k > 0 && b->slot[tiles[k - 1].first + tiles[k - 1].n - 1] < newest; k--) tiles[k] = tiles[k - 1];
        tiles[k] = t;
    }
    return n;
}

bool gpu_flash_can(const Heads *h, const KvPool *kv) {
    int n = h->head_dim;
    bool size = n == 64 || n == 80 || n == 96 || n == 128 || n == 256;
    return size && !kv->v_in_k && (is_sealed(kv) || (kv->type_k == kv->type_v && kv->type_k != TYPE_F32));
}

template <int TYPE, int HD, int VD, bool SEALED> static void flash_sized(FlashJob j, int n_tiles, GpuStream stream) {
    flash_pack(&j, n_tiles, GPU_TILE_ROWS);
    LAUNCH((flash<TYPE, HD, VD, SEALED>), flash_grid(j, n_tiles), FLASH_THREADS, flash_smem(HD, VD), stream, j);
}

template <int TYPE, bool SEALED> static void flash_launch(const FlashJob &j, int n_tiles, GpuStream stream) {
    switch (j.heads.head_dim) {
    case 64: return flash_sized<TYPE, 64, 64, SEALED>(j, n_tiles, stream);
    case 80: return flash_sized<TYPE, 80, 80, SEALED>(j, n_tiles, stream);
    case 96: return flash_sized<TYPE, 96, 96, SEALED>(j, n_tiles, stream);
    case 128: return flash_sized<TYPE, 128, 128, SEALED>(j, n_tiles, stream);
    case 256: return flash_sized<TYPE, 256, 256, SEALED>(j, n_tiles, stream);
    }
}

bool gpu_latent_flash_can(const LatentSizes *z) { return z->query == 192 && z->v == 128; }

void gpu_latent_flash(float *out, size_t out_stride, const float *q, size_t stride, const GpuLayer *l, int n_heads,
                      const KvPool *expanded, const GpuBatch *b, GpuStream stream) {
    FlashJob j = {};
    j.q = q;
    j.stride = stride;
    j.out = out;
    j.out_stride = out_stride;
    j.type = TYPE_F32;
    j.heads.n_heads = j.heads.n_kv_heads = n_heads;
    j.heads.head_dim = expanded->head_dim;
    j.heads.v_dim = expanded->v_dim;
    j.heads.scale = l->heads.scale;
    j.heads.softcap = l->heads.softcap;
    j.kv = *expanded;
    j.b = *b;
    int n_tiles = (b->n_rows + GPU_TILE_ROWS - 1) / GPU_TILE_ROWS;
    if (expanded->type_k == TYPE_F16) flash_sized<TYPE_F16, 192, 128, false>(j, n_tiles, stream);
    else flash_sized<TYPE_BF16, 192, 128, false>(j, n_tiles, stream);
}

void gpu_flash(void *a, int type, const float *q, size_t stride, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
               const GpuScratch *s, const GpuTile *tiles, int n_tiles, GpuStream stream) {
    assert(gpu_flash_can(&l->heads, kv));
    FlashJob j = {};
    j.q = q;
    j.stride = stride;
    j.out = a;
    j.out_stride = (size_t)l->heads.n_heads * (size_t)l->heads.head_dim;
    j.type = type;
    j.heads = l->heads;
    j.kv = *kv;
    j.b = in_pool(b, kv);
    j.qkv = s->qkv;
    j.tiles = tiles;
    j.layer = l->index;
    j.sinks = l->sinks;
    if (tuning.wgmma && flash_sm90_can(j)) flash_sm90_launch(j, n_tiles, stream);
    else if (is_sealed(kv)) flash_launch<TYPE_F16, true>(j, n_tiles, stream);
    else if (kv->type_k == TYPE_F16) flash_launch<TYPE_F16, false>(j, n_tiles, stream);
    else flash_launch<TYPE_BF16, false>(j, n_tiles, stream);
}

// ---- prefill's steps ------------------------------------------------------------------------------------------------

void gpu_rmsnorm(void *out, int type, const float *x, const float *norm, float eps, int dim, const int *rows, int n,
                 GpuStream stream) {
    assert(norm || !rows);
    if (!norm) return gpu_convert(out, type, x, (size_t)n * (size_t)dim, stream);
    LAUNCH(rmsnorm_rows, (unsigned)n, THREADS, THREADS / WARP * 4, stream, out, type, x, norm, eps, dim, rows);
}

void gpu_qkv_finish(float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b, const GpuScratch *s,
                    GpuStream stream) {
    HeadBiases biases = {{l->wq.bias, l->wk.bias, l->wv.bias}};
    finish(q, l, kv, b, s, biases, stream);
}

void gpu_gate_mul(void *h, int type, Activation act, const void *gate, const void *up, int of, size_t stride,
                  const float *gate_bias, const float *up_bias, int ffn, int n, GpuStream stream) {
    dim3 grid((unsigned)n, blocks_for((size_t)ffn, (size_t)(THREADS * gate_ahead(of))));
    assert(of == TYPE_F32 || of == TYPE_BF16);
    with_activation(act, [&](auto a) {
        constexpr Activation ACT = decltype(a)::value;
        LAUNCH((of == TYPE_F32 ? gate_mul_rows<ACT, TYPE_F32> : gate_mul_rows<ACT, TYPE_BF16>), grid, THREADS, 0,
               stream, h, type, gate, up, stride, gate_bias, up_bias, ffn);
    });
}

void gpu_xielu(void *h, int type, const Xielu *x, const void *v, int of, const float *bias, int ffn, int n,
               GpuStream stream) {
    size_t all = (size_t)ffn * (size_t)n;
    LAUNCH(xielu_all, blocks_for(all, THREADS), THREADS, 0, stream, h, type, *x, v, of, bias, ffn, all);
}

void gpu_add(float *x, const float *y, const float *bias, int dim, int n, GpuStream stream) {
    size_t all = (size_t)dim * (size_t)n;
    if (y || bias) LAUNCH(add_rows, blocks_for(all, THREADS), THREADS, 0, stream, x, y, bias, dim, all);
}

void gpu_add_normed(float *x, const float *y, const float *bias, const float *norm, float eps, int dim, int n,
                    GpuStream stream) {
    LAUNCH(add_normed_rows, (unsigned)n, THREADS, THREADS / WARP * 4, stream, x, y, bias, norm, eps, dim);
}

void gpu_centre(float *x, int dim, int n, GpuStream stream) {
    LAUNCH(centre_rows, (unsigned)n, THREADS, THREADS / WARP * 4, stream, x, dim);
}

void gpu_softcap(float *x, float cap, size_t n, GpuStream stream) {
    LAUNCH(softcap_all, blocks_for(n, THREADS), THREADS, 0, stream, x, cap, n);
}

void gpu_convert(void *out, int type, const float *x, size_t n, GpuStream stream) {
    LAUNCH(convert_all, blocks_for(n, THREADS), THREADS, 0, stream, out, type, x, n);
}

// ---- ceilings -------------------------------------------------------------------------------------------------------

// Launches as many blocks as are resident at once. The bits of random data combine to all ones.
void gpu_read(const void *data, size_t bytes, uint32_t *out, GpuStream stream) {
    unsigned blocks = (unsigned)multiprocessors() * (2048 / THREADS);
    LAUNCH(read_all, blocks, THREADS, 0, stream, (const uint4 *)data, bytes / sizeof(uint4), 0x9e3779b9u, out);
}

bool gpu_begins_early(void) { return gpu_waits(begin_and_end); }

void gpu_begin_and_end(bool early, GpuStream stream) {
    LAUNCH_EARLY(early, begin_and_end, 1, WARP, 0, stream, (uint32_t *)NULL);
}

// ---- sampling -------------------------------------------------------------------------------------------------------

void gpu_sample_plan(GpuSample *out, const Draw *d) {
    const SamplerParams *p = d->how;
    GpuSample s = {};
    s.temp = p->greedy ? 0 : p->temp;
    s.top_k = p->top_k;
    s.top_p = p->top_p;
    s.min_p = p->min_p;
    s.log_min_p = p->min_p > 0 ? logf(p->min_p) : 0;
    s.xtc_probability = p->xtc_probability;
    s.xtc_threshold = p->xtc_threshold;
    s.repeat_penalty = p->repeat_penalty;
    s.presence_penalty = p->presence_penalty;
    s.frequency_penalty = p->frequency_penalty;
    s.seed = p->seed;
    s.sequence = d->sequence;
    s.bias = p->bias;
    s.n_bias = p->n_bias;
    int n = d->n_tokens + d->pending;
    s.position = (uint64_t)n;
    if (p->repeat_last_n >= 0 && p->repeat_last_n < n) n = p->repeat_last_n;
    bool penalised = p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    s.pending = penalised && n > 0 && d->pending;
    s.n_window = penalised ? n - s.pending : 0;
    s.window = d->tokens + d->n_tokens - s.n_window;
    *out = s;
}

// A small vocabulary is one slice, as short as possible.
static int slice_size(int n_vocab) {
    int n = SAMPLE_RUN;
    while (n < n_vocab && n < SLICE) n *= 2;
    return n;
}

int gpu_sample_wants(const GpuSample *s, int n_vocab) { return wanted(*s, n_vocab); }

size_t gpu_sample_bytes(int n_vocab, int n) {
    size_t slice = (size_t)slice_size(n_vocab), slices = blocks_for((size_t)n_vocab, slice) * (size_t)n;
    return slices * (2 * slice * sizeof(uint64_t) + slice / SAMPLE_RUN * sizeof(double) + sizeof(int)) +
           GPU_DRAW_ROWS * sizeof(unsigned);
}

void gpu_sample(int *sampled, const float *logits, int n_vocab, GpuSample *draws, int n, int most, GpuAdvance advance,
                void *scratch, GpuStream stream) {
    assert(n >= 1 && n <= GPU_DRAW_ROWS && (!advance.token || most <= GPU_SAMPLE_TOP));
    SampleJob j = {};
    j.logits = logits;
    j.n_vocab = n_vocab;
    j.draws = draws;
    j.sampled = sampled;
    j.advance = advance;
    j.slice = slice_size(n_vocab);
    j.n_slices = (int)blocks_for((size_t)n_vocab, (size_t)j.slice);
    size_t slices = (size_t)j.n_slices * (size_t)n, keys = slices * (size_t)j.slice;
    j.tickets = (unsigned *)scratch;
    j.keys = (uint64_t *)(j.tickets + GPU_DRAW_ROWS);
    j.sorted = j.keys + keys;
    j.runs = (double *)(j.sorted + keys);
    j.counts = (int *)(j.runs + keys / SAMPLE_RUN);
    dim3 grid((unsigned)j.n_slices, (unsigned)n);
    unsigned threads = (unsigned)j.slice / 2;
    size_t smem = (size_t)j.slice * 16;
    if (most <= GPU_SAMPLE_TOP) {
        LAUNCH_EARLY(tuning.early, sample_top, grid, threads, smem + GPU_SAMPLE_TOP * 8 + 16, stream, j);
        return;
    }
    LAUNCH(sample_slices, grid, threads, smem, stream, j);
    LAUNCH(sample_ranks, grid, threads, 0, stream, j);
    LAUNCH(sample_draw, (unsigned)n, DRAW_THREADS, 32 + DRAW_THREADS * 12, stream, j);
}
