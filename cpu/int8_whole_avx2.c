// cpu/int8_whole_avx2.c: products of K types and IQ4_XS with few rows of activations, in integers, with AVX2. A
// superblock of 256 elements is converted to f32 once. cpu/int8_avx2.c computes the other types.
//
// maddubs multiplies bytes and adds two products in 16 bits, as in cpu/int8_avx2.c. madd multiplies such sums by the
// factors of their blocks and adds two of them in 32 bits. A lane gets 32 products of a superblock. A weight times its
// scale is at most 127 x 32 (IQ4_XS). An activation times its scale is at most 127 x 127. So 32 products are at most
// 2.10e9, which fits. Weights of Q6_K times their scales are larger, up to 63 x 128: its sums are converted to f32
// after 16 products (2.08e9). The products of offsets and minima are subtracted in f32.
#include "cpu/int8_units.h"

#define EACH_TYPE_HERE EACH_WHOLE_TYPE
typedef WholeActivations RowActivations;
#include "cpu/int8.h"

enum {
    AHEAD = 2048, // bytes to prefetch ahead of the loop
};

DEFINE_PACK(pack_in_file_order, IN_FILE_ORDER)

// ---- scales ---------------------------------------------------------------------------------------------------------

typedef struct {
    __m256i scale;   // words: sixteen of 16 elements, or eight of 32, each twice
    __m256i by_sum;  // scales of 16: words that multiply the activations' sums
    vf minimum;      // scales of 32: the minima, times dmin
    float d, of_sum; // of_sum: what by_sum is multiplied by
} NarrowScales;

INLINE __m128i load16(const void *p) { return _mm_loadu_si128(p); }

INLINE void whole_scales(int type, const uint8_t *p, NarrowScales *w) {
    // for shuffles: bytes 0 to 7 as words, each twice; the low halves of eight 32-bit numbers, each twice
    const __m256i bytes_twice = _mm256_setr_epi32(0x80008000u, 0x80018001u, 0x80028002u, 0x80038003u, 0x80048004u,
                                                  0x80058005u, 0x80068006u, 0x80078007u);
    const __m256i words_twice =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0x01000100, 0x05040504, 0x09080908, 0x0d0c0d0c));
    const BlockQ2_K *q2 = (const void *)p;
    const BlockQ3_K *q3 = (const void *)p;
    const BlockQ6_K *q6 = (const void *)p;
    const BlockIQ4_XS *xs = (const void *)p;
    const __m128i four = _mm_set1_epi8(15);
    __m128i s;
    switch (type) {
    case TYPE_Q2_K:
        s = load16(q2->scales);
        w->scale = _mm256_cvtepu8_epi16(_mm_and_si128(s, four));
        w->by_sum = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(s, 4), four));
        w->d = half_scale(q2->d);
        w->of_sum = half_scale(q2->dmin);
        break;
    case TYPE_Q3_K:
    case TYPE_Q6_K:
        w->scale = w->by_sum = _mm256_cvtepi8_epi16(type == TYPE_Q3_K ? scales_k3(q3) : load16(q6->scales));
        w->d = half_scale(type == TYPE_Q3_K ? q3->d : q6->d);
        w->of_sum = w->d * offset_of(type);
        break;
    case TYPE_IQ4_XS:
        w->scale = _mm256_shuffle_epi8(six_bit_scales_iq4_xs(xs), words_twice);
        w->d = half_scale(xs->d);
        break;
    default: // Q4_K and Q5_K, which begin alike
        s = six_bit_scales_k4(p);
        w->scale = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(s), bytes_twice);
        w->d = half_scale(((const BlockQ4_K *)(const void *)p)->d);
        w->minimum = minima_k4(p, s);
    }
}

// What the sums of a superblock are multiplied by, for each row of activations.
typedef struct {
    _Alignas(32) int16_t factor[MOST_ROWS][16]; // in the order of NarrowScales.scale
    float d[MOST_ROWS];                         // d times unit
} NarrowFactors;

