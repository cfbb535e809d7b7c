// cpu/int8_block.h: rows of activations in int8, in superblocks of 256 elements, for the integer kernels, whose weights
// cpu/int8_weights.h reads.
//
// A row is quantised once, with one scale for 32 elements; the error of an element is at most half of 1/127 of the
// largest. The offset or minimum of the weights' type is subtracted with the help of the activations' sums, or from the
// bytes, which are then signed. Scales are applied once for 16 or 32 elements, in f32.
#ifndef QUILL_INT8_BLOCK_H
#define QUILL_INT8_BLOCK_H

#include "cpu/int8_weights.h"

// x is about scale q. Sums are those of the stored q, times their scale.
typedef struct {
    int8_t q[SUPERBLOCK];
    float scale[8], sum[8]; // for each 32 elements
    float sum16[16];        // for each 16 elements
} Int8Activations;

// A block of 32 whose magnitudes are all up to this becomes zeros, since 127 / largest might be infinite.
#define INT8_TINY 0x1p-120f

static size_t superblocks_of(int n_in) { return ((size_t)n_in + SUPERBLOCK - 1) / SUPERBLOCK; }

// The largest magnitude of 32 elements; NaN if one of them is.
static float largest32(const float *x);
// Quantises 32 elements: q is x times `inverse`, rounded to the nearest integer. sum: of the first and the last 16 q.
static void quantize32(const float *x, float inverse, int8_t q[32], int sum[2]);

// Quantises a row. n_in is a multiple of 32; missing blocks of the last superblock are zero.
INLINE void quantize_row(const float *x, int n_in, Int8Activations *a) {
    for (int i = 0; i < n_in; i += SUPERBLOCK, a++) {
        if (n_in - i < SUPERBLOCK) memset(a, 0, sizeof *a);
        for (int b = 0; b < 8 && i + 32 * b < n_in; b++) {
            float largest = largest32(x + i + 32 * b), scale = largest / 127;
            int sum[2];
            quantize32(x + i + 32 * b, largest > INT8_TINY ? 127 / largest : 0, a->q + 32 * b, sum);
            a->scale[b] = scale;
            for (int half = 0; half < 2; half++) a->sum16[2 * b + half] = scale * (float)sum[half];
            a->sum[b] = a->sum16[2 * b] + a->sum16[2 * b + 1];
        }
    }
}

// MatrixKernel.pack for tiles of one row.
INLINE void pack_quantized(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    (void)x_stride;
    (void)n_rows;
    quantize_row(x, n_in, (Int8Activations *)packed + (size_t)tile * superblocks_of(n_in));
}

#if QUILL_SIMD == 256
static float largest32(const float *x) {
    vf tops = {0};
    for (int i = 0; i < NV; i++) tops = vlargest(tops, vload(x + VL * i));
    return vlargest_of(tops);
}
static void quantize32(const float *x, float inverse, int8_t q[32], int sum[2]) {
    for (int half = 0; half < 2; half++) {
        __m256i v[2];
        for (int i = 0; i < 2; i++) // to nearest, ties to even
            v[i] = _mm256_cvtps_epi32((__m256)(vload(x + 16 * half + VL * i) * inverse));
        vi pairs = (vi)_mm256_add_epi32(v[0], v[1]);
        sum[half] = 0;
        for (int i = 0; i < VL; i++) sum[half] += pairs[i];
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v[0], v[1]), 0xd8);
        __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(void *)(q + 16 * half), bytes);
    }
}
#else
static float largest32(const float *x) { return vlargest_of(vlargest(vlargest((vf){0}, vload(x)), vload(x + VL))); }
static void quantize32(const float *x, float inverse, int8_t q[32], int sum[2]) {
    for (int half = 0; half < 2; half++) {
        __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * half), _mm512_set1_ps(inverse));
        __m512i whole = _mm512_cvtps_epi32(scaled); // to nearest, ties to even
        _mm_storeu_si128((__m128i *)(void *)(q + 16 * half), _mm512_cvtsepi32_epi8(whole));
        sum[half] = _mm512_reduce_add_epi32(whole);
    }
}
#endif

#endif
