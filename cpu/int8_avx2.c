// cpu/int8_avx2.c: products of few rows in integers on AVX2: what cpu/int8_vnni.c does with VNNI, by multiplying bytes
// in pairs.
//
// A row of activations is quantised once, 32 elements under one scale. maddubs multiplies unsigned bytes by signed ones
// and adds two products in 16 bits, which cannot overflow here: weights of six bits at most are unsigned as they lie in
// the file, and what their type subtracts, an offset or a minimum, is taken from the sums of the activations; of signed
// weights the magnitude is multiplied, their sign goes to the activation, and 2 x 128 x 127 still fits. Sums of 32 are
// exact; scales enter once a 16 or 32 elements, in f32.
#include "cpu/int8.h"

enum {
    AHEAD = 2048, // bytes to prefetch ahead of the loop
};

// ---- activations ----------------------------------------------------------------------------------------------------

static void quantize32(const float *x, Int8Activations *a, int b) {
    vf tops = {0};
    for (int i = 0; i < NV; i++) tops = vmax(tops, vmax(vload(x + VL * i), -vload(x + VL * i)));
    float top = vmax_of(tops), scale = top / 127, inverse = top > 0 ? 127 / top : 0;
    for (int half = 0; half < 2; half++) {
        __m256i v[2];
        for (int i = 0; i < 2; i++) // to nearest, ties to even
            v[i] = _mm256_cvtps_epi32((__m256)(vload(x + 16 * half + VL * i) * inverse));
        vi pairs = (vi)_mm256_add_epi32(v[0], v[1]);
        int sum = 0;
        for (int i = 0; i < VL; i++) sum += pairs[i];
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v[0], v[1]), 0xd8);
        __m128i q = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(void *)(a->q + 32 * b + 16 * half), q);
        a->sum16[2 * b + half] = scale * (float)sum;
    }
    a->scale[b] = scale;
    a->sum[b] = a->sum16[2 * b] + a->sum16[2 * b + 1];
}

// ---- weights --------------------------------------------------------------------------------------------------------

INLINE bool is_signed(int type) { return type == TYPE_Q8_0 || type == TYPE_IQ4_NL || type == TYPE_IQ4_XS; }
INLINE float offset_of(int type) { // what is subtracted from the integers
    switch (type) {
    case TYPE_Q4_0: return 8;
    case TYPE_Q5_0: return 16;
    case TYPE_Q3_K: return 4;
    case TYPE_Q6_K: return 32;
    default: return 0;
    }
}

INLINE bool has_super_blocks(int type) {
    return scales_16(type) || type == TYPE_Q4_K || type == TYPE_Q5_K || type == TYPE_IQ4_XS;
}
// Block j (0..7) of a superblock as integers, before anything is subtracted.
INLINE q32 integers(int type, const uint8_t *superblock, int j) {
    const void *k = superblock;
    const uint8_t *p = superblock + (size_t)j * (superblock_bytes(type) / 8); // a small block
    switch (type) {
    case TYPE_Q4_0: return q_nibbles(p + 2);
    case TYPE_Q4_1: return q_nibbles(p + 4);
    case TYPE_Q5_0: return q_or(q_nibbles(p + 6), q_fifth(p + 2));
    case TYPE_Q5_1: return q_or(q_nibbles(p + 8), q_fifth(p + 4));
    case TYPE_Q8_0: return q_load(p + 2);
    case TYPE_IQ4_NL: return q_iq4(q_nibbles(p + 2));
    case TYPE_Q2_K: return q_q2_k(k, j);
    case TYPE_Q3_K: return q_q3_k(k, j);
    case TYPE_Q4_K: return q_shr(q_load(((const BlockQ4_K *)k)->qs + j / 2 * 32), 4 * (j % 2), 15);
    case TYPE_Q5_K: return q_q5_k(k, j);
    case TYPE_Q6_K: return q_q6_k(k, j);
    default: return q_iq4(q_nibbles(((const BlockIQ4_XS *)k)->qs + 16 * j));
    }
}

// The first half of each of eight blocks `stride` bytes apart, and the second.
INLINE void block_heads(const uint8_t *blocks, int stride, SuperblockScales *c) {
    __m256i at = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(stride));
    __m256i both = _mm256_i32gather_epi32((const int *)(const void *)blocks, at, 1);
    __m256i low = _mm256_and_si256(both, _mm256_set1_epi32(0xffff)), high = _mm256_srli_epi32(both, 16);
    __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    vstore(c->s, (vf)_mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
    vstore(c->m, -(vf)_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))); // what is added counts as a minimum
}

