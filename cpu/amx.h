// cpu/amx.h: shared by the kernels for the AMX unit: tiles, conversion to bf16, transposing 16 x 16 blocks.
//
// A unit tile has 16 rows of 64 bytes. A product adds to 16 x 16 f32 sums. The left operand has rows of 32 bf16
// elements. Row p of the right operand holds elements 2p and 2p + 1 of its 16 columns side by side ("pairs"). With
// int8, rows hold four elements of each column, and the sums are integers.
#ifndef QUILL_AMX_H
#define QUILL_AMX_H

#include "cpu/bf16_pairs.h"
#include "cpu/transpose16.h"
#include "base/base.h"

enum {
    STEP = 32,      // depth of one product
    UNIT = 16 * 32, // bf16 elements of a unit tile
};

// Sets the shape of each of the eight tiles: its rows, and the bytes of a row.
static inline void tiles_shape(const uint8_t rows[8], const uint8_t bytes[8]) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = bytes[i];
        config.rows[i] = rows[i];
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); // the intrinsic tells the compiler that it reads only eight bytes
    _tile_loadconfig(&config);
}

// A barrier after plain stores: gcc does not know that tile loads read memory.
INLINE void tiles_filled(void) { __asm__ volatile("" ::: "memory"); }

// N, the tile's number, must be a constant. STREAMS: loads without filling L1.
#define TILE_LOAD(N, FROM, STREAMS)                                                                                    \
    do {                                                                                                               \
        if (STREAMS) _tile_stream_loadd(N, FROM, 64);                                                                  \
        else _tile_loadd(N, FROM, 64);                                                                                 \
    } while (0)

// Tiles 0 to 3 are sums of 16 x 16. Tiles 4 and 5 are left operands: 16 rows of `depth` bytes. Tiles 6 and 7 are right
// operands: depth / 4 rows.
static inline void tiles_configure(int depth) {
    uint8_t left = (uint8_t)depth, right = (uint8_t)(depth / 4);
    tiles_shape((uint8_t[8]){16, 16, 16, 16, 16, 16, right, right}, (uint8_t[8]){64, 64, 64, 64, left, left, 64, 64});
}

// Sums are tiles 0 to 3: the left operand's first 16 rows by the right operand's first 16 columns, and by its second
// 16; then the left operand's second 16 rows likewise. In memory they are consecutive, 256 floats each.
INLINE void zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void load_sums(const float *sums, bool streams) {
    TILE_LOAD(0, sums, streams);
    TILE_LOAD(1, sums + 256, streams);
    TILE_LOAD(2, sums + 512, streams);
    TILE_LOAD(3, sums + 768, streams);
}

INLINE void store_sums(float *sums) {
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    _tile_stored(2, sums + 512, 64);
    _tile_stored(3, sums + 768, 64);
}

INLINE void load_left(const uint16_t *left, bool streams) {
    TILE_LOAD(4, left, streams);
    TILE_LOAD(5, left + UNIT, streams);
}

INLINE void load_right(const uint16_t *right, bool streams) {
    TILE_LOAD(6, right, streams);
    TILE_LOAD(7, right + UNIT, streams);
}

INLINE void multiply_loaded(int halves) {
    _tile_dpbf16ps(0, 4, 6);
    if (halves == 2) _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    if (halves == 2) _tile_dpbf16ps(3, 5, 7);
}

// Sums += two unit tiles of the left operand times `halves` (1 or 2) unit tiles of the right one. left_streams,
// right_streams: load without filling L1. Loads of both operands alternate, since a second L1 miss in a row would wait.
INLINE void multiply_units(const uint16_t *left, bool left_streams, const uint16_t *right, bool right_streams,
                           int halves) {
    TILE_LOAD(4, left, left_streams);
    TILE_LOAD(6, right, right_streams);
    TILE_LOAD(5, left + UNIT, left_streams);
    if (halves == 2) TILE_LOAD(7, right + UNIT, right_streams);
    multiply_loaded(halves);
}

INLINE void store_bf16(uint16_t *out, __m512 a, __m512 b) { // 32 floats
    _mm512_storeu_si512(out, round_32(a, b));
}

// (a[0], b[0]), (a[1], b[1]), ... truncated to bf16 with integer operations, which run on more ports than conversions;
// conversions also wait for the AMX unit while it multiplies.
INLINE __m512i cut_pairs(__m512i a, __m512i b) {
    const __mmask32 second = 0xaaaaaaaa; // the second element of each pair
    return _mm512_mask_blend_epi16(second, _mm512_srli_epi32(a, 16), b);
}

// The same, rounded to nearest (halfway cases away from zero).
INLINE __m512i round_pairs(__m512 a, __m512 b) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    return cut_pairs(_mm512_add_epi32(_mm512_castps_si512(a), half), _mm512_add_epi32(_mm512_castps_si512(b), half));
}

// Elements [i, i + 16) of a head in f16 or bf16, zero from head_dim on.
INLINE __m512 load_half(const uint16_t *head, int type, int i, int head_dim) {
    __m256i half = _mm256_maskz_loadu_epi16(lanes(head_dim - i), head + i);
    if (type == TYPE_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

#define LOG2_E 1.44269504f
// 2^x with a relative error of 2e-7; 0 for masked scores.
INLINE vf exp2_of(vf x) {
    vf n = (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = x - n;
    vf p = f * 1.3333558e-3f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    return (vf)_mm512_scalef_ps((__m512)(p * f + 1.0f), (__m512)n);
}

#endif
