// gpu/recurrent.cuh: kernels of recurrent layers: the short convolution with what follows it in each channel, the gated
// delta rule and state space duality (Recurrence of layer.h), and the gates of gated attention. gpu/recurrent.h has the
// shapes.
//
// In a step, a state is read once and written once for all rows of a sequence; in between it is in registers. Every sum
// has a fixed order, which does not depend on how a text was divided into steps.
#ifndef QUILL_RECURRENT_CUH
#define QUILL_RECURRENT_CUH

#include "gpu/gpu.h"
#include "gpu/recurrent.h"
#include "gpu/rows.cuh"

// The part of the states that belongs to one layer: it begins `at` floats after the beginning of a state.
struct LayerStates {
    GpuStates s;
    size_t at;
};

__device__ __forceinline__ float *state_of(const LayerStates &t, int state) {
    return t.s.data + (size_t)state * t.s.step + t.at;
}

// ---- the convolution ------------------------------------------------------------------------------------------------

enum {
    CONV_WARPS = 4,
    CONV_WIDTH = 128, // channels of a warp, for MIXER_CONV; for other mixers a warp has the channels of a head
    CONV_LANE = GPU_MAX_STATE / WARP,
    CONV_ROWS = 8, // rows of a block, in steps of many rows
};

struct ConvJob {
    LayerStates t; // the tails: (taps - 1, channels) inputs before the first row
    Recurrence r;
    Mixer mixer;
    const float *conv, *conv_bias, *decay, *dt_bias;
    bool fused; // beta and alpha are rows of one matrix
    const float *y;
    float *mix;
    size_t stride; // floats from row to row of y and mix
    void *a;       // MIXER_CONV: the result
    int type;
    int n_rows, n_tasks;
    const int *slot, *seq; // (n_rows)
};

// A warp's channels: a head of q, k or v, or CONV_WIDTH channels.
struct ConvChannels {
    int first, n;
    int key;   // 1: a head of q; 2: a head of k, both of MIXER_DELTA; 0: neither
    int value; // the value head if the channels are a head of v; otherwise -1
};

__device__ __forceinline__ ConvChannels convolve_task(const ConvJob &j, int task) {
    const Recurrence &r = j.r;
    if (j.mixer == MIXER_CONV) {
        int first = task * CONV_WIDTH;
        return {first, r.channels - first < CONV_WIDTH ? r.channels - first : (int)CONV_WIDTH, 0, -1};
    }
    if (j.mixer == MIXER_SSD) {
        int key = task - r.n_values;
        if (key < 0) return {task * r.value_dim, r.value_dim, 0, task};
        return {r.n_values * r.value_dim + key * r.key_dim, r.key_dim, 0, -1};
    }
    int value = task - 2 * r.n_keys;
    if (value < 0) return {task * r.key_dim, r.key_dim, task < r.n_keys ? 1 : 2, -1};
    return {2 * r.n_keys * r.key_dim + value * r.value_dim, r.value_dim, 0, value};
}

// The input of channel c at row i of a span; i < 0: before the span.
__device__ __forceinline__ float conv_input(const ConvJob &j, const GpuSpan &span, int i, int c) {
    if (i < 0)
        return span.state < 0
                   ? 0
                   : state_of(j.t, span.state)[(size_t)(j.r.taps - 1 + i) * (size_t)j.r.channels + (size_t)c];
    const float *y = j.y + (size_t)(span.first + i) * j.stride;
    return j.mixer == MIXER_CONV ? y[c] * y[2 * j.r.channels + c] : y[c];
}

// Stores the last inputs up to row i as the tail of a state. Taps are written in ascending order: the state may be the
// one before the span, whose later taps are still read.
__device__ inline void store_tail(const ConvJob &j, const GpuSpan &span, const ConvChannels &t, int i, int state,
                                  int lane) {
    float *tail = state_of(j.t, state);
    for (int c = t.first + lane; c < t.first + t.n; c += WARP)
        for (int k = 0; k < j.r.taps - 1; k++)
            tail[(size_t)k * (size_t)j.r.channels + (size_t)c] = conv_input(j, span, i - (j.r.taps - 2) + k, c);
}

__device__ inline float softplus(float v) { return v > 20 ? v : log1pf(expf(v)); }

