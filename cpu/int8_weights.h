// cpu/int8_weights.h: 256 weights of any quantised type as bytes, with their scales, directly from the file's blocks.
//
// Weights become unsigned bytes with shifts and masks. The offset or minimum of a type is not applied to them.
#ifndef QUILL_INT8_WEIGHTS_H
#define QUILL_INT8_WEIGHTS_H

#include "cpu/unpack.h"
#if QUILL_SIMD == 512
#include "cpu/codebooks_avx512.h"
#endif

enum { SUPERBLOCK = 256 }; // a super-block, or eight small ones

INLINE bool scales_16(int type) {
    return type == TYPE_Q2_K || type == TYPE_Q3_K || type == TYPE_Q6_K || book_scales_16(type);
}

INLINE size_t superblock_bytes(int type) {
    switch (type) {
    case TYPE_Q4_1: return 8 * sizeof(BlockQ4_1);
    case TYPE_Q5_0: return 8 * sizeof(BlockQ5_0);
    case TYPE_Q5_1: return 8 * sizeof(BlockQ5_1);
    case TYPE_Q8_0: return 8 * sizeof(BlockQ8_0);
    case TYPE_Q2_K: return sizeof(BlockQ2_K);
    case TYPE_Q3_K: return sizeof(BlockQ3_K);
    case TYPE_Q4_K: return sizeof(BlockQ4_K);
    case TYPE_Q5_K: return sizeof(BlockQ5_K);
    case TYPE_Q6_K: return sizeof(BlockQ6_K);
    case TYPE_IQ4_XS: return sizeof(BlockIQ4_XS);
    case TYPE_MXFP4: return 8 * sizeof(BlockMXFP4);
    default: return is_book(type) ? book_bytes(type) : 8 * sizeof(BlockQ4_0); // and IQ4_NL
    }
}

// The superblock at `from`, or a copy in `room` if only `left` bytes of it are in the row. Missing blocks have scales
// of zero.
typedef uint8_t SuperblockRoom[(8 * sizeof(BlockQ8_0) + 63) / 64 * 64];
INLINE const uint8_t *superblock_whole(int type, const uint8_t *from, size_t left, SuperblockRoom room) {
    if (__builtin_expect(left >= superblock_bytes(type), 1)) return from;
#if QUILL_SIMD == 512 // no function call: a loop of products would store and load its sums around it
    UNROLL(8)
    for (size_t at = 0; at < sizeof(SuperblockRoom); at += 64) {
        __mmask64 there = left >= at + 64 ? ~(__mmask64)0 : left > at ? ~(__mmask64)0 >> (at + 64 - left) : 0;
        _mm512_storeu_si512(room + at, _mm512_maskz_loadu_epi8(there, from + at));
    }
    return room;
#else
    memset(room, 0, sizeof(SuperblockRoom));
    return memcpy(room, from, left);
#endif
}

// K types, whose scales are whole multiples of a superblock's d, in blocks of 16 or 32, and the others. On AVX2,
// cpu/int8_whole_avx2.c computes the types of EACH_WHOLE_TYPE, and cpu/int8_avx2.c those of EACH_F32_TYPE.
#define EACH_K_TYPE(X) X(TYPE_Q2_K) X(TYPE_Q3_K) X(TYPE_Q4_K) X(TYPE_Q5_K) X(TYPE_Q6_K)
// clang-format off
#define EACH_OTHER_TYPE(X) EACH_F32_TYPE(X) X(TYPE_IQ4_XS)
#define EACH_WHOLE_TYPE(X) EACH_K_TYPE(X) X(TYPE_IQ4_XS)
#define EACH_F32_TYPE(X) \
    X(TYPE_Q4_0) X(TYPE_Q4_1) X(TYPE_Q5_0) X(TYPE_Q5_1) X(TYPE_Q8_0) X(TYPE_IQ4_NL) \
    X(TYPE_MXFP4)  X(TYPE_IQ1_S) X(TYPE_IQ1_M) X(TYPE_IQ2_XXS) X(TYPE_IQ2_XS) X(TYPE_IQ2_S) \
    X(TYPE_IQ3_XXS) X(TYPE_IQ3_S) X(TYPE_TQ1_0) X(TYPE_TQ2_0)
