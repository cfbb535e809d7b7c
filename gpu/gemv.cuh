// gpu/gemv.cuh: matrix times a few rows: every weight is read once, in 16-byte pieces, for up to 8 rows of activations.
//
// A block loads its rows of x into shared memory, multiplied by the norm's weights; the norm's scale is applied to the
// sums, so that reading weights need not wait for it. Each warp then computes R rows of the matrix at a time; a lane
// reads every 32nd unit of them. Activations are f32, or int8 with one scale for 32 of them (INT8; only for quantised
// weights), multiplied by dp4a. The order of sums does not depend on the grid.
#ifndef QUILL_GEMV_CUH
#define QUILL_GEMV_CUH

#include "gpu/heads.cuh"
#include "gpu/rows.cuh"
#include "gpu/tensors.cuh"

// What a block does with the sums v.
typedef enum {
    GEMV_STORE, // y = v
    GEMV_ADD,   // y += v
    GEMV_GLU,   // y = act(v of w[0]) * (v of w[1]): a warp takes half its rows from each
    GEMV_GATED, // y = act(y) * v: GLU's second half where the two matrices differ in type
    GEMV_STACK, // y = v, with the results of up to three matrices side by side
    GEMV_QKV,   // y = v; then norm and RoPE of the heads, which are stored as Q or in the cache
} GemvMode;

// GEMV_AHEAD: pieces of x that a thread loads before it uses the first, because several loads at once take no longer
// than one.
enum { GEMV_WARPS = 8, GEMV_SMEM = 64 << 10, GEMV_AHEAD = 3 };

// Rows of the matrix that a warp computes at a time: more for large matrices and a single row of x.
enum { GEMV_FEW = 2, GEMV_MANY = 4 };

struct GemvJob {
    DeviceTensor w[3];   // one matrix; GLU: gate and up; QKV, STACK: up to three
    int first_block[4];  // the first block of the grid for each of w, then their end; GLU has one range
    int groups;          // a block takes so many groups of GEMV_WARPS * R rows, one after the other
    int chunk;           // elements of x in shared memory at a time, a multiple of QK_K
    size_t row_bytes[3]; // for each of w: bytes of a row's quants or elements
    bool early;          // begins before the previous launch has ended
    int n_rows, n_in;
    const float *x; // (.., n_in), rows x_stride apart
    size_t x_stride;
    bool whole;        // rows of x are whole pieces of four, 16-byte aligned
    const int *rows;   // (n_rows) the rows of x to use; NULL: the first n_rows
    const float *norm; // (n_in), or NULL
    float eps;
    GemvMode mode;
    Activation act; // GLU, GATED
    float *y;       // (n_rows, stride)
    size_t stride;
    HeadJob heads;      // QKV
    unsigned *counters; // QKV: one for each head of Q, then of K, then of V
};

// The rows of x, y and the matrices that a block computes.
struct GemvRows {
    const float *x;  // (.., n_in), rows GemvJob.x_stride apart
    const int *rows; // (n) the rows of x to use; NULL: the first n
    float *y;        // (n, stride)
    int n;
    int base, n_out; // rows [base, base + n_out) of the matrices and of their biases
};

__device__ __forceinline__ GemvRows gemv_all_rows(const GemvJob &g, int part) {
    return {g.x, g.rows, g.y, g.n_rows, 0, g.w[part].n_out};
}

// ---- activations in shared memory -----------------------------------------------------------------------------------

// A chunk of x. Floats: float4 j of the i-th eight elements at [row][j][i]. Int8: 16 quants of half h of unit i at
// [row][h][i]; sums of each half's quants in one word; d.
struct GemvInput {
    float4 *f;
    int4 *q;
    int *sums;
    float *d;
};

HOST_DEVICE constexpr unsigned activation_bytes(bool int8) { return int8 ? 40 : 128; } // a unit and row

template <int B, bool INT8> __device__ __forceinline__ GemvInput take_activations(Smem *smem, int chunk) {
    GemvInput a = {};
    unsigned n = (unsigned)(B * chunk);
    if (INT8) {
        a.q = smem->take<int4>(n / 16);
        a.sums = smem->take<int>(n / 32);
        a.d = smem->take<float>(n / 32);
    } else a.f = smem->take<float4>(n / 4);
    return a;
}

