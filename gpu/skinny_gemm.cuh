// gpu/skinny_gemm.cuh: small-batch products ("skinny GEMM"): a matrix times up to 16 rows, on the tensor cores. Sixteen
// rows of the matrix are an mma's first operand, eight rows of x its second.
//
// A block has x in shared memory, in bf16 (f16 for F16 weights), and computes two tiles of sixteen rows at a time.
// Eight warps share a tile: each multiplies every eighth block of 128 elements, and their sums are added in the order
// of the warps. Weights go directly from 16-byte loads into the operand: an mma may sum the elements in any order of k
// that both operands share, so that a lane owns eight adjacent elements of a dense row, or a unit of quants, and reads
// x in the same order.
#ifndef QUILL_SKINNY_GEMM_CUH
#define QUILL_SKINNY_GEMM_CUH

#include "gpu/gemv.cuh"

enum {
    SKINNY_SPLIT = 8,
    SKINNY_TILES = 2,
    SKINNY_WARPS = SKINNY_SPLIT * SKINNY_TILES,
    SKINNY_THREADS = SKINNY_WARPS * WARP
};
// Rows of x that an mma multiplies; elements that a warp loads at a time; the same as GEMV_AHEAD.
enum { SKINNY_COLUMNS = 8, SKINNY_BLOCK = 4 * UNIT, SKINNY_AHEAD = 4 };

// Bytes of shared memory besides x: the warps' sums and scales.
HOST_DEVICE constexpr size_t skinny_smem(int columns) {
    return SKINNY_WARPS * (size_t)columns * 4 * WARP * 4 / SKINNY_COLUMNS + SKINNY_WARPS * 4 + (size_t)columns * 4;
}

// The type that x is rounded to for weights of a type; 0: such weights use the kernels of gpu/gemv.cuh.
HOST_DEVICE constexpr int skinny_type(int type) {
    return type == TYPE_F16 ? (int)TYPE_F16 : type == TYPE_F32 ? 0 : (int)TYPE_BF16;
}

// The index in x, in elements, of piece p (eight elements) of unit u of row b. The order is permuted so that the eight
// lanes that read together, two rows by four pieces or by four units, use different banks.
__device__ __forceinline__ int skinny_at(int b, int chunk, int u, int p) {
    int slot = ((u ^ b) & 1) << 2 | ((p ^ (b & 1) << 1 ^ (u >> 1 & 1)) & 3);
    return b * chunk + (u / 2 * 8 + slot) * 8;
}

// Loads elements [first, first + chunk) of every row, with one warp for a row or a part of it, and adds their squares
// to the thread's sums.
template <int TYPE, int COLUMNS>
__device__ __forceinline__ void skinny_stage(const GemvJob &g, uint16_t *x, int first, int warp, int lane,
                                             float *squares) {
    const int b = warp % COLUMNS, step = SKINNY_WARPS / COLUMNS * WARP * 4;
    for (int i = (warp / COLUMNS * WARP + lane) * 4; i < g.chunk; i += SKINNY_AHEAD * step) {
        float4 v[SKINNY_AHEAD];
        load_x(v, g, gemv_all_rows(g), b, first, i, step, squares);
        UNROLL
        for (int k = 0; k < SKINNY_AHEAD; k++) {
            int at = i + k * step;
            if (at >= g.chunk) break;
            uint32_t *to = (uint32_t *)(x + skinny_at(b, g.chunk, at / UNIT, at % UNIT / 8) + at % 8);
            to[0] = to_pair<TYPE>(v[k].x, v[k].y), to[1] = to_pair<TYPE>(v[k].z, v[k].w);
        }
    }
}

// The norm's scale of each row, from the squares that the threads have summed. The caller needs a barrier afterwards.
template <int COLUMNS>
__device__ __forceinline__ void skinny_scales(const GemvJob &g, float squares, float *sums, float *scale, int warp,
                                              int lane) {
    squares = warp_sum(squares);
    if (lane == 0) sums[warp] = squares;
    __syncthreads();
    if ((int)threadIdx.x >= COLUMNS) return;
    float sum = 0;
    for (int w = (int)threadIdx.x; w < SKINNY_WARPS; w += COLUMNS) sum += sums[w];
    scale[threadIdx.x] = g.norm ? 1 / sqrtf(sum / (float)g.n_in + g.eps) : 1;
}

