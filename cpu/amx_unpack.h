// cpu/amx_unpack.h: 256 weights of any quantised type as bf16, the left operand of the matrix unit.
//
// With finite scales the results are those of cpu/unpack.h, rounded to bf16; only a zero may have the other sign.
// - Types of four bits: the sixteen weights that a block can have are computed and rounded, those of two blocks in one
//   register of 32 bf16. Nibbles select from it.
// - Other types: a permutation puts a byte u into the mantissa of a power of two. This gives the float power + u. One
//   instruction computes (power + u) * scale - (power + offset) * scale, which is (u - offset) * scale. It rounds once,
//   since the second product is exact: power + offset has few bits. A minimum would have too many bits beside such a
//   product, so types with a minimum subtract the power first.
#ifndef QUILL_AMX_UNPACK_H
#define QUILL_AMX_UNPACK_H

#include "cpu/bf16_pairs.h"
#include "cpu/int8_weights.h"

#include <stddef.h>

// Where 256 weights go: eight blocks of 32, each `apart` elements from the one before.
typedef struct {
    uint16_t *at;
    size_t apart;
} Bf16Blocks;

INLINE void put_block(Bf16Blocks to, int b, __m512i weights) {
    _mm512_storeu_si512(to.at + (size_t)b * to.apart, weights);
}

// Sixteen floats in memory, from where a load broadcasts each of them. gcc would take them from the register instead,
// with three permutations each.
typedef struct {
    _Alignas(64) float of[16];
} Factors;

INLINE void put_factors(Factors *f, __m512 v) {
    _mm512_store_ps(f->of, v);
    __asm__("" : "+m"(*f));
}

// ---- types of four bits ---------------------------------------------------------------------------------------------

INLINE bool has_nibbles(int type) {
    return type == TYPE_Q4_0 || type == TYPE_Q4_1 || type == TYPE_Q4_K || type == TYPE_IQ4_NL || type == TYPE_IQ4_XS ||
           type == TYPE_MXFP4;
}

// The scales of eight blocks, then their minima.
INLINE __m512 nibble_scales(int type, const uint8_t *from) {
    int stride = (int)superblock_bytes(type) / 8;
    __m256 d;
    if (type == TYPE_Q4_K) return scales_k4_m(from);
    if (type == TYPE_Q4_1) return _mm512_cvtph_ps(heads(from, stride, 1));
    if (type == TYPE_IQ4_XS) d = scales_iq4_xs((const BlockIQ4_XS *)(const void *)from);
    else if (type == TYPE_MXFP4) d = mxfp4_scales(from);
    else d = _mm256_cvtph_ps(_mm256_castsi256_si128(heads(from, stride, 0)));
    return join(d, d);
}

// The weights that a block can have.
INLINE __m512 block_levels(int type, float scale, float minimum) {
    const vf whole = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vf iq4 = {IQ4_VALUES}, mxfp4 = {MXFP4_VALUES};
    __m512 d = _mm512_set1_ps(scale), m = _mm512_set1_ps(minimum);
    if (type == TYPE_Q4_K) return _mm512_fmsub_ps((__m512)whole, d, m);
    if (type == TYPE_Q4_1) return _mm512_fmadd_ps((__m512)whole, d, m);
    return _mm512_mul_ps((__m512)(type == TYPE_Q4_0 ? whole - 8.0f : type == TYPE_MXFP4 ? mxfp4 : iq4), d);
}

// The nibbles of 16 bytes as words, the low ones first. The low ones have the high ones above them.
INLINE __m512i nibble_words(const uint8_t *p) {
    const __m512i to_words = _mm512_set4_epi64((long long)0x800f800e800d800c, (long long)0x800b800a80098008,
                                               (long long)0x8007800680058004, (long long)0x8003800280018000);
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    __m512i twice = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_srlv_epi16(_mm512_shuffle_epi8(twice, to_words), shift);
}

// The nibbles of blocks b and b + 1 as words, with other bits above them.
INLINE void nibbles_of_two(int type, const uint8_t *from, int b, __m512i nibbles[2]) {
    if (type == TYPE_Q4_K) { // the low nibbles of 32 bytes are a block, and the high ones the next
        const uint8_t *both = from + offsetof(BlockQ4_K, qs) + 16 * b;
        nibbles[0] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)both));
        nibbles[1] = _mm512_srli_epi16(nibbles[0], 4);
        return;
    }
    size_t apart = type == TYPE_IQ4_XS ? 16 : superblock_bytes(type) / 8;
    // The nibbles are the end of a small block.
    const uint8_t *first = from + (type == TYPE_IQ4_XS ? offsetof(BlockIQ4_XS, qs) : apart - 16) + (size_t)b * apart;
    nibbles[0] = nibble_words(first);
    nibbles[1] = nibble_words(first + apart);
}

