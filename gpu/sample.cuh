// gpu/sample.cuh: draws tokens on the GPU, with the same result as sampler.c, bit for bit.
//
// If no draw needs more than TOP candidates (a greedy draw needs one), each block keeps the best of its slice of the
// vocabulary, and the block that ends last merges them and draws (sample_top). Otherwise slices are sorted, then merged
// by rank, and then one block draws.
//
// A candidate is a 64-bit key (rank_key) that sorts as in sampler.c; 0 is no candidate. Keys are distinct, so that a
// key's rank is the number of larger keys, which is counted by binary search in the other slices.
#ifndef QUILL_SAMPLE_CUH
#define QUILL_SAMPLE_CUH

#include "gpu/gpu.h"
#include "gpu/launch.h"
#include "base/race.h"
#include "sampling.h"

enum { SLICE = 2048, SORT_THREADS = SLICE / 2, DRAW_THREADS = 256 }; // at most, and a power of two

struct SampleJob {
    const float *logits;          // (n, n_vocab)
    int n_vocab, n_slices, slice; // candidates of a slice
    GpuSample *draws;
    int *sampled;
    GpuAdvance advance; // sample_top only
    uint64_t *keys;     // (n, n_slices, slice) each slice sorted, largest first
    uint64_t *sorted;   // (n, n_slices * slice) the best, as many as are wanted
    double *runs;       // (n, n_slices * slice / SAMPLE_RUN) sums
    int *counts;        // (n, n_slices) candidates in each slice
    unsigned *tickets;  // (n) slices that are done
};

__device__ inline uint64_t sample_key(float logit, int id) {
    return logit > -INFINITY ? rank_key(logit, id) : 0; // 0 for NaN too
}
__device__ inline float key_logit(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    return bits_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}

HOST_DEVICE inline bool is_greedy(const GpuSample &r) { return r.temp <= 0; }
// The number of best candidates that the draw needs.
HOST_DEVICE inline int wanted(const GpuSample &r, int n_vocab) {
    if (is_greedy(r)) return 1;
    return r.top_k > 0 && r.top_k < n_vocab ? r.top_k : n_vocab;
}

// ---- a slice --------------------------------------------------------------------------------------------------------

__device__ inline void sort_slice(uint64_t *keys, int n) { // bitonic, largest first
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            for (int i = (int)threadIdx.x; i < n / 2; i += (int)blockDim.x) {
                int low = i / step * 2 * step + i % step, high = low + step;
                bool descending = (low & size) == 0;
                uint64_t a = keys[low], b = keys[high];
                if (descending ? a < b : a > b) keys[low] = b, keys[high] = a;
            }
            __syncthreads();
        }
}

// Occurrences of the slice's tokens in the window of the penalties.
__device__ inline void count_window(const GpuSample &r, const int *pending, int first, int n_ids, int *counts) {
    int n = r.n_window + (r.pending ? 1 : 0);
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        int id = (i < r.n_window ? r.window[i] : *pending) - first;
        if (id >= 0 && id < n_ids) atomicAdd(&counts[id], 1);
    }
}

// Computes the keys of a slice, with biases and penalties applied; ends with a barrier.
__device__ inline void slice_keys(const SampleJob &j, const GpuSample &r, uint64_t *keys, float *logits, int *counts) {
    int first = (int)blockIdx.x * j.slice, n = j.n_vocab - first < j.slice ? j.n_vocab - first : j.slice;
    for (int i = (int)threadIdx.x; i < j.slice; i += (int)blockDim.x) {
        logits[i] = i < n ? j.logits[(size_t)blockIdx.y * (size_t)j.n_vocab + (size_t)(first + i)] : -INFINITY;
        if (!(logits[i] == logits[i])) logits[i] = -INFINITY;
        counts[i] = 0;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int b = 0; b < r.n_bias; b++) {
            int id = r.bias[b].id - first;
            if (id >= 0 && id < n) logits[id] += r.bias[b].bias;
        }
    count_window(r, &j.sampled[blockIdx.y], first, j.slice, counts);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < j.slice; i += (int)blockDim.x) {
        float l = logits[i];
        if (counts[i] > 0) l = sample_penalise(l, counts[i], r.repeat_penalty, r.presence_penalty, r.frequency_penalty);
        keys[i] = i < n ? sample_key(l, first + i) : 0;
    }
    __syncthreads();
}