// clang-format on
#define EACH_QUANTISED(X) EACH_K_TYPE(X) EACH_OTHER_TYPE(X)

// The sixteen scales of Q3_K without their offset, and the eight of IQ4_XS, all at once (k3_scale, iq4xs_scale).
// Storing them one by one and loading them together would stall.
INLINE __m128i scales_k3(const BlockQ3_K *k) {
    __m128i tail = _mm_loadu_si128((const __m128i *)(const void *)(k->scales - 2)); // 16 bytes that end with the block
    __m128i low = _mm_shuffle_epi8(tail, _mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9));
    __m128i high =
        _mm_shuffle_epi8(tail, _mm_setr_epi8(10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13));
    low = _mm_and_si128(_mm_srlv_epi64(low, _mm_set_epi64x(4, 0)), _mm_set1_epi8(15));
    high = _mm_and_si128(_mm_srlv_epi32(high, _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    return _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(high, 4)), _mm_set1_epi8(32));
}
INLINE __m256i six_bit_scales_iq4_xs(const BlockIQ4_XS *k) { // without d
    uint32_t low4;
    memcpy(&low4, k->scales_l, sizeof low4);
    const __m256i fours = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i low = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)low4), fours), _mm256_set1_epi32(15));
    __m256i high = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(k->scales_h), twos), _mm256_set1_epi32(3));
    return _mm256_sub_epi32(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)), _mm256_set1_epi32(32));
}
INLINE __m256 scales_iq4_xs(const BlockIQ4_XS *k) {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(six_bit_scales_iq4_xs(k)), _mm256_set1_ps(half_scale(k->d)));
}

// Eight words, `stride` bytes apart. Load i begins 2 i bytes before the wanted word, which is word i of the register
// then. The last load ends inside the last block. A gather would take longer than the products of a row, and general
// registers three times as many instructions.
INLINE __m128i words_apart(const uint8_t *p, int stride) {
#define WORD(i) _mm_blend_epi16(v, _mm_loadu_si128((const __m128i *)(const void *)(p + (i) * (stride - 2))), 1 << (i))
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    v = WORD(1);
    v = WORD(2);
    v = WORD(3);
    v = WORD(4);
    v = WORD(5);
    v = WORD(6);
    return WORD(7);
#undef WORD
}

// 2^(e - 128) for the first byte e of each of eight blocks (mxfp4_scale).
INLINE __m256 mxfp4_scales(const uint8_t *blocks) {
#if QUILL_SIMD == 512 // blends were not measured there
    uint64_t eight = 0;
    UNROLL(8)
    for (size_t i = 0; i < 8; i++) eight |= (uint64_t)blocks[i * sizeof(BlockMXFP4)] << 8 * i;
    __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)eight));
#else
    __m128i words = words_apart(blocks, sizeof(BlockMXFP4));
    __m256i e = _mm256_cvtepu16_epi32(_mm_and_si128(words, _mm_set1_epi16(255)));
#endif
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

// The offset that makes the signed bytes of a codebook or ternary type unsigned. It is only a little larger than the
// largest magnitude, so that the sums to subtract again stay small.
INLINE int book_offset(int type) {
    switch (type) {
    case TYPE_TQ1_0:
    case TYPE_TQ2_0: return 1;
    case TYPE_IQ1_S:
    case TYPE_IQ1_M:
    case TYPE_IQ3_S: return 16;
    default: return 64; // IQ2, IQ3_XXS
    }
}

