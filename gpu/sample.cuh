// gpu/sample.cuh: a draw on the GPU, to the bit what sampler.c draws: sort slices, rank across them, then one block
// draws.
//
// A candidate is a key of 64 bits that sorts as sampler.c does: the logit's bits in order above, the id's complement
// below, so that of equal logits the lower id comes first; 0 is none. Keys are distinct, so that a key's rank is the
// number of larger ones, which binary searches in the other slices count.
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
    const GpuSample *draws;
    int *sampled;
    uint64_t *keys;   // (n, n_slices, slice) each slice sorted, largest first
    uint64_t *sorted; // (n, n_slices * slice) the best, as many as are wanted
    double *runs;     // (n, n_slices * slice / SAMPLE_RUN) sums
    int *counts;      // (n, n_slices) candidates in each slice
};

__device__ inline uint64_t sample_key(float logit, int id) {
    if (!(logit > -INFINITY)) return 0; // NaN too
    uint32_t bits = float_bits(logit == 0 ? 0.0f : logit);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - (uint32_t)id);
}
__device__ inline float key_logit(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    return bits_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}
__device__ inline int key_id(uint64_t key) { return (int)(0xffffffffu - (uint32_t)key); }

__device__ inline bool is_greedy(const GpuSample &r) { return r.temp <= 0; }
// How many of the best are wanted at all.
__device__ inline int wanted(const GpuSample &r, int n_vocab) {
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

// grid: (slices, draws)
__global__ __launch_bounds__(SORT_THREADS) void sample_slices(SampleJob j) {
    Smem smem;
    uint64_t *keys = smem.take<uint64_t>((unsigned)j.slice);
    float *logits = smem.take<float>((unsigned)j.slice);
    int *counts = smem.take<int>((unsigned)j.slice);
    GpuSample r = j.draws[blockIdx.y];
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
    sort_slice(keys, j.slice);
    size_t at = (size_t)blockIdx.y * (size_t)j.n_slices + blockIdx.x;
    for (int i = (int)threadIdx.x; i < j.slice; i += (int)blockDim.x) {
        j.keys[at * (size_t)j.slice + (size_t)i] = keys[i];
        if (keys[i] && (i == j.slice - 1 || !keys[i + 1])) j.counts[at] = i + 1;
    }
    if (threadIdx.x == 0 && !keys[0]) j.counts[at] = 0;
}

// How many of a slice's keys are larger.
__device__ inline int count_larger(const uint64_t *slice, int n, uint64_t key) {
    int low = 0, high = n; // the answer lies in [low, high]
    while (low < high) {
        int middle = (low + high) / 2;
        if (slice[middle] > key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// grid: (slices, draws): each candidate that is wanted to its place.
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

// The candidates that are left: n of them, sorted; weights at a temperature, and their sum (0: weights themselves).
struct Candidates {
    const uint64_t *key;
    int n;
    float temp;
    double sum;
    double *runs;   // scratch; after add_runs: what comes before each run
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

// Sums the runs side by side, then in order. Every thread gets the total.
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
    int low = 1, high = c.n; // the first that is too small lies in [low, high]
    while (low < high) {
        int middle = (low + high) / 2;
        if (key_logit(c.key[middle]) >= least) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The winner of the race (base/race.h); of equal times the first. times, who: (DRAW_THREADS) scratch.
__device__ inline int first_home(const Candidates &c, float temp, uint64_t draw, double *times, int *who) {
    int mine = 0;
    double least = INFINITY;
    for (int i = (int)threadIdx.x; i < c.n; i += (int)blockDim.x) {
        double time =
            race_time(draw, key_id(c.key[i]), sample_weight(key_logit(c.key[i]), key_logit(c.key[0]), temp));
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
        token = key_id(c.key[first_home(c, r.temp, rng_bits(r.seed, r.sequence, r.position), times, who)]);
    }
    if (threadIdx.x == 0) j.sampled[blockIdx.x] = token;
}

#endif
