// gpu/flash_job.cuh: how attention of many rows is divided among blocks, for gpu/flash.cuh and gpu/flash_sm90.cuh.
//
// A block has a number of queries: rows of one tile, each with one or several of the heads that share K and V ("GQA
// packing"). No kernels: several objects include it.
#ifndef QUILL_FLASH_JOB_CUH
#define QUILL_FLASH_JOB_CUH

#include "gpu/keys.cuh"

#include <limits.h>

#define LOG2_E 1.4426950408889634f

enum { FLASH_HEADS = 16 }; // most heads of a block

struct FlashJob {
    const float *q; // rows `stride` apart
    size_t stride;
    void *out; // (n_rows, n_heads, VD) of `type`, rows out_stride apart
    size_t out_stride;
    int type;
    Heads heads;
    KvPool kv;
    GpuBatch b;           // as in_pool has it
    const float *qkv;     // sealed planes: the batch's own K and V
    const GpuTile *tiles; // NULL: all rows, which are of one sequence
    int layer;
    const float *sinks; // see AttendJob.sinks
    // A block has rows_each rows of a tile with n_packed heads each; a KV head's group takes n_passes blocks.
    int n_packed, n_passes, rows_each;
};

// A block's rows, their sequence, its KV head and heads [head, head + n_heads).
struct FlashTile {
    GpuTile rows;
    int seq, kv_head, head, n_heads;
};

// Query i of a block: row i / n_packed, head i % n_packed. False: there is none.
__device__ __forceinline__ bool flash_query(const FlashJob &j, const FlashTile &t, int i, int *row, int *head) {
    *row = t.rows.first + i / j.n_packed;
    *head = t.head + i % j.n_packed;
    return i / j.n_packed < t.rows.n && i % j.n_packed < t.n_heads;
}

// Tiles without a list: those of the last rows, which see the most slots, first.
__device__ __forceinline__ GpuTile tile_of(const FlashJob &j, int i) {
    if (j.tiles) return j.tiles[i];
    int n_tiles = (j.b.n_rows + GPU_TILE_ROWS - 1) / GPU_TILE_ROWS, first = (n_tiles - 1 - i) * GPU_TILE_ROWS;
    return {first, j.b.n_rows - first < GPU_TILE_ROWS ? j.b.n_rows - first : GPU_TILE_ROWS};
}

// The block's part of a tile.
__device__ __forceinline__ FlashTile flash_tile(const FlashJob &j) {
    int pieces = (GPU_TILE_ROWS + j.rows_each - 1) / j.rows_each, group = j.heads.n_heads / j.heads.n_kv_heads;
    int first = (int)blockIdx.x % pieces * j.rows_each, pass = (int)blockIdx.y % j.n_passes * j.n_packed;
    GpuTile whole = tile_of(j, (int)blockIdx.x / pieces);
    FlashTile t = {};
    t.rows.first = whole.first + first;
    t.rows.n = whole.n - first < j.rows_each ? whole.n - first : j.rows_each;
    t.kv_head = (int)blockIdx.y / j.n_passes;
    t.head = t.kv_head * group + pass;
    t.n_heads = group - pass < j.n_packed ? group - pass : j.n_packed;
    return t;
}

// Chooses how many heads of a group share a block of `queries` queries: the number that needs the fewest blocks for a
// tile of average length. If several numbers need as few, it takes the largest: the blocks then see the fewest keys.
inline void flash_pack(FlashJob *j, int n_tiles, int queries) {
    int group = j->heads.n_heads / j->heads.n_kv_heads, rows = (j->b.n_rows + n_tiles - 1) / n_tiles, least = INT_MAX;
    for (int heads = 1; heads <= group && heads <= FLASH_HEADS; heads++) {
        int rows_each = queries / heads < GPU_TILE_ROWS ? queries / heads : GPU_TILE_ROWS,
            passes = (group + heads - 1) / heads;
        int blocks = (rows + rows_each - 1) / rows_each * passes;
        if (blocks > least) continue;
        least = blocks;
        j->n_packed = heads;
        j->n_passes = passes;
        j->rows_each = rows_each;
    }
}

// Blocks without rows end at once.
inline dim3 flash_grid(const FlashJob &j, int n_tiles) {
    int pieces = (GPU_TILE_ROWS + j.rows_each - 1) / j.rows_each;
    return dim3((unsigned)(n_tiles * pieces), (unsigned)(j.heads.n_kv_heads * j.n_passes));
}

// gpu/flash_sm90.cu: whether this GPU and this binary have the kernel for compute capability 9.0; whether it supports
// the job; its launch.
bool flash_sm90_supported();
bool flash_sm90_can(const FlashJob &j);
void flash_sm90_launch(FlashJob j, int n_tiles, GpuStream stream);

#endif
