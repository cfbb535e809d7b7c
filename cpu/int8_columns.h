// cpu/int8_columns.h: activations in int8 for cpu/int8_panels.c: sixteen rows side by side, one in each lane.
//
// The blocks, their scales and their sums are those of Int8Activations (cpu/int8_block.h).
#ifndef QUILL_CPU_INT8_COLUMNS_H
#define QUILL_CPU_INT8_COLUMNS_H

#include "cpu/int8_block.h"
#include "cpu/panels.h"

// Whether each row has two neighbouring lanes: if the rows of a product are at most eight. Such rows are the only tile.
static bool columns_twice(int tile, int n_rows) { return tile == 0 && n_rows <= LANES / 2; }

// 256 elements of sixteen rows, column by column. x is about scale q. Sums are those of q, times their scale.
typedef struct {
    int8_t q[8][8][LANES][4]; // (block of 32, four elements, row, element)
    float scale[8][LANES], sum[8][LANES], sum16[16][LANES];
    int32_t less16[16][LANES]; // the sum of 16 q, negated
} ActivationColumns;

// Quantises 32 elements of sixteen rows, block b of a superblock: v[element] has a row in each lane.
INLINE void quantize_columns(const __m512 v[32], ActivationColumns *to, int b) {
    __m512i top = _mm512_setzero_si512(); // bits of absolute values compare like the values, and NaN is above all
    for (int i = 0; i < 32; i++)
        top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
    __m512 largest = _mm512_castsi512_ps(top), scale = _mm512_div_ps(largest, _mm512_set1_ps(127));
    __m512 inverse = _mm512_maskz_div_ps(_mm512_cmp_ps_mask(largest, _mm512_set1_ps(INT8_TINY), _CMP_NLE_UQ),
                                         _mm512_set1_ps(127), largest);
    _mm512_storeu_ps(to->scale[b], scale);
    __m512 sum32 = _mm512_setzero_ps();
    for (int half = 0; half < 2; half++) {
        __m512i sum = _mm512_setzero_si512();
        UNROLL(4)
        for (int k = 4 * half; k < 4 * half + 4; k++) {
            __m512i q[4];
            UNROLL(4)
            for (int i = 0; i < 4; i++) q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v[4 * k + i], inverse)); // ties to even
            sum = _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_add_epi32(q[0], q[1]), _mm512_add_epi32(q[2], q[3])));
            const __m512i low = _mm512_set1_epi32(0xff), low2 = _mm512_set1_epi32(0xffff);
            __m512i first =
                _mm512_ternarylogic_epi32(low, q[0], _mm512_slli_epi32(q[1], 8), 0xca); // low ? q0 : q1 << 8
            __m512i second = _mm512_ternarylogic_epi32(low, q[2], _mm512_slli_epi32(q[3], 8), 0xca);
            _mm512_storeu_si512(to->q[b][k],
                                _mm512_ternarylogic_epi32(low2, first, _mm512_slli_epi32(second, 16), 0xca));
        }
        __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
        _mm512_storeu_ps(to->sum16[2 * b + half], scaled);
        _mm512_storeu_si512(to->less16[2 * b + half], _mm512_sub_epi32(_mm512_setzero_si512(), sum));
        sum32 = _mm512_add_ps(sum32, scaled);
    }
    _mm512_storeu_ps(to->sum[b], sum32);
}

// The blocks of a superblock from `b` on become zero.
static void clear_columns(ActivationColumns *to, int b) {
    for (__m512 zero[32] = {{0}}; b < 8; b++) quantize_columns(zero, to, b);
}

static size_t columns_bytes(int n_rows, int n_in) {
    return round_up((size_t)n_rows, LANES) / LANES * superblocks_of(n_in) * sizeof(ActivationColumns);
}

// MatrixKernel.pack
static void pack_columns(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    ActivationColumns *to = (ActivationColumns *)packed + (size_t)tile * superblocks_of(n_in);
    const bool twice = columns_twice(tile, n_rows);
    for (int i = 0; i < n_in; i += 32) {
        __m512 v[32];
        for (int half = 0; half < 32; half += 16) {
            UNROLL(16)
            for (int lane = 0; lane < LANES; lane++) {
                int r = lane >> twice;
                v[half + lane] =
                    r < n_rows ? _mm512_loadu_ps(x + (size_t)r * x_stride + i + half) : _mm512_setzero_ps();
            }
            transpose16(v + half);
        }
        quantize_columns(v, to + i / SUPERBLOCK, i % SUPERBLOCK / 32);
    }
    if (n_in % SUPERBLOCK) clear_columns(to + n_in / SUPERBLOCK, n_in % SUPERBLOCK / 32);
}

#endif