// Computes them, and subtracts from the sums what comes from offsets and minima.
INLINE void begin_whole(int type, const uint8_t *p, const WholeActivations *a, size_t a_stride, int C,
                        NarrowFactors *to, vf sum[MOST_ROWS]) {
    NarrowScales w;
    whole_scales(type, p, &w);
    UNROLL(4)
    for (int c = 0; c < C; c++) {
        const WholeActivations *x = a + (size_t)c * a_stride;
        __m256i times = q_load(x->times16), factor = _mm256_mullo_epi16(w.scale, times);
        _mm256_store_si256((__m256i *)(void *)to->factor[c], factor);
        to->d[c] = w.d * x->unit;
        if (scales_16(type)) {
            __m256i by_sum = type == TYPE_Q2_K ? _mm256_mullo_epi16(w.by_sum, times) : factor;
            by_sum = _mm256_madd_epi16(by_sum, q_load(x->whole16));
            sum[c] -= (vf)_mm256_cvtepi32_ps(by_sum) * vset(w.of_sum * x->unit);
        } else if (type != TYPE_IQ4_XS) sum[c] -= w.minimum * vload(x->sum);
    }
    // Factors are loaded to all lanes for nothing beside the products; compilers would shuffle registers instead.
    __asm__("" : "+m"(to->factor));
}

// ---- products -------------------------------------------------------------------------------------------------------

// The factors of block j: one in all lanes, or those of its halves in theirs.
INLINE __m256i factors_of(int type, const int16_t factor[16], int j) {
    if (!scales_16(type)) {
        int twice;
        memcpy(&twice, factor + 2 * j, sizeof twice);
        return _mm256_set1_epi32(twice);
    }
    const int low = 0x01000100 + 0x04040404 * (j % 4), high = low + 0x02020202; // bytes of words 2 j and 2 j + 1
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(factor + j / 4 * 8)),
                               _mm256_setr_epi32(low, low, low, low, high, high, high, high));
}

// sum += the products of a superblock with C rows of activations.
INLINE void add_whole(int type, const uint8_t *p, const NarrowFactors *f, const WholeActivations *a, size_t a_stride,
                      int C, vf sum[MOST_ROWS]) {
    const int blocks = type == TYPE_Q6_K ? 4 : 8; // as many as fit into 32 bits
    __m256i all[MOST_ROWS];
    UNROLL(8)
    for (int j = 0; j < 8; j++) {
        q32 signs, u = unsigned_of(type, p, j, NULL, &signs);
        UNROLL(4)
        for (int c = 0; c < C; c++) {
            q32 x = q_load(a[(size_t)c * a_stride].q + 32 * j);
            if (is_signed(type)) x = _mm256_sign_epi8(x, signs);
            __m256i dot = _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), factors_of(type, f->factor[c], j));
            all[c] = j % blocks == 0 ? dot : _mm256_add_epi32(all[c], dot);
            __asm__("" : "+x"(all[c])); // keeps the order: compilers would add as a tree and store its sums
            if (j % blocks == blocks - 1) sum[c] += (vf)_mm256_cvtepi32_ps(all[c]) * vset(f->d[c]);
        }
    }
}

// Multiplies a weight row by C rows of activations; C is a constant in every copy. The factors of a superblock are
// computed before the products of the superblock before it, which hide their latency.
INLINE void multiply_row(int type, const Tensor *t, int f, const WholeActivations *a, size_t a_stride, int C, float *y,
                         size_t y_stride, bool add) {
    const uint8_t *p = (const uint8_t *)t->data + (size_t)f * t->row_bytes;
    const size_t block_bytes = superblock_bytes(type);
    const int n = t->n_in / SUPERBLOCK;
    vf sum[MOST_ROWS] = {0};
    NarrowFactors factors[2];
    begin_whole(type, p, a, a_stride, C, &factors[0], sum);
    for (int s = 0; s < n; s++, a++, p += block_bytes) {
        for (size_t at = 0; at < block_bytes; at += 64) __builtin_prefetch(p + AHEAD + at);
        if (s + 1 < n) begin_whole(type, p + block_bytes, a + 1, a_stride, C, &factors[(s + 1) & 1], sum);
        add_whole(type, p, &factors[s & 1], a, a_stride, C, sum);
    }
    UNROLL(4)
    for (int c = 0; c < C; c++) put_product(t, f, vsum(sum[c]), y + (size_t)c * y_stride, add);
}

INLINE void multiply_features(int type, const Tensor *t, int first, int last, const WholeActivations *a,
                              size_t a_stride, int C, float *y, size_t y_stride, bool add) {
    for (int f = first; f < last; f++) multiply_row(type, t, f, a, a_stride, C, y, y_stride, add);
}

const MatrixKernel *cpu_madd_whole(int type) {
    static const MatrixKernel kernel = INT8_ROWS_KERNEL(pack_in_file_order);
    return rows_function(type, 1) ? &kernel : NULL;
}
