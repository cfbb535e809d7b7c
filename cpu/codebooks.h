// cpu/codebooks.h: unpacks 32 weights of the codebook types (IQ1, IQ2, IQ3) and the ternary types (TQ) to signed bytes.
//
// An entry's eight elements, or four, are read as one number from a table of bytes; a table has 1 to 16 KB and stays in
// L1. IQ1 is stored as 8 times its values, so that grid +- 1/8 is a whole number. The bytes range from -9 to 9 (IQ1),
// -43 to 43 (IQ2), -62 to 62 (IQ3_XXS), -15 to 15 (IQ3_S) and -1 to 2 (TQ; quill never writes 2). The scalar functions
// of formats/types.c are the specification.
#ifndef QUILL_CPU_CODEBOOKS_H
#define QUILL_CPU_CODEBOOKS_H

#include "cpu/q32.h"
#include "formats/types.h"

#include <stdbool.h>

extern const uint64_t codebooks_iq2_xxs[256], codebooks_iq2_xs[512], codebooks_iq2_s[1024], codebooks_iq1[2048];
extern const uint32_t codebooks_iq3_xxs[256], codebooks_iq3_s[512];
// IQ3's entries in the form of formats/codebooks.h, for AVX-512 (cpu/codebooks_avx512.h); 64-byte aligned.
#define LINE_ALIGNED __attribute__((aligned(64)))
extern const uint16_t codebooks_iq3_xxs_codes[256] LINE_ALIGNED, codebooks_iq3_s_codes[512] LINE_ALIGNED;

// Whether it is a codebook or ternary type.
INLINE bool is_book(int type) {
    switch (type) {
    case TYPE_IQ1_S:
    case TYPE_IQ1_M:
    case TYPE_IQ2_XXS:
    case TYPE_IQ2_XS:
    case TYPE_IQ2_S:
    case TYPE_IQ3_XXS:
    case TYPE_IQ3_S:
    case TYPE_TQ1_0:
    case TYPE_TQ2_0: return true;
    default: return false;
    }
}

INLINE bool book_scales_16(int type) { return type == TYPE_IQ1_M || type == TYPE_IQ2_XS || type == TYPE_IQ2_S; }

INLINE size_t book_bytes(int type) {
    switch (type) {
    case TYPE_IQ1_S: return sizeof(BlockIQ1_S);
    case TYPE_IQ1_M: return sizeof(BlockIQ1_M);
    case TYPE_IQ2_XXS: return sizeof(BlockIQ2_XXS);
    case TYPE_IQ2_XS: return sizeof(BlockIQ2_XS);
    case TYPE_IQ2_S: return sizeof(BlockIQ2_S);
    case TYPE_IQ3_XXS: return sizeof(BlockIQ3_XXS);
    case TYPE_IQ3_S: return sizeof(BlockIQ3_S);
    case TYPE_TQ1_0: return sizeof(BlockTQ1_0);
    default: return sizeof(BlockTQ2_0);
    }
}

// ---- lookups, signs and digits --------------------------------------------------------------------------------------

