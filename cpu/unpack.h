// cpu/unpack.h: unpacks 32 weights of any tensor type to vectors of floats, directly from the file's blocks.
//
// All f32 kernels of the CPU read weights with it. Byte operations give small integers, then scale and minimum are
// applied. The scalar functions of formats/types.c are the specification.
#ifndef QUILL_UNPACK_H
#define QUILL_UNPACK_H

#include "layer.h"
#include "cpu/codebooks.h"

// ---- 32 small integers and their weights ----------------------------------------------------------------------------

// w = q * s, or q * s - m; a scale and a minimum for each half.
INLINE void q_scaled(q32 q, float s0, float s1, vf w[NV]) {
    q_floats(q, w);
    for (int i = 0; i < NV; i++) w[i] *= i * VL < 16 ? s0 : s1;
}
INLINE void q_scaled_min(q32 q, float s0, float s1, float m0, float m1, vf w[NV]) {
    q_floats(q, w);
    for (int i = 0; i < NV; i++) w[i] = w[i] * (i * VL < 16 ? s0 : s1) - (i * VL < 16 ? m0 : m1);
}

// Broadcasts a scale to all lanes, then converts it: one conversion, and no moves between register files. (Integer
// tricks are faster, but wrong for subnormal halves, which are frequent among the scales of K types.)
INLINE vf half_vector(half_bits h) {
#if QUILL_SIMD == 512
    return (vf)_mm512_cvtph_ps(_mm256_set1_epi16((short)h));
#else
    return vset(half_scale(h));
#endif
}

