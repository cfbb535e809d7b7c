// gpu/gemv.cuh: matrix times a few rows: every weight is read once, in 16-byte pieces, for up to 8 rows of activations.
//
// A block loads its rows of x into shared memory, multiplied by the norm's weights; the norm's scale is applied to the
// sums, so that reading weights need not wait for it. Each warp then computes R rows of the matrix at a time; a lane
// reads every 32nd unit of them. Activations are f32, or int8 with one scale for 32 of them (INT8; only for quantised
// weights), multiplied by dp4a. The order of sums does not depend on the grid.
#ifndef QUILL_GEMV_CUH
#define QUILL_GEMV_CUH

#include "gpu/weight_ring.cuh"

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

// A unit of x, of one row, and the sums of its halves.
struct InputUnit {
    int4 low, high;
    int sum0, sum1;
    float d;
};

__device__ __forceinline__ InputUnit load_input(const GemvInput &a, int b, int stride, int u) {
    int sums = a.sums[b * stride + u];
    return {a.q[(b * 2) * stride + u], a.q[(b * 2 + 1) * stride + u], (int16_t)(sums & 0xffff), sums >> 16,
            a.d[b * stride + u]};
}

template <int TYPE> __device__ __forceinline__ float unit_product(const Unit &w, const InputUnit &x) {
    constexpr int offset = plane_bytes(TYPE).offset;
    int dot0 = __dp4a(w.q[3], x.low.w, __dp4a(w.q[2], x.low.z, offset * x.sum0));
    dot0 = __dp4a(w.q[1], x.low.y, __dp4a(w.q[0], x.low.x, dot0));
    int dot1 = __dp4a(w.q[7], x.high.w, __dp4a(w.q[6], x.high.z, offset * x.sum1));
    dot1 = __dp4a(w.q[5], x.high.y, __dp4a(w.q[4], x.high.x, dot1));
    float v;
    if constexpr (is_whole(TYPE)) {
        v = w.s[0] * (float)(dot0 + dot1);
        if constexpr (type_has_minimum(TYPE)) v += w.m[0] * (float)(x.sum0 + x.sum1);
    } else {
        v = w.s[0] * (float)dot0 + w.s[1] * (float)dot1;
        if constexpr (type_has_minimum(TYPE)) v += w.m[0] * (float)x.sum0 + w.m[1] * (float)x.sum1;
    }
    return x.d * v;
}

// The rows that a task multiplies directly from memory.
template <int R> struct MatrixRows {
    const DeviceTensor *t[R];
    int row[R];
};

template <int R>
__device__ __forceinline__ MatrixRows<R> matrix_rows(const GemvJob &g, const GemvRows &s, const GemvTask &t) {
    MatrixRows<R> m;
    rows_of<R>(m.row, g, s, t);
    UNROLL
    for (int r = 0; r < R; r++) m.t[r] = &matrix_of<R>(g, t.part, r);
    return m;
}

// Units of each row that a lane loads before it multiplies: there are registers for eight loads of 16 bytes.
HOST_DEVICE constexpr int units_ahead(int type, int rows) { return rows * plane_bytes(type).quants >= 128 ? 1 : 2; }

