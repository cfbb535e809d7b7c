// gpu/flash_sm90.cuh: attention of many rows to many keys on the tensor cores of Hopper, after FlashAttention-3 (Shah
// et al. 2024).
//
// A block has 128 queries, packed as in gpu/flash_job.cuh. One warpgroup copies tiles of K and V to shared memory; two
// others have 64 queries each. While a consumer turns the scores of a tile into weights, the tensor cores compute its
// sums of the tile before, and the other consumer's products. Tiles begin at multiples of KEYS slots, so that a query's
// result depends only on its own slot.
#ifndef QUILL_FLASH_SM90_CUH
#define QUILL_FLASH_SM90_CUH

#include "gpu/flash_job.cuh"
#include "gpu/hopper.h"

enum { SM90_GROUPS = 2, SM90_QUERIES = SM90_GROUPS * 64, SM90_THREADS = (SM90_GROUPS + 1) * WARPGROUP };
enum { SM90_PRODUCER_REGISTERS = 72, SM90_CONSUMER_REGISTERS = 216 }; // 168 for each thread at the launch
enum { SM90_TURN = 1, SM90_READY = 3 };                               // named barriers, one of each for a consumer

// How the kernel is built:
//   stages   tiles of K, and as many of V, in shared memory
//   overlap  the scores of the next tile are computed before the weights of this one are used
//   turns    the two consumers issue their products in turns
//   direct   a copy arrives at its tile's barrier by itself, and the consumers have the fence for wgmma; otherwise the
//            producer waits for its copies, has the fence, and arrives
template <int KEYS, int STAGES, bool OVERLAP, bool TURNS, bool DIRECT> struct Sm90Shape {
    static constexpr int keys = KEYS, stages = STAGES;
    static constexpr bool overlap = OVERLAP, turns = TURNS, direct = DIRECT;
};

// Q, K and V are planes of 64 elements of each row (swizzled, gpu/hopper.h), one plane after the other.
HOST_DEVICE constexpr int sm90_tile_bytes(int head_dim, int rows) { return head_dim * 2 * rows; }
HOST_DEVICE constexpr size_t sm90_smem(int head_dim, int keys, int stages) {
    return (size_t)(SWIZZLE_ATOM + sm90_tile_bytes(head_dim, SM90_QUERIES) +
                    2 * stages * sm90_tile_bytes(head_dim, keys) + 4 * stages * (int)sizeof(uint64_t));
}

// A ring of tiles: where they are, and the barriers that say when one is full and when it is empty.
struct Sm90Ring {
    uint8_t *tiles;
    uint64_t *full, *empty;
};
struct Sm90Block {
    FlashTile t;
    uint8_t *q;
    Sm90Ring k, v;
    int begin, end, first, n_tiles; // slots that a row sees; the first tile's first slot
};

// ---- the producer ---------------------------------------------------------------------------------------------------

// The newest tile that a warp has begun to copy. `full` is the barrier at which the warp arrives when the copies are
// complete; NULL: it has arrived.
struct Sm90Sent {
    uint64_t *full;
};

// Waits for all copies but those of the newest PENDING groups, and arrives at the barrier of the tile.
template <int PENDING> __device__ __forceinline__ void sm90_tell(Sm90Sent *sent, int lane) {
    if (!sent->full) return;
    cp_async_wait<PENDING>();
    smem_to_wgmma();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(sent->full);
    sent->full = NULL;
}

// Copies the warp's share of a tile, KEYS / 4 slots. at: the plane's slot that the lane has looked up. Slots outside of
// [begin, end), which no row sees, become zeros: they might be NaN, which a weight of zero does not remove.
template <int HD, int KEYS>
__device__ __forceinline__ void sm90_copy(uint8_t *to, const uint8_t *plane, unsigned at, const Sm90Block &b, int first,
                                          int warp, int lane) {
    constexpr int each = KEYS / 4, pieces = HD / 8, at_once = WARP / pieces;
    UNROLL
    for (int i = 0; i < each; i += at_once) {
        int key = i + lane / pieces, c = lane % pieces, row = warp * each + key, slot = first + row;
        const uint8_t *from = plane + (size_t)__shfl_sync(FULL_WARP, at, key) * (HD * 2) + c * 16;
        cp_async16(to + c / 8 * (KEYS * SWIZZLE_ROW) + swizzled(row, c % 8), from, slot >= b.begin && slot < b.end);
    }
}

