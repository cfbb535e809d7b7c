// gpu/flash.cuh: attention of many rows to many keys on the tensor cores, after FlashAttention-2 (Dao 2023).
//
// A block has 64 queries: rows of one sequence, each with one or several of the heads that share K and V ("GQA
// packing"); each of its four warps has 16 of them. Keys are processed in tiles of 64: scores by mma, a running largest
// score and sum in f32 for each query, weights rounded to V's type for the second mma, sums in f32. A query's result
// depends only on its own slot and the tiles of keys. The next tile of K is loaded while V is used.
#ifndef QUILL_FLASH_CUH
#define QUILL_FLASH_CUH

#include "gpu/flash_job.cuh"
#include "gpu/sealed.cuh"

enum { FLASH_WARPS = GPU_TILE_ROWS / 16, FLASH_THREADS = FLASH_WARPS * WARP, FLASH_KEYS = 64 };

// A row in shared memory has 16 bytes more, so that the eight rows of a matrix lie in different banks.
HOST_DEVICE constexpr int flash_stride(int head_dim) { return head_dim + 8; }
HOST_DEVICE constexpr size_t flash_smem(int head_dim, int v_dim) { // heads of 256: all of 99 KiB
    return ((size_t)(GPU_TILE_ROWS + FLASH_KEYS) * (size_t)flash_stride(head_dim) +
            (size_t)FLASH_KEYS * (size_t)flash_stride(v_dim)) *
           2;
}

// Starts the copy of keys [first, first + FLASH_KEYS) of a plane. Keys outside of [begin, end), which no row sees,
// become zeros: they might be NaN, which a weight of zero does not remove.
template <int HD>
__device__ __forceinline__ void fetch_keys(uint16_t *to, const FlashJob &j, const uint8_t *plane, int seq, int kv_head,
                                           int first, int begin, int end) {
    constexpr int lanes = FLASH_THREADS / FLASH_KEYS; // threads that share a key and its address
    int key = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes, slot = first + key;
    bool seen = slot >= begin && slot < end;
    const uint8_t *from = plane + slot_at(j.kv, j.b, j.layer, seq, kv_head, seen ? slot : end - 1) * (HD * 2);
    to += key * flash_stride(HD);
    UNROLL
    for (int c = 0; c < HD / 8; c += lanes) cp_async16(to + (c + lane) * 8, from + (c + lane) * 16, seen);
    cp_async_commit();
}

// The same for planes of any types, unpacked to 16 bits: slots from `first` on; zeros outside of [begin, end).
template <int HD>
__device__ __forceinline__ void unpack_keys(uint16_t *to, const KvPlane &p, int first, int begin, int end) {
    constexpr int pieces = HD / 8;
    for (int i = (int)threadIdx.x; i < FLASH_KEYS * pieces; i += FLASH_THREADS) {
        int slot = first + i / pieces, c = i % pieces;
        float v[8] = {};
        if (slot >= begin && slot < end) load_kv<ANY_TYPE>(v, p, find_slot<ANY_TYPE>(p, slot), c);
        uint4 halves = {to_pair<TYPE_F16>(v[0], v[1]), to_pair<TYPE_F16>(v[2], v[3]), to_pair<TYPE_F16>(v[4], v[5]),
                        to_pair<TYPE_F16>(v[6], v[7])};
        *(uint4 *)(to + i / pieces * flash_stride(HD) + c * 8) = halves;
    }
}

// The running state of a warp's 16 queries; a lane has queries g and g + 8 of it, g = lane / 4.
template <int VD> struct FlashRows {
    float sums[VD / 8][4];
    float most[2], weight[2]; // most: times log2(e)
};