// d q - m for nibbles q: the 32 nibbles of 16 bytes, the low ones first (affine16); or the low or high nibbles of 32
// bytes (affine32). With AVX-512 the sixteen possible weights of a block are a table in one register, and nibbles are
// looked up, not converted.
#if QUILL_SIMD == 512
INLINE __m512i q_wide(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE vf q_look_up(__m512i index, vf table) { return (vf)_mm512_permutexvar_ps(index, (__m512)table); }
INLINE vf q_table(vf d, vf m) {
    const vf levels = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return levels * d - m;
}
INLINE void nibbles16(const uint8_t *p, vf table, vf w[NV]) {
    __m512i q = q_wide(p);
    w[0] = q_look_up(q, table); // the look-up uses only the low four bits
    w[1] = q_look_up(_mm512_srli_epi32(q, 4), table);
}
INLINE void affine16(const uint8_t *p, vf d, vf m, vf w[NV]) { nibbles16(p, q_table(d, m), w); }
INLINE void affine32(const uint8_t *p, bool high, vf d, vf m, vf w[NV]) {
    vf table = q_table(d, m);
    int shift = high ? 4 : 0;
    w[0] = q_look_up(_mm512_srli_epi32(q_wide(p), (unsigned)shift), table);
    w[1] = q_look_up(_mm512_srli_epi32(q_wide(p + 16), (unsigned)shift), table);
}
INLINE void levels16(const uint8_t *p, vf d, vf w[NV]) {
    const vf levels = {IQ4_VALUES};
    nibbles16(p, levels * d, w);
}
INLINE void mxfp4_levels16(const uint8_t *p, vf d, vf w[NV]) {
    const vf levels = {MXFP4_VALUES};
    nibbles16(p, levels * d, w);
}
#else
INLINE void q_affine(q32 q, vf d, vf m, vf w[NV]) {
    q_floats(q, w);
    for (int i = 0; i < NV; i++) w[i] = w[i] * d - m;
}
INLINE void affine16(const uint8_t *p, vf d, vf m, vf w[NV]) { q_affine(q_nibbles(p), d, m, w); }
INLINE void affine32(const uint8_t *p, bool high, vf d, vf m, vf w[NV]) {
    q_affine(q_shr(q_load(p), high ? 4 : 0, 15), d, m, w);
}
INLINE void levels16(const uint8_t *p, vf d, vf w[NV]) { q_affine(q_iq4(q_nibbles(p)), d, vset(0), w); }
INLINE void mxfp4_levels16(const uint8_t *p, vf d, vf w[NV]) { q_affine(q_mxfp4(q_nibbles(p)), d, vset(0), w); }
#endif

// Block j (0..7) of a super-block, before anything is subtracted.
INLINE q32 q_q2_k(const BlockQ2_K *k, int j) { return q_bits(q_load(k->qs + j / 4 * 32), 2 * (j % 4), 2, 0); }
INLINE q32 q_q3_k(const BlockQ3_K *k, int j) {
    return q_or(q_bits(q_load(k->qs + j / 4 * 32), 2 * (j % 4), 2, 0), q_bits(q_load(k->hmask), j, 1, 2));
}
INLINE q32 q_q5_k(const BlockQ5_K *k, int j) {
    return q_or(q_bits(q_load(k->qs + j / 2 * 32), 4 * (j % 2), 4, 0), q_bits(q_load(k->qh), j, 1, 4));
}
INLINE q32 q_q6_k(const BlockQ6_K *k, int j) {
    int half = j / 4, quarter = j % 4;
    q32 low = q_bits(q_load(k->ql + half * 64 + (quarter & 1) * 32), quarter < 2 ? 0 : 4, 4, 0);
    return q_or(low, q_bits(q_load(k->qh + half * 32), 2 * quarter, 2, 4));
}

// ---- 32 weights of a row, by type ---------------------------------------------------------------------------------
// unpack_X(row, b, w) gives elements [32 b, 32 b + 32).

// The eight scales and eight minima of Q4_K and Q5_K, six bits each: k4_scale_min for all of them at once.
INLINE void scales_k4(const uint8_t *packed, float d, float dmin, SuperblockScales *k) {
    uint32_t u[3], low[4]; // four bytes each: scales 0..3, 4..7, minima 0..3, 4..7
    memcpy(u, packed, sizeof u);
    low[0] = u[0] & 0x3f3f3f3f;
    low[1] = (u[2] & 0x0f0f0f0f) | (u[0] >> 6 & 0x03030303) << 4;
    low[2] = u[1] & 0x3f3f3f3f;
    low[3] = (u[2] >> 4 & 0x0f0f0f0f) | (u[1] >> 6 & 0x03030303) << 4;
    int8_t bytes[16];
    float all[16];
    memcpy(bytes, low, sizeof bytes);
    scaled_bytes(bytes, 1, all);
    for (int i = 0; i < 8; i++) k->s[i] = all[i] * d, k->m[i] = all[8 + i] * dmin;
}
INLINE void scales_q2_k(const BlockQ2_K *block, SuperblockScales *k) {
    int8_t s[16], m[16];
    for (int i = 0; i < 16; i++) s[i] = block->scales[i] & 15, m[i] = (int8_t)(block->scales[i] >> 4);
    scaled_bytes(s, half_scale(block->d), k->s);
    scaled_bytes(m, half_scale(block->dmin), k->m);
}
INLINE void scales_q3_k(const BlockQ3_K *block, SuperblockScales *k) {
    uint32_t u[3], six[4]; // k3_scale for all of them at once
    memcpy(u, block->scales, sizeof u);
    six[0] = (u[0] & 0x0f0f0f0f) | (u[2] & 0x03030303) << 4;
    six[1] = (u[1] & 0x0f0f0f0f) | (u[2] >> 2 & 0x03030303) << 4;
    six[2] = (u[0] >> 4 & 0x0f0f0f0f) | (u[2] >> 4 & 0x03030303) << 4;
    six[3] = (u[1] >> 4 & 0x0f0f0f0f) | (u[2] >> 6 & 0x03030303) << 4;
    int8_t bytes[16];
    memcpy(bytes, six, sizeof bytes);
    for (int i = 0; i < 16; i++) bytes[i] = (int8_t)(bytes[i] - 32);
    scaled_bytes(bytes, half_scale(block->d), k->s);
}

INLINE void unpack_f32(const uint8_t *row, int b, vf w[NV]) {
    for (int i = 0; i < NV; i++) w[i] = vload((const float *)(const void *)row + 32 * (size_t)b + VL * i);
}
INLINE void unpack_f16(const uint8_t *row, int b, vf w[NV]) {
    for (int i = 0; i < NV; i++) w[i] = vload_half((const uint16_t *)(const void *)row + 32 * (size_t)b + VL * i);
}
INLINE void unpack_bf16(const uint8_t *row, int b, vf w[NV]) {
    for (int i = 0; i < NV; i++) w[i] = vload_bf16((const uint16_t *)(const void *)row + 32 * (size_t)b + VL * i);
}
INLINE void unpack_q4_0(const uint8_t *row, int b, vf w[NV]) {
    const BlockQ4_0 *k = (const BlockQ4_0 *)(const void *)row + b;
    vf d = half_vector(k->d);
    affine16(k->qs, d, 8 * d, w); // d q - 8 d is d (q - 8) exactly: the products fit a float
}
INLINE void unpack_q4_1(const uint8_t *row, int b, vf w[NV]) {
    const BlockQ4_1 *k = (const BlockQ4_1 *)(const void *)row + b;
    affine16(k->qs, half_vector(k->d), -half_vector(k->m), w);
}
INLINE void unpack_q5_0(const uint8_t *row, int b, vf w[NV]) {
    const BlockQ5_0 *k = (const BlockQ5_0 *)(const void *)row + b;
    float d = half_scale(k->d);
    q_scaled(q_sub(q_or(q_nibbles(k->qs), q_fifth(k->qh)), 16), d, d, w);
}
INLINE void unpack_q5_1(const uint8_t *row, int b, vf w[NV]) {
    const BlockQ5_1 *k = (const BlockQ5_1 *)(const void *)row + b;
    float d = half_scale(k->d), m = -half_scale(k->m);
    q_scaled_min(q_or(q_nibbles(k->qs), q_fifth(k->qh)), d, d, m, m, w);
}
INLINE void unpack_q8_0(const uint8_t *row, int b, vf w[NV]) {
    const BlockQ8_0 *k = (const BlockQ8_0 *)(const void *)row + b;
    vf d = half_vector(k->d);
    q_floats(q_load(k->qs), w);
    for (int i = 0; i < NV; i++) w[i] *= d;
}
INLINE void unpack_q2_k(const uint8_t *row, int b, const SuperblockScales *c, vf w[NV]) {
    int j = b % 8;
    q32 q = q_q2_k((const BlockQ2_K *)(const void *)row + b / 8, j);
    q_scaled_min(q, c->s[2 * j], c->s[2 * j + 1], c->m[2 * j], c->m[2 * j + 1], w);
}
INLINE void unpack_q3_k(const uint8_t *row, int b, const SuperblockScales *c, vf w[NV]) {
    int j = b % 8;
    q32 q = q_q3_k((const BlockQ3_K *)(const void *)row + b / 8, j);
    q_scaled(q_sub(q, 4), c->s[2 * j], c->s[2 * j + 1], w);
}
INLINE void unpack_q4_k(const uint8_t *row, int b, const SuperblockScales *c, vf w[NV]) {
    const BlockQ4_K *k = (const BlockQ4_K *)(const void *)row + b / 8;
    int j = b % 8;
    affine32(k->qs + j / 2 * 32, j % 2, vset(c->s[j]), vset(c->m[j]), w);
}
INLINE void unpack_q5_k(const uint8_t *row, int b, const SuperblockScales *c, vf w[NV]) {
    int j = b % 8;
    q32 q = q_q5_k((const BlockQ5_K *)(const void *)row + b / 8, j);
    q_scaled_min(q, c->s[j], c->s[j], c->m[j], c->m[j], w);
}
INLINE void unpack_q6_k(const uint8_t *row, int b, const SuperblockScales *c, vf w[NV]) {
    int j = b % 8;
    q32 q = q_q6_k((const BlockQ6_K *)(const void *)row + b / 8, j);
    q_scaled(q_sub(q, 32), c->s[2 * j], c->s[2 * j + 1], w);
}
INLINE void unpack_iq4_nl(const uint8_t *row, int b, vf w[NV]) {
    const BlockIQ4_NL *k = (const BlockIQ4_NL *)(const void *)row + b;
    levels16(k->qs, half_vector(k->d), w);
}
INLINE void unpack_iq4_xs(const uint8_t *row, int b, vf w[NV]) {
    const BlockIQ4_XS *k = (const BlockIQ4_XS *)(const void *)row + b / 8;
    levels16(k->qs + b % 8 * 16, half_vector(k->d) * (float)(iq4xs_scale(k, b % 8) - 32), w);
}

INLINE void unpack_mxfp4(const uint8_t *row, int b, vf w[NV]) {
    const BlockMXFP4 *k = (const BlockMXFP4 *)(const void *)row + b;
    mxfp4_levels16(k->qs, vset(mxfp4_scale(k->e)), w);
}

// The codebook types and the ternary ones.
INLINE void unpack_q_book(int type, const uint8_t *row, int b, const SuperblockScales *c, vf w[NV]) {
    int j = b % 8;
    q32 q = q_book(type, row + (size_t)(b / 8) * book_bytes(type), j, c);
    if (book_scales_16(type)) q_scaled(q, c->s[2 * j], c->s[2 * j + 1], w);
    else q_scaled(q, c->s[j], c->s[j], w);
}

// ---- a weight row of any type ---------------------------------------------------------------------------------------

// Elements [first, first + n) of a row, n <= 32, as vectors padded with zeros: for the end of a row that is not a
// multiple of 32, and for int8 groups, which may cross the ends of rows.
static __attribute__((noinline, unused)) void unpack_slow(const Tensor *t, int row, int first, int n, vf w[NV]) {
    float values[32] = {0};
    const uint8_t *bytes = (const uint8_t *)t->data + (size_t)row * t->row_bytes;
    if (t->type == TYPE_F32) memcpy(values, bytes + (size_t)first * 4, (size_t)n * 4);
    else
        for (int i = 0; i < n; i++) {
            size_t in_row = (size_t)(first + i), flat = (size_t)row * (size_t)t->n_in + in_row;
            if (t->type == TYPE_I8G) {
                float scale;
                memcpy(&scale, (const char *)t->scales + flat / (size_t)t->group * 4, 4);
                values[i] = scale * (float)((const int8_t *)t->data)[flat];
            } else {
                uint16_t half;
                memcpy(&half, bytes + in_row * 2, 2);
                values[i] = t->type == TYPE_F16 ? half_float(half) : bf16_float(half);
            }
        }
    for (int i = 0; i < NV; i++) w[i] = vload(values + VL * i);
}

// One block of int8 with one scale, for groups of whole blocks.
INLINE void unpack_i8(const Tensor *t, int row, int b, vf w[NV]) {
    size_t flat = (size_t)row * (size_t)t->n_in + 32 * (size_t)b;
    float scale;
    memcpy(&scale, (const char *)t->scales + flat / (size_t)t->group * 4, 4);
    q_scaled(q_load((const int8_t *)t->data + flat), scale, scale, w);
}

static inline bool i8_whole_blocks(const Tensor *t) { return t->n_in % 32 == 0 && t->group % 32 == 0; }

// Loads the scales of the super-block that begins at block b (a multiple of 8); types without super-blocks have none.
INLINE void load_scales(int type, const Tensor *t, int row, int b, SuperblockScales *c) {
    const uint8_t *bytes = (const uint8_t *)t->data + (size_t)row * t->row_bytes;
    const BlockQ4_K *q4 = (const BlockQ4_K *)(const void *)bytes + b / 8;
    const BlockQ5_K *q5 = (const BlockQ5_K *)(const void *)bytes + b / 8;
    const BlockQ6_K *q6 = (const BlockQ6_K *)(const void *)bytes + b / 8;
    switch (type) {
    case TYPE_Q2_K: scales_q2_k((const BlockQ2_K *)(const void *)bytes + b / 8, c); break;
    case TYPE_Q3_K: scales_q3_k((const BlockQ3_K *)(const void *)bytes + b / 8, c); break;
    case TYPE_Q4_K: scales_k4(q4->scales, half_scale(q4->d), half_scale(q4->dmin), c); break;
    case TYPE_Q5_K: scales_k4(q5->scales, half_scale(q5->d), half_scale(q5->dmin), c); break;
    case TYPE_Q6_K: scaled_bytes(q6->scales, half_scale(q6->d), c->s); break;
    default:
        if (is_book(type)) scales_book(type, bytes + (size_t)(b / 8) * book_bytes(type), c);
    }
}

// Unpacks the 32 weights of block b; c has the scales of its super-block.
INLINE void unpack_block(int type, const Tensor *t, bool i8_whole, int row, int b, const SuperblockScales *c,
                         vf w[NV]) {
    const uint8_t *bytes = (const uint8_t *)t->data + (size_t)row * t->row_bytes;
    switch (type) {
    case TYPE_F32: unpack_f32(bytes, b, w); break;
    case TYPE_F16: unpack_f16(bytes, b, w); break;
    case TYPE_BF16: unpack_bf16(bytes, b, w); break;
    case TYPE_Q4_0: unpack_q4_0(bytes, b, w); break;
    case TYPE_Q4_1: unpack_q4_1(bytes, b, w); break;
    case TYPE_Q5_0: unpack_q5_0(bytes, b, w); break;
    case TYPE_Q5_1: unpack_q5_1(bytes, b, w); break;
    case TYPE_Q8_0: unpack_q8_0(bytes, b, w); break;
    case TYPE_Q2_K: unpack_q2_k(bytes, b, c, w); break;
    case TYPE_Q3_K: unpack_q3_k(bytes, b, c, w); break;
    case TYPE_Q4_K: unpack_q4_k(bytes, b, c, w); break;
    case TYPE_Q5_K: unpack_q5_k(bytes, b, c, w); break;
    case TYPE_Q6_K: unpack_q6_k(bytes, b, c, w); break;
    case TYPE_IQ4_NL: unpack_iq4_nl(bytes, b, w); break;
    case TYPE_IQ4_XS: unpack_iq4_xs(bytes, b, w); break;
    case TYPE_MXFP4: unpack_mxfp4(bytes, b, w); break;
    default:
        if (is_book(type)) unpack_q_book(type, bytes, b, c, w);
        else if (i8_whole) unpack_i8(t, row, b, w);
        else unpack_slow(t, row, 32 * b, 32, w);
    }
}

// Elements [32 * b0, 32 * b0 + n) of a row in f32; b0 a multiple of 8, out has room for round_up(n, 32).
INLINE void row_to_f32(int type, const Tensor *t, int row, int b0, int n, float *out) {
    bool i8_whole = type == TYPE_I8G && i8_whole_blocks(t);
    SuperblockScales c;
    vf w[NV];
    for (int i = 0; i < n; i += 32) {
        if (i % QK_K == 0) load_scales(type, t, row, b0 + i / 32, &c);
        if (n - i >= 32) unpack_block(type, t, i8_whole, row, b0 + i / 32, &c, w);
        else unpack_slow(t, row, 32 * b0 + i, n - i, w);
        for (int k = 0; k < NV; k++) vstore(out + i + VL * k, w[k]);
    }
}

#endif