// The rows of the matrix that a lane reads: g and g + 8 of the tile, g = lane / 4.
struct SkinnyRows {
    const DeviceTensor *t[2];
    int row[2];
};

// acc += eight elements of both rows times those of x, as two steps of an mma. a, b: pairs of elements in order.
template <int TYPE, int COLUMNS>
__device__ __forceinline__ void skinny_multiply(float (&acc)[COLUMNS / SKINNY_COLUMNS][4], const uint32_t a[4],
                                                const uint32_t b[4], const uint16_t *x, int chunk, int u, int p,
                                                int lane) {
    UNROLL
    for (int n = 0; n < COLUMNS / SKINNY_COLUMNS; n++) {
        uint4 v = *(const uint4 *)(x + skinny_at(n * SKINNY_COLUMNS + lane / 4, chunk, u, p));
        const uint32_t low[4] = {a[0], b[0], a[1], b[1]}, high[4] = {a[2], b[2], a[3], b[3]};
        mma_16816<TYPE>(acc[n], low, v.x, v.y);
        mma_16816<TYPE>(acc[n], high, v.z, v.w);
    }
}

// Four lanes read 32 adjacent elements of a row: lane t reads 8 elements from 8t on.
template <int TYPE, int COLUMNS>
__device__ __forceinline__ void skinny_dense(float (&acc)[COLUMNS / SKINNY_COLUMNS][4], const SkinnyRows &m,
                                             const uint16_t *x, int chunk, int first, int block, int lane) {
    int pieces = (int)(m.t[0]->stride_bytes / 16);
    uint4 w[2][4];
    UNROLL
    for (int r = 0; r < 2; r++) UNROLL
    for (int k = 0; k < 4; k++) {
        int piece = first / 8 + (block * 4 + k) * 4 + lane % 4;
        const uint8_t *row = m.t[r]->quants + (size_t)m.row[r] * m.t[r]->stride_bytes;
        w[r][k] = piece < pieces ? stream<uint4>(row + (size_t)piece * 16) : uint4{0, 0, 0, 0};
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        const uint32_t a[4] = {w[0][k].x, w[0][k].y, w[0][k].z, w[0][k].w};
        const uint32_t b[4] = {w[1][k].x, w[1][k].y, w[1][k].z, w[1][k].w};
        skinny_multiply<TYPE, COLUMNS>(acc, a, b, x, chunk, block * 4 + k, lane % 4, lane);
    }
}

// Codes of at most seven bits, which fit the mantissa of a bf16.
HOST_DEVICE constexpr bool is_short(int type) { return plane_bytes(type).quants < 32 && !has_levels(type); }

// For types with a minimum: the middle of the codes. If codes are counted from it, the scaled values are small and
// rounding loses little.
HOST_DEVICE constexpr int middle_code(int type) {
    return type_has_minimum(type) ? 1 << (plane_bytes(type).quants / 4 + plane_bytes(type).high / 4 - 1) : 0;
}

// A unit's scales and minima as bf16, each twice in a register.
struct UnitPairs {
    uint32_t s[2], m[2];
};

template <int TYPE> __device__ __forceinline__ UnitPairs unit_pairs(const Unit &u) {
    UnitPairs p;
    UNROLL
    for (int h = 0; h < 2; h++) {
        float m = u.m[h] + (float)middle_code(TYPE) * u.s[h];
        p.s[h] = to_pair<TYPE_BF16>(u.s[h], u.s[h]);
        p.m[h] = type_has_minimum(TYPE) ? to_pair<TYPE_BF16>(m, m) : 0;
    }
    return p;
}

