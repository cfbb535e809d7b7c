// gpu/wide_flash.cuh: attention with heads that are too wide for gpu/flash.cuh, on the tensor cores, for 16-bit planes:
// compressed K and V, whose V is the first VD elements of K, and heads of VD = 512 elements. With its launches.
//
// A block reads a key once for up to 32 queries, pairs of a row and a head, of one sequence and KV head. Keys go
// through shared memory in tiles of 32: eight warps compute 16 queries by 8 keys of scores each, one warp at a time
// turns a query's scores into weights, then each warp adds 16 queries by a quarter of V's elements. V takes the place
// of K in shared memory, unless it is a part of it. Few rows divide their keys among blocks (gpu/attention.cuh's
// splits), whose sums wide_combine adds in order.
#ifndef QUILL_WIDE_FLASH_CUH
#define QUILL_WIDE_FLASH_CUH

#include "gpu/attention.cuh"
#include "gpu/products.cuh"

enum { WIDE_QUERIES = 32, WIDE_KEYS = 32, WIDE_THREADS = 256, WIDE_P_STRIDE = WIDE_KEYS + 8 };

struct WideJob {
    AttendJob a;          // .partial as there; .out and .counters are not used
    void *out;            // (n_rows, n_heads, head_dim) of `type`: the first VD elements of each head
    int type;             // of out
    const GpuTile *tiles; // many rows: a block has rows of a tile; NULL: one row and one split
    int block_heads;      // heads that a block computes, of one KV head, at most WIDE_QUERIES
    int passes;           // blocks for the heads of a KV head
};

HOST_DEVICE constexpr size_t wide_flash_smem(int head_dim) {
    return 2 * (size_t)WIDE_QUERIES * (size_t)(head_dim + 8) * 2 + WIDE_QUERIES * WIDE_KEYS * 4 +
           WIDE_QUERIES * WIDE_P_STRIDE * 2 + 3 * WIDE_QUERIES * 4;
}

// What a block computes: queries i in [0, n) of rows `row` + i / heads, heads `head` + i % heads; keys [begin, end).
struct WidePart {
    int row, n_rows, head, heads, kv_head, begin, end, split;
};

// A block's arrays in shared memory.
struct WideSmem {
    uint16_t *q, *k, *p; // (32, stride), (32, stride), (32, WIDE_P_STRIDE)
    float *s;            // (32, WIDE_KEYS) scores
    float *most, *weight, *factor;
    int stride;
};

__device__ inline WideSmem wide_arrays(Smem *smem, int head_dim) {
    WideSmem m;
    m.stride = head_dim + 8; // the eight rows of a matrix lie in different banks
    m.q = smem->take<uint16_t>((unsigned)(WIDE_QUERIES * m.stride));
    m.k = smem->take<uint16_t>((unsigned)(WIDE_KEYS * m.stride));
    m.p = smem->take<uint16_t>(WIDE_QUERIES * WIDE_P_STRIDE);
    m.s = smem->take<float>(WIDE_QUERIES * WIDE_KEYS);
    m.most = smem->take<float>(WIDE_QUERIES);
    m.weight = smem->take<float>(WIDE_QUERIES);
    m.factor = smem->take<float>(WIDE_QUERIES);
    return m;
}

// Loads the queries, rounded to TYPE; zeros after the last.
template <int TYPE>
__device__ __forceinline__ void load_wide_queries(const WideJob &j, const WideSmem &m, const WidePart &b) {
    int hd = j.a.heads.head_dim, pairs = hd / 2;
    for (int i = (int)threadIdx.x; i < WIDE_QUERIES * pairs; i += WIDE_THREADS) {
        int query = i / pairs, e = i % pairs * 2, r = query / b.heads;
        uint32_t both = 0;
        if (r < b.n_rows) {
            const float *from =
                j.a.q +
                ((size_t)(b.row + r) * (size_t)j.a.heads.n_heads + (size_t)(b.head + query % b.heads)) * (size_t)hd + e;
            both = to_pair<TYPE>(from[0], from[1]);
        }
        *(uint32_t *)(m.q + query * m.stride + e) = both;
    }
    if (threadIdx.x < WIDE_QUERIES) m.most[threadIdx.x] = -INFINITY, m.weight[threadIdx.x] = 0;
}

