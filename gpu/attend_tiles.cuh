// gpu/attend_tiles.cuh: attention of few rows to many keys on the tensor cores, for dense K and V of 16 bits.
//
// The division into blocks and splits is that of gpu/attention.cuh. A block copies its split's keys, then its values,
// as tiles of 64 slots to two buffers in shared memory (cp.async); it multiplies one while the other is filled. More
// blocks are resident than with four buffers, which is faster on an H100. For the scores a tile of K is an mma's first
// operand and eight query heads are its second; for the sums the first operand is a tile of V, transposed, and the
// second the weights. Queries and weights are two numbers of 16 bits each, the rounded value and the rest, so that
// results are as exact as with f32.
#ifndef QUILL_ATTEND_TILES_CUH
#define QUILL_ATTEND_TILES_CUH

#include "gpu/attention.cuh"

enum {
    TILE_KEYS = 64,
    TILE_LANES = ATTEND_THREADS / TILE_KEYS, // threads that copy a slot
    TILE_BUFFERS = 2,
    SPLIT_TILES = SPLIT / TILE_KEYS,
    TILE_HEAD = 256,                               // the largest head_dim, a multiple of eight
    MMA_HEADS = 8,                                 // heads in an mma's second operand
    WARP_PIECES = TILE_HEAD / (16 * ATTEND_WARPS), // most pieces of 16 elements of V that a warp sums
};

// The distance between rows in shared memory, in elements: a head padded to whole mma's, plus 16 bytes, so that the
// eight rows of a matrix are in different banks.
HOST_DEVICE constexpr int tile_stride(int head_dim) { return (head_dim + 15) / 16 * 16 + 8; }
// The distance between two heads' scores, in floats, for splits of up to `split` slots.
HOST_DEVICE constexpr int score_stride(int split) { return split + 8; }
HOST_DEVICE constexpr size_t attend_tiles_smem(int head_dim, int heads, int split) {
    size_t rows = (size_t)(TILE_BUFFERS * TILE_KEYS + 2 * heads);
    return rows * (size_t)tile_stride(head_dim) * 2 + (size_t)(heads * score_stride(split)) * 4 + (size_t)heads * 8 +
           32;
}

// A block's split: the tiles of its slots, and where each thread's slots lie in the planes (in elements).
struct TileSplit {
    int n_tiles, end; // slots of the split
    size_t at[SPLIT_TILES];
};

__device__ __forceinline__ TileSplit find_tiles(const AttendJob &j, const Seen &seen, int row, int kv_head) {
    TileSplit t;
    t.n_tiles = (seen.n + TILE_KEYS - 1) / TILE_KEYS;
    t.end = seen.n;
    UNROLL
    for (int k = 0; k < SPLIT_TILES; k++) {
        int i = k * TILE_KEYS + (int)threadIdx.x / TILE_LANES, slot = seen.first + (i < seen.n ? i : seen.n - 1);
        t.at[k] = kv_at(j.kv, j.b, j.layer, j.b.seq[row], kv_head, slot);
    }
    return t;
}

// The place of a thread's slot of tile k. The loop selects a register; an index would put the array into memory.
__device__ __forceinline__ size_t tile_at(const TileSplit &t, int k) {
    size_t at = t.at[0];
    UNROLL
    for (int i = 1; i < SPLIT_TILES; i++)
        if (i == k) at = t.at[i];
    return at;
}

__device__ __forceinline__ void prefetch_tiles(const AttendJob &j, const TileSplit &t) {
    for (int k = 0; k < t.n_tiles; k++)
        for (int e = (int)threadIdx.x % TILE_LANES * 64; e < j.heads.head_dim; e += TILE_LANES * 64) { // 128 bytes
            prefetch(j.kv.k + (tile_at(t, k) + (size_t)e) * 2);
            prefetch(j.kv.v + (tile_at(t, k) + (size_t)e) * 2);
        }
}

// Starts the copy of piece p: K of tile p, or V of tile p - n_tiles. Slots past the end become zeros. There is a group
// of copies for every piece, also where p is past the last one.
__device__ __forceinline__ void fetch_tile(const AttendJob &j, const TileSplit &t, uint16_t *buffers, int stride,
                                           int p) {
    if (p < 2 * t.n_tiles) {
        int k = p < t.n_tiles ? p : p - t.n_tiles, key = (int)threadIdx.x / TILE_LANES;
        const uint8_t *from = (p < t.n_tiles ? j.kv.k : j.kv.v) + tile_at(t, k) * 2;
        uint16_t *to = buffers + (p % TILE_BUFFERS * TILE_KEYS + key) * stride;
        bool seen = k * TILE_KEYS + key < t.end;
        for (int c = (int)threadIdx.x % TILE_LANES; c < j.heads.head_dim / 8; c += TILE_LANES)
            cp_async16(to + c * 8, from + c * 16, seen);
    }
    cp_async_commit();
}

