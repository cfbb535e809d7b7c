// cpu/int8_whole.c: products of K types with few rows of activations, in integers. A superblock of 256 elements is
// converted to f32 once. AVX-512 with VNNI. cpu/int8_vnni.c computes the other types.
//
// A scale of such a type is a whole number times d of its superblock. Here a scale of the activations is a whole number
// times a unit of their superblock. So the factor of a product of two blocks is a whole number, of at most 15 bits.
//
// dpbusd adds four products of bytes; the sum fits into 16 bits. Two registers of sums are packed into one. dpwssd
// multiplies them by the factors and adds up. The sum of a superblock fits into 32 bits: a lane gets 16 products, each
// at most 63 (weight) x 128 (its scale) x 127 (activation) x 127 (its scale), together 2.08e9.
//
// The scales of four rows of weights are unpacked together, in 128 bits for each row. As in cpu/int8_vnni.c, rows that
// are multiplied together are far apart in memory.
#define QUILL_SIMD 512
#include "cpu/int8_block.h"

// ---- activations ----------------------------------------------------------------------------------------------------

// A superblock of activations. x is about unit times q, with the number of units (`times`) of the element's block.
typedef struct {
    int8_t q[SUPERBLOCK];             // in the order that every_second() describes
    int16_t times16[16], whole16[16]; // units, at most MOST_TIMES, and the sum of q, for each 16 elements
    int16_t times[8], whole[8];       // the same for each 32 elements
    float unit;
    char pad[28]; // q is aligned to 64 bytes
} WholeActivations;
enum { MOST_TIMES = 127 };
_Static_assert(sizeof(WholeActivations) % 64 == 0, "aligned loads of q");

#define EACH_TYPE_HERE EACH_K_TYPE
typedef WholeActivations RowActivations;
#include "cpu/int8.h"

enum {
    STREAMS = 4, // rows of weights that are multiplied together
    FAR = 3072,  // prefetch distance in bytes into L2
    NEAR = 384,  // and into L1
};

// Q4_K and Q5_K store blocks b and b + 1 in the low and high nibbles of the same 32 bytes. A load of 64 bytes gives the
// low nibbles of the blocks b and b + 2, so their activations are packed in the order 0, 2, 1, 3, 4, 6, 5, 7.
INLINE bool every_second(int type) { return type == TYPE_Q4_K || type == TYPE_Q5_K; }

// Quantises a superblock. The block with the largest magnitude has a scale of MOST_TIMES units. The scale of every
// other block is rounded up to whole units. That increases the squared error of the superblock by 1% at most, on
// average.
static void quantize_whole(const float *x, WholeActivations *to, bool every_second) {
    float largest[8], most = 0;
    for (int b = 0; b < 8; b++) {
        largest[b] = largest32(x + 32 * b);
        if (!(largest[b] <= most) && most == most) most = largest[b]; // NaN is the largest
    }
    if (most <= MOST_TIMES * INT8_TINY) most = 0; // 1 / unit might be infinite
    to->unit = most / (127 * MOST_TIMES);
    for (int b = 0; b < 8; b++) {
        float times = most > 0 ? ceilf(largest[b] / most * MOST_TIMES) : 0;
        if (!(times < MOST_TIMES)) times = MOST_TIMES; // also if infinity was divided by infinity
        float scale = to->unit * times;
        int place = every_second && (b % 4 == 1 || b % 4 == 2) ? b ^ 3 : b, sum[2];
        quantize32(x + 32 * b, scale > 0 ? 1 / scale : 0, to->q + 32 * place, sum);
        to->times[b] = (int16_t)times;
        to->whole[b] = (int16_t)(sum[0] + sum[1]);
        for (int half = 0; half < 2; half++) {
            to->times16[2 * b + half] = (int16_t)times;
            to->whole16[2 * b + half] = (int16_t)sum[half];
        }
    }
}

// Rows of K types are whole superblocks.
static void pack_row(WholeActivations *to, const float *x, int n_in, bool every_second) {
    for (int i = 0; i < n_in; i += SUPERBLOCK) quantize_whole(x + i, to++, every_second);
}

