// cpu/transpose16.h: transposes 16 x 16 values of 32 bits in AVX-512 registers, and writes them to rows of floats.
#ifndef QUILL_CPU_TRANSPOSE16_H
#define QUILL_CPU_TRANSPOSE16_H

#include "cpu/simd.h"

// A mask of the first `left` of 16 lanes.
INLINE __mmask16 lanes(int left) { return (__mmask16)(left >= 16 ? 0xffff : left > 0 ? (1 << left) - 1 : 0); }

// Transposes the 4 x 4 blocks of four rows within each 128 bits.
INLINE void transpose_fours(const __m512 r[4], __m512 t[4]) {
    __m512 a = _mm512_unpacklo_ps(r[0], r[1]), b = _mm512_unpackhi_ps(r[0], r[1]);
    __m512 c = _mm512_unpacklo_ps(r[2], r[3]), d = _mm512_unpackhi_ps(r[2], r[3]);
    t[0] = _mm512_shuffle_ps(a, c, 0x44);
    t[1] = _mm512_shuffle_ps(a, c, 0xee);
    t[2] = _mm512_shuffle_ps(b, d, 0x44);
    t[3] = _mm512_shuffle_ps(b, d, 0xee);
}

// 16 x 16 values of 32 bits: rows in, columns out.
INLINE void transpose16(__m512 r[16]) {
    __m512 t[16];
    UNROLL(4)
    for (int i = 0; i < 16; i += 4) transpose_fours(r + i, t + i);
    UNROLL(4)
    for (int i = 0; i < 4; i++) { // transposes the order of the blocks
        __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

// Writes up to 16 rows of up to 16 features to y, whose rows are y_stride apart; aligned rows are whole cache lines.
INLINE void write_rows(const __m512 rows[16], int n_rows, int n_features, const float *bias, bool add, float *y,
                       size_t y_stride) {
    __mmask16 there = lanes(n_features);
    __m512 more = bias ? _mm512_maskz_loadu_ps(there, bias) : _mm512_setzero_ps();
    UNROLL(16)
    for (int i = 0; i < 16; i++) {
        if (i >= n_rows) break;
        __m512 value = _mm512_add_ps(rows[i], more);
        if (add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(there, y + (size_t)i * y_stride));
        _mm512_mask_storeu_ps(y + (size_t)i * y_stride, there, value);
    }
}

#endif
