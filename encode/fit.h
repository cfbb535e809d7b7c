// encode/fit.h: searches the integers and scales with the least weighted squared error, for sixteen sub-blocks of
// weights at a time.
//
// A sub-block is 16 or 32 weights under one scale, x = d s q, or under a scale and a minimum, x = d s q - dmin m. The
// sub-blocks of a super-block share d and dmin, which are halves; s and m are integers of a few bits.
//
// 1. For each sub-block: compute q for a number of trial scales, and for each q the best scale (and minimum) by least
//    squares. Keep the trial with the least error; then improve q and the scale alternately.
// 2. For each super-block: choose d and dmin so that the largest scale and minimum get the largest integers.
//    Where d or dmin would be rounded to 0, take the smallest half: s and m then have fewer levels, and no weight is
//    lost.
// 3. Repeat two steps. First each sub-block tries the neighbours of its s and m, rounds q for each, and takes the best.
//    Then least squares over the super-block gives d and dmin for these integers. Keep the best state of all rounds.
//
// Alternating least squares is a textbook method; the formats' reference encoders try scales around the largest weight
// too. Step 3 measures the error with rounded scales.
#ifndef QUILL_FIT_H
#define QUILL_FIT_H

#include <stdint.h>

enum { FIT_LANES = 16, FIT_MOST = 32 }; // sub-blocks at a time; weights of one, at most

typedef struct {
    float d[FIT_LANES], dmin[FIT_LANES]; // exact halves; the same in all sub-blocks of a super-block
    int8_t s[FIT_LANES], m[FIT_LANES]; // where a sub-block has d and dmin of its own, s is 1, m 1 (0 without a minimum)
    int8_t q[FIT_LANES][FIT_MOST];     // without a minimum centred on zero: q - 8 of Q4_0, for example
} FitResult;

int fit_weights(int type); // weights of a sub-block of this TYPE_; 0: the type is not fitted

// Fits `count` sub-blocks (1 to FIT_LANES, whole super-blocks). x: their weights; importance: as many, or NULL.
typedef void FitKernel(int type, const float *x, const float *importance, int count, FitResult *out);
FitKernel fit_portable, fit_avx2, fit_avx512; // all give the same bits; the last two exist only on x86-64
FitKernel *fit_kernel(void);                  // the fastest one for this CPU

#endif