// Computes beta and the factor of M of a value head, and stores them after the channels of the row of mix. MIXER_SSD has
// dt as its beta.
__device__ inline void find_rates(const ConvJob &j, int row, int head) {
    const Recurrence &r = j.r;
    const float *raw = j.y + (size_t)row * j.stride + r.channels + r.n_values * r.value_dim;
    float *rates = j.mix + (size_t)row * j.stride + r.channels;
    int group = r.n_values / r.n_keys, at = j.fused ? head / group * 2 * group + head % group : head;
    if (j.mixer == MIXER_SSD) {
        rates[head] = softplus(raw[head] + j.dt_bias[head]);
        rates[r.n_values + head] = expf(j.decay[head] * rates[head]);
        return;
    }
    float alpha = raw[at + (j.fused ? group : r.n_values)] + j.dt_bias[head];
    rates[head] = 1 / (1 + expf(-raw[at]));
    rates[r.n_values + head] = expf(j.decay[head] * softplus(alpha));
}

// TAPS: as j.r.taps; 0: any number.
template <int TAPS>
__device__ __forceinline__ void convolve_row(const ConvJob &j, const GpuSpan &span, const ConvChannels &t, int i,
                                             int lane) {
    const int taps = TAPS ? TAPS : j.r.taps;
    size_t row = (size_t)(span.first + i);
    float u[CONV_LANE], squares = 0;
    UNROLL
    for (int k = 0; k < CONV_LANE; k++) {
        int c = t.first + lane + k * WARP;
        u[k] = 0;
        if (lane + k * WARP >= t.n) continue;
        for (int b = 0; b < taps; b++) u[k] += j.conv[c * taps + b] * conv_input(j, span, i - (taps - 1) + b, c);
        if (j.mixer == MIXER_CONV) {
            float gate = j.y[row * j.stride + (size_t)(j.r.channels + c)];
            store_as(j.type, j.a, row * (size_t)j.r.channels + (size_t)c, gate * u[k]);
            continue;
        }
        u[k] = activate(ACT_SILU, j.conv_bias ? u[k] + j.conv_bias[c] : u[k]);
        squares += u[k] * u[k];
    }
    if (j.mixer == MIXER_CONV) return;
    float scale = 1;
    if (t.key) {
        scale = 1 / sqrtf(warp_sum(squares) + DELTA_EPS);
        if (t.key == 1) scale /= sqrtf((float)j.r.key_dim);
    }
    UNROLL
    for (int k = 0; k < CONV_LANE; k++)
        if (lane + k * WARP < t.n) j.mix[row * j.stride + (size_t)(t.first + lane + k * WARP)] = u[k] * scale;
    if (t.value >= 0 && lane == 0) find_rates(j, (int)row, t.value);
}

// Computes a row, and stores its tail if that is to be kept. The tail of the span's last row is stored later: it may
// overwrite the state before the span, which other rows still read.
template <int TAPS>
__device__ __forceinline__ void convolve_and_keep(const ConvJob &j, const GpuSpan &span, const ConvChannels &t, int i,
                                                  int lane) {
    convolve_row<TAPS>(j, span, t, i, lane);
    int state = j.t.s.keep[span.first + i];
    if (state >= 0 && i < span.n - 1) store_tail(j, span, t, i, state, lane);
}

// Few rows: a warp computes its channels of all rows of a sequence. grid: (spans, tasks / CONV_WARPS)
template <int TAPS> __global__ __launch_bounds__(CONV_WARPS *WARP, 1) void convolve_spans(GRID_CONSTANT const ConvJob j) {
    GpuSpan span = j.t.s.span[blockIdx.x];
    int task = (int)(blockIdx.y * CONV_WARPS + threadIdx.x / WARP), lane = (int)threadIdx.x % WARP;
    if (span.n == 0 || task >= j.n_tasks) return;
    ConvChannels t = convolve_task(j, task);
    for (int i = 0; i < span.n; i++) convolve_and_keep<TAPS>(j, span, t, i, lane);
    int last = span.n - 1;
    store_tail(j, span, t, last, j.t.s.keep[span.first + last], lane);
}