// Loads four elements of a row at i and at each `step` after it; zeros from `end` on. whole: row lengths are multiples
// of four.
template <int N>
__device__ __forceinline__ void load_ahead(float4 (&v)[N], const float *row, int i, int step, int end, bool whole) {
    if (whole) UNROLL
    for (int k = 0; k < N; k++)
        v[k] = i + k * step < end ? *(const float4 *)(row + i + k * step) : make_float4(0, 0, 0, 0);
    else UNROLL
    for (int k = 0; k < N; k++) {
        float e[4];
        UNROLL
        for (int j = 0; j < 4; j++) e[j] = i + k * step + j < end ? row[i + k * step + j] : 0;
        v[k] = make_float4(e[0], e[1], e[2], e[3]);
    }
}

// The same for row b of the chunk that begins at `first`, times the norm's weights; zeros if there is no such row.
template <int N>
__device__ __forceinline__ void load_x(float4 (&v)[N], const GemvJob &g, const GemvRows &s, int b, int first, int i,
                                       int step, float *squares) {
    int end = g.n_in - first < g.chunk ? g.n_in - first : g.chunk;
    bool whole = g.whole;
    if (b >= s.n) {
        UNROLL
        for (int k = 0; k < N; k++) v[k] = make_float4(0, 0, 0, 0);
        return;
    }
    load_ahead(v, s.x + (size_t)(s.rows ? s.rows[b] : b) * g.x_stride + first, i, step, end, whole);
    if (!g.norm) return;
    float4 w[N];
    load_ahead(w, g.norm + first, i, step, end, whole);
    UNROLL
    for (int k = 0; k < N; k++) {
        *squares += (v[k].x * v[k].x + v[k].y * v[k].y) + (v[k].z * v[k].z + v[k].w * v[k].w);
        v[k] = make_float4(v[k].x * w[k].x, v[k].y * w[k].y, v[k].z * w[k].z, v[k].w * w[k].w);
    }
}

__device__ __forceinline__ int pack4(int a, int b, int c, int d) {
    return (int)((unsigned)(a & 255) | (unsigned)(b & 255) << 8 | (unsigned)(c & 255) << 16 | (unsigned)d << 24);
}

__device__ __forceinline__ unsigned magnitude_bits(float v) { return __float_as_uint(fabsf(v)); }
__device__ __forceinline__ unsigned larger(unsigned a, unsigned b) { return a > b ? a : b; }

// Eight lanes quantise a unit together, four elements each. The largest magnitude is found among the bits of the
// floats, where NaN is larger than all numbers: the unit's scale becomes NaN, and so do its sums.
__device__ __forceinline__ void stage_int8(const GemvInput &a, int b, int units, int i, float4 v) {
    int part = i % UNIT / 4; // the lane's place among the eight of the unit
    unsigned bits =
        larger(larger(magnitude_bits(v.x), magnitude_bits(v.y)), larger(magnitude_bits(v.z), magnitude_bits(v.w)));
    UNROLL
    for (int with = 4; with > 0; with /= 2) bits = larger(bits, __shfl_xor_sync(FULL_WARP, bits, with));
    float most = __uint_as_float(bits);
    float d = most / 127, inverse = most > 0 ? 127 / most : 0;
    int q[4] = {(int)rintf(v.x * inverse), (int)rintf(v.y * inverse), (int)rintf(v.z * inverse),
                (int)rintf(v.w * inverse)};
    int sum = q[0] + q[1] + q[2] + q[3];
    sum += __shfl_xor_sync(FULL_WARP, sum, 1);
    sum += __shfl_xor_sync(FULL_WARP, sum, 2);
    int other = __shfl_xor_sync(FULL_WARP, sum, 4), unit = i / UNIT;
    ((int *)&a.q[(b * 2 + part / 4) * units + unit])[part % 4] = pack4(q[0], q[1], q[2], q[3]);
    if (part == 0) {
        a.sums[b * units + unit] = (int)((unsigned)(sum & 0xffff) | (unsigned)other << 16);
        a.d[b * units + unit] = d;
    }
}

