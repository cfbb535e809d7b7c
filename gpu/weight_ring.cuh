// gpu/weight_ring.cuh: weights on their way from memory to a warp that multiplies them.
//
// A warp copies its weights to a ring of stages in shared memory (cp.async) and multiplies them from there, so that
// memory is busy while it multiplies, between two tasks, and before the results of the last launch are there. A stage
// has a piece of each of the R rows of a task: a unit, or eight dense elements, for each lane.
#ifndef QUILL_WEIGHT_RING_CUH
#define QUILL_WEIGHT_RING_CUH

#include "gpu/gemv_job.cuh"

enum { RING_BYTES = 4736 }; // of a warp, so that three blocks are resident

// The bytes of a row in a stage, plane by plane.
struct StageBytes {
    int quants, high, scales, d, all;
};
HOST_DEVICE constexpr StageBytes stage_bytes(int type) {
    PlaneBytes p = plane_bytes(type);
    if (is_dense(type)) return {WARP * 16, 0, 0, 0, WARP * 16};
    int d = (p.super ? WARP / SUPER_UNITS : WARP) * p.d, sum = WARP * (p.quants + p.high + p.scales) + d;
    return {WARP * p.quants, WARP * p.high, WARP * p.scales, d, (sum + 15) / 16 * 16};
}
HOST_DEVICE constexpr int stage_elements(int type) { return is_dense(type) ? 8 * WARP : UNIT * WARP; }
HOST_DEVICE constexpr int ring_stages(int type, int rows) {
    int n = RING_BYTES / (rows * stage_bytes(type).all);
    return n > 4 ? 4 : n;
}

template <int TYPE, int R> struct WeightRing {
    static constexpr int STAGES = ring_stages(TYPE, R), ROW = stage_bytes(TYPE).all;
    static constexpr unsigned WARP_BYTES = STAGES * R * ROW, BLOCK_BYTES = GEMV_WARPS * WARP_BYTES;
    uint8_t *stages;
    int read, write;               // the next stage to multiply and to fetch
    int task, piece, part, row[R]; // what is fetched next
};
struct NoRing { // weights come directly from memory
    static constexpr unsigned BLOCK_BYTES = 0;
};
template <int TYPE, int R, bool RING> struct RingChoice { typedef NoRing Ring; };
template <int TYPE, int R> struct RingChoice<TYPE, R, true> { typedef WeightRing<TYPE, R> Ring; };

// Copies the pieces of SIZE bytes of a plane that begin before `end`. BYTES: of a plane in a stage
template <int BYTES, int SIZE>
__device__ __forceinline__ void fetch_plane(uint8_t *to, const uint8_t *from, int end, int lane) {
    UNROLL
    for (int k = 0; k < BYTES; k += SIZE * WARP) {
        int at = k + lane * SIZE;
        if ((BYTES % (SIZE * WARP) == 0 || at < BYTES) && at < end)
            SIZE == 16 ? cp_async16(to + at, from + at, true) : cp_async4(to + at, from + at);
    }
}

// Copies piece number `piece` of a row.
template <int TYPE>
__device__ __forceinline__ void fetch_row(uint8_t *to, const DeviceTensor &t, int row, int piece, int lane) {
    constexpr StageBytes b = stage_bytes(TYPE);
    constexpr PlaneBytes p = plane_bytes(TYPE);
    if constexpr (is_dense(TYPE)) {
        int begin = piece * b.quants;
        fetch_plane<b.quants, 16>(to, t.quants + (size_t)row * t.stride_bytes + begin, (int)t.stride_bytes - begin,
                                  lane);
    } else {
        int units = t.n_in / UNIT, left = units - piece * WARP;
        size_t unit = (size_t)row * (size_t)units + (size_t)(piece * WARP);
        fetch_plane<b.quants, 16>(to, t.quants + unit * p.quants, left * p.quants, lane);
        if constexpr (p.high > 0) fetch_plane<b.high, 4>(to + b.quants, t.high + unit * p.high, left * p.high, lane);
        if constexpr (p.scales > 0)
            fetch_plane<b.scales, 4>(to + b.quants + b.high, t.scales + unit * p.scales, left * p.scales, lane);
        constexpr int per = p.super ? SUPER_UNITS : 1; // units that share d
        fetch_plane<b.d, 4>(to + b.quants + b.high + b.scales, t.d + unit / per * p.d, (left + per - 1) / per * p.d,
                            lane);
    }
}

// Fetches the next stage of tasks ring->task, + step and so on.
template <int TYPE, int R>
__device__ __forceinline__ void ring_fetch(WeightRing<TYPE, R> *ring, const GemvJob &g, const GemvRows &s, int step,
                                           int features, int lane) {
    if (ring->task < g.first_task[3]) {
        if (ring->piece == 0) {
            GemvTask t = gemv_task(g, ring->task, features);
            ring->part = t.part;
            rows_of<R>(ring->row, g, s, t);
        }
        uint8_t *to = ring->stages + ring->write * (R * ring->ROW);
        UNROLL
        for (int r = 0; r < R; r++)
            fetch_row<TYPE>(to + r * ring->ROW, matrix_of<R>(g, ring->part, r), ring->row[r], ring->piece, lane);
        ring->piece++;
        if (ring->piece * stage_elements(TYPE) >= g.n_in) ring->piece = 0, ring->task += step;
    }
    cp_async_commit();
    ring->write = ring->write + 1 == ring->STAGES ? 0 : ring->write + 1;
}

// Begins to fetch the warp's tasks, which are `first` and each `step` after it.
template <int TYPE, int R>
__device__ __forceinline__ void ring_begin(WeightRing<TYPE, R> *ring, Smem *smem, const GemvJob &g, const GemvRows &s,
                                           int first, int step) {
    int features = g.mode == GEMV_GLU ? R / 2 : R, warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    *ring = {};
    ring->stages = smem->take<uint8_t>(ring->BLOCK_BYTES) + (unsigned)warp * ring->WARP_BYTES;
    ring->task = first;
    for (int i = 0; i < ring->STAGES; i++) ring_fetch(ring, g, s, step, features, lane);
}

// The row of a stage as a tensor of one row.
template <int TYPE> __device__ __forceinline__ DeviceTensor staged_row(uint8_t *at) {
    constexpr StageBytes b = stage_bytes(TYPE);
    DeviceTensor t = {};
    t.quants = at;
    t.high = at + b.quants;
    t.scales = t.high + b.high;
    t.d = t.scales + b.scales;
    return t;
}

#endif