// Copies tile i of K or V when its place is empty. Until then nothing else is to do, so that the copies under way are
// completed first.
template <int HD, typename Shape>
__device__ __forceinline__ void sm90_fill(const Sm90Ring &ring, const uint8_t *plane, unsigned at, const Sm90Block &b,
                                          int i, Sm90Sent *sent, int warp, int lane) {
    int place = i % Shape::stages;
    unsigned parity = (unsigned)(i / Shape::stages + 1) & 1;
    if (Shape::direct) mbarrier_wait(&ring.empty[place], parity);
    else if (__ballot_sync(FULL_WARP, mbarrier_passed(&ring.empty[place], parity)) != FULL_WARP) {
        sm90_tell<0>(sent, lane);
        mbarrier_wait(&ring.empty[place], parity);
    }
    __syncwarp();
    sm90_copy<HD, Shape::keys>(ring.tiles + place * sm90_tile_bytes(HD, Shape::keys), plane, at, b,
                               b.first + i * Shape::keys, warp, lane);
    if (Shape::direct) return cp_async_arrive(&ring.full[place]);
    cp_async_commit();
    sm90_tell<1>(sent, lane);
    sent->full = &ring.full[place];
}

// Tiles are copied in the order in which consumers wait for them: K 0, K 1, V 0, K 2, V 1 and so on.
template <int HD, typename Shape> __device__ __forceinline__ void sm90_produce(const FlashJob &j, const Sm90Block &b) {
    int thread = (int)threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    Sm90Sent sent = {NULL};
    auto find = [&](int i) { // the lane's slot of a tile
        int slot = b.first + i * Shape::keys + warp * (Shape::keys / 4) + lane % (Shape::keys / 4);
        slot = slot < b.begin ? b.begin : slot >= b.end ? b.end - 1 : slot;
        return (unsigned)slot_at(j.kv, j.b, j.layer, b.t.seq, b.t.kv_head, slot);
    };
    unsigned at = 0, next = find(0);
    UNROLL_BY(1)
    for (int i = 0; i <= b.n_tiles; i++) {
        unsigned here = next;
        if (i + 1 < b.n_tiles) next = find(i + 1); // before it is needed
        if (i < b.n_tiles) sm90_fill<HD, Shape>(b.k, j.kv.k, here, b, i, &sent, warp, lane);
        if (i > 0) sm90_fill<HD, Shape>(b.v, j.kv.v, at, b, i - 1, &sent, warp, lane);
        at = here;
    }
    sm90_tell<0>(&sent, lane);
    cp_async_commit();
    cp_async_wait<0>(); // no thread ends before its copies
}

// ---- the consumers --------------------------------------------------------------------------------------------------

// A thread has queries g and g + 8 of its warp's 16, g = lane / 4. most: the largest score, not scaled; weight: the sum
// of the thread's weights alone. [from, to]: the keys that a query sees.
template <int HD> struct Sm90Rows {
    float sums[HD / 2];
    float most[2], weight[2];
    int from[2], to[2];
};

// Loads the warpgroup's 64 queries; zeros for those that are not there.
template <int TYPE, int HD>
__device__ __forceinline__ void sm90_queries(const FlashJob &j, const Sm90Block &b, int group, int thread) {
    constexpr int pieces = HD / 8;
    UNROLL
    for (int n = 0; n < 64 * pieces / WARPGROUP; n++) {
        int i = n * WARPGROUP + thread, query = group * 64 + i / pieces, c = i % pieces, row, head;
        bool there = flash_query(j, b.t, query, &row, &head);
        const float *from = j.q + (there ? (size_t)row * j.stride + (size_t)head * HD : 0) + c * 8;
        float4 x = *(const float4 *)(const void *)from, y = *(const float4 *)(const void *)(from + 4);
        uint4 piece = {to_pair<TYPE>(x.x, x.y), to_pair<TYPE>(x.z, x.w), to_pair<TYPE>(y.x, y.y),
                       to_pair<TYPE>(y.z, y.w)};
        uint4 zero = {0, 0, 0, 0};
        *(uint4 *)(void *)(b.q + c / 8 * (SM90_QUERIES * SWIZZLE_ROW) + swizzled(query, c % 8)) = there ? piece : zero;
    }
}