INLINE void unpack_nibbles(int type, const uint8_t *from, Bf16Blocks to) {
    const __m512i four_bits = _mm512_set1_epi16(15), second = _mm512_set1_epi16(16); // half of the table
    Factors f;
    put_factors(&f, nibble_scales(type, from));
    UNROLL(4)
    for (int b = 0; b < 8; b += 2) {
        __m512i at[2],
            table = round_32(block_levels(type, f.of[b], f.of[8 + b]), block_levels(type, f.of[b + 1], f.of[9 + b]));
        nibbles_of_two(type, from, b, at);
        at[0] = _mm512_and_si512(at[0], four_bits);
        at[1] = _mm512_ternarylogic_epi32(at[1], four_bits, second, 0xea); // a & b | c
        put_block(to, b, _mm512_permutexvar_epi16(at[0], table));
        put_block(to, b + 1, _mm512_permutexvar_epi16(at[1], table));
    }
}

// ---- other types ----------------------------------------------------------------------------------------------------

// The power of two whose mantissa receives a type's bytes. 2^15 has room for bytes of eight bits, 2^7 for seven.
INLINE float byte_power(int type) { return type == TYPE_Q8_0 ? 0x1p15f : 0x1p7f; }

// The power plus bytes 16 i to 16 i + 15 of u.
INLINE __m512 power_plus_bytes(int type, __m512i u, int i) {
    const __m512i first = _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606,
                                            0x07070707, 0x08080808, 0x09090909, 0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c,
                                            0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f);
    const __mmask64 place = type == TYPE_Q8_0 ? 0x2222222222222222 : 0x4444444444444444; // bits 8..15 or 16..23
    __m512i power = _mm512_castps_si512(_mm512_set1_ps(byte_power(type)));
    __m512i at = _mm512_add_epi8(first, bytes(16 * i));
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(power, place, at, u));
}

INLINE void unpack_bytes(int type, const uint8_t *from, Bf16Blocks to) {
    const __m512 power = _mm512_set1_ps(byte_power(type));
    const bool minimum = type_has_minimum(type);
    Int8Weights w;
    load_weights(type, from, &w);
    Factors scale, less; // what is subtracted, or added (Q4_1, Q5_1): minima, or the scales times power and offset
    put_factors(&scale, w.scale);
    if (type == TYPE_Q2_K) put_factors(&less, w.by_sum16);
    else if (minimum) put_factors(&less, _mm512_shuffle_f32x4(w.scale, w.scale, 0xee)); // the second eight
    else put_factors(&less, _mm512_mul_ps(w.scale, _mm512_set1_ps(byte_power(type) + (float)byte_offset(type))));
    UNROLL(8)
    for (int b = 0; b < 8; b++) {
        __m512 v[2];
        UNROLL(2)
        for (int half = 0; half < 2; half++) {
            int part = scales_16(type) ? 2 * b + half : b;
            __m512 u = power_plus_bytes(type, w.u[b / 2], b % 2 * 2 + half), s = _mm512_set1_ps(scale.of[part]);
            __m512 m = _mm512_set1_ps(less.of[part]);
            if (minimum) u = _mm512_sub_ps(u, power);
            v[half] = sum_factor(type) > 0 ? _mm512_fmadd_ps(u, s, m) : _mm512_fmsub_ps(u, s, m);
        }
        put_block(to, b, round_32(v[0], v[1]));
    }
}

// Whether the next function knows the type.
INLINE bool is_quantised(int type) {
#define QUANTISED_CASE(TYPE) case TYPE:
    switch (type) {
        EACH_QUANTISED(QUANTISED_CASE)
        return true;
    default: return false;
    }
}

// Unpacks 256 weights of a row.
INLINE void superblock_to_bf16(int type, const uint8_t *from, Bf16Blocks to) {
    if (has_nibbles(type)) unpack_nibbles(type, from, to);
    else unpack_bytes(type, from, to);
}

#endif
