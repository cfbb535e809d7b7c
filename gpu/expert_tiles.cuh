// gpu/expert_tiles.cuh: products of experts with many rows ("grouped GEMM") on the tensor cores, in tiles of pairs of
// one expert; weights are unpacked on the way.
//
// A block multiplies 128 rows of an expert's matrix by up to 64 of its pairs; eight warps divide this four by two, 32
// by 32 each. The depth is processed in steps of 64: the next step's weights and activations are loaded while the
// current ones are multiplied. Weights are rounded to bf16 (F16 weights stay, with f16 activations), sums are f32. GLU:
// tiles alternate eight rows of the gate and eight of `up`, so that a lane has both sums of a feature.
#ifndef QUILL_EXPERT_TILES_CUH
#define QUILL_EXPERT_TILES_CUH

#include "gpu/experts.cuh"
#include "gpu/skinny_gemm.cuh"

// TILE_STRIDE puts adjacent rows into different banks of shared memory.
enum { TILE_OUT = 128, TILE_DEPTH = 64, TILE_THREADS = 256, TILE_STRIDE = TILE_DEPTH + 8 };

struct ExpertTileJob {
    DeviceTensor w[2]; // one stack, or gate and up
    GpuExperts e;
    const void *x; // (rows or pairs, n_in) of x_type
    bool from_rows;
    int n_in, n_out;   // n_out: of one expert
    bool glu;          // y = act(gate) * up
    const float *gate; // (pairs, n_out) of an earlier product, which becomes the gate; or NULL
    Activation act;
    void *y; // (pairs, n_out) of `type`
    int type;
    const float *factor; // (pairs) of the rows of x, or NULL
};

HOST_DEVICE constexpr size_t expert_tile_smem() {
    return 2 * (size_t)(TILE_OUT + GPU_EXPERT_TILE) * TILE_STRIDE * 2 + GPU_EXPERT_TILE * 4;
}

// Row r of the block's tile: which matrix, and which of its rows.
struct TileRow {
    int w, row;
};
__device__ __forceinline__ TileRow tile_row(const ExpertTileJob &j, int expert, int first, int r) {
    TileRow t = {j.glu ? r / 8 % 2 : 0, first + (j.glu ? r / 16 * 8 + r % 8 : r)};
    if (t.row >= j.n_out) t.row = j.n_out - 1;
    t.row += expert * j.n_out;
    return t;
}

// Loads elements [at, at + TILE_DEPTH) of the tile's pairs; zeros after the last pair and beyond the depth.
__device__ __forceinline__ void fetch_tile_x(const ExpertTileJob &j, uint16_t *to, const int *rows, int n, int at) {
    UNROLL
    for (int k = 0; k < GPU_EXPERT_TILE * TILE_DEPTH / 8 / TILE_THREADS; k++) {
        int i = k * TILE_THREADS + (int)threadIdx.x, pair = i / (TILE_DEPTH / 8), c = i % (TILE_DEPTH / 8) * 8;
        bool valid = pair < n && at + c < j.n_in;
        const uint16_t *from = (const uint16_t *)j.x + (size_t)rows[pair] * (size_t)j.n_in + (valid ? at + c : 0);
        cp_async16(to + pair * TILE_STRIDE + c, from, valid);
    }
}

// A thread loads 32 elements of a row of weights, half of a step's depth. Dense elements are copied to shared memory;
// quantised ones stay in registers until their place in shared memory is free.
template <int TYPE> struct TileWeights {
    DeviceTensor t;
    int row;
    uint16_t *to; // place of the even steps; the odd ones follow
    Unit unit;
    bool there;

    __device__ __forceinline__ uint16_t *place_of(int step) const { return to + step * TILE_OUT * TILE_STRIDE; }

    __device__ __forceinline__ void fetch(int at, int step) {
        at += (int)threadIdx.x % 2 * UNIT;
        there = at < t.n_in;
        if constexpr (is_dense(TYPE)) {
            const uint8_t *from = t.quants + (size_t)row * t.stride_bytes;
            UNROLL
            for (int c = 0; c < UNIT; c += 8) {
                bool valid = at + c < t.n_in;
                cp_async16(place_of(step) + c, from + (valid ? (size_t)(at + c) * 2 : 0), valid);
            }
        } else if (there) unit = load_unit<TYPE>(t, (size_t)row * (size_t)(t.n_in / UNIT) + (size_t)(at / UNIT));
    }

    __device__ __forceinline__ void place(int step) {
        if constexpr (!is_dense(TYPE)) {
            UnitPairs pairs = unit_pairs<TYPE>(unit);
            UNROLL
            for (int c = 0; c < UNIT / 8; c++) {
                uint4 v = {0, 0, 0, 0};
                if (there)
                    v = {unit_pair<TYPE>(unit, pairs, 4 * c), unit_pair<TYPE>(unit, pairs, 4 * c + 1),
                         unit_pair<TYPE>(unit, pairs, 4 * c + 2), unit_pair<TYPE>(unit, pairs, 4 * c + 3)};
                *(uint4 *)(place_of(step) + c * 8) = v;
            }
        }
    }
};