// Many rows. grid: (rows / CONV_ROWS, tasks / CONV_WARPS)
template <int TAPS> __global__ __launch_bounds__(CONV_WARPS *WARP, 1) void convolve_rows(GRID_CONSTANT const ConvJob j) {
    int task = (int)(blockIdx.y * CONV_WARPS + threadIdx.x / WARP), lane = (int)threadIdx.x % WARP;
    int first = (int)blockIdx.x * CONV_ROWS;
    if (task >= j.n_tasks) return;
    ConvChannels t = convolve_task(j, task);
    for (int row = first; row < first + CONV_ROWS && row < j.n_rows; row++) {
        if (j.slot[row] < 0) continue;
        GpuSpan span = j.t.s.span[j.seq[row]];
        convolve_and_keep<TAPS>(j, span, t, row - span.first, lane);
    }
}

// After convolve_rows, because a last row may overwrite the state that the first rows read. grid as convolve_spans
__global__ void keep_tails(GRID_CONSTANT const ConvJob j) {
    GpuSpan span = j.t.s.span[blockIdx.x];
    int task = (int)(blockIdx.y * CONV_WARPS + threadIdx.x / WARP), last = span.n - 1;
    if (span.n == 0 || task >= j.n_tasks) return;
    store_tail(j, span, convolve_task(j, task), last, j.t.s.keep[span.first + last], (int)threadIdx.x % WARP);
}

// ---- the matrices of value heads ------------------------------------------------------------------------------------

// A block has all rows of a value head's matrix M and four of its columns for each warp and two lanes. A lane has two
// columns and every eighth run of four rows, so that it reads k and q from shared memory in pieces of 16 bytes, and the
// sums over the rows of M stay within a warp.
enum {
    DELTA_ROWS = 8,    // rows of the batch in shared memory at a time
    DELTA_PARTS = 8,   // lanes that share a pair of columns
    DELTA_COLUMNS = 8, // columns of M that a warp has
};

struct DeltaJob {
    LayerStates t; // the matrices M: (n_values, key_dim, value_dim)
    Recurrence r;
    Mixer mixer;
    const float *y, *mix;
    size_t stride;
    float *raw; // (n_rows, n_values * value_dim) M^T q
    void *a;    // the same, normalised and gated, of `type`
    int type;
    const float *norm, *skip;
    float eps;
    int slices;    // blocks that share a head's columns
    bool finishes; // the block also finishes the head: one slice of MIXER_DELTA
};

// Hides the origin of a value from the compiler. Otherwise it would compute indices once for all rows and keep them in
// registers that M needs.
__device__ __forceinline__ int opaque(int v) {
    asm volatile("" : "+r"(v));
    return v;
}

// The most threads of a block: as many as the registers for M allow.
HOST_DEVICE constexpr int delta_most(int rows) { return rows > 16 ? 256 : 512; }

// Where a thread's elements of M are. R: rows of M that a thread has, a multiple of four.
template <int R> struct DeltaPlace {
    int part, column; // the thread's place among DELTA_PARTS; the first of its two columns of M
    bool there[2];    // whether the columns exist
    bool pairs;       // both columns can be moved at once
};

__device__ __forceinline__ int delta_row(int part, int k) {
    return k / 4 * (4 * DELTA_PARTS) + part * 4 + k % 4;
} // of M

template <int R>
__device__ __forceinline__ void load_matrix(float (&m)[R][2], const DeltaPlace<R> &p, const Recurrence &r,
                                            const float *from) {
    int part = opaque(p.part), width = opaque(r.value_dim);
    UNROLL
    for (int k = 0; k < R; k++) {
        int row = delta_row(part, k);
        const float *at = from + row * width + p.column;
        m[k][0] = m[k][1] = 0;
        if (!from || row >= r.key_dim) continue;
        if (p.pairs && p.there[0]) {
            float2 v = *(const float2 *)at;
            m[k][0] = v.x;
            m[k][1] = v.y;
        } else {
            if (p.there[0]) m[k][0] = at[0];
            if (p.there[1]) m[k][1] = at[1];
        }
    }
}