#if QUILL_SIMD == 256
INLINE bool is_signed(int type) {
    return type == TYPE_Q8_0 || type == TYPE_IQ4_NL || type == TYPE_IQ4_XS ||
           (is_book(type) && book_offset(type) == 64);
}
INLINE float offset_of(int type) { // subtracted from the integers
    switch (type) {
    case TYPE_Q4_0: return 8;
    case TYPE_Q5_0:
    case TYPE_MXFP4: return 16;
    case TYPE_Q3_K: return 4;
    case TYPE_Q6_K: return 32;
    default: return is_book(type) && !is_signed(type) ? (float)book_offset(type) : 0;
    }
}

INLINE bool has_super_blocks(int type) {
    return scales_16(type) || type == TYPE_Q4_K || type == TYPE_Q5_K || type == TYPE_IQ4_XS || is_book(type);
}
INLINE q32 mxfp4_unsigned(q32 index) { // the offset is in the table, which costs nothing
    const __m128i levels = _mm_add_epi8(_mm_setr_epi8(MXFP4_VALUES), _mm_set1_epi8((char)offset_of(TYPE_MXFP4)));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), index);
}
// Block j (0..7) of a superblock as integers, before anything is subtracted; c as superblock_scales fills it.
INLINE q32 integers(int type, const uint8_t *superblock, int j, const SuperblockScales *c) {
    const void *k = superblock;
    const uint8_t *p = superblock + (size_t)j * (superblock_bytes(type) / 8); // a small block
    switch (type) {
    case TYPE_Q4_0: return q_nibbles(p + 2);
    case TYPE_Q4_1: return q_nibbles(p + 4);
    case TYPE_Q5_0: return q_or(q_nibbles(p + 6), q_fifth(p + 2));
    case TYPE_Q5_1: return q_or(q_nibbles(p + 8), q_fifth(p + 4));
    case TYPE_Q8_0: return q_load(p + 2);
    case TYPE_IQ4_NL: return q_iq4(q_nibbles(p + 2));
    case TYPE_MXFP4: return mxfp4_unsigned(q_nibbles(p + 1));
    case TYPE_Q2_K: return q_q2_k(k, j);
    case TYPE_Q3_K: return q_q3_k(k, j);
    case TYPE_Q4_K: return q_bits(q_load(((const BlockQ4_K *)k)->qs + j / 2 * 32), 4 * (j % 2), 4, 0);
    case TYPE_Q5_K: return q_q5_k(k, j);
    case TYPE_Q6_K: return q_q6_k(k, j);
    case TYPE_IQ4_XS: return q_iq4(q_nibbles(((const BlockIQ4_XS *)k)->qs + 16 * j));
    case TYPE_TQ1_0:
    case TYPE_TQ2_0: return q_book_codes(type, k, j, c);
    default: return q_sub(q_book(type, k, j, c), -(int)offset_of(type));
    }
}

// Block j as unsigned bytes. If the type is_signed, they are the weights' magnitudes, and the signs of *signs are the
// weights'. IQ2 and IQ3_XXS store magnitudes and signs apart, so no signed weights are made.
INLINE q32 unsigned_of(int type, const uint8_t *superblock, int j, const SuperblockScales *c, q32 *signs) {
    if (is_book(type) && is_signed(type)) {
        *signs = _mm256_or_si256(q_mask(c->signs[j]), _mm256_set1_epi8(1)); // -1 or 1
        return q_magnitudes(type, superblock, j);
    }
    *signs = integers(type, superblock, j, c);
    return is_signed(type) ? _mm256_abs_epi8(*signs) : *signs;
}