// Elements 2i and 2i + 1 of a unit in bf16. A short code c becomes the number 128 + c by setting its low mantissa bits,
// and both elements are computed at once. Only the multiplication by the scale rounds.
template <int TYPE> __device__ __forceinline__ uint32_t unit_pair(const Unit &u, const UnitPairs &p, int i) {
    if constexpr (is_short(TYPE)) {
        constexpr uint32_t one = 0x3f803f80;
        const float back = (float)(plane_bytes(TYPE).offset - middle_code(TYPE) - 128);
        uint32_t v = __byte_perm((uint32_t)u.q[i / 2], 0x43434343, i % 2 ? 0x4342 : 0x4140);
        v = fma_bf16_pair(v, one, to_pair<TYPE_BF16>(back, back));
        return fma_bf16_pair(v, p.s[i / 8], p.m[i / 8]);
    } else return to_pair<TYPE_BF16>(unit_value<TYPE>(u, 2 * i), unit_value<TYPE>(u, 2 * i + 1));
}

// Four lanes read four units of a row, one unit each.
template <int TYPE, int COLUMNS>
__device__ __forceinline__ void skinny_units(float (&acc)[COLUMNS / SKINNY_COLUMNS][4], const SkinnyRows &m,
                                             const uint16_t *x, int chunk, int first, int block, int lane) {
    int units = m.t[0]->n_in / UNIT, u = block * 4 + lane % 4, at = first / UNIT + u;
    if (at >= units) at = units - 1; // past the end, where x is zero
    Unit a = load_unit<TYPE>(*m.t[0], (size_t)m.row[0] * (size_t)units + (size_t)at);
    Unit b = load_unit<TYPE>(*m.t[1], (size_t)m.row[1] * (size_t)units + (size_t)at);
    UnitPairs pa = unit_pairs<TYPE>(a), pb = unit_pairs<TYPE>(b);
    UNROLL
    for (int p = 0; p < 4; p++) {
        uint32_t wa[4], wb[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            wa[i] = unit_pair<TYPE>(a, pa, 4 * p + i), wb[i] = unit_pair<TYPE>(b, pb, 4 * p + i);
        skinny_multiply<TYPE_BF16, COLUMNS>(acc, wa, wb, x, chunk, u, p, lane);
    }
}

// Adds the products of elements [first, first + chunk) of the warp's tile with those of x, for the warp's share of the
// blocks.
template <int TYPE, int COLUMNS>
__device__ __forceinline__ void skinny_chunk(float (&acc)[COLUMNS / SKINNY_COLUMNS][4], const SkinnyRows &m,
                                             const uint16_t *x, int first, int chunk, int warp, int lane) {
    int n = m.t[0]->n_in - first < chunk ? m.t[0]->n_in - first : chunk;
    switch (m.t[0]->type) {
#define QUANT(T)                                                                                                       \
    case T:                                                                                                            \
        if constexpr (TYPE == TYPE_BF16) UNROLL_BY(2)                                                                  \
        for (int block = warp % SKINNY_SPLIT; block * SKINNY_BLOCK < n; block += SKINNY_SPLIT)                         \
            skinny_units<T, COLUMNS>(acc, m, x, chunk, first, block, lane);                                            \
        break;
        EACH_QUANT(QUANT)
#undef QUANT
    case TYPE:
        UNROLL_BY(2)
        for (int block = warp % SKINNY_SPLIT; block * SKINNY_BLOCK < n; block += SKINNY_SPLIT)
            skinny_dense<TYPE, COLUMNS>(acc, m, x, chunk, first, block, lane);
        break;
    }
}

// The sum over a tile's warps for row r of the tile and row b of x.
template <int COLUMNS> __device__ __forceinline__ float skinny_sum(const float *partial, int tile, int r, int b) {
    int lane = r % 8 * 4 + b % 8 / 2, i = r / 8 * 2 + b % 2;
    float sum = 0;
    UNROLL
    for (int w = 0; w < SKINNY_SPLIT; w++)
        sum += partial[(((tile * SKINNY_SPLIT + w) * (COLUMNS / SKINNY_COLUMNS) + b / 8) * 4 + i) * WARP + lane];
    return sum;
}

// Combines the warps' sums and stores the features of a group.
template <int COLUMNS>
__device__ __forceinline__ void skinny_store(const GemvJob &g, const float (&acc)[COLUMNS / SKINNY_COLUMNS][4],
                                             float *partial, const float *scale, const GemvTask &task, int warp,
                                             int lane) {
    const bool glu = g.mode == GEMV_GLU;
    const int out = glu ? 8 : 16, tile = warp / SKINNY_SPLIT; // number of features in a tile
    UNROLL
    for (int n = 0; n < COLUMNS / SKINNY_COLUMNS; n++) UNROLL
    for (int i = 0; i < 4; i++) partial[((warp * (COLUMNS / SKINNY_COLUMNS) + n) * 4 + i) * WARP + lane] = acc[n][i];
    __syncthreads();
    for (int i = (int)threadIdx.x % (SKINNY_SPLIT * WARP); i < out * COLUMNS; i += SKINNY_SPLIT * WARP) {
        int f = task.first + tile * out + i % out, b = i / out;
        if (b >= g.n_rows || f >= task.n_out) continue;
        float up = glu ? skinny_sum<COLUMNS>(partial, tile, i % out + 8, b) * scale[b] : 0;
        store_sum(g, gemv_all_rows(g), task.part, b, f, skinny_sum<COLUMNS>(partial, tile, i % out, b) * scale[b], up);
    }
    __syncthreads(); // afterwards `partial` may be overwritten
}

// TYPE: type of x
template <int TYPE, int COLUMNS>
__global__ __launch_bounds__(SKINNY_THREADS, 1) void skinny_gemm(GRID_CONSTANT const GemvJob g) {
    const bool glu = g.mode == GEMV_GLU;
    const int out = glu ? 8 : 16, features = SKINNY_TILES * out;
    Smem smem;
    uint16_t *x = smem.take<uint16_t>((unsigned)(COLUMNS * g.chunk));
    float *partial = smem.take<float>(SKINNY_WARPS * COLUMNS / SKINNY_COLUMNS * 4 * WARP);
    float *sums = smem.take<float>(SKINNY_WARPS), *scale = smem.take<float>(COLUMNS), *v = NULL;
    int *done = NULL, warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    if (g.mode == GEMV_QKV) {
        v = smem.take<float>((unsigned)(SKINNY_WARPS * g.heads.heads.head_dim));
        done = smem.take<int>(1);
    }
    let_next_begin();
    wait_for_last();
    bool staged = false;
    for (int i = (int)blockIdx.x; i < g.first_task[3]; i += (int)gridDim.x) {
        GemvTask task = gemv_task(g, i, features);
        SkinnyRows m;
        UNROLL
        for (int r = 0; r < 2; r++) { // GLU: gate in the upper rows, up in the lower ones
            int f = task.first + warp / SKINNY_SPLIT * out + lane / 4 + (glu ? 0 : 8 * r);
            m.t[r] = &g.w[glu ? r : task.part];
            m.row[r] = f < task.n_out ? f : task.n_out - 1;
        }
        float acc[COLUMNS / SKINNY_COLUMNS][4] = {}, squares = 0;
        for (int first = 0; first < g.n_in; first += g.chunk) {
            if (!staged || g.chunk < g.n_in) {
                __syncthreads(); // no thread still reads the previous chunk
                skinny_stage<TYPE, COLUMNS>(g, x, first, warp, lane, &squares);
                __syncthreads();
            }
            skinny_chunk<TYPE, COLUMNS>(acc, m, x, first, g.chunk, warp, lane);
        }
        if (!staged) skinny_scales<COLUMNS>(g, squares, sums, scale, warp, lane);
        staged = true;
        skinny_store<COLUMNS>(g, acc, partial, scale, task, warp, lane);
        int last = task.first + features < task.n_out ? task.first + features : task.n_out;
        if (v) finish_heads_by_block(g, task.part, task.first, last, v, done);
    }
}

#endif