// Loads elements [first, first + chunk) of every row; adds their squares to the thread's sums.
template <int B, bool INT8>
__device__ __forceinline__ void stage(const GemvJob &g, const GemvRows &s, const GemvInput &a, int first,
                                      float squares[B]) {
    int step = (int)blockDim.x * 4;
    UNROLL
    for (int b = 0; b < B; b++)
        for (int i = (int)threadIdx.x * 4; i < g.chunk; i += GEMV_AHEAD * step) {
            float4 v[GEMV_AHEAD];
            load_x(v, g, s, b, first, i, step, &squares[b]);
            UNROLL
            for (int k = 0; k < GEMV_AHEAD; k++) {
                int at = i + k * step;
                if (at >= g.chunk) break;
                if (INT8) stage_int8(a, b, g.chunk / UNIT, at, v[k]);
                else a.f[(b * 2 + at / 4 % 2) * (g.chunk / 8) + at / 8] = v[k];
            }
        }
}

// ---- sums -----------------------------------------------------------------------------------------------------------

template <int R> struct MatrixRows {
    const DeviceTensor *t[R];
    int row[R];
};

template <int TYPE, int R, int B>
__device__ __forceinline__ void dot_int8(float (&acc)[R][B], const MatrixRows<R> &m, const GemvInput &a, int first,
                                         int n, int stride, int lane) {
    size_t units = (size_t)(m.t[0]->n_in / UNIT);
    UNROLL_BY(2)
    for (int u = lane; u < n; u += WARP) {
        Unit w[R];
        UNROLL
        for (int r = 0; r < R; r++) w[r] = load_unit<TYPE>(*m.t[r], (size_t)m.row[r] * units + (size_t)(first + u));
        UNROLL
        for (int b = 0; b < B; b++) {
            int4 low = a.q[(b * 2) * stride + u], high = a.q[(b * 2 + 1) * stride + u];
            int sums = a.sums[b * stride + u], sum0 = (int16_t)(sums & 0xffff), sum1 = sums >> 16;
            float d = a.d[b * stride + u];
            UNROLL
            for (int r = 0; r < R; r++) {
                constexpr int offset = plane_bytes(TYPE).offset;
                int dot0 = __dp4a(w[r].q[3], low.w, __dp4a(w[r].q[2], low.z, offset * sum0));
                dot0 = __dp4a(w[r].q[1], low.y, __dp4a(w[r].q[0], low.x, dot0));
                int dot1 = __dp4a(w[r].q[7], high.w, __dp4a(w[r].q[6], high.z, offset * sum1));
                dot1 = __dp4a(w[r].q[5], high.y, __dp4a(w[r].q[4], high.x, dot1));
                float v;
                if constexpr (is_whole(TYPE)) {
                    v = w[r].s[0] * (float)(dot0 + dot1);
                    if constexpr (type_has_minimum(TYPE)) v += w[r].m[0] * (float)(sum0 + sum1);
                } else {
                    v = w[r].s[0] * (float)dot0 + w[r].s[1] * (float)dot1;
                    if constexpr (type_has_minimum(TYPE)) v += w[r].m[0] * (float)sum0 + w[r].m[1] * (float)sum1;
                }
                acc[r][b] += d * v;
            }
        }
    }
}

// Quantised weights with f32 activations: rarely used, so compiled only for the largest batch.
template <int TYPE, int R, int B>
__device__ __forceinline__ void dot_units(float (&acc)[R][B], const MatrixRows<R> &m, const GemvInput &a, int first,
                                          int n, int stride, int lane) {
    size_t units = (size_t)(m.t[0]->n_in / UNIT);
    for (int u = lane; u < n; u += WARP) UNROLL
    for (int r = 0; r < R; r++) {
        Unit w = load_unit<TYPE>(*m.t[r], (size_t)m.row[r] * units + (size_t)(first + u));
        UNROLL
        for (int g = 0; g < 8; g++)
            for (int b = 0; b < B; b++) {
                float4 x = a.f[(b * 2 + g % 2) * stride + u * 4 + g / 2];
                acc[r][b] += unit_value<TYPE>(w, 4 * g) * x.x + unit_value<TYPE>(w, 4 * g + 1) * x.y +
                             unit_value<TYPE>(w, 4 * g + 2) * x.z + unit_value<TYPE>(w, 4 * g + 3) * x.w;
            }
    }
}

