// gpu/attention.cuh: attention of few rows to many keys ("split-K"): the keys of a row are split over blocks, and the
// block that ends last combines their results.
//
// A block takes one row, one KV head with up to HEADS of the query heads that share it (K and V are read once for all
// of them), and one split of SPLIT slots. Splits begin at multiples of SPLIT, so that what is summed together depends
// on the slots alone. With more than one split each leaves its sums, largest score and weight in `partial` and counts
// up; the block that completes the count of a (row, head) adds them up in the splits' order.
#ifndef QUILL_ATTENTION_CUH
#define QUILL_ATTENTION_CUH

#include "gpu/sealed.cuh"

enum { SPLIT = 256, ATTEND_THREADS = 128, ATTEND_WARPS = ATTEND_THREADS / WARP, KEY_LANES = 4 };
// How many loads a thread issues before it uses the first, which hides the latency of memory. Unpacking takes
// registers: with packed types there is room for two.
HOST_DEVICE constexpr int keys_ahead(int type) {
    return type == ANY_TYPE ? 1 : type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 ? 4 : 2;
}

struct AttendJob {
    const float *q;
    float *out;         // (n_rows, n_heads, head_dim)
    float *partial;     // (n_rows, n_heads, n_splits, head_dim + 2): sums, largest score, weight
    unsigned *counters; // (n_rows, gridDim.y) splits that are done
    Heads heads;
    KvPool kv;
    GpuBatch b;       // as in_pool has it
    const float *qkv; // sealed planes: the batch's own K and V
    int layer, n_splits;
};

// The oldest slot that a row sees; those of a split that it sees: n from `first` on, none if n <= 0.
struct Seen {
    int first, n;
};
__device__ __forceinline__ int oldest_seen(const Heads &h, int slot) {
    return h.window && slot >= h.window ? slot - h.window + 1 : 0;
}
__device__ __forceinline__ Seen seen_in(const Heads &h, int slot, int split) {
    int oldest = oldest_seen(h, slot), begin = split * SPLIT, end = begin + SPLIT;
    if (begin < oldest) begin = oldest;
    if (end > slot + 1) end = slot + 1;
    return {begin, end - begin};
}

// scores[h][i] of slot first + i: KEY_LANES lanes share a key.
template <int TYPE, int HEADS>
__device__ __forceinline__ void score_keys(const AttendJob &j, const KvPlane &keys, const float *q, float *scores,
                                           int first, int n) {
    int hd = j.heads.head_dim, chunks = (hd + 7) / 8, lane = (int)threadIdx.x % KEY_LANES;
    for (int i0 = 0; i0 < n; i0 += ATTEND_THREADS / KEY_LANES) {
        int i = i0 + (int)threadIdx.x / KEY_LANES;
        float sum[HEADS] = {};
        if (i < n) {
            KvSlot at = find_slot<TYPE>(keys, first + i);
            UNROLL_BY(keys_ahead(TYPE))
            for (int c = lane; c < chunks; c += KEY_LANES) {
                float k[8];
                load_kv<TYPE>(k, keys, at, c);
                UNROLL
                for (int h = 0; h < HEADS; h++) UNROLL
                for (int e = 0; e < 8; e++) sum[h] += q[(h * chunks + c) * 8 + e] * k[e];
            }
        }
        UNROLL
        for (int h = 0; h < HEADS; h++) {
            UNROLL
            for (int with = KEY_LANES / 2; with > 0; with /= 2) sum[h] += __shfl_xor_sync(FULL_WARP, sum[h], with);
            if (lane == 0 && i < n) scores[h * SPLIT + i] = softcap(sum[h] * j.heads.scale, j.heads.softcap);
        }
    }
}

// Scores to exp(score - largest); a warp a head. most, weight: (HEADS)
template <int HEADS> __device__ __forceinline__ void soften(float *scores, float *most, float *weight, int n) {
    int lane = (int)threadIdx.x % WARP;
    for (int h = (int)threadIdx.x / WARP; h < HEADS; h += ATTEND_WARPS) {
        float m = -INFINITY, sum = 0;
        for (int i = lane; i < n; i += WARP) m = fmaxf(m, scores[h * SPLIT + i]);
        m = warp_max(m);
        for (int i = lane; i < n; i += WARP) {
            float p = expf(scores[h * SPLIT + i] - m);
            scores[h * SPLIT + i] = p;
            sum += p;
        }
        sum = warp_sum(sum);
        if (lane == 0) most[h] = m, weight[h] = sum;
    }
}