// The rounded value, and the rest rounded: together as exact as f32.
template <int TYPE> __device__ __forceinline__ void split_value(float v, uint16_t *high, uint16_t *low) {
    *high = to_bits(TYPE, v);
    *low = to_bits(TYPE, v - (TYPE == TYPE_F16 ? gpu_half_float(*high) : gpu_bf16_float(*high)));
}

__device__ __forceinline__ void store_four(uint16_t *to, const uint16_t v[4]) {
    *(uint32_t *)to = (uint32_t)v[0] | (uint32_t)v[1] << 16;
    *(uint32_t *)(to + 2) = (uint32_t)v[2] | (uint32_t)v[3] << 16;
}

// Loads the queries of n_heads heads: HEADS rows of rounded values, then HEADS rows of the remainders; zeros for absent
// heads and for the padding of a row. Also clears the padding of the buffers, which mma multiplies by
// these zeros.
template <int TYPE, int HEADS>
__device__ __forceinline__ void split_queries(const AttendJob &j, uint16_t *q, uint16_t *buffers, int stride, int row,
                                              int head, int n_heads) {
    int hd = j.heads.head_dim, warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    const float *from = j.q + ((size_t)row * (size_t)j.heads.n_heads + (size_t)head) * (size_t)hd;
    for (int h = warp; h < HEADS; h += ATTEND_WARPS)
        for (int e = lane * 4; e < stride - 8; e += WARP * 4) {
            bool there = h < n_heads && e < hd;
            float4 v = there ? *(const float4 *)(from + h * hd + e) : make_float4(0, 0, 0, 0);
            const float four[4] = {v.x, v.y, v.z, v.w};
            uint16_t high[4], low[4];
            UNROLL
            for (int i = 0; i < 4; i++) split_value<TYPE>(four[i], &high[i], &low[i]);
            store_four(q + h * stride + e, high);
            store_four(q + (HEADS + h) * stride + e, low);
        }
    if (hd % 16 == 0) return;
    for (int r = (int)threadIdx.x; r < TILE_BUFFERS * TILE_KEYS; r += ATTEND_THREADS)
        *(uint4 *)(buffers + r * stride + hd) = {0, 0, 0, 0};
}

// Two adjacent elements in shared memory, as a matrix fragment has them.
__device__ __forceinline__ uint32_t pair_at(const uint16_t *p) { return *(const uint32_t *)p; }

// The scores of a tile's slots, from `first` on; a warp computes 16 of them for all heads.
template <int TYPE, int HEADS>
__device__ __forceinline__ void score_tile(const AttendJob &j, const uint16_t *k, const uint16_t *q, float *scores,
                                           int stride, int step, int first) {
    constexpr int N = HEADS / MMA_HEADS;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    float s[N][4] = {};
    k += (warp * 16 + lane % 16) * stride + lane / 16 * 8;
    q += lane / 4 * stride + lane % 4 * 2;
    UNROLL_BY(4)
    for (int d = 0; d < stride - 8; d += 16) {
        uint32_t a[4];
        ldmatrix4(a, k + d);
        UNROLL
        for (int n = 0; n < N; n++) {
            const uint16_t *high = q + n * MMA_HEADS * stride + d, *low = high + HEADS * stride;
            mma_16816<TYPE>(s[n], a, pair_at(high), pair_at(high + 8));
            mma_16816<TYPE>(s[n], a, pair_at(low), pair_at(low + 8));
        }
    }
    UNROLL
    for (int n = 0; n < N; n++) UNROLL
    for (int i = 0; i < 4; i++) {
        int h = n * MMA_HEADS + lane % 4 * 2 + i % 2, key = first + warp * 16 + lane / 4 + i / 2 * 8;
        scores[h * step + key] = softcap(s[n][i] * j.heads.scale, j.heads.softcap);
    }
}

// A weight as it is stored in place of its score: the rounded value in the low half, the remainder in the high half.
template <int TYPE> __device__ __forceinline__ float split_weight(float p) {
    uint16_t high, low;
    split_value<TYPE>(p, &high, &low);
    return bits_float((uint32_t)high | (uint32_t)low << 16);
}

// The second operand's fragment of 16 weights of each head, at p: b[0], b[1] rounded values, b[2], b[3] remainders.
__device__ __forceinline__ void load_weights(uint32_t b[4], const float *p) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        float2 two = *(const float2 *)(const void *)(p + half * 8);
        uint32_t x = float_bits(two.x), y = float_bits(two.y);
        b[half] = __byte_perm(x, y, 0x5410);
        b[half + 2] = __byte_perm(x, y, 0x7632);
    }
}

// Sums of a warp: elements 16 (ATTEND_WARPS d + warp) to + 16 of all heads, as mma's results.
template <int HEADS> struct TileSums { float of[WARP_PIECES][HEADS / MMA_HEADS][4]; };