template <int R>
__device__ __forceinline__ void store_matrix(const float (&m)[R][2], const DeltaPlace<R> &p, const Recurrence &r,
                                             float *to) {
    int part = opaque(p.part), width = opaque(r.value_dim);
    UNROLL
    for (int k = 0; k < R; k++) {
        int row = delta_row(part, k);
        float *at = to + row * width + p.column;
        if (row >= r.key_dim) continue;
        if (p.pairs && p.there[0]) *(float2 *)at = make_float2(m[k][0], m[k][1]);
        else {
            if (p.there[0]) at[0] = m[k][0];
            if (p.there[1]) at[1] = m[k][1];
        }
    }
}

// Rows of the batch that are copied to shared memory; each thread has a part of them in its registers meanwhile.
template <int R> struct DeltaAhead { float qk[R], v[2], rate[2]; };

// Shared memory: q and k (DELTA_ROWS, 2, 8 R), v (DELTA_ROWS, columns), beta and factor (DELTA_ROWS, 2).
template <int R> struct DeltaInput { float *qk, *v, *rate; };

// Loads up to DELTA_ROWS rows of the batch. A block has at least 32 threads for 8 columns: R elements of q and k in
// each thread of 128, fewer in one of more threads; a smaller block takes several turns.
template <int R>
__device__ __forceinline__ void load_rows(DeltaAhead<R> &ahead, const DeltaJob &j, size_t row, int n, int head,
                                          int first_column, int columns) {
    enum { KEY = DELTA_PARTS * R };
    const Recurrence &r = j.r;
    int thread = opaque((int)threadIdx.x), key = r.grouped ? head / (r.n_values / r.n_keys) : head % r.n_keys;
    const float *mix = j.mix + row * j.stride;
    UNROLL
    for (int k = 0; k < R; k++) {
        int i = thread + k * (int)blockDim.x, of = i / (2 * KEY), element = i % KEY, is_k = i / KEY % 2;
        bool there = of < n && element < r.key_dim;
        int first = is_k ? recurrence_k_at(j.mixer, &r) : recurrence_q_at(j.mixer, &r);
        ahead.qk[k] = there ? mix[(size_t)of * j.stride + (size_t)(first + key * r.key_dim + element)] : 0;
    }
    int column = first_column + thread % columns, first_row = thread / columns; // the first of four rows
    UNROLL
    for (int k = 0; k < 2; k++) {
        int of = first_row + 4 * k, at = recurrence_v_at(j.mixer, &r) + head * r.value_dim + column;
        ahead.v[k] = of < n && column < r.value_dim ? mix[(size_t)of * j.stride + (size_t)at] : 0;
    }
    UNROLL
    for (int k = 0; k < 2; k++)
        ahead.rate[k] = thread < n ? mix[(size_t)thread * j.stride + (size_t)(r.channels + k * r.n_values + head)] : 0;
}

template <int R>
__device__ __forceinline__ void store_rows(const DeltaInput<R> &in, const DeltaAhead<R> &ahead, int columns) {
    enum { KEY = DELTA_PARTS * R };
    int thread = opaque((int)threadIdx.x);
    UNROLL
    for (int k = 0; k < R; k++) {
        int i = thread + k * (int)blockDim.x;
        if (i < DELTA_ROWS * 2 * KEY) in.qk[i] = ahead.qk[k];
    }
    UNROLL
    for (int k = 0; k < 2; k++) in.v[(thread / columns + 4 * k) * columns + thread % columns] = ahead.v[k];
    UNROLL
    for (int k = 0; k < 2; k++)
        if (thread < DELTA_ROWS) in.rate[2 * thread + k] = ahead.rate[k];
}

// The sum over the lanes that share columns, in each of them.
__device__ __forceinline__ float part_sum(float v) {
    UNROLL
    for (int with = WARP / DELTA_PARTS; with < WARP; with *= 2) v += __shfl_xor_sync(FULL_WARP, v, with);
    return v;
}