#if QUILL_SIMD
INLINE q32 q_eights(const uint64_t *book, unsigned a, unsigned b, unsigned c, unsigned d) {
    return _mm256_setr_epi64x((long long)book[a], (long long)book[b], (long long)book[c], (long long)book[d]);
}
INLINE q32 q_fours(const uint32_t *book, const uint8_t e[8]) {
    return _mm256_setr_epi32((int)book[e[0]], (int)book[e[1]], (int)book[e[2]], (int)book[e[3]], (int)book[e[4]],
                             (int)book[e[5]], (int)book[e[6]], (int)book[e[7]]);
}
INLINE q32 q_fours_ninth(const uint32_t *book, const uint8_t e[8], unsigned ninth) { // ninth: one bit for each entry
    return _mm256_setr_epi32((int)book[e[0] | (ninth << 8 & 256)], (int)book[e[1] | (ninth << 7 & 256)],
                             (int)book[e[2] | (ninth << 6 & 256)], (int)book[e[3] | (ninth << 5 & 256)],
                             (int)book[e[4] | (ninth << 4 & 256)], (int)book[e[5] | (ninth << 3 & 256)],
                             (int)book[e[6] | (ninth << 2 & 256)], (int)book[e[7] | (ninth << 1 & 256)]);
}
// Negates the elements whose bit of `signs` is set.
INLINE q32 q_negated(q32 q, uint32_t signs) {
#if QUILL_SIMD == 512
    return _mm256_mask_sub_epi8(q, signs, _mm256_setzero_si256(), q);
#else
    q32 set = q_mask(signs);
    return _mm256_sub_epi8(_mm256_xor_si256(q, set), set);
#endif
}
// For each eight elements: q - 1 if their bit (3, 7, 11, 15) is set, otherwise q + 1.
INLINE q32 q_eighths(q32 q, unsigned bits) {
    const __m256i select = _mm256_setr_epi64x(8, 0x80, 0x800, 0x8000);
    __m256i set = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(bits), select), select);
    return _mm256_add_epi8(q, _mm256_or_si256(set, _mm256_set1_epi8(1)));
}
// Adds four bytes, which are read from memory, to each four elements.
INLINE q32 q_add(q32 q, const uint32_t *four) {
    return _mm256_add_epi8(q, _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)four)));
}
// The leading digit to the base of three of each byte, which is a fraction in units of 1/256, less 128: so signed
// comparisons order the fractions. Odd factors leave the 128 as it is.
INLINE q32 q_leading(q32 v) {
    __m256i one = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(85 - 128)),
            two = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(170 - 128));
    return _mm256_sub_epi8(_mm256_sub_epi8(_mm256_setzero_si256(), one), two);
}
INLINE q32 q_times3(q32 v) { return _mm256_add_epi8(_mm256_add_epi8(v, v), v); }
INLINE q32 q_tq1(const BlockTQ1_0 *k, int j) {
    const __m256i middle = _mm256_set1_epi8(-128);
    q32 v = _mm256_xor_si256(q_load(k->qs), middle);
    if (j < 5) {
        for (int i = 0; i < j; i++) v = q_times3(v);
        return q_leading(v);
    }
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(k->qs + 32));
    int last;
    memcpy(&last, k->qh, sizeof last);
    v = j == 7 ? _mm256_set_m128i(_mm_set1_epi32(last), half) : _mm256_set_m128i(half, half);
    v = _mm256_xor_si256(v, middle);
    // Multiply by 1 and 3, by 9 and 27, or by 81 and the powers for qh; first the even bytes, then the odd bytes.
    const __m256i by =
        j == 5   ? _mm256_setr_epi64x(0x0001000100010001, 0x0001000100010001, 0x0003000300030003, 0x0003000300030003)
        : j == 6 ? _mm256_setr_epi64x(0x0009000900090009, 0x0009000900090009, 0x001b001b001b001b, 0x001b001b001b001b)
                 : _mm256_setr_epi64x(0x0051005100510051, 0x0051005100510051, 0x0003000300010001, 0x001b001b00090009);
    __m256i even = _mm256_and_si256(_mm256_mullo_epi16(v, by), _mm256_set1_epi16(255));
    __m256i odd = _mm256_slli_epi16(_mm256_mullo_epi16(_mm256_srli_epi16(v, 8), by), 8);
    return q_leading(_mm256_or_si256(even, odd));
}
#else
INLINE q32 q_eights(const uint64_t *book, unsigned a, unsigned b, unsigned c, unsigned d) {
    const uint64_t entries[4] = {book[a], book[b], book[c], book[d]};
    return q_load(entries);
}
INLINE q32 q_fours_ninth(const uint32_t *book, const uint8_t e[8], unsigned ninth) {
    uint32_t entries[8];
    for (int i = 0; i < 8; i++) entries[i] = book[e[i] | (ninth >> i & 1) << 8];
    return q_load(entries);
}
INLINE q32 q_fours(const uint32_t *book, const uint8_t e[8]) { return q_fours_ninth(book, e, 0); }
INLINE q32 q_negated(q32 a, uint32_t signs) { Q_EACH(signs >> i & 1 ? -a.v[i] : a.v[i]); }
INLINE q32 q_eighths(q32 a, unsigned bits) { Q_EACH(bits >> (i / 8 * 4 + 3) & 1 ? a.v[i] - 1 : a.v[i] + 1); }
INLINE q32 q_add(q32 a, const uint32_t *four) { Q_EACH(a.v[i] + (int8_t)(*four >> (i % 4 * 8))); }
INLINE q32 q_tq1(const BlockTQ1_0 *k, int j) {
    q32 a;
    Q_EACH(tq1_code(k, 32 * j + i));
}
#endif

