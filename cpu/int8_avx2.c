// cpu/int8_avx2.c: products of few rows in integers with AVX2. cpu/int8_vnni.c does the same with VNNI.
//
// A row of activations is quantised once, with one scale for 32 elements. maddubs multiplies unsigned by signed bytes
// and adds two products in 16 bits. That cannot overflow here: weights of up to six bits are used as unsigned, and
// their offset or minimum is subtracted with the help of the activations' sums; for signed weights the magnitude is
// multiplied and the sign is moved to the activation, and 2 x 128 x 127 still fits. Sums of 32 products are exact;
// scales are applied once for 16 or 32 elements, in f32. This file is compiled twice: for AVX-VNNI, dpbusd replaces
// maddubs. With AVX2 alone, cpu/int8_whole_avx2.c computes K types and IQ4_XS.
#include "cpu/int8_block.h"
#if defined(__AVXVNNI__)
#define EACH_TYPE_HERE EACH_QUANTISED
#else
#define EACH_TYPE_HERE EACH_F32_TYPE
#endif
typedef Int8Activations RowActivations;
#include "cpu/int8.h"

enum {
    AHEAD = 2048, // bytes to prefetch ahead of the loop
};

// ---- products -------------------------------------------------------------------------------------------------------

// Sums of four products in each lane.
INLINE __m256i dot4(int type, q32 u, q32 signs, q32 x) {
    if (is_signed(type)) x = _mm256_sign_epi8(x, signs);
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), u, x);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1));
#endif
}

// The part of a superblock's products that comes from offsets or minima, to be subtracted.
INLINE vf by_sums(int type, const SuperblockScales *c, const Int8Activations *a, int i) {
    vf sums = vload((scales_16(type) ? a->sum16 : a->sum) + VL * i);
    return (type_has_minimum(type) ? vload(c->m + VL * i) : vload(c->s + VL * i) * offset_of(type)) * sums;
}

// What the products of a superblock with some rows are multiplied by.
typedef struct {
    _Alignas(32) float factor[MOST_ROWS][16];
    SuperblockScales c; // of codebook types, which have signs there
} BlockFactors;

// Computes them, and subtracts from the sums what comes from offsets and minima.
INLINE void begin_superblock(int type, const uint8_t *superblock, const Int8Activations *a, size_t a_stride, int C,
                             BlockFactors *b, vf sum[MOST_ROWS][2]) {
    const int parts = scales_16(type) ? 2 : 1; // scales of a block of 32
    SuperblockScales c;
    superblock_scales(type, superblock, &c);
    if (is_book(type)) b->c = c;
    UNROLL(4)
    for (int r = 0; r < C; r++) UNROLL(2)
    for (int i = 0; i < parts; i++) {
        const Int8Activations *x = &a[(size_t)r * a_stride];
        vf scale = vload(x->scale);
        if (parts == 2) { // repeats each activation scale for two weight scales
            const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
            scale = (vf)_mm256_permutevar8x32_ps((__m256)scale, _mm256_add_epi32(twice, _mm256_set1_epi32(4 * i)));
        }
        vstore(b->factor[r] + VL * i, vload(c.s + VL * i) * scale);
        if (type_has_minimum(type) || offset_of(type) > 0) sum[r][i] -= by_sums(type, &c, x, i);
    }
    // A factor is loaded to all lanes for nothing beside the products; compilers would shuffle registers instead. The
    // look-ups of codebook types need the loads.
    if (!is_book(type)) __asm__("" : "+m"(b->factor));
}

// sum += the products of a superblock with C rows of activations.
INLINE void add_superblock(int type, const uint8_t *superblock, const Int8Activations *a, size_t a_stride, int C,
                           const BlockFactors *b, vf sum[MOST_ROWS][2]) {
    const int factors = scales_16(type) ? 2 : 1;
    UNROLL(8)
    for (int j = 0; j < 8; j++) {
        q32 signs, u = unsigned_of(type, superblock, j, &b->c, &signs);
        UNROLL(4)
        for (int r = 0; r < C; r++) {
            vf dot = (vf)_mm256_cvtepi32_ps(dot4(type, u, signs, q_load(a[(size_t)r * a_stride].q + 32 * j)));
            const float *f = b->factor[r] + factors * j;
            vf scale = vset(f[0]);
            if (factors == 2) scale = (vf)_mm256_blend_ps((__m256)scale, _mm256_set1_ps(f[1]), 0xf0);
            sum[r][j % 2] += dot * scale;
        }
    }
}

// Multiplies a weight row by C rows of activations; C is a constant in every copy. The factors of a superblock are
// computed before the products of the superblock before it, which hide their latency.
INLINE void multiply_row(int type, const Tensor *t, int f, const Int8Activations *a, size_t a_stride, int C, float *y,
                         size_t y_stride, bool add) {
    const bool early = !is_book(type); // those have more to compute beside their products
    const uint8_t *p = (const uint8_t *)t->data + (size_t)f * t->row_bytes;
    size_t block_bytes = superblock_bytes(type);
    int whole = t->n_in / SUPERBLOCK;
    vf sum[MOST_ROWS][2] = {0};
    BlockFactors factors[2];
    if (early && whole > 0) begin_superblock(type, p, a, a_stride, C, &factors[0], sum);
    for (int s = 0; s < whole; s++, p += block_bytes) {
        for (size_t at = 0; at < block_bytes; at += 64) __builtin_prefetch(p + AHEAD + at);
        int next = early ? s + 1 : s;
        if (next < whole)
            begin_superblock(type, p + (size_t)(next - s) * block_bytes, a + next, a_stride, C,
                             &factors[early ? next & 1 : 0], sum);
        add_superblock(type, p, a + s, a_stride, C, &factors[early ? s & 1 : 0], sum);
    }
    if (t->n_in % SUPERBLOCK) {
        SuperblockRoom room;
        const uint8_t *last = superblock_whole(type, p, t->row_bytes - (size_t)whole * block_bytes, room);
        begin_superblock(type, last, a + whole, a_stride, C, &factors[0], sum);
        add_superblock(type, last, a + whole, a_stride, C, &factors[0], sum);
    }
    UNROLL(4)
    for (int r = 0; r < C; r++) put_product(t, f, vsum(sum[r][0] + sum[r][1]), y + (size_t)r * y_stride, add);
}

INLINE void multiply_features(int type, const Tensor *t, int first, int last, const Int8Activations *a, size_t a_stride,
                              int C, float *y, size_t y_stride, bool add) {
    for (int f = first; f < last; f++) multiply_row(type, t, f, a, a_stride, C, y, y_stride, add);
}

#if defined(__AVXVNNI__)
#define INT8_MATRIX cpu_avxvnni_matrix
#define INT8_OTHERS(type) NULL
#else
#define INT8_MATRIX cpu_madd_matrix
#define INT8_OTHERS(type) cpu_madd_whole(type)
#endif
const MatrixKernel *INT8_MATRIX(int type) {
    static const MatrixKernel kernel = INT8_ROWS_KERNEL(pack_quantized);
    return rows_function(type, 1) ? &kernel : INT8_OTHERS(type);
}