// Loads the i-th eight elements of a dense row.
template <int TYPE> __device__ __forceinline__ void load_eight(float v[8], const DeviceTensor &t, int row, int i) {
    const uint8_t *at = t.quants + (size_t)row * t.stride_bytes + (size_t)i * (TYPE == TYPE_F32 ? 32 : 16);
    uint4 a = stream<uint4>(at);
    if constexpr (TYPE == TYPE_F32) {
        uint4 b = stream<uint4>(at + 16);
        const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        UNROLL
        for (int k = 0; k < 8; k++) v[k] = bits_float(words[k]);
    } else {
        const uint32_t words[4] = {a.x, a.y, a.z, a.w};
        UNROLL
        for (int k = 0; k < 8; k++) {
            uint16_t bits = (uint16_t)(words[k / 2] >> (16 * (k % 2)));
            v[k] = TYPE == TYPE_F16 ? gpu_half_float(bits) : gpu_bf16_float(bits);
        }
    }
}

template <int TYPE, int R, int B>
__device__ __forceinline__ void dot_dense(float (&acc)[R][B], const MatrixRows<R> &m, const GemvInput &a, int first,
                                          int n, int stride, int lane) {
    UNROLL_BY(2)
    for (int i = lane; i < n; i += WARP) {
        float w[R][8];
        UNROLL
        for (int r = 0; r < R; r++) load_eight<TYPE>(w[r], *m.t[r], m.row[r], first + i);
        UNROLL
        for (int b = 0; b < B; b++) {
            float4 x = a.f[(b * 2) * stride + i], y = a.f[(b * 2 + 1) * stride + i];
            UNROLL
            for (int r = 0; r < R; r++)
                acc[r][b] += (w[r][0] * x.x + w[r][1] * x.y + w[r][2] * x.z + w[r][3] * x.w) +
                             (w[r][4] * y.x + w[r][5] * y.y + w[r][6] * y.z + w[r][7] * y.w);
        }
    }
}

// Matrices of any type, which the kernel checks at run time.
enum { ANY_WEIGHT = -1 };

// Adds elements [first, first + chunk) of the matrix's rows times those of x.
template <int OF, int R, int B, bool INT8>
__device__ __forceinline__ void dot_chunk(float (&acc)[R][B], const MatrixRows<R> &m, const GemvInput &a, int first,
                                          int chunk, int lane) {
    int n = m.t[0]->n_in - first < chunk ? m.t[0]->n_in - first : chunk;
    if constexpr (OF != ANY_WEIGHT && INT8)
        return dot_int8<OF, R, B>(acc, m, a, first / UNIT, n / UNIT, chunk / UNIT, lane);
    else if constexpr (OF != ANY_WEIGHT) return dot_dense<OF, R, B>(acc, m, a, first / 8, (n + 7) / 8, chunk / 8, lane);
    else switch (m.t[0]->type) {
#define QUANT(TYPE)                                                                                                    \
    case TYPE:                                                                                                         \
        if constexpr (INT8) dot_int8<TYPE, R, B>(acc, m, a, first / UNIT, n / UNIT, chunk / UNIT, lane);               \
        else if constexpr (B == GPU_DECODE_ROWS)                                                                       \
            dot_units<TYPE, R, B>(acc, m, a, first / UNIT, n / UNIT, chunk / 8, lane);                                 \
        break;
            EACH_QUANT(QUANT)
#undef QUANT
#define DENSE(TYPE)                                                                                                    \
    case TYPE:                                                                                                         \
        if constexpr (!INT8) dot_dense<TYPE, R, B>(acc, m, a, first / 8, (n + 7) / 8, chunk / 8, lane);                \
        break;
            EACH_DENSE(DENSE)
#undef DENSE
        }
}