// One row of the batch: M changes, and out = M^T q of the thread's two columns. local: the first of them in the block;
// plain: as DeltaTask.plain of cpu/cpu.h
template <int R>
__device__ __forceinline__ void delta_step(float (&m)[R][2], float out[2], const DeltaInput<R> &in,
                                           const DeltaPlace<R> &p, int i, int local, int columns, bool plain) {
    enum { KEY = DELTA_PARTS * R };
    const float *q = in.qk + i * 2 * KEY + p.part * 4, *k = q + KEY;
    float beta = in.rate[2 * i], factor = in.rate[2 * i + 1], found[2] = {0, 0}, d[2];
    if (!plain) {
        UNROLL
        for (int run = 0; run < R / 4; run++) {
            float4 x = *(const float4 *)(k + run * 4 * DELTA_PARTS);
            const float e[4] = {x.x, x.y, x.z, x.w};
            UNROLL
            for (int n = 0; n < 4; n++) UNROLL
            for (int c = 0; c < 2; c++) found[c] += m[run * 4 + n][c] * e[n];
        }
    }
    UNROLL
    for (int c = 0; c < 2; c++) {
        d[c] = beta * (in.v[i * columns + local + c] - (plain ? 0 : part_sum(found[c]) * factor));
        out[c] = 0;
    }
    UNROLL
    for (int run = 0; run < R / 4; run++) {
        float4 x = *(const float4 *)(k + run * 4 * DELTA_PARTS), z = *(const float4 *)(q + run * 4 * DELTA_PARTS);
        const float e[4] = {x.x, x.y, x.z, x.w}, f[4] = {z.x, z.y, z.z, z.w};
        UNROLL
        for (int n = 0; n < 4; n++) UNROLL
        for (int c = 0; c < 2; c++) {
            float now = m[run * 4 + n][c] * factor + e[n] * d[c];
            m[run * 4 + n][c] = now;
            out[c] += now * f[n];
        }
    }
    UNROLL
    for (int c = 0; c < 2; c++) out[c] = part_sum(out[c]);
}

// a = norm(out) * silu(z) for one row of a head; out (value_dim) in shared memory, complete after the first barrier.
__device__ inline void finish_delta(const DeltaJob &j, const float *out, float *sums, size_t row, int head) {
    int n = j.r.value_dim, i = (int)threadIdx.x;
    __syncthreads();
    float v = i < n ? out[i] : 0, scale = 1 / sqrtf(block_sum(v * v, sums) / (float)n + j.eps);
    if (i >= n) return;
    float z = j.y[row * j.stride + (size_t)(j.r.channels + head * n + i)];
    store_as(j.type, j.a, (row * (size_t)j.r.n_values + (size_t)head) * (size_t)n + (size_t)i,
             v * scale * j.norm[i] * activate(ACT_SILU, z));
}

static size_t delta_smem(int key, int threads) {
    int columns = threads / 4;
    size_t rows = (size_t)DELTA_ROWS * (size_t)(2 * key + columns + 2);
    return (rows + (size_t)columns + (size_t)(threads / WARP) + 16) * sizeof(float);
}

// grid: (spans, value heads * slices); blocks of 32 threads for 8 columns of M, at least 128
template <int R> __global__ __launch_bounds__(delta_most(R), 1) void delta_rule(GRID_CONSTANT const DeltaJob j) {
    enum { KEY = DELTA_PARTS * R };
    Smem smem;
    GpuSpan span = j.t.s.span[blockIdx.x];
    if (span.n == 0) return;
    int columns = (int)blockDim.x / 4, head = (int)blockIdx.y / j.slices, lane = (int)threadIdx.x % WARP;
    int local = (int)threadIdx.x / WARP * DELTA_COLUMNS + lane % 4 * 2, first = (int)blockIdx.y % j.slices * columns;
    DeltaInput<R> in;
    in.qk = smem.take<float>(DELTA_ROWS * 2 * KEY);
    in.v = smem.take<float>((unsigned)(DELTA_ROWS * columns));
    in.rate = smem.take<float>(DELTA_ROWS * 2);
    float *whole = smem.take<float>((unsigned)columns), *sums = smem.take<float>(blockDim.x / WARP);
    size_t matrix = (size_t)head * (size_t)j.r.key_dim * (size_t)j.r.value_dim;
    DeltaPlace<R> p;
    p.part = lane / 4;
    p.column = first + local;
    p.there[0] = p.column < j.r.value_dim;
    p.there[1] = p.column + 1 < j.r.value_dim;
    p.pairs = j.r.value_dim % 2 == 0 && j.t.at % 2 == 0 && j.t.s.step % 2 == 0;
    float m[R][2];
    DeltaAhead<R> ahead;
    load_rows<R>(ahead, j, (size_t)span.first, span.n < DELTA_ROWS ? span.n : (int)DELTA_ROWS, head, first, columns);
    load_matrix<R>(m, p, j.r, span.state < 0 ? (const float *)NULL : state_of(j.t, span.state) + matrix);
    for (int done = 0; done < span.n; done += DELTA_ROWS) {
        int n = span.n - done < DELTA_ROWS ? span.n - done : (int)DELTA_ROWS, left = span.n - done - n;
        __syncthreads(); // all threads have read the previous rows
        store_rows<R>(in, ahead, columns);
        __syncthreads();
        if (left > 0)
            load_rows<R>(ahead, j, (size_t)(span.first + done + n), left < DELTA_ROWS ? left : (int)DELTA_ROWS, head,
                         first, columns);
        for (int i = 0; i < n; i++) {
            size_t row = (size_t)(span.first + done + i);
            float out[2];
            delta_step<R>(m, out, in, p, i, local, columns, j.mixer == MIXER_SSD);
            float *to = j.finishes
                            ? whole + local
                            : j.raw + (row * (size_t)j.r.n_values + (size_t)head) * (size_t)j.r.value_dim + p.column;
            UNROLL
            for (int c = 0; c < 2; c++)
                if (p.part == 0 && p.there[c]) to[c] = out[c];
            if (j.finishes) finish_delta(j, whole, sums, row, head);
            int state = j.t.s.keep[row];
            if (state >= 0) store_matrix<R>(m, p, j.r, state_of(j.t, state) + matrix);
        }
    }
}

