// gpu/latent.cuh: kernels before and after attention to compressed K and V (MIXER_LATENT): they split Q, store K, and
// multiply each head by its own matrix; with their launches. The attention itself is in gpu/wide_flash.cuh.
#ifndef QUILL_LATENT_CUH
#define QUILL_LATENT_CUH

#include "gpu/attention.cuh"
#include "gpu/experts.cuh"
#include "gpu/products.cuh"

// ---- Q and K --------------------------------------------------------------------------------------------------------

struct LatentSplitJob {
    HeadJob h; // .q: (n_rows, n_heads, head_dim)
    const float *from_q, *from_k;
    size_t q_stride, k_stride;
    void *plain; // (n_heads, n_rows, n_plain) of `type`; NULL: all of Q goes to h.q
    int type, n_plain;
};

// Stores a finished K: in its slot, or with sealed planes in the row of GpuScratch.qkv.
__device__ inline void store_latent(const HeadJob &j, const float *v, int row, int lane) {
    int n = j.heads.head_dim, slot = j.b.slot[row];
    if (kv_is_sealed(j.kv.type_k)) {
        float *to = j.qkv + (size_t)row * qkv_stride(j.heads) + qkv_at(j.heads, HEAD_K, 0);
        for (int i = lane; i < n; i += WARP) to[i] = v[i];
    } else if (slot >= 0) {
        size_t at = kv_at(j.kv, j.b, j.layer, j.b.seq[row], 0, slot);
        for (int i = lane; i < n; i += WARP) store_as(j.kv.type_k, j.kv.k, at + (size_t)i, v[i]);
    }
}

// One warp for each head of Q of a row, and one more for K of the row.
__global__ void latent_split(GRID_CONSTANT const LatentSplitJob j) {
    Smem smem;
    int n_heads = j.h.heads.n_heads, hd = j.h.heads.head_dim, rank = j.h.heads.v_dim, n_rot = hd - rank;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, warps = (int)blockDim.x / WARP;
    float *v = smem.take<float>((unsigned)(warps * hd)) + warp * hd;
    size_t i = (size_t)blockIdx.x * (size_t)warps + (size_t)warp, each = (size_t)n_heads + 1;
    let_next_begin();
    wait_for_last();
    if (i >= (size_t)j.h.b.n_rows * each) return;
    int row = (int)(i / each), head = (int)(i % each);
    if (head == n_heads) {
        const float *k = j.from_k + (size_t)row * j.k_stride;
        for (int e = lane; e < hd; e += WARP) v[e] = k[e];
        __syncwarp();
        norm_head(v, j.h.norm_k, j.h.eps, rank, lane);
        turn_head(v + rank, j.h, row, lane);
        __syncwarp();
        store_latent(j.h, v, row, lane);
        return;
    }
    const float *q = j.from_q + (size_t)row * j.q_stride + (size_t)head * (size_t)(j.n_plain + n_rot);
    float temperature = rope_temperature(&j.h.rope, j.h.b.pos[row]);
    size_t plain = ((size_t)head * (size_t)j.h.b.n_rows + (size_t)row) * (size_t)j.n_plain;
    float *to = j.h.q + (size_t)row * (size_t)n_heads * (size_t)hd +
                (j.plain ? (size_t)head * (size_t)hd + (size_t)rank : (size_t)head * (size_t)(j.n_plain + n_rot));
    for (int e = lane; e < j.n_plain; e += WARP)
        if (j.plain) store_as(j.type, j.plain, plain + (size_t)e, q[e] * temperature);
        else to[e] = q[e] * temperature;
    if (!j.plain) to += j.n_plain;
    for (int e = lane; e < n_rot; e += WARP) v[e] = q[j.n_plain + e] * temperature;
    __syncwarp();
    turn_head(v, j.h, row, lane);
    __syncwarp();
    for (int e = lane; e < n_rot; e += WARP) to[e] = v[e];
}

// ---- the expanded form ----------------------------------------------------------------------------------------------

struct LatentReadJob {
    KvPool kv;
    GpuBatch b;
    LatentSizes z;
    void *vectors, *keys; // of `type`, as in gpu_latent_read
    int type, n_heads, layer, seq, n_slots;
};

// A warp for each slot.
__global__ void latent_read(GRID_CONSTANT const LatentReadJob j) {
    int slot = (int)(blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP), lane = (int)threadIdx.x % WARP;
    if (slot >= j.n_slots) return;
    size_t at = kv_at(j.kv, j.b, j.layer, j.seq, 0, slot), rank = (size_t)j.z.rank, n_slots = (size_t)j.n_slots;
    for (int e = lane; j.vectors && e < j.z.rank; e += WARP)
        store_as(j.type, j.vectors, (size_t)slot * rank + (size_t)e, load_as(j.kv.type_k, j.kv.k, at + (size_t)e));
    for (int e = lane; e < j.z.rot; e += WARP) {
        float v = load_as(j.kv.type_k, j.kv.k, at + rank + (size_t)e);
        for (int head = 0; head < j.n_heads; head++) {
            size_t key = ((size_t)head * n_slots + (size_t)slot) * (size_t)j.z.query;
            store_as(j.type, j.keys, key + (size_t)(j.z.plain + e), v);
        }
    }
}

