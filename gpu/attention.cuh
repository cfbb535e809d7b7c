// gpu/attention.cuh: attention of few rows to many keys ("split-K"): the keys of a row are divided among blocks, and
// the block that ends last combines their results.
//
// A block computes one row, one KV head with up to HEADS of the query heads that share it (K and V are read once for
// all of them), and one split of the row's slots. Short rows have short splits, so that there are blocks for all
// multiprocessors. Splits begin at multiples of their length, so that the order of sums depends only on the row's own
// slot. V is prefetched to L2 while scores are computed. If there is more than one split, each writes its sums, its
// largest score and its weight to `partial` and increments a counter; the block that completes the count of a (row,
// head) adds the splits in their order. Dense K and V of 16 bits have their own kernel, gpu/attend_tiles.cuh.
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
    float *partial;     // (n_rows, n_heads, n_splits, partial_floats): sums; then largest score, weight
    unsigned *counters; // (n_rows, gridDim.y) splits that are done
    Heads heads;
    KvPool kv;
    GpuBatch b;       // from in_pool
    const float *qkv; // sealed planes: the batch's own K and V
    int layer, n_splits;
    const float *sinks; // (n_heads) an additional score of each head, with value 0; or NULL
    // gpu/attend_tiles.cuh: the longest split; whether the launch may begin early
    int longest;
    bool early;
};

// The floats that a split of a row and head has in `partial`; its sums are padded to whole float4.
HOST_DEVICE constexpr int partial_floats(int head_dim) { return (head_dim + 3) / 4 * 4 + 4; }

// The slots of a split that a row sees: n from `first` on, none if n <= 0.
struct Seen {
    int first, n;
};
__device__ __forceinline__ Seen seen_in(const Heads &h, int slot, int split, int size) {
    int oldest = heads_oldest(&h, slot), begin = split * size, end = begin + size;
    if (begin < oldest) begin = oldest;
    if (end > slot + 1) end = slot + 1;
    return {begin, end - begin};
}