// The first eight bytes, which are signed, as floats.
INLINE vf vload_bytes(__m128i bytes) { return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
INLINE void scaled_register(__m128i bytes, float d, float out[16]) {
    vstore(out, vload_bytes(bytes) * d);
    vstore(out + VL, vload_bytes(_mm_srli_si128(bytes, 8)) * d);
}

// Reads the scales of eight small blocks, `stride` bytes apart, and their minima, which follow the scales.
INLINE void block_heads(int type, const uint8_t *blocks, int stride, SuperblockScales *c) {
    vstore(c->s, (vf)_mm256_cvtph_ps(words_apart(blocks, stride)));
    if (!type_has_minimum(type)) return;
    vstore(c->m, -(vf)_mm256_cvtph_ps(words_apart(blocks + 2, stride))); // these types add m: the minimum is -m
}

// The eight scales and eight minima of Q4_K and Q5_K (k4_scale_min), six bits each, in three words behind d and dmin.
INLINE __m128i six_bit_scales_k4(const uint8_t *block) {
    __m128i head = _mm_loadu_si128((const __m128i *)(const void *)block);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(head, 0xed), _mm_setr_epi32(0, 0, 0, 4)); // words 1, 3, 2 and 3
    __m128i high = _mm_srli_epi32(_mm_shuffle_epi32(head, 0x84), 2);                         // 1 and 2 in odd places
    low = _mm_and_si128(low, _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    high = _mm_and_si128(high, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
    return _mm_or_si128(low, high);
}
// The minima times dmin; six: six_bit_scales_k4.
INLINE vf minima_k4(const uint8_t *block, __m128i six) {
    return vload_bytes(_mm_srli_si128(six, 8)) * vset(half_scale(((const BlockQ4_K *)(const void *)block)->dmin));
}
INLINE void scales_k4_at_once(const uint8_t *block, SuperblockScales *c) {
    __m128i six = six_bit_scales_k4(block);
    vstore(c->s, vload_bytes(six) * vset(half_scale(((const BlockQ4_K *)(const void *)block)->d)));
    vstore(c->m, minima_k4(block, six));
}

INLINE void scales_q2_k_at_once(const BlockQ2_K *k, SuperblockScales *c) {
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)k->scales), four = _mm_set1_epi8(15);
    __m128i s = _mm_and_si128(both, four), m = _mm_and_si128(_mm_srli_epi16(both, 4), four);
    scaled_register(s, half_scale(k->d), c->s);
    scaled_register(m, half_scale(k->dmin), c->m);
}

// The eight or sixteen scales and minima of a superblock.
INLINE void superblock_scales(int type, const uint8_t *superblock, SuperblockScales *c) {
    const BlockQ3_K *q3 = (const BlockQ3_K *)(const void *)superblock;
    if (type == TYPE_MXFP4) vstore(c->s, (vf)mxfp4_scales(superblock));
    else if (!has_super_blocks(type)) block_heads(type, superblock, (int)superblock_bytes(type) / 8, c);
    else if (type == TYPE_IQ4_XS) vstore(c->s, (vf)scales_iq4_xs((const BlockIQ4_XS *)(const void *)superblock));
    else if (type == TYPE_Q3_K) scaled_register(scales_k3(q3), half_scale(q3->d), c->s);
    else if (type == TYPE_Q2_K) scales_q2_k_at_once((const BlockQ2_K *)(const void *)superblock, c);
    else if (type == TYPE_Q4_K || type == TYPE_Q5_K) scales_k4_at_once(superblock, c);
    else load_scales(type, &(Tensor){.data = superblock}, 0, 0, c);
}
#endif

#if QUILL_SIMD == 512
// 256 weights: scale (u - offset), scale u - minimum, or scale u + minimum (Q4_1, Q5_1); u unsigned bytes. The factors
// of the activations' sums are the minima, or the scales if the type has an offset.
typedef struct {
    __m512i u[4];
    __m512 scale; // eight scales of 32 elements, then eight factors of the activations' sums; or sixteen scales of 16
    __m512 by_sum16; // with sixteen scales: the factors of the activations' sums
} Int8Weights;

// A further factor of the activations' sums, applied once for a row: minus the offset; 1 or -1 if a minimum is added or
// subtracted.
INLINE float sum_factor(int type) {
    switch (type) {
    case TYPE_Q4_0: return -8;
    case TYPE_Q5_0:
    case TYPE_MXFP4: return -16;
    case TYPE_Q6_K: return -32;
    case TYPE_Q3_K: return -4;
    case TYPE_Q4_1:
    case TYPE_Q5_1: return 1;
    case TYPE_Q2_K:
    case TYPE_Q4_K:
    case TYPE_Q5_K: return -1;
    default: return is_book(type) ? (float)-book_offset(type) : -128; // signed bytes plus 128
    }
}