// MatrixKernel.pack
static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    (void)x_stride;
    (void)n_rows; // a tile is one row
    pack_row((WholeActivations *)packed + (size_t)tile * superblocks_of(n_in), x, n_in, false);
}
static void pack_every_second(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    (void)x_stride;
    (void)n_rows;
    pack_row((WholeActivations *)packed + (size_t)tile * superblocks_of(n_in), x, n_in, true);
}

// ---- scales ---------------------------------------------------------------------------------------------------------

// The scales of up to four rows: 128 bits for each row.
typedef struct {
    __m512i scale[2];   // words: eight scales of 32 elements; or those of the first and the last eight blocks of 16
    __m512i minimum[2]; // likewise
    __m512 d, dmin;     // four times the same number
} WholeScales;

// The same 32 bits of each row, by their place in the row.
INLINE __m512i in_each_row(int a, int b, int c, int d) { return _mm512_set4_epi32(d, c, b, a); }

// Loads 16 bytes from each of F rows of weights (1 or 4). The rows are `step` bytes apart.
INLINE __m512i bytes_of_rows(const uint8_t *p, size_t step, int F) {
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    if (F == 1) return v;
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + step)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 2 * step)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(p + 3 * step)), 3);
}

// One half of each row, as a float, four times.
INLINE __m512 halves_of_rows(const uint8_t *p, size_t step, int F) {
    uint64_t halves = 0;
    UNROLL(4)
    for (int i = 0; i < F; i++) {
        half_bits h;
        memcpy(&h, p + (size_t)i * step, sizeof h);
        halves |= (uint64_t)h << 16 * i;
    }
    __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves)));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), d);
}

// Bytes of each row as words: the first eight, then the last.
INLINE void signed_words(__m512i v, __m512i words[2]) {
    words[0] = _mm512_srai_epi16(_mm512_unpacklo_epi8(v, v), 8);
    words[1] = _mm512_srai_epi16(_mm512_unpackhi_epi8(v, v), 8);
}
INLINE void unsigned_words(__m512i v, __m512i words[2]) {
    words[0] = _mm512_unpacklo_epi8(v, _mm512_setzero_si512());
    words[1] = _mm512_unpackhi_epi8(v, _mm512_setzero_si512());
}

// Q4_K and Q5_K begin with 16 bytes of d, dmin, and six bits of each scale and minimum (k4_scale_min).
INLINE void whole_scales_k4(const uint8_t *p, size_t step, int F, WholeScales *w) {
    __m512i head = bytes_of_rows(p, step, F), words[2];
    __m512i low = _mm512_srlv_epi32(_mm512_shuffle_epi32(head, 0xed), in_each_row(0, 0, 0, 4));
    __m512i high = _mm512_srli_epi32(_mm512_shuffle_epi32(head, 0x95), 2); // the top bits of s 4..7 and m 4..7
    low =
        _mm512_and_si512(low, in_each_row(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)); // s 0..3, 4..7, m likewise
    unsigned_words(_mm512_ternarylogic_epi32(low, high, in_each_row(0, 0x30303030, 0, 0x30303030), 0xf8), words);
    w->scale[0] = words[0];
    w->minimum[0] = words[1];
    const __m512i halves_at = _mm512_set_epi16(25, 25, 25, 25, 17, 17, 17, 17, 9, 9, 9, 9, 1, 1, 1, 1, // dmin
                                               24, 24, 24, 24, 16, 16, 16, 16, 8, 8, 8, 8, 0, 0, 0, 0);
    __m512i d = _mm512_permutexvar_epi16(halves_at, head);
    w->d = _mm512_cvtph_ps(_mm512_castsi512_si256(d));
    w->dmin = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(d, 1));
}

INLINE void whole_scales_q6_k(const uint8_t *p, size_t step, int F, WholeScales *w) {
    signed_words(bytes_of_rows(p + offsetof(BlockQ6_K, scales), step, F), w->scale);
    w->d = halves_of_rows(p + offsetof(BlockQ6_K, d), step, F);
}