// s (64, KEYS) = Q K^T; q, k: the operands of the warpgroup's queries and of a tile.
template <int TYPE, int HD, int KEYS>
__device__ __forceinline__ void sm90_scores(float (&s)[KEYS / 2], uint64_t q, uint64_t k) {
    wgmma_begin();
    UNROLL
    for (int d = 0; d < HD; d += 16) {
        unsigned plane = (unsigned)(d / 64), at = (unsigned)(d % 64 * 2);
        wgmma_shared<TYPE, KEYS>(s, wgmma_after(q, plane * (SM90_QUERIES * SWIZZLE_ROW) + at),
                                 wgmma_after(k, plane * (KEYS * SWIZZLE_ROW) + at), d > 0);
    }
    wgmma_commit();
}

// sums += P V
template <int TYPE, int HD, int KEYS>
__device__ __forceinline__ void sm90_values(float (&sums)[HD / 2], const uint32_t (&p)[KEYS / 4], uint64_t v) {
    wgmma_begin();
    UNROLL
    for (int n = 0; n < KEYS; n += 16)
        wgmma_registers<TYPE, HD>(sums, p + n / 4, wgmma_after(v, (unsigned)(n * SWIZZLE_ROW)));
    wgmma_commit();
}

// Masks the scores of keys that a query does not see.
template <int HD, int KEYS>
__device__ __forceinline__ void sm90_mask(float (&s)[KEYS / 2], const Sm90Rows<HD> &rows, int first, int lane) {
    UNROLL
    for (int i = 0; i < KEYS / 2; i++) {
        int half = i / 2 % 2, key = first + i / 4 * 8 + 2 * (lane % 4) + i % 2;
        if (key < rows.from[half] || key > rows.to[half]) s[i] = -INFINITY;
    }
}

// Turns scores into weights, and finds the factors for the sums so far. scale includes log2(e).
template <int HD, int KEYS>
__device__ __forceinline__ void sm90_soften(float (&s)[KEYS / 2], Sm90Rows<HD> *rows, float factor[2], float scale) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        float most = rows->most[half], sum = 0;
        UNROLL
        for (int i = 2 * half; i < KEYS / 2; i += 4) most = fmaxf(most, fmaxf(s[i], s[i + 1]));
        most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 1));
        most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 2));
        float top = most == -INFINITY ? 0 : most, base = top * scale; // the query has seen no key yet
        factor[half] = exp2_fast((rows->most[half] - top) * scale);   // exactly 1 if nothing changes
        UNROLL
        for (int i = 2 * half; i < KEYS / 2; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -base));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -base));
            sum += s[i] + s[i + 1];
        }
        rows->weight[half] = rows->weight[half] * factor[half] + sum;
        rows->most[half] = most;
    }
}

// Rescales the sums so far, and rounds the weights to fragments for the next product.
template <int TYPE, int HD, int KEYS>
__device__ __forceinline__ void sm90_round(uint32_t (&p)[KEYS / 4], const float (&s)[KEYS / 2], Sm90Rows<HD> *rows,
                                           const float factor[2]) {
    UNROLL
    for (int i = 0; i < HD / 2; i++) rows->sums[i] *= factor[i / 2 % 2];
    UNROLL
    for (int i = 0; i < KEYS / 4; i++) p[i] = round_pair<TYPE>(s[2 * i], s[2 * i + 1]);
}

// Waits until tile i of a ring is full; says that the warp has used it.
template <typename Shape> __device__ __forceinline__ void sm90_await(const Sm90Ring &ring, int i) {
    mbarrier_wait(&ring.full[i % Shape::stages], (unsigned)(i / Shape::stages) & 1);
    if (Shape::direct) smem_to_wgmma();
}
__device__ __forceinline__ void sm90_release(const Sm90Ring &ring, int i, int stages, int lane) {
    if (lane == 0) mbarrier_arrive(&ring.empty[i % stages]);
}