template <int TYPE, int R, int B>
__device__ __forceinline__ void dot_int8(float (&acc)[R][B], const MatrixRows<R> &m, const GemvInput &a, int first,
                                         int n, int stride, int lane) {
    size_t units = (size_t)(m.t[0]->n_in / UNIT);
    UNROLL_BY(units_ahead(TYPE, R))
    for (int u = lane; u < n; u += WARP) {
        Unit w[R];
        UNROLL
        for (int r = 0; r < R; r++) w[r] = load_unit<TYPE>(*m.t[r], (size_t)m.row[r] * units + (size_t)(first + u));
        UNROLL
        for (int b = 0; b < B; b++) {
            InputUnit x = load_input(a, b, stride, u);
            UNROLL
            for (int r = 0; r < R; r++) acc[r][b] += unit_product<TYPE>(w[r], x);
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

// Loads eight elements of a dense row, the i-th of the row.
template <int TYPE, bool SHARED> __device__ __forceinline__ void load_eight(float v[8], const uint8_t *row, int i) {
    const uint8_t *at = row + (size_t)i * (TYPE == TYPE_F32 ? 32 : 16);
    uint4 a = load_weight<uint4, SHARED>(at);
    if constexpr (TYPE == TYPE_F32) {
        uint4 b = load_weight<uint4, SHARED>(at + 16);
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

// acc += w times eight elements of all rows of x, the i-th of the chunk.
template <int R, int B>
__device__ __forceinline__ void multiply_eight(float (&acc)[R][B], const float (&w)[R][8], const GemvInput &a,
                                               int stride, int i) {
    UNROLL
    for (int b = 0; b < B; b++) {
        float4 x = a.f[(b * 2) * stride + i], y = a.f[(b * 2 + 1) * stride + i];
        UNROLL
        for (int r = 0; r < R; r++)
            acc[r][b] += (w[r][0] * x.x + w[r][1] * x.y + w[r][2] * x.z + w[r][3] * x.w) +
                         (w[r][4] * y.x + w[r][5] * y.y + w[r][6] * y.z + w[r][7] * y.w);
    }
}

template <int TYPE, int R, int B>
__device__ __forceinline__ void dot_dense(float (&acc)[R][B], const MatrixRows<R> &m, const GemvInput &a, int first,
                                          int n, int stride, int lane) {
    UNROLL_BY(2)
    for (int i = lane; i < n; i += WARP) {
        float w[R][8];
        UNROLL
        for (int r = 0; r < R; r++)
            load_eight<TYPE, false>(w[r], m.t[r]->quants + (size_t)m.row[r] * m.t[r]->stride_bytes, first + i);
        multiply_eight<R, B>(acc, w, a, stride, i);
    }
}

// Adds elements [first, first + chunk) of the task's rows times those of x.
template <int OF, int R, int B, bool INT8>
__device__ __forceinline__ void dot_chunk(float (&acc)[R][B], const GemvJob &g, const MatrixRows<R> &m,
                                          const GemvInput &a, int first, int lane) {
    int n = g.n_in - first < g.chunk ? g.n_in - first : g.chunk;
    if constexpr (OF != ANY_WEIGHT && INT8)
        return dot_int8<OF, R, B>(acc, m, a, first / UNIT, n / UNIT, g.chunk / UNIT, lane);
    else if constexpr (OF != ANY_WEIGHT)
        return dot_dense<OF, R, B>(acc, m, a, first / 8, (n + 7) / 8, g.chunk / 8, lane);
    else switch (m.t[0]->type) {
#define QUANT(TYPE)                                                                                                    \
    case TYPE:                                                                                                         \
        if constexpr (INT8) dot_int8<TYPE, R, B>(acc, m, a, first / UNIT, n / UNIT, g.chunk / UNIT, lane);             \
        else if constexpr (B == GPU_DECODE_ROWS)                                                                       \
            dot_units<TYPE, R, B>(acc, m, a, first / UNIT, n / UNIT, g.chunk / 8, lane);                               \
        break;
            EACH_QUANT(QUANT)
#undef QUANT
#define DENSE(TYPE)                                                                                                    \
    case TYPE:                                                                                                         \
        if constexpr (!INT8) dot_dense<TYPE, R, B>(acc, m, a, first / 8, (n + 7) / 8, g.chunk / 8, lane);              \
        break;
            EACH_DENSE(DENSE)
#undef DENSE
        }
}

// The same from the ring, whose next stages are those of the chunk.
template <int TYPE, int R, int B, bool INT8>
__device__ __forceinline__ void dot_ring(float (&acc)[R][B], WeightRing<TYPE, R> *ring, const GemvJob &g,
                                         const GemvRows &s, int step, int features, const GemvInput &a, int first,
                                         int lane) {
    constexpr int each = stage_elements(TYPE) / WARP; // elements of a lane
    int n = ((g.n_in - first < g.chunk ? g.n_in - first : g.chunk) + each - 1) / each, stride = g.chunk / each;
    for (int i = lane; i - lane < n; i += WARP) {
        cp_async_wait<ring_stages(TYPE, R) - 1>();
        __syncwarp(); // the copies of all lanes have arrived
        uint8_t *stage = ring->stages + ring->read * (R * ring->ROW);
        if (i < n) {
            if constexpr (INT8) {
                InputUnit x[B];
                UNROLL
                for (int b = 0; b < B; b++) x[b] = load_input(a, b, stride, i);
                UNROLL
                for (int r = 0; r < R; r++) {
                    Unit w = load_unit<TYPE, true>(staged_row<TYPE>(stage + r * ring->ROW), (size_t)lane);
                    UNROLL
                    for (int b = 0; b < B; b++) acc[r][b] += unit_product<TYPE>(w, x[b]);
                }
            } else {
                float w[R][8];
                UNROLL
                for (int r = 0; r < R; r++) load_eight<TYPE, true>(w[r], stage + r * ring->ROW, lane);
                multiply_eight<R, B>(acc, w, a, stride, i);
            }
        }
        __syncwarp(); // all lanes have read the stage, which is written again
        ring->read = ring->read + 1 == ring->STAGES ? 0 : ring->read + 1;
        ring_fetch(ring, g, s, step, features, lane);
    }
}

// ---- QKV: a warp finishes pairs of elements -------------------------------------------------------------------------

// Adds biases to features f and f + 1, x and y, of a row of the batch, applies RoPE and stores them.
__device__ __forceinline__ void finish_pair(const GemvJob &g, int part, int row, int f, float x, float y) {
    const HeadJob &j = g.heads;
    int n = j.heads.head_dim, a = paired_row(g, part, f), b = paired_row(g, part, f + 1), head = f / n;
    if (g.w[part].bias) x += g.w[part].bias[a], y += g.w[part].bias[b];
    if (part < 2) {
        size_t at = (size_t)row * (size_t)j.rope_step + (size_t)(f % n / 2);
        float c = j.rope_cos[at], s = j.rope_sin[at], turned = x * c - y * s;
        y = x * s + y * c;
        x = turned;
    }
    if (part == 0) {
        float *q = j.q + (size_t)row * (size_t)g.n_out[0];
        q[a] = x;
        q[b] = y;
        return;
    }
    int slot = j.b.slot[row], type = part == 1 ? j.kv.type_k : j.kv.type_v;
    if (slot < 0) return;
    size_t at = kv_at(j.kv, j.b, j.layer, j.b.seq[row], head, slot);
    uint8_t *plane = part == 1 ? j.kv.k : j.kv.v;
    store_as(type, plane, at + (size_t)(a - head * n), x);
    store_as(type, plane, at + (size_t)(b - head * n), y);
}

// ---- QKV: who completes a head finishes it --------------------------------------------------------------------------

// Counts features [first, last) of part `part`, which are in y, for a head of theirs; returns whether they complete it.
__device__ __forceinline__ bool count_features(const GemvJob &g, int part, int head, int first, int last) {
    int n = g.heads.heads.head_dim, n_heads = g.heads.heads.n_heads, n_kv = g.heads.heads.n_kv_heads;
    int begin = head * n > first ? head * n : first, end = (head + 1) * n < last ? (head + 1) * n : last;
    unsigned *counter = &g.counters[(part == 0 ? 0 : part == 1 ? n_heads : n_heads + n_kv) + head];
    unsigned count = (unsigned)(end - begin);
    bool done = atomicAdd(counter, count) + count == (unsigned)n;
    if (done) *counter = 0; // for the next launch
    __threadfence();
    return done;
}

// One warp applies bias, norm and RoPE to a complete head, for rows first_row, + step and so on of the batch, and
// stores it. v: (head_dim)
__device__ inline void finish_head_rows(const GemvJob &g, int part, int head, int first_row, int step, float *v,
                                        int lane) {
    int n = g.heads.heads.head_dim;
    for (int row = first_row; row < g.n_rows; row += step) {
        const float *y = g.y + (size_t)row * g.stride + qkv_at(g.heads.heads, (HeadKind)part, head);
        for (int i = lane; i < n; i += WARP) v[i] = load_shared_result(y + i);
        finish_head(v, g.heads, (HeadKind)part, row, head, lane);
    }
}

// Call it when the warp has stored features [first, last) of part `part` in y, for all rows of the batch.
__device__ inline void finish_heads_by_warp(const GemvJob &g, int part, int first, int last, float *v, int lane) {
    int n = g.heads.heads.head_dim;
    __threadfence(); // y becomes visible before the counter changes
    __syncwarp();
    for (int head = first / n; head * n < last; head++) {
        int done = lane == 0 && count_features(g, part, head, first, last);
        done = __shfl_sync(FULL_WARP, done, 0);
        __syncwarp(); // orders the count before the reads
        if (done) finish_head_rows(g, part, head, 0, 1, v, lane);
    }
}

// The same for a block; its warps divide the rows. stage_v: (warps, head_dim)
__device__ inline void finish_heads_by_block(const GemvJob &g, int part, int first, int last, float *stage_v,
                                             int *done) {
    int n = g.heads.heads.head_dim, warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    __threadfence();
    for (int head = first / n; head * n < last; head++) {
        __syncthreads();
        if (threadIdx.x == 0) *done = count_features(g, part, head, first, last);
        __syncthreads();
        if (*done) finish_head_rows(g, part, head, warp, (int)blockDim.x / WARP, stage_v + warp * n, lane);
    }
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// The factor of each row's sums: the norm's scale, from the squares that the threads have summed, and the row's own.
template <int B>
__device__ __forceinline__ void row_scales(const GemvJob &g, const GemvRows &s, const float squares[B], float *sums,
                                           float scale[B]) {
    UNROLL
    for (int b = 0; b < B; b++) {
        scale[b] = g.norm ? 1 / sqrtf(block_sum(squares[b], sums) / (float)g.n_in + g.eps) : 1;
        if (s.factor && b < s.n) scale[b] *= s.factor[b];
    }
}

// Stores feature f of part `part` for row b; `up` is GLU's second sum.
__device__ inline void store_sum(const GemvJob &g, const GemvRows &s, int part, int b, int f, float sum, float up) {
    size_t before = 0; // number of features of the earlier parts
    if (g.mode == GEMV_QKV || g.mode == GEMV_STACK)
        before = (size_t)(part > 0 ? g.n_out[0] : 0) + (size_t)(part > 1 ? g.n_out[1] : 0);
    float *y = &s.y[(size_t)b * g.stride + before + (size_t)f];
    if (g.w[part].bias) sum += g.w[part].bias[s.base + f];
    if (g.mode == GEMV_GLU) *y = gated(g.act, g.slope, sum, up + (g.w[1].bias ? g.w[1].bias[s.base + f] : 0));
    else if (g.mode == GEMV_ADD) *y += sum;
    else if (g.mode == GEMV_GATED) *y = gated(g.act, g.slope, *y, sum);
    else *y = sum;
}

template <int R, int B>
__device__ __forceinline__ void store_sums(const GemvJob &g, const GemvRows &s, const float (&acc)[R][B],
                                           const float scale[B], const GemvTask &t, int lane) {
    UNROLL
    for (int b = 0; b < B; b++) UNROLL
    for (int r = 0; r < R; r++) {
        float sum = warp_sum(acc[r][b]) * scale[b], up = 0;
        if (g.mode == GEMV_GLU) {
            if (r >= R / 2) continue;
            up = warp_sum(acc[(r + R / 2) % R][b]) * scale[b];
        }
        int f = t.first + r;
        if (lane == 0 && b < s.n && f < t.n_out) store_sum(g, s, t.part, b, f, sum, up);
    }
}

// Lane b finishes the pairs of row b.
template <int R, int B>
__device__ __forceinline__ void finish_pairs(const GemvJob &g, const float (&acc)[R][B], const float scale[B],
                                             const GemvTask &t, int lane) {
    UNROLL
    for (int r = 0; r < R; r += 2) {
        float x = 0, y = 0;
        UNROLL
        for (int b = 0; b < B; b++) {
            float u = warp_sum(acc[r][b]) * scale[b], v = warp_sum(acc[r + 1][b]) * scale[b];
            if (lane == b) x = u, y = v;
        }
        if (lane < g.n_rows && t.first + r < t.n_out) finish_pair(g, t.part, lane, t.first + r, x, y);
    }
}

// The tasks of a warp are `first` and each `step` after it; those of its block's first warp are `after` less.
struct GemvShare {
    int first, step, after;
};
// Warps of a block have neighbouring tasks. With a ring they are far apart, so that all blocks have as many.
__device__ __forceinline__ GemvShare gemv_share(int block, int n_blocks, bool ring) {
    int warp = (int)threadIdx.x / WARP, step = GEMV_WARPS * n_blocks;
    if (ring) return {warp * n_blocks + block, step, warp * n_blocks};
    return {block * GEMV_WARPS + warp, step, warp};
}

// Computes the tasks of a block's warps for up to B rows. ring: has begun, or NULL. v: (head_dim), for heads that the
// warp completes, or NULL
template <int TYPE, int R, int B, bool INT8, typename Ring>
__device__ __forceinline__ void gemv_block(const GemvJob &g, const GemvRows &s, const GemvInput &a, float *sums,
                                           Ring *ring, const GemvShare &share, float *v) {
    constexpr bool RING = Ring::BLOCK_BYTES > 0;
    const int features = g.mode == GEMV_GLU ? R / 2 : R, lane = (int)threadIdx.x % WARP;
    float squares[B] = {}, scale[B] = {};
    bool staged = false;
    for (int task = share.first; task - share.after < g.first_task[3]; task += share.step) {
        bool mine = task < g.first_task[3]; // warps without a task load x, too
        GemvTask t = gemv_task(g, mine ? task : g.first_task[3] - 1, features);
        MatrixRows<R> m;
        if constexpr (!RING) m = matrix_rows<R>(g, s, t);
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
            if constexpr (!RING) dot_chunk<TYPE, R, B, INT8>(acc, g, m, a, first, lane);
            else if (mine) dot_ring<TYPE, R, B, INT8>(acc, ring, g, s, share.step, features, a, first, lane);
        }
        if (!staged) row_scales<B>(g, s, squares, sums, scale);
        staged = true;
        if (!mine) continue;
        if (g.paired) finish_pairs<R, B>(g, acc, scale, t, lane);
        else store_sums<R, B>(g, s, acc, scale, t, lane);
        int last = t.first + features < t.n_out ? t.first + features : t.n_out;
        if (v) finish_heads_by_warp(g, t.part, t.first, last, v, lane);
    }
}

// Resident blocks per multiprocessor: as many as the kernel's registers allow without spilling.
HOST_DEVICE constexpr int gemv_resident(int type, int rows, int batch) {
    if (batch == GPU_DECODE_ROWS || (batch > 1 && type == ANY_WEIGHT)) return 1;
    if (batch > 1 || type == ANY_WEIGHT) return 2;
    bool long_unpacking = type == TYPE_Q5_K || type == TYPE_IQ4_XS || type == TYPE_MXFP4;
    return rows == GEMV_MANY && long_unpacking ? 2 : 3;
}

// TYPE: the type of all matrices, or ANY_WEIGHT. RING: weights come through a ring; TYPE is one type, B is 1.
template <int TYPE, int R, int B, bool INT8, bool RING>
__global__ __launch_bounds__(GEMV_WARPS *WARP, gemv_resident(TYPE, R, B)) void gemv(GRID_CONSTANT const GemvJob g) {
    typedef typename RingChoice<TYPE, R, RING>::Ring Ring;
    Smem smem;
    GemvInput a = take_activations<B, INT8>(&smem, g.chunk);
    float *sums = smem.take<float>(GEMV_WARPS), *v = NULL;
    int n = g.heads.heads.head_dim;
    if (g.mode == GEMV_QKV && !g.paired) v = smem.take<float>((unsigned)(GEMV_WARPS * n)) + (int)threadIdx.x / WARP * n;
    let_next_begin();
    GemvRows s = gemv_all_rows(g);
    GemvShare share = gemv_share((int)blockIdx.x, (int)gridDim.x, RING);
    Ring ring;
    if constexpr (RING) ring_begin(&ring, &smem, g, s, share.first, share.step);
    wait_for_last();
    gemv_block<TYPE, R, B, INT8>(g, s, a, sums, &ring, share, v);
}

#endif
