// gpu/rows.cuh: kernels for embedding, norms, gates and additions of rows, and for copies of KV blocks.
#ifndef QUILL_ROWS_CUH
#define QUILL_ROWS_CUH

#include "gpu/gpu.h"
#include "gpu/launch.h"
#include "gpu/tensors.cuh"

// The sum over a block's threads, returned to every thread. scratch: one float per warp, shared.
__device__ inline float block_sum(float v, float *scratch) {
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
    v = warp_sum(v);
    if (threadIdx.x % WARP == 0) scratch[warp] = v;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < warps; w++) sum += scratch[w];
    __syncthreads();
    return sum;
}

// One block for each row.
__global__ void rmsnorm_rows(void *out, int type, const float *x, const float *norm, float eps, int dim,
                             const int *rows) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP);
    x += (size_t)(rows ? rows[blockIdx.x] : (int)blockIdx.x) * (size_t)dim;
    float squares = 0;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) squares += x[i] * x[i];
    float scale = 1 / sqrtf(block_sum(squares, sums) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        store_as(type, out, (size_t)blockIdx.x * (size_t)dim + (size_t)i, x[i] * scale * norm[i]);
}

// The factor in sigmoid_of. ACT_RELU is v times a sigmoid so steep that it is a step.
HOST_DEVICE constexpr float activation_slope(Activation act) {
    return act == ACT_GELU ? GELU_SLOPE : act == ACT_SWIGLU_CLAMPED ? SWIGLU_SLOPE : act == ACT_RELU ? 1e30f : 1;
}

// slope is activation_slope(act). A job stores it, because choosing it inside a kernel costs registers.
__device__ __forceinline__ float activate(Activation act, float slope, float v) {
    float s = slope * v;
    if (act == ACT_GELU) s *= 1 + GELU_CUBE * v * v;
    return v / (1 + expf(-s));
}

__device__ __forceinline__ float activate(Activation act, float v) { return activate(act, activation_slope(act), v); }

// act(gate) * up for one feature.
__device__ __forceinline__ float gated(Activation act, float slope, float gate, float up) {
    if (act == ACT_SWIGLU_CLAMPED) {
        gate = gate > SWIGLU_LIMIT ? SWIGLU_LIMIT : gate; // keeps NaN, as fminf would not
        up = (up > SWIGLU_LIMIT ? SWIGLU_LIMIT : up < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : up) + 1;
    }
    return activate(act, slope, gate) * up;
}

__device__ __forceinline__ float gated(Activation act, float gate, float up) {
    return gated(act, activation_slope(act), gate, up);
}

// One element of type F32 or BF16 that is read only once.
template <int OF> __device__ __forceinline__ float stream_as(const void *p, size_t i) {
    if constexpr (OF == TYPE_F32) return stream<float>((const float *)p + i);
    else return gpu_bf16_float(stream<uint16_t>((const uint16_t *)p + i));
}

// grid: (rows, features / threads / gate_ahead). A thread's features are blockDim apart, so that adjacent threads read
// adjacent features for any width.
HOST_DEVICE constexpr int gate_ahead(int of) { return of == TYPE_F32 ? 4 : 8; }
template <Activation ACT, int OF>
__global__ void gate_mul_rows(void *h, int type, const void *gate, const void *up, size_t stride,
                              const float *gate_bias, const float *up_bias, int ffn) {
    constexpr int GATE_AHEAD = gate_ahead(OF);
    int first = (int)(blockIdx.y * blockDim.x) * GATE_AHEAD + (int)threadIdx.x;
    float g[GATE_AHEAD], u[GATE_AHEAD];
    size_t row = (size_t)blockIdx.x * stride;
    UNROLL
    for (int k = 0; k < GATE_AHEAD; k++) {
        int f = first + k * (int)blockDim.x, at = f < ffn ? f : ffn - 1;
        g[k] = stream_as<OF>(gate, row + (size_t)at);
        u[k] = stream_as<OF>(up, row + (size_t)at);
        if (gate_bias) g[k] += gate_bias[at];
        if (up_bias) u[k] += up_bias[at];
    }
    UNROLL
    for (int k = 0; k < GATE_AHEAD; k++) {
        int f = first + k * (int)blockDim.x;
        if (f < ffn) store_as(type, h, (size_t)blockIdx.x * (size_t)ffn + (size_t)f, gated(ACT, g[k], u[k]));
    }
}

// h = xielu(v + bias), elements of two matrices of n elements, which may be the same; bias (ffn) or NULL
__global__ void xielu_all(void *h, int type, const Xielu x, const void *v, int of, const float *bias, int ffn,
                          size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = load_as(of, v, i) + (bias ? bias[i % (size_t)ffn] : 0);
    store_as(type, h, i, (a > 0 ? x.p * a * a : x.n * (expm1f(a) - a)) + x.b * a);
}

__global__ void add_rows(float *x, const float *y, const float *bias, int dim, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    if (y) v += y[i];
    if (bias) v += bias[i % (size_t)dim];
    x[i] = v;
}

// One block for each row.
__global__ void add_normed_rows(float *x, const float *y, const float *bias, const float *norm, float eps, int dim) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP), squares = 0;
    x += (size_t)blockIdx.x * (size_t)dim;
    y += (size_t)blockIdx.x * (size_t)dim;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        float v = y[i] + (bias ? bias[i] : 0);
        squares += v * v;
    }
    float scale = 1 / sqrtf(block_sum(squares, sums) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x)
        x[i] += (y[i] + (bias ? bias[i] : 0)) * scale * norm[i];
}