// The byte of a weight of 0. Types with a minimum have no offset, which is 0 here.
INLINE int byte_offset(int type) { return type_has_minimum(type) ? 0 : -(int)sum_factor(type); }

INLINE __m512 join(__m256 low, __m256 high) { return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1); }
INLINE __m512i load_two(const void *low, const void *high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(low)), _mm256_loadu_si256(high), 1);
}
INLINE __m512i load_both(const void *p) { return _mm512_broadcast_i64x4(_mm256_loadu_si256(p)); }
INLINE __m512i bytes(int b) { return _mm512_set1_epi8((char)b); }
INLINE __m512i with_bits(__m512i v, __m512i from, int mask) { // v | from & mask
    return _mm512_ternarylogic_epi32(v, from, bytes(mask), 0xf8);
}
INLINE __m512i halves(int low, int high) { // 32-bit numbers
    return _mm512_inserti64x4(_mm512_set1_epi32(low), _mm256_set1_epi32(high), 1);
}
// Shifts right by `low` in the first half and by `high` in the second; negative: left. Bits move between neighbouring
// bytes: the caller masks them.
INLINE __m512i shifted(__m512i v, int low, int high) { return _mm512_rorv_epi32(v, halves(low & 31, high & 31)); }

// Reads the first half of each of eight blocks, `stride` bytes apart, and then again the first half, or the second one
// (second == 1). Permuting whole lines costs less than a gather.
INLINE __m256i heads(const uint8_t *blocks, int stride, int second) {
    __asm__("" : "+r"(blocks)); // clang 14 would cut the nibbles or bytes out of these loads with scalar shifts
    // The last four blocks are read from 128 bytes that end with the superblock, or begin with these blocks if they are
    // longer.
    const int from = stride > 32 ? 4 * stride : 8 * stride - 128;
    const __m512i block = _mm512_set4_epi64(0, 0x0003000200010000, 0, 0x0003000200010000);
    const __m512i word = _mm512_set4_epi64(0, second * 0x0001000100010001, 0, 0);
    if (7 * stride + 2 <= 128 && !second) { // all are in the first 128 bytes
        const __m512i all =
            _mm512_set4_epi64(0x0007000600050004, 0x0003000200010000, 0x0007000600050004, 0x0003000200010000);
        const __m512i at = _mm512_mullo_epi16(all, _mm512_set1_epi16((short)(stride / 2)));
        return _mm512_castsi512_si256(
            _mm512_permutex2var_epi16(_mm512_loadu_si512(blocks), at, _mm512_loadu_si512(blocks + 64)));
    }
    const __m512i low = _mm512_add_epi16(_mm512_mullo_epi16(block, _mm512_set1_epi16((short)(stride / 2))), word);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16((short)((4 * stride - from) / 2)));
    const uint8_t *end = blocks + from;
    __m512i first4 = _mm512_permutex2var_epi16(_mm512_loadu_si512(blocks), low, _mm512_loadu_si512(blocks + 64));
    __m512i last4 = _mm512_permutex2var_epi16(_mm512_loadu_si512(end), high, _mm512_loadu_si512(end + 64));
    return _mm256_unpacklo_epi64(_mm512_castsi512_si256(first4), _mm512_castsi512_si256(last4));
}

