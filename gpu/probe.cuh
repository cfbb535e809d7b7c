// gpu/probe.cuh: the attention of a batch's queries to each slot (Probe in kernels.h): softmax weights summed over rows
// and heads.
//
// Attention does not keep scores. K is therefore read again, twice: first for the largest score and the weight of each
// row and head, split by split; then for the weights of the slots, which a thread sums over rows and heads in order for
// its own slots.
#ifndef QUILL_PROBE_CUH
#define QUILL_PROBE_CUH

#include "gpu/attention.cuh"

struct ProbeJob {
    AttendJob a; // a.partial (rows, n_heads, n_splits, 2): largest score, weight
    float *mass; // (n_kv_heads, n_slots)
    int n_slots, first_row;
};

__device__ __forceinline__ float *probe_stats(const ProbeJob &p, int row, int head, int split) {
    size_t at = (size_t)row * (size_t)p.a.heads.n_heads + (size_t)head;
    return p.a.partial + (at * (size_t)p.a.n_splits + (size_t)split) * 2;
}

// Computes the scores of a row and head in one split; ends with a barrier. q: room for the head's query.
template <int TYPE>
__device__ __forceinline__ void probe_scores(const AttendJob &j, float *q, float *scores, int row, int head, Seen s) {
    int kv_head = head / (j.heads.n_heads / j.heads.n_kv_heads);
    load_queries<1>(j, q, row, head, 1);
    KvPlane keys = plane_of<TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, kv_head, true);
    score_keys<TYPE, 1>(j, keys, q, scores, s.first, s.n);
    __syncthreads();
}

HOST_DEVICE constexpr size_t probe_smem(int head_dim) { return (size_t)(head_dim + 7) / 8 * 32 + SPLIT * 4 + 32; }

// grid: (n_splits, heads, rows)
template <int TYPE> __global__ __launch_bounds__(ATTEND_THREADS, 4) void probe_splits(GRID_CONSTANT const ProbeJob p) {
    Smem smem;
    int split = (int)blockIdx.x, head = (int)blockIdx.y, row = (int)blockIdx.z;
    float *q = smem.take<float>((unsigned)(p.a.heads.head_dim + 7) / 8 * 8), *scores = smem.take<float>(SPLIT);
    float *most = smem.take<float>(1), *weight = smem.take<float>(1);
    Seen s = seen_in(p.a.heads, p.a.b.slot[row], split, SPLIT);
    if (row < p.first_row || s.n <= 0) return;
    probe_scores<TYPE>(p.a, q, scores, row, head, s);
    soften(scores, SPLIT, most, weight, 1, s.n, s.n, [](float p) { return p; });
    if (threadIdx.x != 0) return; // thread 0 is in the warp that has written them
    float *stats = probe_stats(p, row, head, split);
    stats[0] = *most;
    stats[1] = *weight;
}

// One warp: the largest score and the weight of a row and head over all its splits.
__device__ inline void probe_total(const ProbeJob &p, int row, int head, float *total) {
    int lane = (int)threadIdx.x % WARP, slot = p.a.b.slot[row], last = slot / SPLIT;
    int first = heads_oldest(&p.a.heads, slot) / SPLIT;
    float most = -INFINITY, weight = 0;
    for (int s = first + lane; s <= last; s += WARP) most = fmaxf(most, probe_stats(p, row, head, s)[0]);
    most = warp_max(most);
    if (p.a.sinks) most = fmaxf(most, p.a.sinks[head]);
    for (int s = first + lane; s <= last; s += WARP) {
        const float *stats = probe_stats(p, row, head, s);
        weight += stats[1] * expf(stats[0] - most);
    }
    weight = warp_sum(weight);
    if (p.a.sinks) weight += expf(p.a.sinks[head] - most);
    if (lane == 0) total[0] = most, total[1] = weight;
}

// grid: (n_splits, KV heads)
template <int TYPE> __global__ __launch_bounds__(ATTEND_THREADS, 4) void probe_mass(GRID_CONSTANT const ProbeJob p) {
    Smem smem;
    int split = (int)blockIdx.x, kv_head = (int)blockIdx.y, group = p.a.heads.n_heads / p.a.heads.n_kv_heads;
    float *q = smem.take<float>((unsigned)(p.a.heads.head_dim + 7) / 8 * 8), *scores = smem.take<float>(SPLIT);
    float *total = smem.take<float>(2), sum[SPLIT / ATTEND_THREADS] = {};
    for (int row = p.first_row; row < p.a.b.n_rows; row++) {
        Seen s = seen_in(p.a.heads, p.a.b.slot[row], split, SPLIT);
        for (int head = kv_head * group; s.n > 0 && head < (kv_head + 1) * group; head++) {
            __syncthreads(); // all threads have read the previous head's values
            if (threadIdx.x < WARP) probe_total(p, row, head, total);
            probe_scores<TYPE>(p.a, q, scores, row, head, s);
            for (int k = 0; k < SPLIT / ATTEND_THREADS; k++) {
                int i = split * SPLIT + k * ATTEND_THREADS + (int)threadIdx.x - s.first;
                if (i >= 0 && i < s.n) sum[k] += expf(scores[i] - total[0]) / total[1];
            }
        }
    }
    for (int k = 0; k < SPLIT / ATTEND_THREADS; k++) {
        int slot = split * SPLIT + k * ATTEND_THREADS + (int)threadIdx.x;
        if (slot < p.n_slots) p.mass[(size_t)kv_head * (size_t)p.n_slots + (size_t)slot] += sum[k];
    }
}

#endif