// s (16, FLASH_KEYS) = Q K^T
template <int TYPE, int HD>
__device__ __forceinline__ void flash_scores(float s[FLASH_KEYS / 8][4], const uint16_t *q, const uint16_t *k,
                                             int lane) {
    UNROLL
    for (int n = 0; n < FLASH_KEYS / 8; n++)
        for (int i = 0; i < 4; i++) s[n][i] = 0;
    UNROLL
    for (int d = 0; d < HD; d += 16) {
        uint32_t a[4], b[4];
        ldmatrix4(a, q + (lane % 16) * flash_stride(HD) + d + lane / 16 * 8);
        UNROLL
        for (int n = 0; n < FLASH_KEYS; n += 16) { // matrices: keys n, elements d; d + 8; keys n + 8, d; d + 8
            ldmatrix4(b, k + (n + lane % 8 + lane / 16 * 8) * flash_stride(HD) + d + lane / 8 % 2 * 8);
            mma_16816<TYPE>(s[n / 8], a, b[0], b[1]);
            mma_16816<TYPE>(s[n / 8 + 1], a, b[2], b[3]);
        }
    }
}

// Soft-caps the scores (models that cap them).
__device__ __forceinline__ void flash_cap(float s[FLASH_KEYS / 8][4], const Heads &h) {
    UNROLL
    for (int n = 0; n < FLASH_KEYS / 8; n++) UNROLL
    for (int i = 0; i < 4; i++) s[n][i] = softcap(s[n][i] * h.scale, h.softcap);
}

// Masks the scores outside of each row's [from, to], turns them into weights and rescales the running sums to the new
// largest score. scale includes log2(e), so that weights are computed with exp2.
template <int VD>
__device__ __forceinline__ void flash_soften(float s[FLASH_KEYS / 8][4], FlashRows<VD> *rows, float scale,
                                             const int from[2], const int to[2], int first, int lane) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        int oldest = from[half], newest = to[half];
        float most = rows->most[half];
        if (first < oldest || first + FLASH_KEYS - 1 > newest) UNROLL
        for (int n = 0; n < FLASH_KEYS / 8; n++) UNROLL
        for (int i = 0; i < 2; i++) {
            int key = first + n * 8 + 2 * (lane % 4) + i;
            if (key > newest || key < oldest) s[n][half * 2 + i] = -INFINITY;
        }
        UNROLL
        for (int n = 0; n < FLASH_KEYS / 8; n++) UNROLL
        for (int i = 0; i < 2; i++) most = fmaxf(most, s[n][half * 2 + i] *= scale);
        most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 1));
        most = fmaxf(most, __shfl_xor_sync(FULL_WARP, most, 2));
        float base = most == -INFINITY ? 0 : most; // the row has seen no key yet
        float before = exp2f(rows->most[half] - base), sum = 0;
        UNROLL
        for (int n = 0; n < FLASH_KEYS / 8; n++) UNROLL
        for (int i = 0; i < 2; i++) {
            float *v = &s[n][half * 2 + i];
            *v = exp2f(*v - base);
            sum += *v;
        }
        sum += __shfl_xor_sync(FULL_WARP, sum, 1);
        sum += __shfl_xor_sync(FULL_WARP, sum, 2);
        rows->weight[half] = rows->weight[half] * before + sum;
        rows->most[half] = most;
        UNROLL
        for (int n = 0; n < VD / 8; n++) UNROLL
        for (int i = 0; i < 2; i++) rows->sums[n][half * 2 + i] *= before;
    }
}

// sums += P V. The scores' fragment is the first operand's: keys 2t and on, 2t + 8 and on, of rows g and g + 8.
template <int TYPE, int VD>
__device__ __forceinline__ void flash_values(FlashRows<VD> *rows, const float s[FLASH_KEYS / 8][4], const uint16_t *v,
                                             int lane) {
    UNROLL
    for (int n = 0; n < FLASH_KEYS / 8; n += 2) {
        uint32_t b[4], a[4] = {to_pair<TYPE>(s[n][0], s[n][1]), to_pair<TYPE>(s[n][2], s[n][3]),
                               to_pair<TYPE>(s[n + 1][0], s[n + 1][1]), to_pair<TYPE>(s[n + 1][2], s[n + 1][3])};
        UNROLL
        for (int d = 0; d < VD; d += 16) { // matrices: keys 8n, elements d; keys 8n + 8, d; the same with d + 8
            ldmatrix4_trans(b, v + (n * 8 + lane % 16) * flash_stride(VD) + d + lane / 16 * 8);
            mma_16816<TYPE>(rows->sums[d / 8], a, b[0], b[1]);
            mma_16816<TYPE>(rows->sums[d / 8 + 1], a, b[2], b[3]);
        }
    }
}

