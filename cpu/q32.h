// cpu/q32.h: operations on 32 small integers at once, and the scales of a super-block, for unpacking weights.
#ifndef QUILL_Q32_H
#define QUILL_Q32_H

#include "cpu/simd.h"

enum { NV = 32 / VL }; // vectors that hold 32 weights

#if QUILL_SIMD
typedef __m256i q32; // 32 int8

INLINE q32 q_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE q32 q_and(q32 a, int mask) { return _mm256_and_si256(a, _mm256_set1_epi8((char)mask)); }
INLINE q32 q_or(q32 a, q32 b) { return _mm256_or_si256(a, b); }
INLINE q32 q_sub(q32 a, int b) { return _mm256_sub_epi8(a, _mm256_set1_epi8((char)b)); }
// (a >> n) & mask in each byte
INLINE q32 q_shr(q32 a, int n, int mask) { return q_and(_mm256_srli_epi16(a, n), mask); }
// (a << n) & mask in each byte
INLINE q32 q_shl(q32 a, int n, int mask) { return q_and(_mm256_slli_epi16(a, n), mask); }
// 16 bytes as 32 nibbles: the low ones first.
INLINE q32 q_nibbles(const uint8_t *p) {
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p));
    return q_and(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)), 15);
}
// Byte i is -1 if bit i is set, otherwise 0.
INLINE q32 q_mask(uint32_t bits) {
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i select = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, select), select);
}
// Byte i is 16 if bit i of the four bytes is set, otherwise 0.
INLINE q32 q_fifth(const uint8_t *p) {
    uint32_t bits;
    memcpy(&bits, p, 4);
    return q_and(q_mask(bits), 16);
}
INLINE q32 q_iq4(q32 index) {
    const __m128i levels = _mm_setr_epi8(IQ4_VALUES);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), index);
}
INLINE q32 q_mxfp4(q32 index) {
    const __m128i levels = _mm_setr_epi8(MXFP4_VALUES);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), index);
}
INLINE void q_floats(q32 q, vf w[NV]) {
    __m128i low = _mm256_castsi256_si128(q), high = _mm256_extracti128_si256(q, 1);
#if QUILL_SIMD == 512
    w[0] = (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low));
    w[1] = (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high));
#else
    w[0] = (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
    w[1] = (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(low, 8)));
    w[2] = (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high));
    w[3] = (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(high, 8)));
#endif
}
INLINE float half_scale(half_bits h) { return _cvtsh_ss(h); }
#else
typedef struct {
    int8_t v[32];
} q32;

INLINE q32 q_load(const void *p) {
    q32 q;
    memcpy(&q, p, sizeof q);
    return q;
}
#define Q_EACH(expression)                                                                                             \
    for (int i = 0; i < 32; i++) a.v[i] = (int8_t)(expression);                                                        \
    return a
INLINE q32 q_and(q32 a, int mask) { Q_EACH(a.v[i] & mask); }
INLINE q32 q_or(q32 a, q32 b) { Q_EACH(a.v[i] | b.v[i]); }
INLINE q32 q_sub(q32 a, int b) { Q_EACH(a.v[i] - b); }
INLINE q32 q_shr(q32 a, int n, int mask) { Q_EACH((uint8_t)a.v[i] >> n & mask); }
INLINE q32 q_shl(q32 a, int n, int mask) { Q_EACH((uint8_t)a.v[i] << n & mask); }
INLINE q32 q_nibbles(const uint8_t *p) {
    q32 a;
    Q_EACH(i < 16 ? p[i] & 15 : p[i - 16] >> 4);
}
INLINE q32 q_fifth(const uint8_t *p) {
    q32 a;
    Q_EACH((p[i / 8] >> (i % 8) & 1) << 4);
}
INLINE q32 q_iq4(q32 a) {
    static const int8_t levels[16] = {IQ4_VALUES};
    Q_EACH(levels[a.v[i] & 15]);
}
INLINE q32 q_mxfp4(q32 a) {
    static const int8_t levels[16] = {MXFP4_VALUES};
    Q_EACH(levels[a.v[i] & 15]);
}
INLINE void q_floats(q32 q, vf w[NV]) {
    for (int i = 0; i < NV; i++) w[i] = (vf){q.v[VL * i], q.v[VL * i + 1], q.v[VL * i + 2], q.v[VL * i + 3]};
}
INLINE float half_scale(half_bits h) { return half_float(h); }
#endif

// Bits [from, from + bits) of each byte, moved to `to`.
INLINE q32 q_bits(q32 a, int from, int bits, int to) {
    int mask = ((1 << bits) - 1) << to;
    return from > to ? q_shr(a, from - to, mask) : from < to ? q_shl(a, to - from, mask) : q_and(a, mask);
}

typedef struct {
    float s[16], m[16]; // scales and minima of 16 or 8 parts, already multiplied by d and dmin
    uint32_t signs[8];  // expanded sign bits of each 32 elements, for types with seven sign bits for eight elements
} SuperblockScales;

INLINE vf vload_i8(const void *p) { // loads VL bytes
#if QUILL_SIMD == 512
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
#elif QUILL_SIMD == 256
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
#else
    const int8_t *b = p;
    return (vf){b[0], b[1], b[2], b[3]};
#endif
}
INLINE void scaled_bytes(const int8_t bytes[16], float d, float *out) {
    for (int i = 0; i < 16; i += VL) vstore(out + i, vload_i8(bytes + i) * d);
}

#endif
