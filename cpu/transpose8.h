// cpu/transpose8.h: transposes 8 x 8 values of 32 bits in AVX registers, and writes them to rows of floats.
#ifndef QUILL_CPU_TRANSPOSE8_H
#define QUILL_CPU_TRANSPOSE8_H

#include "cpu/simd.h"

// Rows in, columns out.
INLINE void transpose8(__m256 r[8]) {
    __m256 t[8];
    UNROLL(2)
    for (int i = 0; i < 8; i += 4) { // 4 x 4 within each 128 bits
        __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    UNROLL(4)
    for (int i = 0; i < 4; i++) { // transposes the order of the blocks
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

// Writes up to 8 rows of up to 8 features to y, whose rows are y_stride apart.
INLINE void write_rows(const __m256 rows[8], int n_rows, int n_features, const float *bias, bool add, float *y,
                       size_t y_stride) {
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(n_features), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256 more = bias ? _mm256_maskload_ps(bias, there) : _mm256_setzero_ps();
#pragma GCC unroll 8 // not UNROLL: clang cannot follow it, because of the break, and would warn
    for (int i = 0; i < 8; i++, y += y_stride) {
        if (i >= n_rows) break;
        __m256 value = _mm256_add_ps(rows[i], more);
        if (add) value = _mm256_add_ps(value, _mm256_maskload_ps(y, there));
        if (n_features >= 8) _mm256_storeu_ps(y, value); // a masked store is slow microcode on some CPUs
        else _mm256_maskstore_ps(y, there, value);
    }
}

#endif
