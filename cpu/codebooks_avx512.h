// cpu/codebooks_avx512.h: unpacks 256 weights of a codebook or ternary type (cpu/codebooks.h) to unsigned bytes, with
// AVX-512.
//
// It works without gathers. An IQ3 entry is a word of four codes of four bits; 32 entries are looked up at once with
// permutations of 64 words, as many as the codebook needs. The codes are spread to bytes, the sign is added as one more
// bit, and the byte is looked up among the type's levels. IQ1 and IQ2 read their entries from tables of bytes.
#ifndef QUILL_CODEBOOKS_AVX512_H
#define QUILL_CODEBOOKS_AVX512_H

#include "cpu/codebooks.h"

// Looks up 32 indices in a codebook of n = 64 2^k entries.
INLINE __m512i book_look_up(const uint16_t *codes, int n, __m512i index) {
    __m512i found[32];
    UNROLL(32)
    for (int i = 0; i < n / 64; i++)
        found[i] =
            _mm512_permutex2var_epi16(_mm512_load_si512(codes + 64 * i), index, _mm512_load_si512(codes + 64 * i + 32));
    UNROLL(6)
    for (int bit = 64; bit < n; bit *= 2) {
        __mmask32 set = _mm512_test_epi16_mask(index, _mm512_set1_epi16((short)bit));
        UNROLL(32)
        for (int i = 0; i < n / bit / 2; i++) found[i] = _mm512_mask_blend_epi16(set, found[2 * i], found[2 * i + 1]);
    }
    return found[0];
}

// Combines the low byte of each word of `low` with the high byte of each word of `high`, masked.
INLINE __m512i two_bytes(__m512i low, __m512i high, int mask) {
    __m512i v =
        _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi16(0xff), 0xe4); // the bits of the third operand select
    return _mm512_and_si512(v, _mm512_set1_epi8((char)mask));
}

// Spreads the codes of entries 16 i to 16 i + 15 (of 32) to bytes.
INLINE __m512i spread_fours(__m512i entries, int i) {
    __m512i each = _mm512_setr_epi32(0, 0x10001, 0x20002, 0x30003, 0x40004, 0x50005, 0x60006, 0x70007, 0x80008, 0x90009,
                                     0xa000a, 0xb000b, 0xc000c, 0xd000d, 0xe000e, 0xf000f);
    __m512i v = _mm512_permutexvar_epi16(_mm512_add_epi16(each, _mm512_set1_epi16((short)(16 * i))), entries);
    v = _mm512_srlv_epi16(v, _mm512_set1_epi32(0x00080000));
    return two_bytes(v, _mm512_slli_epi16(v, 4), 15);
}

INLINE __m512i words_of(const uint8_t bytes[32]) { return _mm512_cvtepu8_epi16(q_load(bytes)); }
INLINE uint64_t signs_of_64(const SuperblockScales *c, int i) {
    uint64_t signs;
    memcpy(&signs, c->signs + 2 * i, sizeof signs);
    return signs;
}

// The indices of 32 entries in their codebook; for IQ1, `minus` marks entries whose 1/8 is subtracted.
INLINE __m512i index_iq2_s(const BlockIQ2_S *k) {
    uint64_t packed;
    memcpy(&packed, k->qh, sizeof packed);
    const __m512i each =
        _mm512_setr_epi64((long long)0x8000800080008000, (long long)0x8001800180018001, (long long)0x8002800280028002,
                          (long long)0x8003800380038003, (long long)0x8004800480048004, (long long)0x8005800580058005,
                          (long long)0x8006800680068006, (long long)0x8007800780078007);
    __m512i high = _mm512_shuffle_epi8(_mm512_set1_epi64((long long)packed), each);
    high = _mm512_sllv_epi16(high, _mm512_set1_epi64(0x0002000400060008));
    return _mm512_ternarylogic_epi32(words_of(k->qs), high, _mm512_set1_epi16(0x300), 0xf8); // a | b & c
}
INLINE __m512i index_iq1_s(const BlockIQ1_S *k, __mmask32 *minus) {
    const __m512i each =
        _mm512_setr_epi64(0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706,
                          0x0908090809080908, 0x0b0a0b0a0b0a0b0a, 0x0d0c0d0c0d0c0d0c, 0x0f0e0f0e0f0e0f0e);
    __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)k->qh));
    both = _mm512_shuffle_epi8(both, each);
    *minus = _mm512_movepi16_mask(both);
    __m512i high = _mm512_slli_epi16(_mm512_srlv_epi16(both, _mm512_set1_epi64(0x0009000600030000)), 8);
    return _mm512_ternarylogic_epi32(words_of(k->qs), high, _mm512_set1_epi16(0x700), 0xf8);
}
INLINE __m512i index_iq1_m(const BlockIQ1_M *k, __mmask32 *minus) {
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)k->qh));
    v = _mm512_or_si512(v, _mm512_slli_epi32(v, 12)); // each word has its nibble lowest; higher bits are masked later
    *minus = _mm512_test_epi16_mask(v, _mm512_set1_epi16(8));
    return _mm512_ternarylogic_epi32(words_of(k->qs), _mm512_slli_epi16(v, 8), _mm512_set1_epi16(0x700), 0xf8);
}