// Computes the sums of a warpgroup's queries over all tiles of keys.
template <int TYPE, int HD, typename Shape>
__device__ __forceinline__ void sm90_consume(const FlashJob &j, const Sm90Block &b, Sm90Rows<HD> *rows, int group,
                                             int lane) {
    constexpr int KEYS = Shape::keys, STAGES = Shape::stages, BYTES = sm90_tile_bytes(HD, KEYS);
    float s[KEYS / 2], factor[2], scale = j.heads.scale * LOG2_E;
    uint32_t p[KEYS / 4];
    uint64_t q = wgmma_rows(smem_address(b.q) + (unsigned)(group * 64 * SWIZZLE_ROW));
    uint64_t k = wgmma_rows(smem_address(b.k.tiles));
    uint64_t v = wgmma_columns(smem_address(b.v.tiles), KEYS * SWIZZLE_ROW);
    auto place = [&](uint64_t ring, int i) { return wgmma_after(ring, (unsigned)(i % STAGES * BYTES)); };
    auto soften = [&](int i) {
        int first = b.first + i * KEYS;
        bool border = first < rows->from[0] || first < rows->from[1] || first + KEYS - 1 > rows->to[0] ||
                      first + KEYS - 1 > rows->to[1];
        if (border) sm90_mask<HD, KEYS>(s, *rows, first, lane);
        sm90_soften<HD, KEYS>(s, rows, factor, scale);
    };
    auto await_keys = [&](int i) {
        if (i < b.n_tiles) sm90_await<Shape>(b.k, i);
    };
    await_keys(0);
    sm90_scores<TYPE, HD, KEYS>(s, q, k);
    wgmma_wait<0>();
    wgmma_hold(s);
    sm90_release(b.k, 0, STAGES, lane);
    soften(0);
    sm90_round<TYPE, HD, KEYS>(p, s, rows, factor);
    await_keys(1);
    UNROLL_BY(1)
    for (int i = 1; i < b.n_tiles; i++) {
        uint64_t k_at = place(k, i), v_at = place(v, i - 1);
        if (Shape::turns) named_sync(SM90_TURN + group, SM90_GROUPS * WARPGROUP);
        if (Shape::overlap) sm90_scores<TYPE, HD, KEYS>(s, q, k_at);
        sm90_await<Shape>(b.v, i - 1);
        sm90_values<TYPE, HD, KEYS>(rows->sums, p, v_at);
        if (!Shape::overlap) sm90_scores<TYPE, HD, KEYS>(s, q, k_at);
        // the other consumer's turn; the last one that it will not take is left out
        if (Shape::turns && (group == 0 || i + 1 < b.n_tiles))
            named_arrive(SM90_TURN + 1 - group, SM90_GROUPS * WARPGROUP);
        if (Shape::overlap) wgmma_wait<1>();
        else wgmma_wait<0>();
        wgmma_hold(s);
        sm90_release(b.k, i, STAGES, lane);
        soften(i);
        wgmma_hold(s);
        await_keys(i + 1); // its branches also keep the assembler from moving the wait before the softening
        if (Shape::overlap) wgmma_wait<0>();
        wgmma_hold(rows->sums);
        sm90_release(b.v, i - 1, STAGES, lane);
        sm90_round<TYPE, HD, KEYS>(p, s, rows, factor);
    }
    sm90_await<Shape>(b.v, b.n_tiles - 1);
    sm90_values<TYPE, HD, KEYS>(rows->sums, p, place(v, b.n_tiles - 1));
    wgmma_wait<0>();
    wgmma_hold(rows->sums);
}

// Stores one query's elements that the thread has, scaled.
template <int TYPE, int HD>
__device__ __forceinline__ void sm90_store_as(void *out, size_t at, const Sm90Rows<HD> &rows, int half, float factor) {
    UNROLL
    for (int n = 0; n < HD / 8; n++) {
        float x = rows.sums[4 * n + 2 * half] * factor, y = rows.sums[4 * n + 2 * half + 1] * factor;
        size_t to = at + (size_t)(8 * n);
        if constexpr (TYPE == TYPE_F32) *(float2 *)(void *)((float *)out + to) = make_float2(x, y);
        else *(uint32_t *)(void *)((uint16_t *)out + to) = to_pair<TYPE>(x, y);
    }
}