// The part of a tile that a block computes, and the block's arrays in shared memory.
struct FlashBlock : FlashTile {
    uint16_t *q, *k, *v;
};

// Loads a warp's 16 queries; zeros for those that are not there.
template <int TYPE, int HD>
__device__ __forceinline__ void flash_queries(const FlashJob &j, const FlashBlock &t, int warp, int lane) {
    UNROLL_BY(4)
    for (int i = warp * 16; i < warp * 16 + 16; i++) {
        int row, head;
        bool there = flash_query(j, t, i, &row, &head);
        const float *from = j.q + (there ? (size_t)row * j.stride + (size_t)head * HD : 0);
        UNROLL
        for (int e = 2 * lane; e < HD; e += 2 * WARP) {
            float2 v = *(const float2 *)(const void *)(from + e);
            *(uint32_t *)(t.q + i * flash_stride(HD) + e) = there ? to_pair<TYPE>(v.x, v.y) : 0;
        }
    }
}

// first: the first of the warp's queries
template <int VD>
__device__ __forceinline__ void flash_store(const FlashJob &j, const FlashRows<VD> &rows, const FlashBlock &t,
                                            int first, int lane) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        int row, head;
        if (!flash_query(j, t, first + lane / 4 + 8 * half, &row, &head)) continue;
        size_t at = (size_t)row * j.out_stride + (size_t)head * VD;
        float weight = rows.weight[half], factor = add_sink(j.sinks, head, rows.most[half] / LOG2_E, &weight);
        float inverse = rows.weight[half] > 0 ? factor / weight : 0; // a row of padding has no keys
        UNROLL
        for (int n = 0; n < VD / 8; n++) UNROLL
        for (int i = 0; i < 2; i++)
            store_as(j.type, j.out, at + (size_t)(n * 8 + 2 * (lane % 4) + i), rows.sums[n][half * 2 + i] * inverse);
    }
}

// Adds the keys [begin, end) to the rows' results; each row sees only its own [from, to]. SEALED: unpacks keys from
// planes of any types; otherwise copies them from dense planes.
template <int TYPE, int HD, int VD, bool SEALED>
__device__ __forceinline__ void flash_keys(FlashRows<VD> *rows, const FlashJob &j, const FlashBlock &t,
                                           const KvPlane &k, const KvPlane &v, int begin, int end, const int from[2],
                                           const int to[2]) {
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, first = begin / FLASH_KEYS * FLASH_KEYS;
    auto fetch_k = [&](int at) {
        if constexpr (SEALED) unpack_keys<HD>(t.k, k, at, begin, end);
        else fetch_keys<HD>(t.k, j, j.kv.k, t.seq, t.kv_head, at, begin, end);
    };
    auto fetch_v = [&](int at) {
        if constexpr (SEALED) unpack_keys<VD>(t.v, v, at, begin, end);
        else fetch_keys<VD>(t.v, j, j.kv.v, t.seq, t.kv_head, at, begin, end);
    };
    if (first < end) fetch_k(first);
    for (; first < end; first += FLASH_KEYS) {
        float s[FLASH_KEYS / 8][4];
        cp_async_wait<0>();
        __syncthreads(); // K has arrived, and all threads have read V
        fetch_v(first);
        flash_scores<TYPE, HD>(s, t.q + warp * 16 * flash_stride(HD), t.k, lane);
        if (j.heads.softcap != 0) flash_cap(s, j.heads);
        flash_soften<VD>(s, rows, LOG2_E * (j.heads.softcap != 0 ? 1 : j.heads.scale), from, to, first, lane);
        cp_async_wait<0>();
        __syncthreads(); // V has arrived, and all threads have read K
        if (first + FLASH_KEYS < end) fetch_k(first + FLASH_KEYS);
        flash_values<TYPE, VD>(rows, s, t.v, lane);
    }
}