// Scales and minima of a superblock: eight, or sixteen.
INLINE void superblock_scales(int type, const uint8_t *superblock, SuperblockScales *c) {
    const BlockIQ4_XS *iq4 = (const BlockIQ4_XS *)(const void *)superblock;
    if (!has_super_blocks(type)) block_heads(superblock, (int)superblock_bytes(type) / 8, c);
    else if (type == TYPE_IQ4_XS)
        for (int j = 0; j < 8; j++) c->s[j] = half_scale(iq4->d) * (float)(iq4xs_scale(iq4, j) - 32);
    else load_scales(type, &(Tensor){.data = superblock}, 0, 0, c);
}

// ---- products -------------------------------------------------------------------------------------------------------

// Sums of four products a lane.
INLINE __m256i dot4(int type, q32 w, q32 x) {
    q32 u = is_signed(type) ? _mm256_abs_epi8(w) : w;
    if (is_signed(type)) x = _mm256_sign_epi8(x, w);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1));
}

// What offsets or minima take from the products of a superblock.
INLINE vf by_sums(int type, const SuperblockScales *c, const Int8Activations *a, int i) {
    vf sums = vload((scales_16(type) ? a->sum16 : a->sum) + VL * i);
    return (has_minimum(type) ? vload(c->m + VL * i) : vload(c->s + VL * i) * offset_of(type)) * sums;
}

// sum += the products of a superblock with C rows of activations.
INLINE void add_superblock(int type, const uint8_t *superblock, const Int8Activations *a, size_t a_stride, int C,
                           vf sum[MOST_ROWS][2]) {
    int parts = scales_16(type) ? 2 : 1; // of the scales, and of a block
    float factor[MOST_ROWS][16];
    SuperblockScales c;
    superblock_scales(type, superblock, &c);
#pragma GCC unroll 4
    for (int r = 0; r < C; r++)
#pragma GCC unroll 2
        for (int i = 0; i < parts; i++) {
            const Int8Activations *x = &a[(size_t)r * a_stride];
            vf scale = vload(x->scale);
            if (parts == 2) { // each twice
                const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
                scale = (vf)_mm256_permutevar8x32_ps((__m256)scale, _mm256_add_epi32(twice, _mm256_set1_epi32(4 * i)));
            }
            vstore(factor[r] + VL * i, vload(c.s + VL * i) * scale);
            if (has_minimum(type) || offset_of(type) > 0) sum[r][i] -= by_sums(type, &c, x, i);
        }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        q32 w = integers(type, superblock, j);
#pragma GCC unroll 4
        for (int r = 0; r < C; r++) {
            vf dot = (vf)_mm256_cvtepi32_ps(dot4(type, w, q_load(a[(size_t)r * a_stride].q + 32 * j)));
            const float *f = factor[r] + parts * j;
            vf scale = vset(f[0]);
            if (parts == 2) scale = (vf)_mm256_blend_ps((__m256)scale, _mm256_set1_ps(f[1]), 0xf0);
            sum[r][j % 2] += dot * scale;
        }
    }
}

// A weight row times C rows of activations; C is a constant in every copy.
INLINE void multiply_row(int type, const Tensor *t, int f, const Int8Activations *a, size_t a_stride, int C, float *y,
                         size_t y_stride, bool add) {
    const uint8_t *row = (const uint8_t *)t->data + (size_t)f * t->row_bytes;
    size_t block_bytes = superblock_bytes(type);
    int whole = t->n_in / SUPERBLOCK;
    vf sum[MOST_ROWS][2] = {0};
    for (int s = 0; s < whole; s++) {
        const uint8_t *p = row + (size_t)s * block_bytes;
        for (size_t at = 0; at < block_bytes; at += 64) __builtin_prefetch(p + AHEAD + at);
        add_superblock(type, p, a + s, a_stride, C, sum);
    }
    if (t->n_in % SUPERBLOCK) { // blocks that are not there have scales of zero
        uint8_t last[8 * sizeof(BlockQ8_0)] = {0};
        size_t done = (size_t)whole * block_bytes;
        memcpy(last, row + done, t->row_bytes - done);
        add_superblock(type, last, a + whole, a_stride, C, sum);
    }
#pragma GCC unroll 4
    for (int r = 0; r < C; r++) {
        float *out = &y[(size_t)r * y_stride + (size_t)f], value = vsum(sum[r][0] + sum[r][1]);
        if (t->bias) value += t->bias[f];
        *out = add ? *out + value : value;
    }
}

INLINE void multiply_features(int type, const Tensor *t, int first, int last, const Int8Activations *a, size_t a_stride,
                              int C, float *y, size_t y_stride, bool add) {
    for (int f = first; f < last; f++) multiply_row(type, t, f, a, a_stride, C, y, y_stride, add);
}

const MatrixKernel *cpu_madd_matrix(int type) { return int8_matrix(type); }