// The nibbles of two blocks of 16 bytes; for each block first the low nibbles.
INLINE __m512i nibbles(const uint8_t *a, const uint8_t *b) {
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const __m128i *)(const void *)b));
    const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
    return _mm512_and_si512(_mm512_srlv_epi32(v, shift), bytes(15));
}
// The sixteen levels of a type plus an offset, which makes them unsigned.
INLINE __m512i levels_of(__m128i levels, int offset, __m512i index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_add_epi8(levels, _mm_set1_epi8((char)offset))), index);
}
INLINE __m512i iq4_levels(__m512i index) { return levels_of(_mm_setr_epi8(IQ4_VALUES), 128, index); }
INLINE __m512i mxfp4_levels(__m512i index) { // a small offset, so that sums to subtract stay small
    return levels_of(_mm_setr_epi8(MXFP4_VALUES), 16, index);
}
INLINE __m512i fifth_bits(__m512i u, const uint8_t *a, const uint8_t *b) {
    uint32_t low, high;
    memcpy(&low, a, 4);
    memcpy(&high, b, 4);
    return _mm512_mask_add_epi8(u, (__mmask64)high << 32 | low, u, bytes(16));
}

INLINE void small_blocks(int type, const uint8_t *p, Int8Weights *w) {
    int stride = (int)superblock_bytes(type) / 8;
    if (type == TYPE_MXFP4) {
        __m256 d = mxfp4_scales(p);
        w->scale = join(d, d);
    } else w->scale = _mm512_cvtph_ps(heads(p, stride, type == TYPE_Q4_1 || type == TYPE_Q5_1));
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const uint8_t *a = p + (size_t)(2 * i * stride), *b = a + stride;
        switch (type) {
        case TYPE_Q8_0: w->u[i] = _mm512_xor_si512(load_two(a + 2, b + 2), bytes(0x80)); break;
        case TYPE_Q4_0: w->u[i] = nibbles(a + 2, b + 2); break;
        case TYPE_Q4_1: w->u[i] = nibbles(a + 4, b + 4); break;
        case TYPE_Q5_0: w->u[i] = fifth_bits(nibbles(a + 6, b + 6), a + 2, b + 2); break;
        case TYPE_Q5_1: w->u[i] = fifth_bits(nibbles(a + 8, b + 8), a + 4, b + 4); break;
        case TYPE_MXFP4: w->u[i] = mxfp4_levels(nibbles(a + 1, b + 1)); break;
        default: w->u[i] = iq4_levels(nibbles(a + 2, b + 2));
        }
    }
}

INLINE __m512 floats_of(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v)); }

// d s and dmin m of the eight parts of Q4_K and Q5_K, all at once, from the block's first 16 bytes: d, dmin, and the
// packed scales (k4_scale_min).
INLINE __m512 scales_k4_m(const void *block) {
    __m128i head = _mm_loadu_si128(block);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi32(head, 0xed), _mm_setr_epi32(0, 0, 0, 4)); // s 0..3, 4..7; m likewise
    __m128i high = _mm_srli_epi32(_mm_shuffle_epi32(head, 0x95), 2); // the top two bits of s 4..7 and m 4..7
    low = _mm_and_si128(low, _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    __m128i six = _mm_ternarylogic_epi32(low, high, _mm_setr_epi32(0, 0x30303030, 0, 0x30303030), 0xf8); // a | b & c
    const __m256i halves_at =
        _mm256_setr_epi64x(0x0100010001000100, 0x0100010001000100, 0x0302030203020302, 0x0302030203020302);
    __m256i d = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(head), halves_at);
    return _mm512_mul_ps(floats_of(six), _mm512_cvtph_ps(d));
}

INLINE void weights_q4_k(const BlockQ4_K *k, Int8Weights *w) {
    w->scale = scales_k4_m(k);
    UNROLL(4)
    for (int i = 0; i < 4; i++)
        w->u[i] = _mm512_and_si512(_mm512_srlv_epi32(load_both(k->qs + 32 * i), halves(0, 4)), bytes(15));
}

INLINE void weights_q5_k(const BlockQ5_K *k, Int8Weights *w) {
    __m512i high = load_both(k->qh);
    w->scale = scales_k4_m(k);
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_and_si512(_mm512_srlv_epi32(load_both(k->qs + 32 * i), halves(0, 4)), bytes(15));
        w->u[i] = with_bits(low, shifted(high, 2 * i - 4, 2 * i - 3), 16);
    }
}