// ---- scales ---------------------------------------------------------------------------------------------------------

// Each 32 elements have a word: four groups of seven sign bits, and a scale s above them. Computes d (2 s + 1) and the
// signs.
#if QUILL_SIMD
typedef __m256i SignTails;
INLINE SignTails tails_of(const BlockIQ3_XXS *k) { return q_load(k->tails); }
INLINE SignTails tails_apart(const BlockIQ2_XXS *k) { // every other word of 32 bits
    __m256 low = _mm256_castsi256_ps(q_load(k->qs)), high = _mm256_castsi256_ps(q_load(k->qs + 16));
    return _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd)), 0xd8);
}
INLINE __m256i with_parity(__m256i s) { // sets the eighth bit of each byte so that the number of set bits is even
    __m256i odd = _mm256_xor_si256(s, _mm256_srli_epi32(s, 4));
    odd = _mm256_xor_si256(odd, _mm256_srli_epi32(odd, 2));
    odd = _mm256_xor_si256(odd, _mm256_srli_epi32(odd, 1));
    return _mm256_or_si256(s, _mm256_slli_epi32(_mm256_and_si256(odd, _mm256_set1_epi8(1)), 7));
}
INLINE void scales_tails(SignTails t, float d, SuperblockScales *c) {
    __m256i odd = _mm256_or_si256(_mm256_srli_epi32(t, 27), _mm256_set1_epi32(1)); // 2 s + 1
    _mm256_storeu_ps(c->s, _mm256_mul_ps(_mm256_cvtepi32_ps(odd), _mm256_set1_ps(d)));
    __m256i s = _mm256_or_si256(_mm256_and_si256(t, _mm256_set1_epi32(0x3fff)), // as signs_of_sevens does it
                                _mm256_and_si256(_mm256_slli_epi32(t, 2), _mm256_set1_epi32(0x3fff0000)));
    s = _mm256_or_si256(_mm256_and_si256(s, _mm256_set1_epi32(0x007f007f)),
                        _mm256_and_si256(_mm256_slli_epi32(s, 1), _mm256_set1_epi32(0x7f007f00)));
    _mm256_storeu_si256((__m256i *)(void *)c->signs, with_parity(s));
}
#else
typedef struct {
    uint32_t word[8];
} SignTails;
INLINE SignTails tails_of(const BlockIQ3_XXS *k) {
    SignTails t;
    for (int j = 0; j < 8; j++) t.word[j] = iq3xxs_tail(k, j);
    return t;
}
INLINE SignTails tails_apart(const BlockIQ2_XXS *k) {
    SignTails t;
    for (int j = 0; j < 8; j++) t.word[j] = iq2xxs_tail(k, j);
    return t;
}
INLINE void scales_tails(SignTails t, float d, SuperblockScales *c) {
    for (int j = 0; j < 8; j++) {
        c->s[j] = d * (float)(t.word[j] >> 27 | 1);
        c->signs[j] = signs_of_sevens(t.word[j] & 0x0fffffff);
    }
}
#endif

// d (2 s + 1) of 16 nibbles s, the low nibble of each byte first.
INLINE void scales_nibbles(uint64_t packed, float d, SuperblockScales *c) {
    int8_t odd[16];
#if QUILL_SIMD
    __m128i v = _mm_cvtsi64_si128((long long)packed), low = _mm_and_si128(v, _mm_set1_epi8(15));
    v = _mm_unpacklo_epi8(low, _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15)));
    _mm_storeu_si128((__m128i *)(void *)odd, _mm_or_si128(_mm_add_epi8(v, v), _mm_set1_epi8(1)));
#else
    for (int j = 0; j < 16; j++) odd[j] = (int8_t)((packed >> (4 * j) & 15) * 2 + 1);
#endif
    scaled_bytes(odd, d, c->s);
}