// Prefetches n slots to L2.
template <int TYPE> __device__ __forceinline__ void prefetch_slots(const KvPlane &p, int first, int n) {
    if (TYPE != TYPE_F32) return; // sealed planes: a slot may be in the batch or in a tail page
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
            int i = i0 + a * AT_ONCE; // past the end: the last slot; a branch would delay loads
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

// Replaces n scores of each head by as_stored(weight), weight = exp(score - largest), one warp per head, and those up
// to `room` by as_stored(0). Heads are `step` floats apart. most, weight: (n_heads)
template <typename AsStored>
__device__ __forceinline__ void soften(float *scores, int step, float *most, float *weight, int n_heads, int n,
                                       int room, AsStored as_stored) {
    int lane = (int)threadIdx.x % WARP;
    for (int h = (int)threadIdx.x / WARP; h < n_heads; h += ATTEND_WARPS) {
        float m = -INFINITY, sum = 0;
        for (int i = lane; i < n; i += WARP) m = fmaxf(m, scores[h * step + i]);
        m = warp_max(m);
        for (int i = lane; i < room; i += WARP) {
            float p = i < n ? expf(scores[h * step + i] - m) : 0;
            scores[h * step + i] = as_stored(p);
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
                int i = i0 + k * at_once; // past the end: adds nothing; a branch would delay loads
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

// ---- blocks and their results ---------------------------------------------------------------------------------------

// What a block computes: heads [head, head + n_heads) of a row, over a split.
struct AttendPart {
    int row, split, kv_head, head, n_heads;
};

// heads: the largest number of heads of a block.
__device__ __forceinline__ AttendPart attend_part(const AttendJob &j, int heads) {
    int group = j.heads.n_heads / j.heads.n_kv_heads, passes = (group + heads - 1) / heads;
    int kv_head = (int)blockIdx.y / passes, first = (int)blockIdx.y % passes * heads;
    int n_heads = group - first < heads ? group - first : heads;
    return {(int)blockIdx.z, (int)blockIdx.x, kv_head, kv_head * group + first, n_heads};
}

__device__ __forceinline__ float *attend_out(const AttendJob &j, const AttendPart &a) {
    return j.out + ((size_t)a.row * (size_t)j.heads.n_heads + (size_t)a.head) * (size_t)j.heads.head_dim;
}

// The result of a row of padding.
__device__ __forceinline__ void attend_nothing(const AttendJob &j, const AttendPart &a) {
    float *out = attend_out(j, a);
    for (int i = (int)threadIdx.x; a.split == 0 && i < a.n_heads * j.heads.head_dim; i += ATTEND_THREADS) out[i] = 0;
}

__device__ __forceinline__ float *partial_of(const AttendJob &j, int row, int head, int split) {
    size_t at = ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)j.n_splits + (size_t)split;
    return j.partial + at * (size_t)partial_floats(j.heads.head_dim);
}
// The place in `partial` of the largest score and the weight of a split.
__device__ __forceinline__ float2 load_split_stats(const AttendJob &j, int row, int head, int split) {
    const float *p = partial_of(j, row, head, split) + partial_floats(j.heads.head_dim) - 4;
    return load_shared_result((const float2 *)(const void *)p);
}

enum { COMBINE_FACTORS = ATTEND_THREADS * 8 };

// Finds the factors of n splits from s0 on, one warp per head, and adds their weights to `weight`. most: the largest
// score of all splits.
template <int HEADS>
__device__ __forceinline__ void split_factors(const AttendJob &j, const AttendPart &a, int s0, int n, float *factor,
                                              const float *most, float *weight) {
    int lane = (int)threadIdx.x % WARP;
    for (int h = (int)threadIdx.x / WARP; h < a.n_heads; h += ATTEND_WARPS) {
        float sum = 0;
        for (int s = lane; s < n; s += WARP) {
            float2 stats = load_split_stats(j, a.row, a.head + h, s0 + s);
            float f = expf(stats.x - most[h]);
            factor[h * (COMBINE_FACTORS / HEADS) + s] = f;
            sum += stats.y * f;
        }
        sum = warp_sum(sum);
        if (lane == 0) weight[h] += sum;
    }
}

// The largest score of each head over splits [first, last], one warp per head; weight: that of the sink.
__device__ __forceinline__ void most_of_splits(const AttendJob &j, const AttendPart &a, int first, int last,
                                               float *most, float *weight) {
    int lane = (int)threadIdx.x % WARP;
    for (int h = (int)threadIdx.x / WARP; h < a.n_heads; h += ATTEND_WARPS) {
        float sink = j.sinks ? j.sinks[a.head + h] : -INFINITY, m = sink;
        for (int s = first + lane; s <= last; s += WARP) m = fmaxf(m, load_split_stats(j, a.row, a.head + h, s).x);
        m = warp_max(m);
        if (lane == 0) most[h] = m, weight[h] = j.sinks ? expf(sink - m) : 0;
    }
}

// Combines splits [first, last] of all heads of a block, in their order. A thread sums four elements of a head at a
// time, and asks for eight splits at once. factor: (COMBINE_FACTORS); most, weight: (HEADS). MOST: the largest head_dim
template <int HEADS, int MOST>
__device__ __forceinline__ void combine(const AttendJob &j, const AttendPart &a, int first, int last, float *factor,
                                        float *most, float *weight) {
    constexpr int AT_ONCE = COMBINE_FACTORS / HEADS, ITEMS = (HEADS * MOST / 4 - 1) / ATTEND_THREADS + 1;
    int hd = j.heads.head_dim, pieces = (hd + 3) / 4, thread = (int)threadIdx.x;
    size_t step = (size_t)partial_floats(hd);
    float4 sum[ITEMS] = {};
    most_of_splits(j, a, first, last, most, weight);
    for (int s0 = first; s0 <= last; s0 += AT_ONCE) {
        int n = last - s0 + 1 < AT_ONCE ? last - s0 + 1 : AT_ONCE;
        __syncthreads(); // all threads have read the factors, which are written again
        split_factors<HEADS>(j, a, s0, n, factor, most, weight);
        __syncthreads();
        UNROLL
        for (int k = 0; k < ITEMS; k++) {
            int i = k * ATTEND_THREADS + thread, h = i / pieces;
            if (h >= a.n_heads) break;
            const float *p = partial_of(j, a.row, a.head + h, s0) + i % pieces * 4;
            UNROLL_BY(8)
            for (int s = 0; s < n; s++) {
                float4 v = load_shared_result((const float4 *)(const void *)(p + (size_t)s * step));
                float f = factor[h * AT_ONCE + s];
                sum[k].x += v.x * f, sum[k].y += v.y * f, sum[k].z += v.z * f, sum[k].w += v.w * f;
            }
        }
    }
    float *out = attend_out(j, a);
    UNROLL
    for (int k = 0; k < ITEMS; k++) {
        int i = k * ATTEND_THREADS + thread, h = i / pieces, e = i % pieces * 4;
        if (h >= a.n_heads) break;
        const float v[4] = {sum[k].x, sum[k].y, sum[k].z, sum[k].w};
        UNROLL
        for (int c = 0; c < 4; c++)
            if (e + c < hd) out[h * hd + e + c] = v[c] / weight[h];
    }
}

// Stores a block's results: the row's if it has a single split, otherwise to `partial`; the block that ends last
// combines them. each(store) calls store(head, element, sum) for every sum that the thread has. most, weight: (HEADS)
// of this split; factor: (COMBINE_FACTORS) scratch.
template <int HEADS, int MOST, typename Each>
__device__ __forceinline__ void attend_store(const AttendJob &j, const AttendPart &a, int slot, float *most,
                                             float *weight, float *factor, int *last_block, Each each) {
    int hd = j.heads.head_dim, size = split_of(slot), first = heads_oldest(&j.heads, slot) / size, last = slot / size;
    if (first == last) {
        float *out = attend_out(j, a);
        each([&](int h, int e, float sum) {
            float all = weight[h], f = add_sink(j.sinks, a.head + h, most[h], &all);
            out[h * hd + e] = sum * f / all;
        });
        return;
    }
    each([&](int h, int e, float sum) { partial_of(j, a.row, a.head + h, a.split)[e] = sum; });
    if ((int)threadIdx.x < a.n_heads) {
        int h = (int)threadIdx.x;
        float *stats = partial_of(j, a.row, a.head + h, a.split) + partial_floats(hd) - 4;
        stats[0] = most[h], stats[1] = weight[h];
    }
    unsigned *counter = &j.counters[(size_t)a.row * gridDim.y + blockIdx.y];
    if (is_last_block(counter, last - first + 1, last_block))
        combine<HEADS, MOST>(j, a, first, last, factor, most, weight);
}

// grid: (n_splits, KV heads times passes over their groups, rows)
template <int TYPE, int HEADS>
__global__ __launch_bounds__(ATTEND_THREADS, HEADS == 8 ? 3 : 4) void attend(GRID_CONSTANT const AttendJob j) {
    Smem smem;
    int hd = j.heads.head_dim, chunks = (hd + 7) / 8;
    float *q = smem.take<float>((unsigned)(HEADS * chunks * 8)), *scores = smem.take<float>(HEADS * SPLIT);
    float *part = smem.take<float>(COMBINE_FACTORS), *sums = smem.take<float>((unsigned)(HEADS * hd));
    float *most = smem.take<float>(HEADS), *weight = smem.take<float>(HEADS);
    int *last_block = smem.take<int>(1);
    AttendPart a = attend_part(j, HEADS);
    int slot = j.b.slot[a.row];
    let_next_begin();
    wait_for_last();
    if (slot < 0) return attend_nothing(j, a);
    Seen seen = seen_in(j.heads, slot, a.split, split_of(slot));
    if (seen.n <= 0) return;
    KvPlane keys = plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, a.row, a.kv_head, true);
    prefetch_slots<TYPE>(plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, a.row, a.kv_head, false), seen.first,
                         seen.n);
    load_queries<HEADS>(j, q, a.row, a.head, a.n_heads);
    score_keys<TYPE, HEADS>(j, keys, q, scores, seen.first, seen.n);
    __syncthreads();
    soften(scores, SPLIT, most, weight, HEADS, seen.n, seen.n, [](float p) { return p; });
    __syncthreads();
    KvPlane values = plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, a.row, a.kv_head, false);
    sum_values<TYPE, HEADS>(j, values, scores, part, sums, seen.first, seen.n);
    attend_store<HEADS, GPU_MAX_HEAD>(j, a, slot, most, weight, part, last_block, [&](auto store) {
        for (int i = (int)threadIdx.x; i < a.n_heads * hd; i += ATTEND_THREADS) store(i / hd, i % hd, sums[i]);
    });
}

#endif