INLINE void weights_q6_k(const BlockQ6_K *k, Int8Weights *w) {
    __m512i scales = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)k->scales));
    w->scale = _mm512_mul_ps(_mm512_cvtepi32_ps(scales), _mm512_set1_ps(half_scale(k->d)));
    w->by_sum16 = w->scale;
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_loadu_si512(k->ql + i / 2 * 64), high = load_both(k->qh + i / 2 * 32);
        low = _mm512_and_si512(i % 2 ? _mm512_srli_epi32(low, 4) : low, bytes(15));
        high = i % 2 ? shifted(high, 0, 2) : shifted(high, -4, -2);
        w->u[i] = with_bits(low, high, 0x30);
    }
}

INLINE void weights_q3_k(const BlockQ3_K *k, Int8Weights *w) {
    __m512 scales = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales_k3(k)));
    w->scale = _mm512_mul_ps(scales, _mm512_set1_ps(half_scale(k->d)));
    w->by_sum16 = w->scale;
    __m512i mask = load_both(k->hmask);
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i low = shifted(load_both(k->qs + i / 2 * 32), 4 * (i % 2), 4 * (i % 2) + 2);
        w->u[i] = with_bits(_mm512_and_si512(low, bytes(3)), shifted(mask, 2 * i - 2, 2 * i - 1), 4);
    }
}

INLINE void weights_q2_k(const BlockQ2_K *k, Int8Weights *w) {
    __m128i both = _mm_loadu_si128((const __m128i *)(const void *)k->scales);
    __m128i s = _mm_and_si128(both, _mm_set1_epi8(15)), m = _mm_and_si128(_mm_srli_epi16(both, 4), _mm_set1_epi8(15));
    w->scale = _mm512_mul_ps(floats_of(s), _mm512_set1_ps(half_scale(k->d)));
    w->by_sum16 = _mm512_mul_ps(floats_of(m), _mm512_set1_ps(half_scale(k->dmin)));
    UNROLL(4)
    for (int i = 0; i < 4; i++)
        w->u[i] = _mm512_and_si512(shifted(load_both(k->qs + i / 2 * 32), 4 * (i % 2), 4 * (i % 2) + 2), bytes(3));
}

INLINE void weights_iq4_xs(const BlockIQ4_XS *k, Int8Weights *w) {
    __m256 scales = scales_iq4_xs(k);
    w->scale = join(scales, scales);
    UNROLL(4)
    for (int i = 0; i < 4; i++) w->u[i] = iq4_levels(nibbles(k->qs + 32 * i, k->qs + 32 * i + 16));
}

INLINE void weights_book(int type, const uint8_t *p, Int8Weights *w) {
    SuperblockScales c;
    scales_book(type, p, &c);
    if (book_scales_16(type)) w->scale = w->by_sum16 = _mm512_loadu_ps(c.s);
    else w->scale = join(_mm256_loadu_ps(c.s), _mm256_loadu_ps(c.s));
    book_bytes_of(type, p, &c, book_offset(type), w->u);
}

INLINE void load_weights(int type, const uint8_t *p, Int8Weights *w) {
    switch (type) {
    case TYPE_Q2_K: weights_q2_k((const BlockQ2_K *)(const void *)p, w); break;
    case TYPE_Q3_K: weights_q3_k((const BlockQ3_K *)(const void *)p, w); break;
    case TYPE_Q4_K: weights_q4_k((const BlockQ4_K *)(const void *)p, w); break;
    case TYPE_Q5_K: weights_q5_k((const BlockQ5_K *)(const void *)p, w); break;
    case TYPE_Q6_K: weights_q6_k((const BlockQ6_K *)(const void *)p, w); break;
    case TYPE_IQ4_XS: weights_iq4_xs((const BlockIQ4_XS *)(const void *)p, w); break;
    default:
        if (is_book(type)) weights_book(type, p, w);
        else small_blocks(type, p, w);
    }
}
#endif

#endif