// Reads the bytes of eight entries from a table.
INLINE __m512i book_eights(const uint64_t *book, const uint16_t at[8]) {
    return _mm512_setr_epi64((long long)book[at[0]], (long long)book[at[1]], (long long)book[at[2]],
                             (long long)book[at[3]], (long long)book[at[4]], (long long)book[at[5]],
                             (long long)book[at[6]], (long long)book[at[7]]);
}

INLINE void book_iq1(int type, const void *block, int offset, __m512i u[4]) {
    uint16_t at[32] LINE_ALIGNED;
    __mmask32 minus;
    _mm512_store_si512(at, type == TYPE_IQ1_S ? index_iq1_s(block, &minus) : index_iq1_m(block, &minus));
    const __m512i above = _mm512_set1_epi8((char)(offset + 1)), below = _mm512_set1_epi8((char)(offset - 1));
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i to_add = _mm512_mask_blend_epi64((__mmask8)(minus >> 8 * i), above, below);
        u[i] = _mm512_add_epi8(book_eights(codebooks_iq1, at + 8 * i), to_add);
    }
}

// The index of entry e (0..31) in its codebook; for IQ2_S `at` has it.
INLINE unsigned entry_iq2(int type, const void *block, const uint16_t at[32], int e) {
    if (type == TYPE_IQ2_S) return at[e];
    if (type == TYPE_IQ2_XS) return ((const BlockIQ2_XS *)block)->qs[e] & 511;
    return ((const uint8_t *)((const BlockIQ2_XXS *)block)->qs)[e / 4 * 8 + e % 4];
}

INLINE void book_iq2(int type, const void *block, const SuperblockScales *c, int offset, __m512i u[4]) {
    const uint64_t *book = type == TYPE_IQ2_XXS  ? codebooks_iq2_xxs
                           : type == TYPE_IQ2_XS ? codebooks_iq2_xs
                                                 : codebooks_iq2_s;
    uint16_t at[32] LINE_ALIGNED;
    if (type == TYPE_IQ2_S) _mm512_store_si512(at, index_iq2_s(block));
    const __m512i middle = _mm512_set1_epi8((char)offset);
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        uint16_t eight[8];
        UNROLL(8)
        for (int k = 0; k < 8; k++) eight[k] = (uint16_t)entry_iq2(type, block, at, 8 * i + k);
        __m512i v = book_eights(book, eight);
        u[i] = _mm512_mask_sub_epi8(_mm512_add_epi8(middle, v), signs_of_64(c, i), middle, v);
    }
}

// The levels of IQ3's codes 0 to 7, and their negatives, all plus `offset`.
INLINE __m512i iq3_levels(int type, int offset) {
    const __m128i xxs = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62);
    const __m128i odd = _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15);
    __m512i levels = _mm512_broadcast_i32x4(type == TYPE_IQ3_XXS ? xxs : odd);
    return _mm512_add_epi8(levels, _mm512_set1_epi8((char)offset));
}

