// gpu/attention.cuh: attention of few rows to many keys ("split-K"): the keys of a row are divided among blocks, and
// the block that ends last combines their results.
//
// A block computes one row, one KV head with up to HEADS of the query heads that share it (K and V are read once for
// all of them), and one split of the row's slots. Short rows have short splits, so that there are blocks for all
// multiprocessors. Splits begin at multiples of their length, so that the order of sums depends only on the row's own
// slot. V is prefetched to L2 while scores are computed. If there is more than one split, each writes its sums, its
// largest score and its weight to `partial` and increments a counter; the block that completes the count of a (row,
// head) adds the splits in their order.
#ifndef QUILL_ATTENTION_CUH
#define QUILL_ATTENTION_CUH

#include "gpu/sealed.cuh"

enum { SPLIT = 256, LEAST_SPLIT = 64, ATTEND_THREADS = 128, ATTEND_WARPS = ATTEND_THREADS / WARP, KEY_LANES = 4 };
// The number of loads that a thread issues before it uses the first, to hide the latency of memory. Unpacking needs
// registers: packed types have room for two.
HOST_DEVICE constexpr int keys_ahead(int type) {
    return type == ANY_TYPE ? 1 : type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 ? 4 : 2;
}

// The slots per split of a row whose newest slot is given, at most SPLIT. split_bound: the most splits of rows that see
// up to that many slots.
HOST_DEVICE constexpr int split_of(int slot) { return slot < 4096 ? LEAST_SPLIT : slot < 16384 ? 128 : SPLIT; }
HOST_DEVICE constexpr int split_bound(int max_slots) {
    int longest = (max_slots - 1) / split_of(max_slots - 1) + 1, before = max_slots > 16384 ? 128 : 64;
    return max_slots > 4096 && longest < before ? before : longest;
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
    const float *sinks; // (n_heads) an additional score of each head, with value 0; or NULL
};

// Adds a head's sink to the weight, relative to the largest score; returns the factor for the sums.
__device__ __forceinline__ float add_sink(const float *sinks, int head, float most, float *weight) {
    if (!sinks) return 1;
    float larger = fmaxf(most, sinks[head]), factor = expf(most - larger);
    *weight = *weight * factor + expf(sinks[head] - larger);
    return factor;
}

// The oldest slot that a row sees; the slots of a split that it sees: n from `first` on, none if n <= 0.
struct Seen {
    int first, n;
};
__device__ __forceinline__ int oldest_seen(const Heads &h, int slot) {
    return h.window && slot >= h.window ? slot - h.window + 1 : 0;
}
__device__ __forceinline__ Seen seen_in(const Heads &h, int slot, int split, int size) {
    int oldest = oldest_seen(h, slot), begin = split * size, end = begin + size;
    if (begin < oldest) begin = oldest;
    if (end > slot + 1) end = slot + 1;
    return {begin, end - begin};
}

// Prefetches n slots to L2.
template <int TYPE> __device__ __forceinline__ void prefetch_slots(const KvPlane &p, int first, int n) {
    if (TYPE != TYPE_F32 && TYPE != TYPE_F16 && TYPE != TYPE_BF16) return; // sealed ones may lie elsewhere
    int lines = (p.bytes + 127) / 128;
    for (int i = (int)threadIdx.x; i < n * lines; i += ATTEND_THREADS)
        prefetch(bytes_of(p, first + i / lines) + i % lines * 128);
}

// Loads the queries of n_heads heads from `head` on, each padded to a multiple of eight. Ends with a barrier.
template <int HEADS>
__device__ __forceinline__ void load_queries(const AttendJob &j, float *q, int row, int head, int n_heads) {
    int hd = j.heads.head_dim, padded = (hd + 7) / 8 * 8;
    const float *from = j.q + ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)hd;
    for (int i = (int)threadIdx.x; i < HEADS * padded; i += ATTEND_THREADS) {
        int h = i / padded, e = i % padded;
        q[i] = h < n_heads && e < hd ? from[h * hd + e] : 0;
    }
    __syncthreads();
}