INLINE void scales_iq2_xxs(const BlockIQ2_XXS *k, SuperblockScales *c) {
    scales_tails(tails_apart(k), half_scale(k->d) * 0.125f, c);
}
INLINE void scales_iq3_xxs(const BlockIQ3_XXS *k, SuperblockScales *c) {
    scales_tails(tails_of(k), half_scale(k->d) * 0.25f, c);
}
INLINE void scales_iq2_xs(const BlockIQ2_XS *k, SuperblockScales *c) {
    uint64_t packed;
    memcpy(&packed, k->scales, sizeof packed);
    scales_nibbles(packed, half_scale(k->d) * 0.125f, c);
#if QUILL_SIMD
    __m256i low = _mm256_srli_epi16(q_load(k->qs), 9), high = _mm256_srli_epi16(q_load(k->qs + 16), 9);
    __m256i s = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)c->signs, with_parity(s));
#else
    for (int j = 0; j < 8; j++) {
        const uint16_t *e = k->qs + 4 * j;
        c->signs[j] = signs_of_sevens((uint32_t)(e[0] >> 9 | e[1] >> 9 << 7 | e[2] >> 9 << 14 | e[3] >> 9 << 21));
    }
#endif
}
INLINE void scales_iq2_s(const BlockIQ2_S *k, SuperblockScales *c) {
    uint64_t packed;
    memcpy(&packed, k->scales, sizeof packed);
    scales_nibbles(packed, half_scale(k->d) * 0.125f, c);
    memcpy(c->signs, k->signs, sizeof k->signs);
}
INLINE void scales_iq3_s(const BlockIQ3_S *k, SuperblockScales *c) {
    uint32_t packed;
    memcpy(&packed, k->scales, sizeof packed);
    scales_nibbles(packed, half_scale(k->d), c);
    memcpy(c->signs, k->signs, sizeof k->signs);
}
// `signs` has what is added to four elements: four bytes of 1 or -1.
INLINE void scales_iq1_s(const BlockIQ1_S *k, SuperblockScales *c) {
    float d = half_scale(k->d) * 0.125f;
#if QUILL_SIMD
    __m256i h = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)k->qh));
    __m256i each = _mm256_or_si256(_mm256_srai_epi32(h, 31), _mm256_set1_epi8(1));
    _mm256_storeu_si256((__m256i *)(void *)c->signs, each);
    h = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(h, 11), _mm256_set1_epi32(14)), _mm256_set1_epi32(1));
    _mm256_storeu_ps(c->s, _mm256_mul_ps(_mm256_cvtepi32_ps(h), _mm256_set1_ps(d)));
#else
    for (int j = 0; j < 8; j++) {
        c->s[j] = d * (float)((k->qh[j] >> 11 & 14) | 1);
        c->signs[j] = k->qh[j] >> 15 ? 0xffffffff : 0x01010101;
    }
#endif
}
INLINE void scales_iq1_m(const BlockIQ1_M *k, SuperblockScales *c) {
    int8_t odd[16];
#if QUILL_SIMD
    uint64_t words;
    memcpy(&words, k->scales, sizeof words);
    const __m256i four_times =
        _mm256_setr_epi64x(0x0100010001000100, 0x0302030203020302, 0x0504050405040504, 0x0706070607060706);
    const __m256i to_top = _mm256_set1_epi64x(0x0010008004002000); // 2^13, 2^10, 2^7, 2^4
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)words), four_times);
    v = _mm256_srli_epi16(_mm256_mullo_epi16(v, to_top), 13);
    v = _mm256_or_si256(_mm256_add_epi16(v, v), _mm256_set1_epi16(1));
    v = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0xd8);
    _mm_storeu_si128((__m128i *)(void *)odd, _mm256_castsi256_si128(v));
#else
    for (int j = 0; j < 16; j++) odd[j] = (int8_t)codebook_scale(TYPE_IQ1_M, k, 16 * j);
#endif
    scaled_bytes(odd, half_scale(codebook_d(TYPE_IQ1_M, k)) * 0.125f, c->s);
}
INLINE void scales_ternary(half_bits d, SuperblockScales *c) {
    for (int i = 0; i < 8; i++) c->s[i] = half_scale(d);
}