INLINE void book_iq3(int type, const void *block, const SuperblockScales *c, int offset, __m512i u[4]) {
    const BlockIQ3_S *s = block;
    __m512i entries[2];
    const __m512i levels = iq3_levels(type, offset);
    UNROLL(2)
    for (int i = 0; i < 2; i++) {
        if (type == TYPE_IQ3_XXS) {
            __m512i index = words_of(((const BlockIQ3_XXS *)block)->qs + 32 * i);
            entries[i] = book_look_up(codebooks_iq3_xxs_codes, 256, index);
        } else {
            uint32_t ninth;
            memcpy(&ninth, s->qh + 4 * i, sizeof ninth);
            __m512i index = words_of(s->qs + 32 * i);
            index = _mm512_mask_add_epi16(index, ninth, index, _mm512_set1_epi16(256));
            entries[i] = book_look_up(codebooks_iq3_s_codes, 512, index);
        }
    }
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i v = spread_fours(entries[i / 2], i % 2);
        v = _mm512_mask_add_epi8(v, signs_of_64(c, i), v, _mm512_set1_epi8(8));
        u[i] = _mm512_shuffle_epi8(levels, v);
    }
}

// Multiplies both bytes of each word by `by` and returns the leading digit of each product to the base of three.
INLINE __m512i digits_times(__m512i v, __m512i by) {
    __m512i odd = _mm512_slli_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(v, 8), by), 8);
    v = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, _mm512_mullo_epi16(v, by), odd);
    __mmask64 one = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(86)),
              two = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8((char)171));
    v = _mm512_maskz_set1_epi8(one, 1);
    return _mm512_mask_add_epi8(v, two, v, v);
}
INLINE __m512i words4(int a, int b, int c, int d) { // 16 bytes of each
    __m512i v = _mm512_mask_set1_epi16(_mm512_set1_epi16((short)a), 0xff00, (short)b);
    return _mm512_mask_set1_epi16(_mm512_mask_set1_epi16(v, 0xff0000, (short)c), 0xff000000, (short)d);
}
INLINE void book_tq1(const BlockTQ1_0 *k, __m512i u[4]) {
    __m512i v = _mm512_broadcast_i64x4(q_load(k->qs));
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(k->qs + 32));
    int last;
    memcpy(&last, k->qh, sizeof last);
    __m512i halves = _mm512_broadcast_i32x4(half);
    u[0] = digits_times(v, words4(1, 1, 3, 3));
    u[1] = digits_times(v, words4(9, 9, 27, 27));
    u[2] = digits_times(_mm512_mask_blend_epi64(0xf0, v, halves), words4(81, 81, 1, 3));
    const __m512i by =
        _mm512_setr_epi64(0x0009000900090009, 0x0009000900090009, 0x001b001b001b001b, 0x001b001b001b001b,
                          0x0051005100510051, 0x0051005100510051, 0x0003000300010001, 0x001b001b00090009);
    u[3] = digits_times(_mm512_mask_set1_epi32(halves, 0xf000, last), by);
}
INLINE void book_tq2(const BlockTQ2_0 *k, __m512i u[4]) {
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i v = _mm512_broadcast_i64x4(q_load(k->qs + i / 2 * 32)), shift = words4(0, 0, 2, 2);
        v = _mm512_srlv_epi16(v, _mm512_add_epi16(shift, _mm512_set1_epi16((short)(i % 2 * 4))));
        u[i] = _mm512_and_si512(v, _mm512_set1_epi8(3));
    }
}

// The weights of a superblock as bytes, plus `offset`; c: its scales, from scales_book. For the ternary types the bytes
// are plus 1, whatever `offset` is.
INLINE void book_bytes_of(int type, const void *block, const SuperblockScales *c, int offset, __m512i u[4]) {
    switch (type) {
    case TYPE_IQ1_S:
    case TYPE_IQ1_M: book_iq1(type, block, offset, u); break;
    case TYPE_IQ2_XXS:
    case TYPE_IQ2_XS:
    case TYPE_IQ2_S: book_iq2(type, block, c, offset, u); break;
    case TYPE_IQ3_XXS:
    case TYPE_IQ3_S: book_iq3(type, block, c, offset, u); break;
    case TYPE_TQ1_0: book_tq1(block, u); break;
    default: book_tq2(block, u);
    }
}

#endif