INLINE void whole_scales_q3_k(const uint8_t *p, size_t step, int F, WholeScales *w) { // as scales_k3
    __m512i tail = bytes_of_rows(p + sizeof(BlockQ3_K) - 16, step, F);
    __m512i low = _mm512_shuffle_epi8(tail, in_each_row(0x05040302, 0x09080706, 0x05040302, 0x09080706));
    __m512i high = _mm512_shuffle_epi8(tail, _mm512_set1_epi32(0x0d0c0b0a));
    low = _mm512_and_si512(_mm512_srlv_epi32(low, in_each_row(0, 0, 4, 4)), bytes(15));
    high = _mm512_and_si512(_mm512_srlv_epi32(high, in_each_row(0, 2, 4, 6)), bytes(3));
    signed_words(_mm512_sub_epi8(_mm512_or_si512(low, _mm512_slli_epi16(high, 4)), bytes(32)), w->scale);
    w->d = halves_of_rows(p + offsetof(BlockQ3_K, d), step, F);
}

INLINE void whole_scales_q2_k(const uint8_t *p, size_t step, int F, WholeScales *w) {
    __m512i both = bytes_of_rows(p + offsetof(BlockQ2_K, scales), step, F);
    unsigned_words(_mm512_and_si512(both, bytes(15)), w->scale);
    unsigned_words(_mm512_and_si512(_mm512_srli_epi16(both, 4), bytes(15)), w->minimum);
    w->d = halves_of_rows(p + offsetof(BlockQ2_K, d), step, F);
    w->dmin = halves_of_rows(p + offsetof(BlockQ2_K, dmin), step, F);
}

INLINE void whole_scales(int type, const uint8_t *p, size_t step, int F, WholeScales *w) {
    switch (type) {
    case TYPE_Q2_K: whole_scales_q2_k(p, step, F, w); break;
    case TYPE_Q3_K: whole_scales_q3_k(p, step, F, w); break;
    case TYPE_Q6_K: whole_scales_q6_k(p, step, F, w); break;
    default: whole_scales_k4(p, step, F, w);
    }
}

// Whether the bytes of odd blocks of 32 are 4 times the weights, so that their two bits need no shift.
INLINE bool odd_times_4(int type) { return type == TYPE_Q2_K || type == TYPE_Q3_K; }

// What the sums of a superblock of up to four rows of weights are multiplied by, for each row of activations.
typedef struct {
    _Alignas(64) int16_t factor[MOST_ROWS][2][32]; // for each row eight words, in the order of WholeScales.scale
    _Alignas(64) float d[MOST_ROWS][16];           // d times unit, four times for each row
} WholeFactors;