// Does the work of finish_delta for all rows and heads, from j.raw. A warp computes one head of one row.
__global__ void finish_heads(GRID_CONSTANT const DeltaJob j, const int *slot, int n_rows) {
    size_t pair = (size_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    int n = j.r.value_dim, head = (int)(pair % (size_t)j.r.n_values), lane = (int)threadIdx.x % WARP;
    size_t row = pair / (size_t)j.r.n_values;
    if (row >= (size_t)n_rows || slot[row] < 0) return;
    const float *v = j.raw + pair * (size_t)n, *z = j.y + row * j.stride + (size_t)(j.r.channels + head * n);
    float squares = 0;
    for (int i = lane; i < n; i += WARP) squares += v[i] * v[i];
    float scale = 1 / sqrtf(warp_sum(squares) / (float)n + j.eps);
    for (int i = lane; i < n; i += WARP)
        store_as(j.type, j.a, pair * (size_t)n + (size_t)i, v[i] * scale * j.norm[i] * activate(ACT_SILU, z[i]));
}

// MIXER_SSD: a = norm((raw + skip v) * silu(z)), over the value heads of a key head together; overwrites raw.
// grid: (rows, key heads)
__global__ void finish_groups(GRID_CONSTANT const DeltaJob j, const int *slot) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP), squares = 0;
    const Recurrence &r = j.r;
    size_t row = blockIdx.x;
    if (slot[row] < 0) return;
    int inner = r.n_values * r.value_dim, n = inner / r.n_keys, first = (int)blockIdx.y * n;
    const float *v = j.mix + row * j.stride + recurrence_v_at(MIXER_SSD, &r), *z = j.y + row * j.stride + r.channels;
    float *raw = j.raw + row * (size_t)inner;
    for (int i = first + (int)threadIdx.x; i < first + n; i += (int)blockDim.x) {
        raw[i] = (raw[i] + j.skip[i / r.value_dim] * v[i]) * activate(ACT_SILU, z[i]);
        squares += raw[i] * raw[i];
    }
    float scale = 1 / sqrtf(block_sum(squares, sums) / (float)n + j.eps);
    for (int i = first + (int)threadIdx.x; i < first + n; i += (int)blockDim.x)
        store_as(j.type, j.a, row * (size_t)inner + (size_t)i, raw[i] * scale * j.norm[i]);
}

// ---- gated attention ------------------------------------------------------------------------------------------------

// grid: (rows, width / threads)
__global__ void gate_rows(void *a, int type, const float *gate, size_t stride, int width) {
    int i = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    if (i >= width) return;
    size_t at = (size_t)blockIdx.x * (size_t)width + (size_t)i;
    float g = gate[(size_t)blockIdx.x * stride + (size_t)i];
    store_as(type, a, at, load_as(type, a, at) / (1 + expf(-g)));
}

#endif