// Starts the copy of K or V of keys [first, first + WIDE_KEYS) to shared memory; zeros outside of the block's keys.
__device__ __forceinline__ void fetch_wide(const WideJob &j, const WideSmem &m, const WidePart &b, const uint8_t *plane,
                                           int first) {
    constexpr int lanes = WIDE_THREADS / WIDE_KEYS; // lanes that share a key
    int key = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes, slot = first + key, hd = j.a.heads.head_dim;
    bool seen = slot >= b.begin && slot < b.end;
    size_t at = kv_at(j.a.kv, j.a.b, j.a.layer, j.a.b.seq[b.row], b.kv_head, seen ? slot : b.begin);
    const uint8_t *from = plane + at * 2;
    for (int c = lane; c < hd / 8; c += lanes) cp_async16(m.k + key * m.stride + c * 8, from + c * 16, seen);
    cp_async_commit();
}

// Scores of 16 queries (half `group`) and 8 keys (quarter `part`).
template <int TYPE>
__device__ __forceinline__ void score_wide(const WideJob &j, const WideSmem &m, int group, int part, int lane) {
    float s[4] = {};
    const uint16_t *q = m.q + (group * 16 + lane % 16) * m.stride + lane / 16 * 8;
    const uint16_t *k = m.k + (part * 8 + lane % 8) * m.stride + lane / 8 * 8;
    UNROLL_BY(3)
    for (int d = 0; d < j.a.heads.head_dim; d += 32) {
        uint32_t low[4], high[4], b[4];
        ldmatrix4(low, q + d);
        ldmatrix4(high, q + d + 16);
        ldmatrix4(b, k + d);
        mma_16816<TYPE>(s, low, b[0], b[1]);
        mma_16816<TYPE>(s, high, b[2], b[3]);
    }
    float *to = m.s + (group * 16 + lane / 4) * WIDE_KEYS + part * 8 + 2 * (lane % 4);
    to[0] = s[0], to[1] = s[1];
    to[8 * WIDE_KEYS] = s[2], to[8 * WIDE_KEYS + 1] = s[3];
}

// Turns four queries' scores into weights; a lane has a key.
template <int TYPE>
__device__ __forceinline__ void soften_wide(const WideJob &j, const WideSmem &m, const WidePart &b, int first, int warp,
                                            int lane) {
    const Heads &h = j.a.heads;
    for (int query = warp * 4; query < warp * 4 + 4; query++) {
        int r = query / b.heads, slot = r < b.n_rows ? j.a.b.slot[b.row + r] : -1, key = first + lane;
        bool seen = key >= b.begin && key < b.end && key <= slot && key >= heads_oldest(&h, slot);
        float v = seen ? softcap(m.s[query * WIDE_KEYS + lane] * h.scale, h.softcap) : -INFINITY;
        float before = m.most[query], most = fmaxf(before, warp_max(v)), base = most == -INFINITY ? 0 : most;
        float p = expf(v - base), sum = warp_sum(p), factor = expf(before - base);
        m.p[query * WIDE_P_STRIDE + lane] = to_bits(TYPE, p);
        __syncwarp(); // every lane has read `before`
        if (lane == 0) {
            m.most[query] = most;
            m.weight[query] = m.weight[query] * factor + sum;
            m.factor[query] = factor;
        }
    }
}

// acc (16 queries, VD / 4 elements) = acc * factor + P V
template <int TYPE, int VD>
__device__ __forceinline__ void add_wide_values(float (&acc)[VD / 32][4], const WideSmem &m, int group, int part,
                                                int lane) {
    float low = m.factor[group * 16 + lane / 4], high = m.factor[group * 16 + lane / 4 + 8];
    UNROLL
    for (int n = 0; n < VD / 32; n++) acc[n][0] *= low, acc[n][1] *= low, acc[n][2] *= high, acc[n][3] *= high;
    UNROLL
    for (int k = 0; k < WIDE_KEYS; k += 16) {
        uint32_t a[4], b[4];
        ldmatrix4(a, m.p + (group * 16 + lane % 16) * WIDE_P_STRIDE + k + lane / 16 * 8);
        UNROLL
        for (int d = 0; d < VD / 4; d += 16) {
            ldmatrix4_trans(b, m.k + (k + lane % 16) * m.stride + part * (VD / 4) + d + lane / 16 * 8);
            mma_16816<TYPE>(acc[d / 8], a, b[0], b[1]);
            mma_16816<TYPE>(acc[d / 8 + 1], a, b[2], b[3]);
        }
    }
}