// grid: (slices, draws)
__global__ __launch_bounds__(SORT_THREADS) void sample_slices(SampleJob j) {
    Smem smem;
    uint64_t *keys = smem.take<uint64_t>((unsigned)j.slice);
    float *logits = smem.take<float>((unsigned)j.slice);
    int *counts = smem.take<int>((unsigned)j.slice);
    slice_keys(j, j.draws[blockIdx.y], keys, logits, counts);
    sort_slice(keys, j.slice);
    size_t at = (size_t)blockIdx.y * (size_t)j.n_slices + blockIdx.x;
    for (int i = (int)threadIdx.x; i < j.slice; i += (int)blockDim.x) {
        j.keys[at * (size_t)j.slice + (size_t)i] = keys[i];
        if (keys[i] && (i == j.slice - 1 || !keys[i + 1])) j.counts[at] = i + 1;
    }
    if (threadIdx.x == 0 && !keys[0]) j.counts[at] = 0;
}

// The number of larger keys in a sorted slice.
__device__ inline int count_larger(const uint64_t *slice, int n, uint64_t key) {
    int low = 0, high = n; // the answer lies in [low, high]
    while (low < high) {
        int middle = (low + high) / 2;
        if (slice[middle] > key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// grid: (slices, draws): writes each needed candidate to the place of its rank.
__global__ __launch_bounds__(SORT_THREADS) void sample_ranks(SampleJob j) {
    int most = wanted(j.draws[blockIdx.y], j.n_vocab);
    const uint64_t *keys = j.keys + (size_t)blockIdx.y * (size_t)j.n_slices * (size_t)j.slice;
    const uint64_t *mine = keys + (size_t)blockIdx.x * (size_t)j.slice;
    uint64_t *sorted = j.sorted + (size_t)blockIdx.y * (size_t)j.n_slices * (size_t)j.slice;
    for (int i = (int)threadIdx.x; i < j.slice && i < most; i += (int)blockDim.x) {
        uint64_t key = mine[i];
        int rank = i;
        if (!key) continue;
        for (int s = 0; s < j.n_slices && rank < most; s++)
            if (s != (int)blockIdx.x) rank += count_larger(keys + (size_t)s * (size_t)j.slice, j.slice, key);
        if (rank < most) sorted[rank] = key;
    }
}

// ---- the draw -------------------------------------------------------------------------------------------------------

// The n remaining candidates, sorted. Their values are weights at temperature `temp`, divided by `sum` unless that is
// 0.
struct Candidates {
    const uint64_t *key;
    int n;
    float temp;
    double sum;
    double *runs;   // (runs) scratch: the sum of each run
    double *shared; // [0] the sum
    int *found;
};

__device__ inline double candidate_value(const Candidates &c, int i) {
    float weight = sample_weight(key_logit(c.key[i]), key_logit(c.key[0]), c.temp);
    return c.sum > 0 ? sample_share(weight, c.sum) : weight;
}

__device__ inline int n_runs(const Candidates &c) { return (c.n + SAMPLE_RUN - 1) / SAMPLE_RUN; }

__device__ inline double run_sum(const Candidates &c, int run) {
    double sum = 0;
    for (int i = run * SAMPLE_RUN; i < (run + 1) * SAMPLE_RUN && i < c.n; i++) sum += candidate_value(c, i);
    return sum;
}

// Sums each run in parallel, then the runs in order. Every thread gets the total.
__device__ inline double add_runs(const Candidates &c) {
    for (int run = (int)threadIdx.x; run < n_runs(c); run += (int)blockDim.x) c.runs[run] = run_sum(c, run);
    __syncthreads();
    if (threadIdx.x == 0) {
        double before = 0;
        for (int run = 0; run < n_runs(c); run++) before += c.runs[run];
        c.shared[0] = before;
    }
    __syncthreads();
    double total = c.shared[0];
    __syncthreads();
    return total;
}

// Softmax, then the first candidate whose cumulative probability reaches `mark`; n if none.
__device__ inline int first_past(Candidates c, double mark) {
    c.temp = 1;
    c.sum = 0;
    c.sum = add_runs(c);
    add_runs(c);
    if (threadIdx.x == 0) {
        double before = 0;
        int run = 0, i;
        for (; run < n_runs(c); before += c.runs[run], run++) {
            if (before + c.runs[run] >= mark) break;
        }
        double sum = 0;
        for (i = run * SAMPLE_RUN; i < c.n; i++) {
            sum += candidate_value(c, i);
            if (before + sum >= mark) break;
        }
        *c.found = i < c.n ? i : c.n;
    }
    __syncthreads();
    int found = *c.found;
    __syncthreads();
    return found;
}

__device__ inline int keep_min_p(const Candidates &c, float log_min_p) {
    float least = key_logit(c.key[0]) + log_min_p;
    int low = 1, high = c.n; // the first candidate that is too small is in [low, high]
    while (low < high) {
        int middle = (low + high) / 2;
        if (key_logit(c.key[middle]) >= least) low = middle + 1;
        else high = middle;
    }
    return low;
}

// How many candidates have at least this probability: the top choices of XTC.
__device__ inline int count_likely(Candidates c, float threshold) {
    c.temp = 1;
    c.sum = 0;
    c.sum = add_runs(c);
    if (threadIdx.x == 0) *c.found = 0;
    __syncthreads();
    int mine = 0;
    for (int i = (int)threadIdx.x; i < c.n; i += (int)blockDim.x) mine += candidate_value(c, i) >= (double)threshold;
    if (mine > 0) atomicAdd(c.found, mine);
    __syncthreads();
    int found = *c.found;
    __syncthreads();
    return found;
}

// Leaves out the top choices but the least likely of them.
__device__ inline void exclude_likely(Candidates &c, int likely) {
    if (likely < 2) return;
    c.key += likely - 1;
    c.n -= likely - 1;
}

// The winner of the race (base/race.h); of equal times the first. times, who: (DRAW_THREADS) scratch.
__device__ inline int first_home(const Candidates &c, float temp, uint64_t draw, double *times, int *who) {
    int mine = 0;
    double least = INFINITY;
    for (int i = (int)threadIdx.x; i < c.n; i += (int)blockDim.x) {
        double time = race_time(draw, key_id(c.key[i]), sample_weight(key_logit(c.key[i]), key_logit(c.key[0]), temp));
        if (time < least) least = time, mine = i;
    }
    times[threadIdx.x] = least;
    who[threadIdx.x] = mine;
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x; i++) {
        if (times[i] > least || (times[i] == least && who[i] >= mine)) continue;
        least = times[i];
        mine = who[i];
    }
    __syncthreads();
    return mine;
}

// grid: (draws)
__global__ __launch_bounds__(DRAW_THREADS) void sample_draw(SampleJob j) {
    Smem smem;
    double *shared = smem.take<double>(1);
    int *found = smem.take<int>(1);
    double *times = smem.take<double>(DRAW_THREADS);
    int *who = smem.take<int>(DRAW_THREADS);
    GpuSample r = j.draws[blockIdx.x];
    size_t first = (size_t)blockIdx.x * (size_t)j.n_slices;
    int n = 0, most = wanted(r, j.n_vocab), token = -1;
    for (int s = 0; s < j.n_slices; s++) n += j.counts[first + (size_t)s];
    Candidates c = {j.sorted + first * (size_t)j.slice,
                    n < most ? n : most,
                    r.temp,
                    0,
                    j.runs + first * (size_t)(j.slice / SAMPLE_RUN),
                    shared,
                    found};
    if (c.n > 0 && is_greedy(r)) token = key_id(c.key[0]);
    else if (c.n > 0) {
        if (r.top_p < 1) {
            int last = first_past(c, r.top_p);
            c.n = last < c.n ? last + 1 : c.n;
        }
        if (r.min_p > 0) c.n = keep_min_p(c, r.log_min_p);
        uint64_t draw = rng_bits(r.seed, r.sequence, r.position);
        if (sample_excludes(draw, r.xtc_probability)) exclude_likely(c, count_likely(c, r.xtc_threshold));
        token = key_id(c.key[first_home(c, r.temp, draw, times, who)]);
    }
    if (threadIdx.x == 0) j.sampled[blockIdx.x] = token;
}

// ---- a few of the best ----------------------------------------------------------------------------------------------

// TOP keys of a warp, largest first: a lane has places 2 lane and 2 lane + 1.
enum { TOP = GPU_SAMPLE_TOP };

__device__ __forceinline__ uint64_t larger_key(uint64_t a, uint64_t b, bool larger) {
    return (a > b) == larger ? a : b;
}

// One step of a bitonic sort: swaps keys that are `step` places apart and in the wrong order for runs of `size`.
__device__ __forceinline__ void exchange_keys(uint64_t k[2], int lane, int size, int step) {
    bool descending = (2 * lane & size) == 0;
    if (step == 1) {
        uint64_t a = k[0], b = k[1];
        k[0] = larger_key(a, b, descending);
        k[1] = larger_key(a, b, !descending);
        return;
    }
    bool lower = (2 * lane & step) == 0;
    UNROLL
    for (int h = 0; h < 2; h++) {
        uint64_t other = __shfl_xor_sync(FULL_WARP, k[h], step / 2);
        k[h] = larger_key(k[h], other, lower == descending);
    }
}

__device__ inline void sort_top(uint64_t k[2], int lane) {
    for (int size = 2; size <= TOP; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) exchange_keys(k, lane, size, step);
}

// Keeps only the largest key of a warp, in lane 0.
__device__ inline void keep_largest(uint64_t k[2], int lane) {
    uint64_t most = warp_max_key(larger_key(k[0], k[1], true));
    k[0] = lane == 0 ? most : 0;
    k[1] = 0;
}

// The best TOP of k and of another sorted list, of which a lane has places TOP - 1 - 2 lane and the one before.
__device__ inline void merge_top(uint64_t k[2], uint64_t a, uint64_t b, int lane) {
    k[0] = larger_key(k[0], a, true);
    k[1] = larger_key(k[1], b, true);
    for (int step = TOP / 2; step > 0; step /= 2) exchange_keys(k, lane, TOP, step);
}

// The best of all warps, in lists[0, TOP) too; lists: (warps, TOP), shared. Ends with a barrier.
__device__ inline void merge_warps(uint64_t k[2], uint64_t *lists, int warp, int warps, int lane) {
    for (int step = 1; step < 2 * warps; step *= 2) {
        lists[warp * TOP + 2 * lane] = k[0];
        lists[warp * TOP + 2 * lane + 1] = k[1];
        __syncthreads();
        const uint64_t *other = lists + (warp + step) * TOP + TOP - 1 - 2 * lane;
        if (warp % (2 * step) == 0 && warp + step < warps) merge_top(k, other[0], other[-1], lane);
        __syncthreads();
    }
}

// The sum of n <= TOP values in their order, in every lane; a run (SAMPLE_RUN) has room for all of them.
__device__ inline double sum_top(const double *value, int n, int lane) {
    double sum = 0;
    for (int i = 0; lane == 0 && i < n; i++) sum += value[i];
    return __shfl_sync(FULL_WARP, sum, 0);
}

// A warp: the first of n candidates whose cumulative probability reaches `mark`; n if none. value: (TOP) shared.
__device__ inline int first_past_top(const uint64_t *key, int n, double mark, double *value, int lane) {
    for (int i = lane; i < n; i += WARP) value[i] = sample_weight(key_logit(key[i]), key_logit(key[0]), 1);
    __syncwarp();
    double all = sum_top(value, n, lane), sum = 0;
    for (int i = lane; i < n; i += WARP) value[i] = sample_share((float)value[i], all);
    __syncwarp();
    int found = 0;
    for (; lane == 0 && found < n; found++) {
        sum += value[found];
        if (sum >= mark) break;
    }
    return __shfl_sync(FULL_WARP, found, 0);
}

// A warp: how many of n candidates have at least this probability. value: (TOP) shared.
__device__ inline int count_likely_top(const uint64_t *key, int n, float threshold, double *value, int lane) {
    for (int i = lane; i < n; i += WARP) value[i] = sample_weight(key_logit(key[i]), key_logit(key[0]), 1);
    __syncwarp();
    double all = sum_top(value, n, lane);
    int found = 0;
    for (int first = 0; first < n; first += WARP) {
        int i = first + lane;
        bool likely = i < n && sample_share((float)value[i], all) >= threshold;
        found += (int)__popc(__ballot_sync(FULL_WARP, likely));
    }
    return found;
}

// A warp: the winner of the race among n candidates, of equal times the first.
__device__ inline int first_home_top(const uint64_t *key, int n, float temp, uint64_t draw, int lane) {
    double least = INFINITY;
    int mine = 0;
    for (int i = lane; i < n; i += WARP) {
        double time = race_time(draw, key_id(key[i]), sample_weight(key_logit(key[i]), key_logit(key[0]), temp));
        if (time < least) least = time, mine = i;
    }
    UNROLL
    for (int with = WARP / 2; with > 0; with /= 2) {
        double time = __shfl_xor_sync(FULL_WARP, least, with);
        int other = __shfl_xor_sync(FULL_WARP, mine, with);
        if (time < least || (time == least && other < mine)) least = time, mine = other;
    }
    return mine;
}

// One warp draws from the sorted best candidates; -1: none is left.
__device__ inline int draw_top(const GpuSample &r, const uint64_t *key, int most, double *value, int lane) {
    int n = 0;
    for (int first = 0; first < TOP; first += WARP)
        n += (int)__popc(__ballot_sync(FULL_WARP, first + lane < most && key[first + lane] != 0));
    if (n == 0) return -1;
    if (is_greedy(r)) return key_id(key[0]);
    if (r.top_p < 1) {
        int last = first_past_top(key, n, r.top_p, value, lane);
        n = last < n ? last + 1 : n;
    }
    Candidates c = {key, n, r.temp, 0, NULL, NULL, NULL};
    if (r.min_p > 0) c.n = keep_min_p(c, r.log_min_p);
    uint64_t draw = rng_bits(r.seed, r.sequence, r.position);
    if (sample_excludes(draw, r.xtc_probability))
        exclude_likely(c, count_likely_top(c.key, c.n, r.xtc_threshold, value, lane));
    return key_id(c.key[first_home_top(c.key, c.n, r.temp, draw, lane)]);
}

// No other block reads these numbers any more: all blocks of the draw are done, and earlier launches have ended.
__device__ inline void advance_draw(const SampleJob &j, int i) {
    j.advance.token[i] = -1;
    j.advance.pos[i]++;
    j.advance.slot[i]++;
    if (j.advance.since) j.advance.since[i]++;
    j.draws[i].position++;
}

// grid: (slices, draws); a thread has two candidates. j.keys: (draws, slices, TOP)
__global__ __launch_bounds__(SORT_THREADS) void sample_top(SampleJob j) {
    Smem smem;
    uint64_t *keys = smem.take<uint64_t>((unsigned)j.slice);
    float *logits = smem.take<float>((unsigned)j.slice);
    int *counts = smem.take<int>((unsigned)j.slice);
    double *value = smem.take<double>(TOP);
    int *last_block = smem.take<int>(1);
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP, lane = (int)threadIdx.x % WARP;
    uint64_t *lists = j.keys + (size_t)blockIdx.y * (size_t)j.n_slices * TOP;
    let_next_begin();
    wait_for_last();
    GpuSample r = j.draws[blockIdx.y];
    slice_keys(j, r, keys, logits, counts);
    uint64_t k[2] = {keys[2 * threadIdx.x], keys[2 * threadIdx.x + 1]};
    __syncthreads(); // all threads have read their keys; from here on `keys` has the lists of the warps
    if (is_greedy(r)) keep_largest(k, lane);
    else sort_top(k, lane);
    merge_warps(k, keys, warp, warps, lane);
    for (unsigned i = threadIdx.x; i < TOP; i += blockDim.x) lists[blockIdx.x * TOP + i] = keys[i];
    if (!is_last_block(&j.tickets[blockIdx.y], j.n_slices, last_block)) return;
    k[0] = k[1] = 0;
    for (int s = warp; s < j.n_slices; s += warps) {
        const uint64_t *other = lists + (size_t)s * TOP + TOP - 1 - 2 * lane;
        merge_top(k, load_shared_result(other), load_shared_result(other - 1), lane);
    }
    merge_warps(k, keys, warp, warps, lane);
    if (warp > 0) return;
    int token = draw_top(r, keys, wanted(r, j.n_vocab), value, lane);
    if (lane == 0) j.sampled[blockIdx.y] = token;
    if (lane == 0 && j.advance.token) advance_draw(j, (int)blockIdx.y);
}

#endif