// sums += P V over a tile, whose first weight is p.
template <int TYPE, int HEADS>
__device__ __forceinline__ void sum_tile(TileSums<HEADS> *sums, const uint16_t *v, const float *p, int stride, int step,
                                         int hd) {
    constexpr int N = HEADS / MMA_HEADS;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    v += (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8;
    p += lane / 4 * step + lane % 4 * 2;
    UNROLL_BY(2)
    for (int key = 0; key < TILE_KEYS; key += 16) {
        uint32_t b[N][4];
        UNROLL
        for (int n = 0; n < N; n++) load_weights(b[n], p + n * MMA_HEADS * step + key);
        UNROLL
        for (int d = 0; d < WARP_PIECES; d++) {
            int first = (d * ATTEND_WARPS + warp) * 16;
            if (first >= hd) break;
            uint32_t a[4];
            ldmatrix4_trans(a, v + key * stride + first);
            UNROLL
            for (int n = 0; n < N; n++) {
                mma_16816<TYPE>(sums->of[d][n], a, b[n][0], b[n][1]);
                mma_16816<TYPE>(sums->of[d][n], a, b[n][2], b[n][3]);
            }
        }
    }
}

// Calls store(head, element, sum) for each sum that the thread has.
template <int HEADS, typename Store>
__device__ __forceinline__ void store_tile_sums(const TileSums<HEADS> &sums, int n_heads, int hd, Store store) {
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    UNROLL
    for (int d = 0; d < WARP_PIECES; d++) UNROLL
    for (int n = 0; n < HEADS / MMA_HEADS; n++) UNROLL
    for (int i = 0; i < 4; i++) {
        int h = n * MMA_HEADS + lane % 4 * 2 + i % 2, e = (d * ATTEND_WARPS + warp) * 16 + lane / 4 + i / 2 * 8;
        if (h < n_heads && e < hd) store(h, e, sums.of[d][n][i]);
    }
}

// grid: (n_splits, KV heads times passes over their groups, rows)
template <int TYPE, int HEADS>
__global__ __launch_bounds__(ATTEND_THREADS,
                             HEADS == MMA_HEADS ? 5 : 3) void attend_tiles(GRID_CONSTANT const AttendJob j) {
    int hd = j.heads.head_dim, stride = tile_stride(hd), step = score_stride(j.longest), slot, n_heads;
    Smem smem;
    uint16_t *buffers = smem.take<uint16_t>((unsigned)(TILE_BUFFERS * TILE_KEYS * stride));
    uint16_t *q = smem.take<uint16_t>((unsigned)(2 * HEADS * stride));
    float *scores = smem.take<float>((unsigned)(HEADS * step));
    float *most = smem.take<float>(HEADS), *weight = smem.take<float>(HEADS);
    int *last_block = smem.take<int>(1);
    AttendPart part = attend_part(j, HEADS);
    slot = j.b.slot[part.row], n_heads = part.n_heads;
    Seen seen = slot < 0 ? Seen{0, 0} : seen_in(j.heads, slot, part.split, split_of(slot));
    TileSplit t = {};
    let_next_begin();
    if (seen.n > 0) t = find_tiles(j, seen, part.row, part.kv_head); // the block table is complete already
    if (j.early) prefetch_tiles(j, t);
    wait_for_last();
    if (slot < 0) attend_nothing(j, part);
    if (seen.n <= 0) return;
    for (int p = 0; p < TILE_BUFFERS; p++) fetch_tile(j, t, buffers, stride, p);
    split_queries<TYPE, HEADS>(j, q, buffers, stride, part.row, part.head, n_heads);
    TileSums<HEADS> sums = {};
    for (int p = 0; p < 2 * t.n_tiles; p++) {
        const uint16_t *tile = buffers + p % TILE_BUFFERS * TILE_KEYS * stride;
        cp_async_wait<TILE_BUFFERS - 1>();
        __syncthreads();
        if (p == t.n_tiles) {
            soften(scores, step, most, weight, n_heads, seen.n, t.n_tiles * TILE_KEYS,
                   [](float weight) { return split_weight<TYPE>(weight); });
            __syncthreads();
        }
        if (p < t.n_tiles) score_tile<TYPE, HEADS>(j, tile, q, scores, stride, step, p * TILE_KEYS);
        else sum_tile<TYPE, HEADS>(&sums, tile, scores + (p - t.n_tiles) * TILE_KEYS, stride, step, hd);
        __syncthreads(); // all threads have read the tile
        fetch_tile(j, t, buffers, stride, p + TILE_BUFFERS);
    }
    attend_store<HEADS, TILE_HEAD>(j, part, slot, most, weight, (float *)(void *)buffers, last_block,
                                   [&](auto store) { store_tile_sums<HEADS>(sums, n_heads, hd, store); });
}

#endif