// scores[h][i] of slot first + i. KEY_LANES lanes share a key; with 16-bit types they compute two keys at a time, whose
// addresses they look up first.
template <int TYPE, int HEADS>
__device__ __forceinline__ void score_keys(const AttendJob &j, const KvPlane &keys, const float *q, float *scores,
                                           int first, int n) {
    int hd = j.heads.head_dim, chunks = (hd + 7) / 8, lane = (int)threadIdx.x % KEY_LANES;
    constexpr int AHEAD = TYPE == TYPE_F16 || TYPE == TYPE_BF16 ? 2 : 1, AT_ONCE = ATTEND_THREADS / KEY_LANES;
    for (int i0 = (int)threadIdx.x / KEY_LANES; i0 - (int)threadIdx.x / KEY_LANES < n; i0 += AHEAD * AT_ONCE) {
        KvSlot at[AHEAD];
        float sum[AHEAD][HEADS] = {};
        UNROLL
        for (int a = 0; a < AHEAD; a++) {
            int i =
                i0 + a * AT_ONCE; // past the end the last one again, without a branch, behind which loads would wait
            at[a] = find_slot<TYPE>(keys, first + (i < n ? i : n - 1));
        }
        UNROLL_BY(keys_ahead(TYPE))
        for (int c = lane; c < chunks; c += KEY_LANES) {
            float k[AHEAD][8];
            UNROLL
            for (int a = 0; a < AHEAD; a++) load_kv<TYPE>(k[a], keys, at[a], c);
            UNROLL
            for (int h = 0; h < HEADS; h++) UNROLL
            for (int e = 0; e < 8; e++) {
                float x = q[(h * chunks + c) * 8 + e];
                UNROLL
                for (int a = 0; a < AHEAD; a++) sum[a][h] += x * k[a][e];
            }
        }
        UNROLL
        for (int a = 0; a < AHEAD; a++) UNROLL
        for (int h = 0; h < HEADS; h++) {
            float s = sum[a][h];
            int i = i0 + a * AT_ONCE;
            UNROLL
            for (int with = KEY_LANES / 2; with > 0; with /= 2) s += __shfl_xor_sync(FULL_WARP, s, with);
            if (lane == 0 && i < n) scores[h * SPLIT + i] = softcap(s * j.heads.scale, j.heads.softcap);
        }
    }
}

// Replaces scores by exp(score - largest), one warp per head. most, weight: (HEADS)
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

// sums[h][i] = sum over keys of p V. A thread sums eight elements of every n-th key; `part` (threads, 8) combines them.
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

// The maximum over a block's threads, returned to every thread. scratch: one float per warp, shared.
__device__ inline float block_max(float v, float *scratch) {
    v = warp_max(v);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = v;
    __syncthreads();
    for (int w = 0; w < ATTEND_WARPS; w++) v = fmaxf(v, scratch[w]);
    __syncthreads();
    return v;
}