// Stores the sums of a warp's queries: to `partial` if the row has several splits, otherwise divided by the weight.
template <int VD>
__device__ __forceinline__ void store_wide_sums(const WideJob &j, const WideSmem &m, const WidePart &b,
                                                const float (&acc)[VD / 32][4], int group, int part, int lane) {
    int hd = j.a.heads.head_dim;
    UNROLL
    for (int half = 0; half < 2; half++) {
        int query = group * 16 + lane / 4 + 8 * half, r = query / b.heads, head = b.head + query % b.heads;
        if (r >= b.n_rows) continue;
        float *partial = b.split < 0 ? NULL : partial_of(j.a, b.row + r, head, b.split), weight = m.weight[query];
        float inverse = weight > 0 ? 1 / weight : 0; // a row of padding has no keys
        size_t at = ((size_t)(b.row + r) * (size_t)j.a.heads.n_heads + (size_t)head) * (size_t)hd;
        UNROLL
        for (int n = 0; n < VD / 32; n++) UNROLL
        for (int i = 0; i < 2; i++) {
            int e = part * (VD / 4) + n * 8 + 2 * (lane % 4) + i;
            float v = acc[n][half * 2 + i];
            if (partial) partial[e] = v;
            else store_as(j.type, j.out, at + (size_t)e, v * inverse);
        }
        if (partial && part == 0 && lane % 4 == 0) partial[hd] = m.most[query], partial[hd + 1] = weight;
    }
}

// Decides what the block computes: a row of a small batch, or a part of a tile. n_rows 0: nothing.
__device__ inline WidePart wide_part(const WideJob &j) {
    WidePart b = {};
    int group = j.a.heads.n_heads / j.a.heads.n_kv_heads, first_head = (int)blockIdx.y % j.passes * j.block_heads;
    b.kv_head = (int)blockIdx.y / j.passes;
    b.head = b.kv_head * group + first_head;
    b.heads = group - first_head < j.block_heads ? group - first_head : j.block_heads;
    b.split = -1;
    if (!j.tiles) {
        b.row = (int)blockIdx.z, b.n_rows = 1;
        int slot = j.a.b.slot[b.row], size = split_of(slot), split = (int)blockIdx.x;
        Seen seen = seen_in(j.a.heads, slot, split, size);
        b.begin = seen.first, b.end = seen.first + seen.n;
        if (slot < 0) b.end = 0, b.n_rows = split == 0; // padding: its result is zeros
        else if (seen.n <= 0) b.n_rows = 0;
        else if (heads_oldest(&j.a.heads, slot) / size != slot / size) b.split = split;
        return b;
    }
    int rows = WIDE_QUERIES / j.block_heads, parts = (GPU_TILE_ROWS + rows - 1) / rows;
    GpuTile tile = j.tiles[blockIdx.x / (unsigned)parts];
    int first = (int)(blockIdx.x % (unsigned)parts) * rows;
    if (first >= tile.n) return b;
    b.row = tile.first + first;
    b.n_rows = tile.n - first < rows ? tile.n - first : rows;
    b.begin = heads_oldest(&j.a.heads, j.a.b.slot[b.row]);
    b.end = j.a.b.slot[b.row + b.n_rows - 1] + 1;
    return b;
}

// grid, few rows: (splits, groups of heads, rows); many rows: (parts of tiles, groups of heads)
template <int TYPE, int VD> __global__ __launch_bounds__(WIDE_THREADS) void wide_flash(GRID_CONSTANT const WideJob j) {
    Smem smem;
    WideSmem m = wide_arrays(&smem, j.a.heads.head_dim);
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, group = warp % 2, part = warp / 2;
    let_next_begin();
    wait_for_last();
    WidePart b = wide_part(j);
    if (b.n_rows == 0) return;
    bool busy = group * 16 < b.n_rows * b.heads; // otherwise the warp has no queries
    load_wide_queries<TYPE>(j, m, b);
    float acc[VD / 32][4] = {};
    for (int first = b.begin / WIDE_KEYS * WIDE_KEYS; first < b.end; first += WIDE_KEYS) {
        fetch_wide(j, m, b, j.a.kv.k, first);
        cp_async_wait<0>();
        __syncthreads();
        if (busy) score_wide<TYPE>(j, m, group, part, lane);
        __syncthreads();
        if (!j.a.kv.v_in_k) fetch_wide(j, m, b, j.a.kv.v, first);
        soften_wide<TYPE>(j, m, b, first, warp, lane);
        cp_async_wait<0>();
        __syncthreads();
        if (busy) add_wide_values<TYPE, VD>(acc, m, group, part, lane);
        __syncthreads(); // all threads have read the keys
    }
    __syncthreads();
    if (busy) store_wide_sums<VD>(j, m, b, acc, group, part, lane);
}