// Sealed planes: a row reads the groups before its own sealed, and its own group in f32. If a group is the own group of
// some rows and an earlier group of others, its keys are processed twice, each time masked to one kind of rows. Tiles
// of keys always begin at multiples of FLASH_KEYS, so that a row's sums do not depend on the other rows.
template <int TYPE, int HD>
__device__ __forceinline__ void flash_sealed(FlashRows<HD> *rows, const FlashJob &j, const FlashBlock &t, int oldest,
                                             const int from[2], const int to[2]) {
    int row = t.rows.first, newest = j.b.slot[row + t.rows.n - 1], own[2], before[2], after[2];
    int first_open = j.b.slot[row] < 0 ? 0 : j.b.slot[row] / SEAL * SEAL,
        last_open = newest < 0 ? 0 : newest / SEAL * SEAL;
    KvPlane k = plane_of<ANY_TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, t.kv_head, true);
    KvPlane v = plane_of<ANY_TYPE>(j.kv, j.b, j.heads, j.qkv, j.layer, row, t.kv_head, false);
    for (int i = 0; i < 2; i++) {
        own[i] = to[i] < 0 ? 0 : to[i] / SEAL * SEAL;
        before[i] = own[i] - 1;
        after[i] = from[i] > own[i] ? from[i] : own[i];
    }
    k.open = v.open = INT_MAX;
    flash_keys<TYPE, HD, HD, true>(rows, j, t, k, v, oldest, last_open, from, before);
    if (kv_is_sealed(k.type)) k.open = 0;
    if (kv_is_sealed(v.type)) v.open = 0;
    flash_keys<TYPE, HD, HD, true>(rows, j, t, k, v, first_open > oldest ? first_open : oldest, newest + 1, after, to);
}

// grid: (tiles times their parts, KV heads times passes over their groups)
template <int TYPE, int HD, int VD, bool SEALED>
__global__ __launch_bounds__(FLASH_THREADS) void flash(GRID_CONSTANT const FlashJob j) {
    FlashBlock t = {flash_tile(j), NULL, NULL, NULL};
    if (t.rows.n <= 0) return;
    Smem smem;
    t.q = smem.take<uint16_t>(GPU_TILE_ROWS * flash_stride(HD));
    t.k = smem.take<uint16_t>(FLASH_KEYS * flash_stride(HD));
    t.v = smem.take<uint16_t>(FLASH_KEYS * flash_stride(VD));
    int first = t.rows.first, warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    t.seq = j.b.seq[first];
    int newest = j.b.slot[first + t.rows.n - 1], oldest = heads_oldest(&j.heads, j.b.slot[first]);

    flash_queries<TYPE, HD>(j, t, warp, lane);
    int from[2], to[2]; // the keys that the lane's queries see
    UNROLL
    for (int half = 0; half < 2; half++) {
        int row, head;
        bool there = flash_query(j, t, warp * 16 + lane / 4 + 8 * half, &row, &head);
        to[half] = there ? j.b.slot[row] : -1;
        from[half] = heads_oldest(&j.heads, to[half]);
    }
    FlashRows<VD> rows = {};
    rows.most[0] = rows.most[1] = -INFINITY;
    if constexpr (SEALED) flash_sealed<TYPE, HD>(&rows, j, t, oldest, from, to);
    else flash_keys<TYPE, HD, VD, false>(&rows, j, t, KvPlane{}, KvPlane{}, oldest, newest + 1, from, to);
    flash_store<VD>(j, rows, t, warp * 16, lane);
}

#endif
