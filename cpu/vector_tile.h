// cpu/vector_tile.h: the inner loop of products with many rows: a few broadcast weights times a tile of rows, the lanes
// of two vectors. The matrix kernel multiplies weights with it, and attention keys and values.
#ifndef QUILL_VECTOR_TILE_H
#define QUILL_VECTOR_TILE_H

#include "cpu/simd.h"

enum {
    T = 2 * VL, // rows of activations in a tile: the lanes of two vectors
    NF = VL == 16  ? 12
         : VL == 8 ? 6
                   : 4,     // features at a time: NF x 2 sums stay in registers
    FEATURES = 96,          // features of a task of the matrix kernel
    UNROLL = 8,             // steps of depth between two prefetches
    PANELS = FEATURES / NF, // panels of NF features in a task; each prefetches its part of the next tile
    AHEAD = UNROLL * T * (int)sizeof(float) / PANELS, // bytes that a panel prefetches every UNROLL steps
};

// Multiplies NF weights, wf apart, by T lanes.
INLINE void multiply_step(const float *w, size_t wf, const float *x, vf sum[NF][2]) {
    vf x0 = vload(x), x1 = vload(x + VL);
    UNROLL(12)
    for (int f = 0; f < NF; f++) {
        vf broadcast = vset(w[(size_t)f * wf]);
        sum[f][0] += broadcast * x0;
        sum[f][1] += broadcast * x1;
    }
}

// c(f, lane) += sum over k of w(f, k) x(k, lane) for NF features and T lanes. w(f, k) is at w[f*wf + k*wk]; x and c
// have T floats in a row, so that c of consecutive features is contiguous. `next` is prefetched line by line during the
// loop, since prefetching all of it at once would delay the loads of w and x. NULL: nothing is prefetched.
static __attribute__((unused)) void multiply_tile(int n, const float *w, size_t wf, size_t wk, const float *x, float *c,
                                                  const char *next) {
    vf sum[NF][2];
    int k = 0;
    UNROLL(12)
    for (int f = 0; f < NF; f++) {
        sum[f][0] = vload(c + f * T);
        sum[f][1] = vload(c + f * T + VL);
    }
    if (next)
        for (; k + UNROLL <= n; k += UNROLL, x += UNROLL * T, w += UNROLL * wk, next += AHEAD) {
            UNROLL(2)
            for (int line = 0; line < AHEAD; line += 64) __builtin_prefetch(next + line, 0, 2);
            UNROLL(8)
            for (int i = 0; i < UNROLL; i++) multiply_step(w + (size_t)i * wk, wf, x + i * T, sum);
        }
    for (; k < n; k++, x += T, w += wk) multiply_step(w, wf, x, sum);
    UNROLL(12)
    for (int f = 0; f < NF; f++) {
        vstore(c + f * T, sum[f][0]);
        vstore(c + f * T + VL, sum[f][1]);
    }
}

#endif