INLINE void scales_book(int type, const void *block, SuperblockScales *c) {
    switch (type) {
    case TYPE_IQ1_S: scales_iq1_s(block, c); break;
    case TYPE_IQ1_M: scales_iq1_m(block, c); break;
    case TYPE_IQ2_XXS: scales_iq2_xxs(block, c); break;
    case TYPE_IQ2_XS: scales_iq2_xs(block, c); break;
    case TYPE_IQ2_S: scales_iq2_s(block, c); break;
    case TYPE_IQ3_XXS: scales_iq3_xxs(block, c); break;
    case TYPE_IQ3_S: scales_iq3_s(block, c); break;
    case TYPE_TQ1_0: scales_ternary(((const BlockTQ1_0 *)block)->d, c); break;
    default: scales_ternary(((const BlockTQ2_0 *)block)->d, c);
    }
}

// ---- 32 weights -----------------------------------------------------------------------------------------------------

// Looks up four entries: their low bytes are in `low`, their high bits in `high`, `step` bits apart.
INLINE q32 q_with_high(const uint64_t *book, const uint8_t low[4], unsigned high, int step, unsigned mask) {
    return q_eights(book, low[0] | (high & mask) << 8, low[1] | (high >> step & mask) << 8,
                    low[2] | (high >> 2 * step & mask) << 8, low[3] | (high >> 3 * step & mask) << 8);
}

INLINE q32 q_iq1_m(const BlockIQ1_M *k, int j) {
    unsigned high = k->qh[2 * j] | (unsigned)k->qh[2 * j + 1] << 8;
    return q_eighths(q_with_high(codebooks_iq1, k->qs + 4 * j, high, 4, 7), high);
}
INLINE q32 q_iq2_xxs(const BlockIQ2_XXS *k, int j) {
    unsigned a = k->qs[4 * j], b = k->qs[4 * j + 1];
    return q_eights(codebooks_iq2_xxs, a & 255, a >> 8, b & 255, b >> 8);
}
INLINE q32 q_iq2_xs(const BlockIQ2_XS *k, int j) {
    const uint16_t *e = k->qs + 4 * j;
    return q_eights(codebooks_iq2_xs, e[0] & 511, e[1] & 511, e[2] & 511, e[3] & 511);
}

// Block j (0..7) of a super-block of IQ2 or IQ3 without the signs, which SuperblockScales has.
INLINE q32 q_magnitudes(int type, const void *block, int j) {
    const BlockIQ2_S *s2 = block;
    const BlockIQ3_S *s3 = block;
    switch (type) {
    case TYPE_IQ2_XXS: return q_iq2_xxs(block, j);
    case TYPE_IQ2_XS: return q_iq2_xs(block, j);
    case TYPE_IQ2_S: return q_with_high(codebooks_iq2_s, s2->qs + 4 * j, s2->qh[j], 2, 3);
    case TYPE_IQ3_XXS: return q_fours(codebooks_iq3_xxs, ((const BlockIQ3_XXS *)block)->qs + 8 * j);
    default: return q_fours_ninth(codebooks_iq3_s, s3->qs + 8 * j, s3->qh[j]);
    }
}

// Block j (0..7) of a super-block as signed bytes; for the ternary types as codes 0 to 2.
INLINE q32 q_book_codes(int type, const void *block, int j, const SuperblockScales *c) {
    const BlockIQ1_S *s1 = block;
    switch (type) {
    case TYPE_IQ1_S: return q_add(q_with_high(codebooks_iq1, s1->qs + 4 * j, s1->qh[j], 3, 7), c->signs + j);
    case TYPE_IQ1_M: return q_iq1_m(block, j);
    case TYPE_TQ1_0: return q_tq1(block, j);
    case TYPE_TQ2_0: return q_shr(q_load(((const BlockTQ2_0 *)block)->qs + j / 4 * 32), 2 * (j % 4), 3);
    default: return q_negated(q_magnitudes(type, block, j), c->signs[j]);
    }
}

// Block j as signed bytes, for all types.
INLINE q32 q_book(int type, const void *block, int j, const SuperblockScales *c) {
    q32 q = q_book_codes(type, block, j, c);
    return type == TYPE_TQ1_0 || type == TYPE_TQ2_0 ? q_sub(q, 1) : q;
}

#endif