// sums[h][i] = sum over keys of p V. A thread takes eight elements of every n-th key; `part` (threads, 8) adds them up.
template <int TYPE, int HEADS>
__device__ __forceinline__ void sum_values(const AttendJob &j, const KvPlane &values, const float *p, float *part,
                                           float *sums, int first, int n) {
    int hd = j.heads.head_dim, chunks = (hd + 7) / 8, at_once = ATTEND_THREADS / chunks;
    int c = (int)threadIdx.x % chunks, lane = (int)threadIdx.x / chunks;
    constexpr int AHEAD = keys_ahead(TYPE);
    float acc[HEADS][8] = {};
    if (lane < at_once)
        for (int i0 = lane; i0 < n; i0 += AHEAD * at_once) {
            float v[AHEAD][8];
            UNROLL
            for (int k = 0; k < AHEAD; k++) {
                int i = i0 + k * at_once < n ? i0 + k * at_once : n - 1;
                load_kv<TYPE>(v[k], values, find_slot<TYPE>(values, first + i), c);
            }
            UNROLL
            for (int k = 0; k < AHEAD; k++) {
                int i = i0 + k * at_once; // past the end nothing, without a branch, behind which the loads would wait
                UNROLL
                for (int h = 0; h < HEADS; h++) {
                    float w = i < n ? p[h * SPLIT + (i < n ? i : 0)] : 0;
                    UNROLL
                    for (int e = 0; e < 8; e++) acc[h][e] += w * v[k][e];
                }
            }
        }
    UNROLL
    for (int h = 0; h < HEADS; h++) {
        UNROLL
        for (int e = 0; e < 8; e++) part[(int)threadIdx.x * 8 + e] = acc[h][e];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < hd; i += ATTEND_THREADS) {
            float sum = 0;
            for (int l = 0; l < at_once; l++) sum += part[(l * chunks + i / 8) * 8 + i % 8];
            sums[h * hd + i] = sum;
        }
        __syncthreads();
    }
}

__device__ inline float *partial_of(const AttendJob &j, int row, int head, int split) {
    size_t at = ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)j.n_splits + (size_t)split;
    return j.partial + at * (size_t)(j.heads.head_dim + 2);
}

// The splits [first, last] of a row and head, in order, to out.
__device__ inline void combine(const AttendJob &j, int row, int head, int first, int last) {
    int hd = j.heads.head_dim;
    float most = -INFINITY, weight = 0;
    for (int s = first; s <= last; s++) most = fmaxf(most, load_shared_result(partial_of(j, row, head, s) + hd));
    for (int s = first; s <= last; s++) {
        const float *p = partial_of(j, row, head, s) + hd;
        weight += load_shared_result(p + 1) * expf(load_shared_result(p) - most);
    }
    float *out = j.out + ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)hd;
    for (int i = (int)threadIdx.x; i < hd; i += ATTEND_THREADS) {
        float sum = 0;
        for (int s = first; s <= last; s++) {
            const float *p = partial_of(j, row, head, s);
            sum += load_shared_result(p + i) * expf(load_shared_result(p + hd) - most);
        }
        out[i] = sum / weight;
    }
}

// grid: (n_splits, KV heads times passes over their groups, rows)
template <int TYPE, int HEADS>
__global__ __launch_bounds__(ATTEND_THREADS, HEADS == 8 ? 3 : 4) void attend(GRID_CONSTANT const AttendJob j) {
    Smem smem;
    int hd = j.heads.head_dim, chunks = (hd + 7) / 8, group = j.heads.n_heads / j.heads.n_kv_heads;
    float *q = smem.take<float>((unsigned)(HEADS * chunks * 8)), *scores = smem.take<float>(HEADS * SPLIT);
    float *part = smem.take<float>(ATTEND_THREADS * 8), *sums = smem.take<float>((unsigned)(HEADS * hd));
    float *most = smem.take<float>(HEADS), *weight = smem.take<float>(HEADS);
    int *last_block = smem.take<int>(1);
    int split = (int)blockIdx.x, row = (int)blockIdx.z, passes = (group + HEADS - 1) / HEADS;
    int kv_head = (int)blockIdx.y / passes, pass = (int)blockIdx.y % passes;
    int head = kv_head * group + pass * HEADS, n_heads = group - pass * HEADS < HEADS ? group - pass * HEADS : HEADS;
    int slot = j.b.slot[row];
    let_next_begin();
    wait_for_last();
    float *out = j.out + ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)hd;
    if (slot < 0) { // padding
        if (split == 0)
            for (int i = (int)threadIdx.x; i < n_heads * hd; i += ATTEND_THREADS) out[i] = 0;
        return;
    }
    int first_split = oldest_seen(j.heads, slot) / SPLIT, last_split = slot / SPLIT;
    Seen seen = seen_in(j.heads, slot, split);
    if (seen.n <= 0) return;

    const float *from = j.q + ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)hd;
    for (int i = (int)threadIdx.x; i < HEADS * chunks * 8; i += ATTEND_THREADS) {
        int h = i / (chunks * 8), e = i % (chunks * 8);
        q[i] = h < n_heads && e < hd ? from[h * hd + e] : 0;
    }
    __syncthreads();
    score_keys<TYPE, HEADS>(j, plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, kv_head, true), q, scores,
                            seen.first, seen.n);
    __syncthreads();
    soften<HEADS>(scores, most, weight, seen.n);
    __syncthreads();
    sum_values<TYPE, HEADS>(j, plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, kv_head, false), scores, part,
                            sums, seen.first, seen.n);
    if (first_split == last_split) {
        for (int i = (int)threadIdx.x; i < n_heads * hd; i += ATTEND_THREADS) out[i] = sums[i] / weight[i / hd];
        return;
    }
    for (int i = (int)threadIdx.x; i < n_heads * (hd + 2); i += ATTEND_THREADS) {
        int h = i / (hd + 2), e = i % (hd + 2);
        partial_of(j, row, head + h, split)[e] = e < hd ? sums[h * hd + e] : e == hd ? most[h] : weight[h];
    }
    __threadfence(); // the sums before the counter
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *counter = &j.counters[(size_t)row * gridDim.y + blockIdx.y];
        *last_block = atomicAdd(counter, 1u) == (unsigned)(last_split - first_split);
        if (*last_block) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    if (*last_block)
        for (int h = 0; h < n_heads; h++) combine(j, row, head + h, first_split, last_split);
}

#endif