// acc += the warp's 32 rows of weights times 32 pairs, over a step's depth.
template <int X>
__device__ __forceinline__ void multiply_tile(float (&acc)[2][4][4], const uint16_t *w, const uint16_t *x, int lane) {
    UNROLL
    for (int d = 0; d < TILE_DEPTH; d += 16) {
        uint32_t a[2][4], b[2][4];
        UNROLL
        for (int m = 0; m < 2; m++) ldmatrix4(a[m], w + (m * 16 + lane % 16) * TILE_STRIDE + d + lane / 16 * 8);
        UNROLL
        // order of the matrices: pairs 16n, elements d; the same, d + 8; pairs 16n + 8, d; the same, d + 8
        for (int n = 0; n < 2; n++)
            ldmatrix4(b[n], x + (n * 16 + lane % 8 + lane / 16 * 8) * TILE_STRIDE + d + lane / 8 % 2 * 8);
        UNROLL
        for (int m = 0; m < 2; m++) UNROLL
        for (int n = 0; n < 4; n++) mma_16816<X>(acc[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
}

// Stores the sums of features g and g + 8 of sixteen (GLU: gate and up of feature g) for pairs 2t and 2t + 1, where g =
// lane / 4.
__device__ __forceinline__ void store_tile(const ExpertTileJob &j, const float (&acc)[2][4][4], GpuExpertTile tile,
                                           int first, int warp, int lane) {
    const float *bias = j.w[0].bias ? j.w[0].bias + (size_t)tile.expert * (size_t)j.n_out : (const float *)NULL;
    const float *up_bias = j.w[1].bias ? j.w[1].bias + (size_t)tile.expert * (size_t)j.n_out : (const float *)NULL;
    UNROLL
    for (int m = 0; m < 2; m++) UNROLL
    for (int n = 0; n < 4; n++) UNROLL
    for (int i = 0; i < 4; i++) {
        int pair = warp % 2 * 32 + n * 8 + lane % 4 * 2 + i % 2, sixteen = warp / 2 * 2 + m;
        int f = first + (j.glu ? sixteen * 8 + lane / 4 : sixteen * 16 + lane / 4 + i / 2 * 8);
        if (pair >= tile.n || f >= j.n_out || (j.glu && i >= 2)) continue;
        float factor = j.factor ? j.factor[tile.first + pair] : 1;
        float v = acc[m][n][i] * factor + (bias ? bias[f] : 0);
        size_t to = (size_t)(tile.first + pair) * (size_t)j.n_out + (size_t)f;
        if (j.glu) v = gated(j.act, v, acc[m][n][(i + 2) % 4] * factor + (up_bias ? up_bias[f] : 0));
        else if (j.gate) v = gated(j.act, j.gate[to], v);
        store_as(j.type, j.y, to, v);
    }
}

// grid: (blocks of an expert's features, tiles)
template <int TYPE>
__global__ __launch_bounds__(TILE_THREADS, 2) void expert_tiles(GRID_CONSTANT const ExpertTileJob j) {
    constexpr int X = TYPE == TYPE_F16 ? (int)TYPE_F16 : (int)TYPE_BF16;
    Smem smem;
    uint16_t *w = smem.take<uint16_t>(2 * TILE_OUT * TILE_STRIDE);
    uint16_t *x = smem.take<uint16_t>(2 * GPU_EXPERT_TILE * TILE_STRIDE);
    int *rows = smem.take<int>(GPU_EXPERT_TILE);
    GpuExpertTile tile = j.e.tile[blockIdx.y];
    if (tile.n == 0) return;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, r = (int)threadIdx.x / 2;
    int first = (int)blockIdx.x * (j.glu ? TILE_OUT / 2 : TILE_OUT);
    for (int i = (int)threadIdx.x; i < GPU_EXPERT_TILE; i += TILE_THREADS) {
        int pair = tile.first + (i < tile.n ? i : 0);
        rows[i] = j.from_rows ? j.e.row[pair] : pair;
    }
    TileRow at = tile_row(j, tile.expert, first, r);
    TileWeights<TYPE> mine;
    mine.t = j.w[at.w];
    mine.row = at.row;
    mine.to = w + r * TILE_STRIDE + (int)threadIdx.x % 2 * UNIT;
    float acc[2][4][4] = {};
    __syncthreads();
    mine.fetch(0, 0);
    fetch_tile_x(j, x, rows, tile.n, 0);
    cp_async_commit();
    mine.place(0);
    for (int d = 0, step = 0; d < j.n_in; d += TILE_DEPTH, step ^= 1) {
        bool more = d + TILE_DEPTH < j.n_in;
        cp_async_wait<0>();
        __syncthreads(); // this step has arrived, and no thread still reads the memory of the next one
        if (more) {
            mine.fetch(d + TILE_DEPTH, step ^ 1);
            fetch_tile_x(j, x + (step ^ 1) * GPU_EXPERT_TILE * TILE_STRIDE, rows, tile.n, d + TILE_DEPTH);
            cp_async_commit();
        }
        multiply_tile<X>(acc, w + (step * TILE_OUT + warp / 2 * 32) * TILE_STRIDE,
                         x + (step * GPU_EXPERT_TILE + warp % 2 * 32) * TILE_STRIDE, lane);
        if (more) mine.place(step ^ 1);
    }
    store_tile(j, acc, tile, first, warp, lane);
}

#endif