// Computes the factors of F rows of weights and C rows of activations, and adds to by_sum (128 bits for each row of
// weights) what offsets and minima subtract, without sum_factor.
INLINE void begin_whole(int type, const uint8_t *p, size_t step, int F, const WholeActivations *a, size_t a_stride,
                        int C, WholeFactors *to, __m512 by_sum[MOST_ROWS]) {
    const int parts = scales_16(type) ? 2 : 1;
    WholeScales w;
    whole_scales(type, p, step, F, &w);
    UNROLL(4)
    for (int c = 0; c < C; c++) {
        const WholeActivations *x = a + (size_t)c * a_stride;
        __m512i subtract = _mm512_setzero_si512();
        UNROLL(2)
        for (int half = 0; half < parts; half++) {
            const int16_t *t = scales_16(type) ? x->times16 + 8 * half : x->times;
            const int16_t *s = scales_16(type) ? x->whole16 + 8 * half : x->whole;
            __m512i times = _mm512_broadcast_i32x4(_mm_load_si128((const void *)t));
            __m512i sums = _mm512_broadcast_i32x4(_mm_load_si128((const void *)s));
            __m512i factor = _mm512_mullo_epi16(w.scale[half], times);
            __m512i of_sums = type_has_minimum(type) ? _mm512_mullo_epi16(w.minimum[half], times) : factor;
            subtract = _mm512_dpwssd_epi32(subtract, of_sums, sums);
            if (odd_times_4(type)) factor = _mm512_sllv_epi16(factor, in_each_row(0x00020002, 0, 0x00020002, 0));
            _mm512_store_si512(to->factor[c][half], factor);
        }
        __m512 unit = _mm512_set1_ps(x->unit), d = _mm512_mul_ps(w.d, unit);
        __m512 of_sums = type_has_minimum(type) ? _mm512_mul_ps(w.dmin, unit) : d;
        by_sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(subtract), of_sums, by_sum[c]);
        _mm512_store_ps(to->d[c], odd_times_4(type) ? _mm512_mul_ps(d, _mm512_set1_ps(0.25f)) : d);
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// `shifted` for two shifts to the same side. A rotation would take the units of dpbusd.
INLINE __m512i shifted_one_way(__m512i v, int low, int high) {
    if (low >= 0 && high >= 0) return _mm512_srlv_epi32(v, halves(low, high));
    return _mm512_sllv_epi32(v, halves(-low, -high));
}

// 64 weights as unsigned bytes: register i of four, in the order of the packed activations.
INLINE __m512i whole_weights(int type, const uint8_t *p, int i) {
    const BlockQ2_K *q2 = (const void *)p;
    const BlockQ3_K *q3 = (const void *)p;
    const BlockQ4_K *q4 = (const void *)p;
    const BlockQ5_K *q5 = (const void *)p;
    const BlockQ6_K *q6 = (const void *)p;
    const int odd = i % 2, second = i / 2;
    __m512i v, high;
    switch (type) {
    case TYPE_Q2_K:
    case TYPE_Q3_K:
        v = load_both((type == TYPE_Q2_K ? q2->qs : q3->qs) + 32 * second);
        v = _mm512_and_si512(odd ? shifted_one_way(v, 4, 4) : v, halves(0x03030303, 0x0c0c0c0c));
        if (type == TYPE_Q2_K) return v;
        high = shifted_one_way(load_both(q3->hmask), 2 * i - 2, 2 * i - 3);
        return _mm512_ternarylogic_epi32(v, high, halves(0x04040404, 0x10101010), 0xf8); // a | b & c
    case TYPE_Q6_K:
        v = _mm512_loadu_si512(q6->ql + 64 * second);
        high = load_both(q6->qh + 32 * second);
        high = odd ? shifted_one_way(high, 0, 2) : shifted_one_way(high, -4, -2);
        return with_bits(_mm512_and_si512(odd ? shifted_one_way(v, 4, 4) : v, bytes(15)), high, 0x30);
    default:
        v = _mm512_loadu_si512((type == TYPE_Q4_K ? q4->qs : q5->qs) + 64 * second);
        v = _mm512_and_si512(odd ? shifted_one_way(v, 4, 4) : v, bytes(15));
        if (type == TYPE_Q4_K) return v;
        high = shifted_one_way(load_both(q5->qh), 4 * second + odd - 4, 4 * second + odd - 2); // of blocks b and b + 2
        return with_bits(v, high, 16);
    }
}

// For each lane of 128 bits which of the eight words are the factors of its two blocks, four words each.
INLINE __m512i words_of_lanes(int type, int half) {
#define TWO(a, b)                                                                                                      \
    0x0101010101010101 * (2 * (b)) + 0x0100010001000100, 0x0101010101010101 * (2 * (a)) + 0x0100010001000100
    if (scales_16(type)) return _mm512_set_epi64(TWO(3, 7), TWO(2, 6), TWO(1, 5), TWO(0, 4));
    const int b = 4 * half;
    if (every_second(type)) return _mm512_set_epi64(TWO(b + 2, b + 3), TWO(b + 2, b + 3), TWO(b, b + 1), TWO(b, b + 1));
    return _mm512_set_epi64(TWO(b + 1, b + 3), TWO(b + 1, b + 3), TWO(b, b + 2), TWO(b, b + 2));
#undef TWO
}

// sum[c] += the products of a superblock, which is of row i of the factors, with row c of the activations.
INLINE void add_whole(int type, const uint8_t *p, int i, const WholeFactors *f, const WholeActivations *a,
                      size_t a_stride, int C, __m512 sum[MOST_ROWS]) {
    __m512i u[4];
    UNROLL(4)
    for (int k = 0; k < 4; k++) u[k] = whole_weights(type, p, k);
    UNROLL(4)
    for (int c = 0; c < C; c++) {
        const int8_t *q = a[(size_t)c * a_stride].q;
        __m512i all = _mm512_setzero_si512();
        UNROLL(2)
        for (int half = 0; half < 2; half++) {
            __m512i dot[2];
            UNROLL(2)
            for (int k = 0; k < 2; k++)
                dot[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u[2 * half + k],
                                             _mm512_load_si512(q + 64 * (2 * half + k)));
            const int16_t *eight = f->factor[c][scales_16(type) ? half : 0] + 8 * i;
            __m512i factors = _mm512_broadcast_i32x4(_mm_load_si128((const void *)eight));
            factors = _mm512_shuffle_epi8(factors, words_of_lanes(type, half));
            all = _mm512_dpwssd_epi32(all, _mm512_packs_epi32(dot[0], dot[1]), factors);
        }
        sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), _mm512_set1_ps(f->d[c][4 * i]), sum[c]);
    }
}