void gpu_latent_read(void *vectors, void *keys, int type, const LatentSizes *z, int n_heads, int seq, int n_slots,
                     const GpuLayer *l, const KvPool *kv, const GpuBatch *b, GpuStream stream) {
    LatentReadJob j = {*kv, in_pool(b, kv), *z, vectors, keys, type, n_heads, l->index, seq, n_slots};
    LAUNCH(latent_read, blocks_for((size_t)n_slots, THREADS / WARP), THREADS, 0, stream, j);
}

// ---- products of heads with few rows --------------------------------------------------------------------------------

struct HeadsJob {
    GemvJob g;             // its matrices are the whole stack; its x and y are those of head 0
    size_t x_head, y_head; // floats from one head to the next
};

// grid: (heads, blocks of a head's features). B rows at a time.
template <int TYPE, int R, int B, bool INT8>
__global__ __launch_bounds__(GEMV_WARPS *WARP,
                             experts_resident(TYPE, R, B)) void gemv_heads(GRID_CONSTANT const HeadsJob j) {
    const GemvJob &g = j.g;
    StackBlock k = begin_stack_block<B, INT8>(g);
    int head = (int)blockIdx.x;
    for (int row = 0; row < g.n_rows; row += B) {
        GemvRows s = {g.x + (size_t)head * j.x_head + (size_t)row * g.x_stride,
                      NULL,
                      g.y + (size_t)head * j.y_head + (size_t)row * g.stride,
                      g.n_rows - row < B ? g.n_rows - row : B,
                      head * g.n_out[0],
                      NULL};
        run_stack_block<TYPE, R, B, INT8>(k, g, s);
    }
}

template <int TYPE, int B, bool INT8> static void heads_launch(HeadsJob j, int n_heads, GpuStream stream) {
    constexpr int R = GEMV_FEW;
    size_t smem;
    dim3 grid = stack_grid<B, INT8>(&j.g, R, n_heads, n_heads, experts_resident(TYPE, R, B), &smem);
    LAUNCH_EARLY(tuning.early, (gemv_heads<TYPE, R, B, INT8>), grid, GEMV_WARPS * WARP, smem, stream, j);
}

void gpu_latent_heads(GpuHeadRows y, GpuHeadRows x, const DeviceTensor *stack, int n_heads, int n_rows,
                      GpuStream stream) {
    GemvJob g = gemv_job(*stack, n_rows, (const float *)x.at, (float *)y.at, y.row, GEMV_STORE);
    HeadsJob j = {g, x.head, y.head};
    gemv_measure(&j.g, 1, n_heads);
    j.g.x_stride = x.row;
    j.g.whole = (stack->n_in | (int)(x.row | x.head)) % 4 == 0;
    bool dense = is_dense(stack->type);
    if (n_rows > 1 && dense) return heads_launch<ANY_WEIGHT, 4, false>(j, n_heads, stream);
    if (n_rows > 1) return heads_launch<ANY_WEIGHT, 4, true>(j, n_heads, stream);
    if (stack->type == TYPE_F16) return heads_launch<TYPE_F16, 1, false>(j, n_heads, stream);
    if (stack->type == TYPE_BF16) return heads_launch<TYPE_BF16, 1, false>(j, n_heads, stream);
    if (stack->type == TYPE_Q8_0) return heads_launch<TYPE_Q8_0, 1, true>(j, n_heads, stream);
    if (dense) heads_launch<ANY_WEIGHT, 4, false>(j, n_heads, stream);
    else heads_launch<ANY_WEIGHT, 4, true>(j, n_heads, stream);
}

void gpu_latent_in(float *y, const float *x, const GpuLayer *l, int n_rows, GpuProduct how, GpuStream stream) {
    const DeviceTensor &first = l->q_a.n_out > 0 ? l->q_a : l->wq;
    GemvJob g = gemv_job(first, n_rows, x, y, (size_t)(first.n_out + l->wk.n_out), GEMV_STACK);
    g.w[1] = l->wk;
    g.norm = l->norm_att;
    g.eps = l->kind.eps;
    gemv_run(g, 2, how, stream);
}

void gpu_latent_q(float *y, const float *x, const GpuLayer *l, int n_rows, GpuProduct how, GpuStream stream) {
    GemvJob g = gemv_job(l->wq, n_rows, x, y, (size_t)l->wq.n_out, GEMV_STORE);
    g.x_stride = (size_t)(l->q_a.n_out + l->wk.n_out);
    g.whole = (g.n_in | (int)g.x_stride) % 4 == 0;
    g.norm = l->norm_q_a;
    g.eps = l->kind.eps;
    gemv_run(g, 1, how, stream);
}

#endif