// Adds the splits of a row and head in order. grid: (heads, rows)
__global__ __launch_bounds__(ATTEND_THREADS) void wide_combine(GRID_CONSTANT const WideJob j) {
    let_next_begin();
    wait_for_last();
    int head = (int)blockIdx.x, row = (int)blockIdx.y, slot = j.a.b.slot[row], hd = j.a.heads.head_dim;
    if (slot < 0) return;
    int size = split_of(slot), first = heads_oldest(&j.a.heads, slot) / size, last = slot / size;
    if (first == last) return; // a single split is stored already
    float most = -INFINITY;
    for (int s = first; s <= last; s++) most = fmaxf(most, partial_of(j.a, row, head, s)[hd]);
    size_t at = ((size_t)row * (size_t)j.a.heads.n_heads + (size_t)head) * (size_t)hd;
    int v_dim = j.a.heads.v_dim > 0 ? j.a.heads.v_dim : hd;
    for (int e = (int)threadIdx.x; e < v_dim; e += ATTEND_THREADS) {
        float sum = 0, weight = 0;
        UNROLL_BY(4)
        for (int s = first; s <= last; s++) {
            const float *p = partial_of(j.a, row, head, s);
            float factor = expf(p[hd] - most);
            sum += p[e] * factor;
            weight += p[hd + 1] * factor;
        }
        store_as(j.type, j.out, at + (size_t)e, sum / weight);
    }
}

bool gpu_wide_can(const GpuLayer *l, const KvPool *kv) {
    const Heads *h = &l->heads;
    bool compressed = kv->v_in_k && (h->v_dim == 256 || h->v_dim == 512) && h->head_dim % 32 == 0;
    bool size = compressed || (!kv->v_in_k && h->head_dim == 512 && kv->type_k == kv->type_v);
    return size && !l->sinks && (kv->type_k == TYPE_F16 || kv->type_k == TYPE_BF16);
}

static void wide_flash_launch(const WideJob &j, dim3 grid, GpuStream stream) {
    size_t smem = wide_flash_smem(j.a.heads.head_dim);
    bool half = j.a.kv.type_k == TYPE_F16, early = tuning.early && !j.tiles;
    if (j.a.heads.v_dim != 256 && half)
        LAUNCH_EARLY(early, (wide_flash<TYPE_F16, 512>), grid, WIDE_THREADS, smem, stream, j);
    else if (j.a.heads.v_dim != 256)
        LAUNCH_EARLY(early, (wide_flash<TYPE_BF16, 512>), grid, WIDE_THREADS, smem, stream, j);
    else if (half) LAUNCH_EARLY(early, (wide_flash<TYPE_F16, 256>), grid, WIDE_THREADS, smem, stream, j);
    else LAUNCH_EARLY(early, (wide_flash<TYPE_BF16, 256>), grid, WIDE_THREADS, smem, stream, j);
}

void gpu_wide_flash(void *a, int type, const float *q, const GpuLayer *l, const KvPool *kv, const GpuBatch *b,
                    const GpuScratch *s, const GpuTile *tiles, int n_tiles, GpuStream stream) {
    assert(gpu_wide_can(l, kv));
    int n_splits = tiles ? 1 : split_bound(b->max_slots), group = l->heads.n_heads / l->heads.n_kv_heads;
    WideJob j = {};
    j.a.q = q;
    j.a.partial = s->partial;
    j.a.heads = l->heads;
    j.a.kv = *kv;
    j.a.b = in_pool(b, kv);
    j.a.layer = l->index;
    j.a.n_splits = n_splits;
    j.out = a;
    j.type = type;
    j.tiles = tiles;
    j.block_heads = group < WIDE_QUERIES ? group : WIDE_QUERIES;
    j.passes = (group + j.block_heads - 1) / j.block_heads;
    unsigned blocks = (unsigned)(l->heads.n_kv_heads * j.passes);
    int rows = WIDE_QUERIES / j.block_heads, parts = (GPU_TILE_ROWS + rows - 1) / rows;
    if (tiles) return wide_flash_launch(j, dim3((unsigned)(n_tiles * parts), blocks), stream);
    wide_flash_launch(j, dim3((unsigned)n_splits, blocks, (unsigned)b->n_rows), stream);
    if (n_splits == 1) return;
    dim3 heads((unsigned)l->heads.n_heads, (unsigned)b->n_rows);
    LAUNCH_EARLY(tuning.early, wide_combine, heads, ATTEND_THREADS, 0, stream, j);
}

#endif