// Multiplies F rows of weights, `apart` rows apart, by C rows of activations; F and C are constants in every copy. The
// factors of the next superblock are computed first, so that the products of this one hide their latency.
INLINE void multiply_rows(int type, const Tensor *t, int f, int F, int apart, const WholeActivations *a,
                          size_t a_stride, int C, float *y, size_t y_stride, bool add) {
    const uint8_t *row = (const uint8_t *)t->data + (size_t)f * t->row_bytes;
    const size_t block_bytes = superblock_bytes(type), row_step = (size_t)apart * t->row_bytes;
    const int n = t->n_in / SUPERBLOCK; // rows of K types are whole superblocks
    __m512 sum[STREAMS][MOST_ROWS], by_sum[MOST_ROWS];
    WholeFactors factors[2];
    UNROLL(4)
    for (int c = 0; c < C; c++) {
        by_sum[c] = _mm512_setzero_ps();
        UNROLL(4)
        for (int i = 0; i < F; i++) sum[i][c] = _mm512_setzero_ps();
    }
    begin_whole(type, row, row_step, F, a, a_stride, C, &factors[0], by_sum);
    for (int s = 0; s < n; s++, a++, row += block_bytes) {
        if (s + 1 < n)
            begin_whole(type, row + block_bytes, row_step, F, a + 1, a_stride, C, &factors[(s + 1) & 1], by_sum);
        UNROLL(4)
        for (int i = 0; i < F; i++) {
            const uint8_t *p = row + (size_t)i * row_step;
            for (size_t at = 0; at < block_bytes; at += 64) {
                __builtin_prefetch(p + FAR + at, 0, 2);
                __builtin_prefetch(p + NEAR + at, 0, 3);
            }
            add_whole(type, p, i, &factors[s & 1], a, a_stride, C, sum[i]);
        }
    }
    UNROLL(4)
    for (int c = 0; c < C; c++) {
        float rest[16];
        _mm512_storeu_ps(rest, _mm512_mul_ps(by_sum[c], _mm512_set1_ps(sum_factor(type))));
        UNROLL(4)
        for (int i = 0; i < F; i++) {
            int feature = f + i * apart;
            float *out = &y[(size_t)c * y_stride + (size_t)feature], value = _mm512_reduce_add_ps(sum[i][c]);
            value += (rest[4 * i] + rest[4 * i + 1]) + (rest[4 * i + 2] + rest[4 * i + 3]);
            if (t->bias) value += t->bias[feature];
            *out = add ? *out + value : value;
        }
    }
}

INLINE void multiply_features(int type, const Tensor *t, int first, int last, const WholeActivations *a,
                              size_t a_stride, int C, float *y, size_t y_stride, bool add) {
    int apart = (last - first) / STREAMS, f = first;
    for (; f < first + apart; f++) multiply_rows(type, t, f, STREAMS, apart, a, a_stride, C, y, y_stride, add);
    for (f = first + STREAMS * apart; f < last; f++) multiply_rows(type, t, f, 1, 1, a, a_stride, C, y, y_stride, add);
}

const MatrixKernel *cpu_vnni_whole(int type) {
    static const MatrixKernel plain = INT8_ROWS_KERNEL(pack), second = INT8_ROWS_KERNEL(pack_every_second);
    if (!rows_function(type, 1)) return NULL;
    return every_second(type) ? &second : &plain;
}