// ---- QKV: the last block of a head finishes it ----------------------------------------------------------------------

// Call it when rows [first, last) of part `part` are in y. The block that completes a head for all rows of the batch
// applies its bias, norm and RoPE, and stores it.
__device__ inline void finish_complete_heads(const GemvJob &g, int part, int first, int last, float *stage_v,
                                             int *done) {
    int n = g.heads.heads.head_dim, n_heads = g.heads.heads.n_heads, n_kv = g.heads.heads.n_kv_heads;
    int part_head = part == 0 ? 0 : part == 1 ? n_heads : n_heads + n_kv; // in counters and, times n, in y
    int warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP, lane = (int)threadIdx.x % WARP;
    __threadfence(); // y becomes visible before the counter changes
    for (int head = first / n; head * n < last; head++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            int begin = head * n > first ? head * n : first, end = (head + 1) * n < last ? (head + 1) * n : last;
            unsigned *counter = &g.counters[part_head + head], count = (unsigned)(end - begin);
            *done = atomicAdd(counter, count) + count == (unsigned)n;
            if (*done) *counter = 0; // for the next launch
            __threadfence();
        }
        __syncthreads();
        if (!*done) continue;
        float *v = stage_v + warp * n;
        for (int row = warp; row < g.n_rows; row += warps) {
            const float *y = g.y + (size_t)row * g.stride + (size_t)(part_head + head) * (size_t)n;
            for (int i = lane; i < n; i += WARP) v[i] = load_shared_result(y + i);
            finish_head(v, g.heads, (HeadKind)part, row, head, lane);
        }
    }
}

// ---- the beginning --------------------------------------------------------------------------------------------------

// Prefetches rows [first, first + n) of a matrix to L2. row: bytes of a row's quants or elements.
__device__ inline void prefetch_rows(const DeviceTensor &t, size_t row, int first, int n) {
    size_t end = (size_t)(first + n < t.n_out ? first + n : t.n_out) * row;
    for (size_t at = (size_t)first * row + threadIdx.x * 128u; at < end; at += blockDim.x * 128u)
        prefetch(t.quants + at);
}

