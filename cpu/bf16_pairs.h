// cpu/bf16_pairs.h: floats rounded to bf16 in AVX-512 registers, in their order or as the pairs that vdpbf16ps and the
// matrix unit multiply.
#ifndef QUILL_CPU_BF16_PAIRS_H
#define QUILL_CPU_BF16_PAIRS_H

#include "cpu/simd.h"

// Rounds 32 floats to bf16, in their order.
INLINE __m512i round_32(__m512 low, __m512 high) {
    __m512bh half = _mm512_cvtne2ps_pbh(high, low);
    __m512i out;
    memcpy(&out, &half, sizeof out);
    return out;
}

// Each lane gets its values of both registers, rounded to bf16: `even` in the lower half.
INLINE __m512i pair_of(__m512 even, __m512 odd) {
    const __m512i by_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                              6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(by_turns, round_32(even, odd));
}

#endif