// first: the first of the warp's queries
template <int HD>
__device__ __forceinline__ void sm90_store(const FlashJob &j, const Sm90Block &b, const Sm90Rows<HD> &rows, int first,
                                           int lane) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        float weight = rows.weight[half];
        weight += __shfl_xor_sync(FULL_WARP, weight, 1);
        weight += __shfl_xor_sync(FULL_WARP, weight, 2);
        int row, head;
        if (!flash_query(j, b.t, first + lane / 4 + 8 * half, &row, &head)) continue;
        size_t at = (size_t)row * j.out_stride + (size_t)(head * HD + 2 * (lane % 4));
        bool empty = !(weight > 0); // a row of padding has no keys
        float sink = add_sink(j.sinks, head, rows.most[half] * j.heads.scale, &weight);
        float factor = empty ? 0 : sink / weight;
        if (j.type == TYPE_F32) sm90_store_as<TYPE_F32, HD>(j.out, at, rows, half, factor);
        else if (j.type == TYPE_F16) sm90_store_as<TYPE_F16, HD>(j.out, at, rows, half, factor);
        else sm90_store_as<TYPE_BF16, HD>(j.out, at, rows, half, factor);
    }
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// The block's tile, its slots and its places in shared memory. rows.n <= 0: it has no rows.
template <int HD, typename Shape> __device__ __forceinline__ Sm90Block sm90_block(const FlashJob &j) {
    constexpr int BYTES = sm90_tile_bytes(HD, Shape::keys);
    Sm90Block b = {};
    b.t = flash_tile(j);
    if (b.t.rows.n <= 0) return b;
    Smem smem;
    uint8_t *at = smem.take<uint8_t>((unsigned)sm90_smem(HD, Shape::keys, Shape::stages));
    at += (SWIZZLE_ATOM - smem_address(at) % SWIZZLE_ATOM) % SWIZZLE_ATOM;
    b.q = at;
    b.k.tiles = at + sm90_tile_bytes(HD, SM90_QUERIES);
    b.v.tiles = b.k.tiles + Shape::stages * BYTES;
    b.k.full = (uint64_t *)(void *)(b.v.tiles + Shape::stages * BYTES);
    b.k.empty = b.k.full + Shape::stages;
    b.v.full = b.k.empty + Shape::stages;
    b.v.empty = b.v.full + Shape::stages;
    int row = b.t.rows.first;
    b.t.seq = j.b.seq[row];
    b.begin = heads_oldest(&j.heads, j.b.slot[row]);
    b.end = j.b.slot[row + b.t.rows.n - 1] + 1;
    b.first = b.begin / Shape::keys * Shape::keys;
    b.n_tiles = b.end > b.first ? (b.end - b.first + Shape::keys - 1) / Shape::keys : 0;
    return b;
}

// What a consumer warpgroup does.
template <int TYPE, int HD, typename Shape>
__device__ __forceinline__ void sm90_attend(const FlashJob &j, const Sm90Block &b, int group) {
    int thread = (int)threadIdx.x % WARPGROUP, lane = thread % WARP, query = group * 64 + thread / WARP * 16;
    Sm90Rows<HD> rows = {};
    UNROLL
    for (int half = 0; half < 2; half++) {
        int row, head;
        bool there = flash_query(j, b.t, query + lane / 4 + 8 * half, &row, &head);
        rows.most[half] = -INFINITY;
        rows.to[half] = there ? j.b.slot[row] : -1;
        rows.from[half] = heads_oldest(&j.heads, rows.to[half]);
    }
    sm90_queries<TYPE, HD>(j, b, group, thread);
    smem_to_wgmma();
    named_sync(SM90_READY + group, WARPGROUP);
    // the first turn is the other's
    if (Shape::turns && group == 1 && b.n_tiles > 1) named_arrive(SM90_TURN, SM90_GROUPS * WARPGROUP);
    if (b.n_tiles > 0) sm90_consume<TYPE, HD, Shape>(j, b, &rows, group, lane);
    sm90_store<HD>(j, b, rows, query, lane);
}

// grid: flash_grid
template <int TYPE, int HD, typename Shape>
__global__ __launch_bounds__(SM90_THREADS, 1) void flash_sm90(GRID_CONSTANT const FlashJob j) {
    Sm90Block b = sm90_block<HD, Shape>(j);
    if (b.t.rows.n <= 0) return;
    if (threadIdx.x == 0)
        for (int i = 0; i < Shape::stages; i++) {
            mbarrier_init(&b.k.full[i], Shape::direct ? WARPGROUP : WARPGROUP / WARP);
            mbarrier_init(&b.v.full[i], Shape::direct ? WARPGROUP : WARPGROUP / WARP);
            mbarrier_init(&b.k.empty[i], SM90_GROUPS * WARPGROUP / WARP);
            mbarrier_init(&b.v.empty[i], SM90_GROUPS * WARPGROUP / WARP);
        }
    __syncthreads();
    int group =
        __shfl_sync(FULL_WARP, (int)threadIdx.x / WARPGROUP, 0) - 1; // the same for a warp, as the compiler sees
    if (group < 0) {
        give_registers<SM90_PRODUCER_REGISTERS>();
        if (b.n_tiles > 0) sm90_produce<HD, Shape>(j, b);
    } else {
        take_registers<SM90_CONSUMER_REGISTERS>();
        sm90_attend<TYPE, HD, Shape>(j, b, group);
    }
}

#endif