// Prefetches the first n features of a block, before the results of previous launches are available.
__device__ inline void begin(const GemvJob &g, int part, int first, int n) {
    let_next_begin();
    if (g.early) prefetch_rows(g.w[part], g.row_bytes[part], first, n);
    if (g.early && g.mode == GEMV_GLU) prefetch_rows(g.w[1], g.row_bytes[1], first, n);
    wait_for_last();
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// The norm's scale of each row, from the squares that the threads have summed.
template <int B>
__device__ __forceinline__ void norm_scales(const GemvJob &g, const float squares[B], float *sums, float scale[B]) {
    UNROLL
    for (int b = 0; b < B; b++) scale[b] = g.norm ? 1 / sqrtf(block_sum(squares[b], sums) / (float)g.n_in + g.eps) : 1;
}

// Stores feature f of part `part` for row b; `up` is GLU's second sum.
__device__ inline void store_sum(const GemvJob &g, const GemvRows &s, int part, int b, int f, float sum, float up) {
    size_t before = 0; // number of features of the earlier parts
    if (g.mode == GEMV_QKV || g.mode == GEMV_STACK)
        before = (size_t)(part > 0 ? g.w[0].n_out : 0) + (size_t)(part > 1 ? g.w[1].n_out : 0);
    float *y = &s.y[(size_t)b * g.stride + before + (size_t)f];
    if (g.w[part].bias) sum += g.w[part].bias[s.base + f];
    if (g.mode == GEMV_GLU) *y = gated(g.act, sum, up + (g.w[1].bias ? g.w[1].bias[s.base + f] : 0));
    else if (g.mode == GEMV_ADD) *y += sum;
    else if (g.mode == GEMV_GATED) *y = gated(g.act, *y, sum);
    else *y = sum;
}

template <int R, int B>
__device__ __forceinline__ void store_sums(const GemvJob &g, const GemvRows &s, const float (&acc)[R][B],
                                           const float scale[B], int part, int row, int lane) {
    UNROLL
    for (int b = 0; b < B; b++) UNROLL
    for (int r = 0; r < R; r++) {
        float sum = warp_sum(acc[r][b]) * scale[b], up = 0;
        if (g.mode == GEMV_GLU) {
            if (r >= R / 2) continue;
            up = warp_sum(acc[(r + R / 2) % R][b]) * scale[b];
        }
        int f = row + r;
        if (lane == 0 && b < s.n && f < s.n_out) store_sum(g, s, part, b, f, sum, up);
    }
}

// Computes a block's features of part `part`: g.groups groups from first_row on, for up to B rows.
template <int TYPE, int R, int B, bool INT8>
__device__ __forceinline__ void gemv_block(const GemvJob &g, const GemvRows &s, const GemvInput &a, float *sums,
                                           int part, int first_row) {
    const bool glu = g.mode == GEMV_GLU;
    const int out = glu ? R / 2 : R; // features that a warp completes
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    float squares[B] = {}, scale[B] = {};
    bool staged = false;
    for (int group = 0; group < g.groups; group++) {
        int base = first_row + group * GEMV_WARPS * out, row = base + warp * out;
        if (base >= s.n_out) break;
        MatrixRows<R> m;
        UNROLL
        for (int r = 0; r < R; r++) {
            int f = row + (glu ? r % (R / 2) : r);
            m.t[r] = &g.w[glu && r >= R / 2 ? 1 : part];
            m.row[r] = s.base + (f < s.n_out ? f : s.n_out - 1);
        }
        float acc[R][B] = {};
        for (int first = 0; first < g.n_in; first += g.chunk) {
            if (!staged || g.chunk < g.n_in) {
                float more[B] = {};
                __syncthreads(); // all threads have read the last chunk
                stage<B, INT8>(g, s, a, first, more);
                __syncthreads();
                UNROLL
                for (int b = 0; b < B; b++) squares[b] += staged ? 0 : more[b];
            }
            dot_chunk<TYPE, R, B, INT8>(acc, m, a, first, g.chunk, lane);
        }
        if (!staged) norm_scales<B>(g, squares, sums, scale);
        staged = true;
        store_sums<R, B>(g, s, acc, scale, part, row, lane);
    }
}

// Resident blocks per multiprocessor: as many as the kernel's registers allow without spilling.
HOST_DEVICE constexpr int gemv_resident(int type, int rows, int batch) {
    if (batch > 1 || type == ANY_WEIGHT) return type == ANY_WEIGHT && batch == GPU_DECODE_ROWS ? 1 : 2;
    bool long_unpacking = type == TYPE_Q5_K || type == TYPE_IQ4_XS || type == TYPE_MXFP4;
    return rows == GEMV_MANY && long_unpacking ? 2 : 3;
}

// TYPE: the type of all matrices, or ANY_WEIGHT.
template <int TYPE, int R, int B, bool INT8>
__global__ __launch_bounds__(GEMV_WARPS *WARP, gemv_resident(TYPE, R, B)) void gemv(GRID_CONSTANT const GemvJob g) {
    const int out = g.mode == GEMV_GLU ? R / 2 : R;
    Smem smem;
    GemvInput a = take_activations<B, INT8>(&smem, g.chunk);
    float *sums = smem.take<float>(GEMV_WARPS);
    int block = (int)blockIdx.x, part = 0;
    while (block >= g.first_block[part + 1]) part++;
    int first_row = (block - g.first_block[part]) * g.groups * GEMV_WARPS * out, n_out = g.w[part].n_out;
    begin(g, part, first_row, GEMV_WARPS * out);
    gemv_block<TYPE, R, B, INT8>(g, gemv_all_rows(g, part), a, sums, part, first_row);
    if (g.mode == GEMV_QKV) {
        float *v = smem.take<float>((unsigned)(GEMV_WARPS * g.heads.heads.head_dim));
        int *done = smem.take<int>(1), last = first_row + g.groups * GEMV_WARPS * out;
        finish_complete_heads(g, part, first_row, last < n_out ? last : n_out, v, done);
    }
}

#endif