// Combines the splits [first, last] of a row and head in order. factor: (ATTEND_THREADS, 8); scratch: as block_max.
__device__ inline void combine(const AttendJob &j, int row, int head, int first, int last, float *factor,
                               float *scratch) {
    int hd = j.heads.head_dim, thread = (int)threadIdx.x;
    float most = j.sinks ? j.sinks[head] : -INFINITY, weight = 0, sum[GPU_MAX_HEAD / ATTEND_THREADS] = {};
    for (int s = first + thread; s <= last; s += ATTEND_THREADS)
        most = fmaxf(most, load_shared_result(partial_of(j, row, head, s) + hd));
    most = block_max(most, scratch);
    for (int s0 = first; s0 <= last; s0 += ATTEND_THREADS * 8) {
        int n = last - s0 + 1 < ATTEND_THREADS * 8 ? last - s0 + 1 : ATTEND_THREADS * 8;
        for (int s = thread; s < n; s += ATTEND_THREADS) {
            const float *p = partial_of(j, row, head, s0 + s) + hd;
            factor[s] = expf(load_shared_result(p) - most);
            weight += load_shared_result(p + 1) * factor[s];
        }
        __syncthreads();
        UNROLL
        for (int k = 0; k < GPU_MAX_HEAD / ATTEND_THREADS; k++) {
            int i = k * ATTEND_THREADS + thread;
            const float *p = partial_of(j, row, head, s0) + (i < hd ? i : 0);
            UNROLL_BY(8)
            for (int s = 0; s < n; s++) sum[k] += load_shared_result(p + (size_t)s * (size_t)(hd + 2)) * factor[s];
            if (k * ATTEND_THREADS + ATTEND_THREADS >= hd) break;
        }
        __syncthreads(); // factors may be filled again
    }
    weight = block_sum(weight, scratch) + (j.sinks ? expf(j.sinks[head] - most) : 0);
    float *out = j.out + ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)hd;
    UNROLL
    for (int k = 0; k < GPU_MAX_HEAD / ATTEND_THREADS; k++)
        if (k * ATTEND_THREADS + thread < hd) out[k * ATTEND_THREADS + thread] = sum[k] / weight;
}

// grid: (n_splits, KV heads times passes over their groups, rows)
template <int TYPE, int HEADS>
__global__ __launch_bounds__(ATTEND_THREADS, HEADS == 8 ? 3 : 4) void attend(GRID_CONSTANT const AttendJob j) {
    Smem smem;
    int hd = j.heads.head_dim, chunks = (hd + 7) / 8, group = j.heads.n_heads / j.heads.n_kv_heads;
    float *q = smem.take<float>((unsigned)(HEADS * chunks * 8)), *scores = smem.take<float>(HEADS * SPLIT);
    float *part = smem.take<float>(ATTEND_THREADS * 8), *sums = smem.take<float>((unsigned)(HEADS * hd));
    float *most = smem.take<float>(HEADS), *weight = smem.take<float>(HEADS);
    float *scratch = smem.take<float>(ATTEND_WARPS);
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
    int size = split_of(slot), first_split = oldest_seen(j.heads, slot) / size, last_split = slot / size;
    Seen seen = seen_in(j.heads, slot, split, size);
    if (seen.n <= 0) return;
    KvPlane keys = plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, kv_head, true);
    prefetch_slots<TYPE>(plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, kv_head, false), seen.first, seen.n);
    load_queries<HEADS>(j, q, row, head, n_heads);
    score_keys<TYPE, HEADS>(j, keys, q, scores, seen.first, seen.n);
    __syncthreads();
    soften<HEADS>(scores, most, weight, seen.n);
    __syncthreads();
    KvPlane values = plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, kv_head, false);
    sum_values<TYPE, HEADS>(j, values, scores, part, sums, seen.first, seen.n);
    if (first_split == last_split) {
        for (int i = (int)threadIdx.x; i < n_heads * hd; i += ATTEND_THREADS) {
            float all = weight[i / hd], factor = add_sink(j.sinks, head + i / hd, most[i / hd], &all);
            out[i] = sums[i] * factor / all;
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < n_heads * (hd + 2); i += ATTEND_THREADS) {
        int h = i / (hd + 2), e = i % (hd + 2);
        partial_of(j, row, head + h, split)[e] = e < hd ? sums[h * hd + e] : e == hd ? most[h] : weight[h];
    }
    unsigned *counter = &j.counters[(size_t)row * gridDim.y + blockIdx.y];
    if (is_last_block(counter, last_split - first_split + 1, last_block))
        for (int h = 0; h < n_heads; h++) combine(j, row, head + h, first_split, last_split, part, scratch);
}

#endif
