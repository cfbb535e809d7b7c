// gpu/heads.cuh: operations on heads of Q, K and V after their products: bias, norm, RoPE, storing K and V.
#ifndef QUILL_HEADS_CUH
#define QUILL_HEADS_CUH

#include "gpu/keys.cuh"
#include "gpu/rows.cuh"

typedef enum { HEAD_Q, HEAD_K, HEAD_V } HeadKind;

struct HeadJob {
    Heads heads;
    Rope rope;
    const float *norm_q, *norm_k, *norm_v; // norms of a head, or NULL
    bool v_is_k;                           // V is the product of K, before its norm
    int n_finished; // heads of a row that this launch finishes: of Q, and of K and V if the layer has them
    bool norm_turned; // norm_q and norm_k come after RoPE
    float eps;
    int layer;
    KvPool kv;
    GpuBatch b;                       // from in_pool
    const float *rope_cos, *rope_sin; // from the layer's RoPE table; rows are rope_step floats apart
    int rope_step;
    float *q;   // (n_rows, q_dim)
    float *qkv; // (n_rows, q_dim + 2*kv_dim) products; with sealed planes, K and V stay here
};

// Offset of a head of K or V in a row of qkv; length of the row.
HOST_DEVICE inline size_t qkv_at(const Heads &h, HeadKind kind, int head) {
    int before = kind == HEAD_Q ? 0 : kind == HEAD_K ? h.n_heads : h.n_heads + h.n_kv_heads;
    return (size_t)(before + head) * (size_t)h.head_dim;
}
HOST_DEVICE inline size_t qkv_stride(const Heads &h) { return qkv_at(h, HEAD_V, h.n_kv_heads); }

__device__ inline void turn_head(float *v, const HeadJob &j, int row, int lane) {
    int half = j.rope.n_rot / 2;
    size_t at = (size_t)row * (size_t)j.rope_step;
    const float *c = j.rope_cos + at, *s = j.rope_sin + at;
    for (int i = lane; i < half; i += WARP) {
        int a = j.rope.adjacent ? 2 * i : i, b = j.rope.adjacent ? 2 * i + 1 : i + half;
        float x = v[a], y = v[b];
        v[a] = x * c[i] - y * s[i];
        v[b] = x * s[i] + y * c[i];
    }
}

__device__ inline void norm_head(float *v, const float *weight, float eps, int n, int lane) {
    float squares = 0;
    for (int i = lane; i < n; i += WARP) squares += v[i] * v[i];
    float scale = 1 / sqrtf(warp_sum(squares) / (float)n + eps);
    for (int i = lane; i < n; i += WARP) v[i] = v[i] * scale * weight[i];
    __syncwarp();
}

// Adds biases to all heads of Q (block.y 0) or K (1) of a row (block.x) of qkv, and applies the norm over the row.
__global__ void norm_qk_rows(float *qkv, size_t stride, int n_q, int n_k, const float *bias_q, const float *bias_k,
                             const float *norm_q, const float *norm_k, float eps) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP), squares = 0;
    bool is_k = blockIdx.y > 0;
    const float *bias = is_k ? bias_k : bias_q, *norm = is_k ? norm_k : norm_q;
    float *v = qkv + (size_t)blockIdx.x * stride + (is_k ? n_q : 0);
    int n = is_k ? n_k : n_q;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        float x = v[i] + (bias ? bias[i] : 0);
        v[i] = x; // read by the same thread only
        squares += x * x;
    }
    float scale = 1 / sqrtf(block_sum(squares, sums) / (float)n + eps);
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) v[i] = v[i] * scale * norm[i];
}

// sealed_hadamard (formats/sealed.h), bit for bit: each stage adds or subtracts the same two elements.
__device__ inline void rotate_head(float *v, int n, int lane) {
    int most = n & -n;
    for (int half = 1; half < most; half *= 2) {
        for (int p = lane; p < n / 2; p += WARP) {
            int i = p / half * 2 * half + p % half;
            float a = v[i], b = v[i + half];
            v[i] = a + b;
            v[i + half] = a - b;
        }
        __syncwarp();
    }
    float scale = 1 / sqrtf((float)most);
    for (int i = lane; i < n; i += WARP) v[i] *= scale;
    __syncwarp();
}

