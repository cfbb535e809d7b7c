// encode/fit.h: integers and scales for sixteen sub-blocks of weights at a time, by search over the weighted squared
// error.
//
// A sub-block is 16 or 32 weights under one scale, x = d s q, or under a scale and a minimum, x = d s q - dmin m. The
// sub-blocks of a super-block share d and dmin, which are halves; s and m are integers of a few bits.
//
// 1. For every sub-block by itself: q for a number of trial scales, and for each q the scale (and the minimum) that is
//    best for it, by least squares. The trial that leaves the least error wins and is improved in turns with q.
// 2. For the super-block: d and dmin so that the largest scale and minimum are the largest integers.
// 3. Two steps, repeated. First each sub-block tries the neighbours of its s and m, rounds q for each, and takes the
// best.
//    Then least squares over the super-block gives d and dmin for these integers. The best state of all rounds is kept.
//
// Alternating least squares for scales is textbook; trial scales around the largest weight are what the reference
// encoders of the formats do too. Step 3 measures the error after the scales themselves are rounded.
#ifndef QUILL_FIT_H
#define QUILL_FIT_H

#include <stdint.h>

enum { FIT_LANES = 16, FIT_MOST = 32 }; // sub-blocks at a time; weights of one, at most

typedef struct {
    float d[FIT_LANES], dmin[FIT_LANES]; // exact halves; the same in all sub-blocks of a super-block
    int8_t s[FIT_LANES], m[FIT_LANES]; // where a sub-block has d and dmin of its own, s is 1, m 1 (0 without a minimum)
    int8_t q[FIT_LANES][FIT_MOST];     // as `x = ...` in formats/types.h has it: centred on zero without a minimum
} FitResult;

int fit_weights(int type); // of a sub-block; 0: this TYPE_ is not fitted

// `count` sub-blocks (1 to FIT_LANES, whole super-blocks) of a type. importance: as x, or NULL.
typedef void FitKernel(int type, const float *x, const float *importance, int count, FitResult *out);
FitKernel fit_portable, fit_avx2, fit_avx512; // the same bits from each; the last two on x86-64 alone
FitKernel *fit_kernel(void);                  // the fastest that this CPU has

#endif