// Subtracts the mean from each row. One block for each row.
__global__ void centre_rows(float *x, int dim) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP), sum = 0;
    x += (size_t)blockIdx.x * (size_t)dim;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) sum += x[i];
    float mean = block_sum(sum, sums) / (float)dim;
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) x[i] -= mean;
}

__global__ void softcap_all(float *x, float cap, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = softcap(x[i], cap);
}

// Moves rows in order, since a row may move to a place that an earlier row has left. A thread moves one column.
__global__ void move_rows(uint32_t *x, size_t width, const int *rows, int n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width) return;
    for (int to = 0; to < n; to++)
        if (rows[to] != to) x[(size_t)to * width + i] = x[(size_t)rows[to] * width + i];
}

__global__ void convert_all(void *out, int type, const float *x, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) store_as(type, out, i, x[i]);
}

// Copies are made in order, since a later one may read the result of an earlier one. A thread copies the same bytes of
// every block, so that no barrier is needed. bytes: size of a block in one layer and plane, whole Words.
template <typename Word>
__global__ void copy_blocks(uint8_t *plane, size_t bytes, size_t layer_bytes, const int (*copy)[2], int n_copies) {
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * sizeof(Word);
    if (i >= bytes) return;
    uint8_t *layer = plane + (size_t)blockIdx.y * layer_bytes;
    for (int c = 0; c < n_copies; c++) {
        if (copy[c][0] < 0 || copy[c][1] < 0) continue; // a block without a tail page
        const uint8_t *from = layer + (size_t)copy[c][0] * bytes + i;
        uint8_t *to = layer + (size_t)copy[c][1] * bytes + i;
        *(Word *)to = *(const Word *)from;
    }
}

// Moves slot keep[i] to slot i in order of i; keep ascends. A thread moves the same bytes of every slot.
// grid: (words of a slot / threads, KV heads, layers); keep (layers, KV heads, n)
__global__ void close_up_slots(GRID_CONSTANT const KvPool kv, bool value, const int *table, const int *keep, int n) {
    size_t bytes = kv_slot_bytes(value ? kv.type_v : kv.type_k, kv.head_dim);
    size_t word = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    int head = (int)blockIdx.y, layer = (int)blockIdx.z;
    if (word >= bytes) return;
    keep += ((size_t)layer * (size_t)kv.n_kv_heads + (size_t)head) * (size_t)n;
    uint8_t *plane = (value ? kv.v : kv.k) + word;
    for (int i = 0; i < n; i++) {
        if (keep[i] == i) continue;
        size_t to = kv_slot(&kv, layer, table[i / kv.block], head, i % kv.block);
        size_t from = kv_slot(&kv, layer, table[keep[i] / kv.block], head, keep[i] % kv.block);
        *(uint32_t *)(plane + to * bytes) = *(const uint32_t *)(plane + from * bytes);
    }
}

// ---- the first operation of a batch ---------------------------------------------------------------------------------

// Cos and sin of a row's position in one table of the scratch.
__device__ inline void find_turns(const Rope &r, const GpuScratch &s, int row, int pos) {
    size_t at = gpu_rope_at(&s, r.table, row);
    for (int i = (int)threadIdx.x; i < r.n_rot / 2; i += (int)blockDim.x) {
        double angle = pos * r.freq[i];
        s.rope_cos[at + (size_t)i] = (float)cos(angle) * r.mscale;
        s.rope_sin[at + (size_t)i] = (float)sin(angle) * r.mscale;
    }
}

// Normalises a row that the block has written.
__device__ inline void normalise(float *x, int n, float eps) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP), squares = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) squares += x[i] * x[i];
    float scale = 1 / sqrtf(block_sum(squares, sums) / (float)n + eps);
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) x[i] *= scale;
}

// One block per row: the token's embedding (x NULL: not wanted), with eps normalised, then cos and sin of its position.
template <int TYPE>
__global__ void embed_rows(float *x, GRID_CONSTANT const DeviceTensor t, float scale, float eps,
                           GRID_CONSTANT const GpuRopes ropes, GRID_CONSTANT const GpuBatch b,
                           GRID_CONSTANT const GpuScratch s) {
    int row = (int)blockIdx.x, token = b.token[row];
    if (token < 0) token = b.sampled ? b.sampled[row] : 0;
    if (token < 0 || token >= t.n_out) token = 0; // padding, or a row that has ended
    if (x) {
        float *to = x + (size_t)row * (size_t)t.n_in;
        for (int u = (int)threadIdx.x; u < (t.n_in + UNIT - 1) / UNIT; u += (int)blockDim.x) {
            unit_to<TYPE>(t, (size_t)token, u, TYPE_F32, to, (size_t)u * UNIT);
            for (int i = u * UNIT; scale != 1 && i < (u + 1) * UNIT && i < t.n_in; i++) to[i] *= scale;
        }
        if (eps != 0) normalise(to, t.n_in, eps);
    }
    for (int r = 0; r < ropes.n; r++) find_turns(ropes.of[r], s, row, b.pos[row]);
}

#endif