// One warp finishes one head of one row, whose elements are in v (shared memory). Without ANY_ORDER norms come before
// RoPE: gemv has no registers for the other order.
template <bool ANY_ORDER = false>
__device__ inline void finish_head(float *v, const HeadJob &j, HeadKind kind, int row, int head, int lane) {
    int n = j.heads.head_dim, slot = j.b.slot[row];
    const float *norm = kind == HEAD_Q ? j.norm_q : kind == HEAD_K ? j.norm_k : j.norm_v;
    __syncwarp();
    bool behind = ANY_ORDER && j.norm_turned && kind != HEAD_V;
    if (norm && !behind) norm_head(v, norm, j.eps, n, lane);
    if (kind != HEAD_V) turn_head(v, j, row, lane);
    __syncwarp();
    if (norm && behind) norm_head(v, norm, j.eps, n, lane);
    if (kind == HEAD_Q && j.rope.temperature != 0) {
        float temperature = rope_temperature(&j.rope, j.b.pos[row]);
        for (int i = lane; i < n; i += WARP) v[i] *= temperature;
        __syncwarp();
    }
    if (kind != HEAD_V && j.kv.rotate) rotate_head(v, n, lane);
    int type = kind == HEAD_K ? j.kv.type_k : j.kv.type_v;
    if (kind == HEAD_Q) {
        float *q = j.q + ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)n;
        for (int i = lane; i < n; i += WARP) q[i] = v[i];
    } else if (kv_is_sealed(type)) {
        float *to = j.qkv + (size_t)row * qkv_stride(j.heads) + qkv_at(j.heads, kind, head);
        for (int i = lane; i < n; i += WARP) to[i] = v[i];
    } else if (slot >= 0) {
        size_t at = kv_at(j.kv, j.b, j.layer, j.b.seq[row], head, slot);
        uint8_t *plane = kind == HEAD_K ? j.kv.k : j.kv.v;
        for (int i = lane; i < n; i += WARP) store_as(type, plane, at + (size_t)i, v[i]);
    }
    __syncwarp(); // all lanes have read v, which is written again
}

// Prefill: one warp for each (row, head) of the products of Q, K and V in this order.
struct HeadBiases {
    const float *of[3]; // Q, K, V
};

__global__ void finish_rows(GRID_CONSTANT const HeadJob j, GRID_CONSTANT const HeadBiases biases) {
    Smem smem;
    int n = j.heads.head_dim, warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int warps = (int)blockDim.x / WARP, all = j.n_finished;
    float *v = smem.take<float>((unsigned)(warps * n)) + warp * n;
    size_t i = (size_t)blockIdx.x * (size_t)warps + (size_t)warp;
    if (i >= (size_t)j.b.n_rows * (size_t)all) return;
    int row = (int)(i / (size_t)all), head = (int)(i % (size_t)all);
    HeadKind kind = head < j.heads.n_heads ? HEAD_Q : head < j.heads.n_heads + j.heads.n_kv_heads ? HEAD_K : HEAD_V;
    head -= kind == HEAD_Q ? 0 : kind == HEAD_K ? j.heads.n_heads : j.heads.n_heads + j.heads.n_kv_heads;
    const float *y = j.qkv + (size_t)row * qkv_stride(j.heads) + qkv_at(j.heads, kind, head);
    const float *bias = biases.of[kind] ? biases.of[kind] + (size_t)head * (size_t)n : (const float *)NULL;
    auto finish_as = [&](HeadKind as) {
        for (int k = lane; k < n; k += WARP) v[k] = y[k] + (bias ? bias[k] : 0);
        finish_head<true>(v, j, as, row, head, lane);
    };
    if (j.v_is_k && kind == HEAD_K) finish_as(HEAD_V); // V first: storing K may overwrite the product that both share
    finish_as(kind);
}

#endif
