// cpu/int8_whole.c: products of K types with few rows of activations, in integers. A superblock of 256 elements is
// converted to f32 once. AVX-512 with VNNI. cpu/int8_vnni.c computes the other types.
//
// The factor of a product of two blocks is a whole number of at most 15 bits (cpu/int8_units.h).
//
// dpbusd adds four products of bytes; the sum fits into 16 bits. Two registers of sums are packed into one. dpwssd
// multiplies them by the factors and adds up. The sum of a superblock fits into 32 bits: a lane gets 16 products, each
// at most 63 (weight) x 128 (its scale) x 127 (activation) x 127 (its scale), together 2.08e9.
//
// The scales of four rows of weights are unpacked together, in 128 bits for each row. As in cpu/int8_vnni.c, rows that
// are multiplied together are far apart in memory.
#define QUILL_SIMD 512
#include "cpu/int8_units.h"

#define EACH_TYPE_HERE EACH_K_TYPE
typedef WholeActivations RowActivations;
#include "cpu/int8.h"

enum {
    STREAMS = 4, // rows of weights that are multiplied together
    FAR = 3072,  // prefetch distance in bytes into L2
    NEAR = 384,  // and into L1
};

// ---- activations ----------------------------------------------------------------------------------------------------

INLINE BlockOrder order_of(int type) {
    if (type == TYPE_Q2_K || type == TYPE_Q3_K) return BY_HALVES;
    return type == TYPE_Q4_K || type == TYPE_Q5_K ? EVERY_SECOND : IN_FILE_ORDER;
}

DEFINE_PACK(pack_in_file_order, IN_FILE_ORDER)
DEFINE_PACK(pack_every_second, EVERY_SECOND)
DEFINE_PACK(pack_by_halves, BY_HALVES)

// ---- scales ---------------------------------------------------------------------------------------------------------

// The scales of up to four rows: 128 bits for each row.
typedef struct {
    __m512i scale[2]; // words: eight scales of 32 elements; or those of the first and the last eight blocks of 16
    __m512i minimum;  // words of 32 elements; or 16 bytes in file order
    __m512 d, dmin;   // four times the same number
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

// The elements a, b, c and d, each four times.
INLINE __m512 each_four_times(__m512 v, int a, int b, int c, int d) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d), v);
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
    return each_four_times(_mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves))), 0, 1, 2, 3);
}
// Two halves of each row that follow each other.
INLINE void two_halves_of_rows(const uint8_t *p, size_t step, int F, __m512 *first, __m512 *second) {
    int both[4] = {0};
    UNROLL(4)
    for (int i = 0; i < F; i++) memcpy(&both[i], p + (size_t)i * step, sizeof both[i]);
    __m128i all = _mm_insert_epi32(_mm_insert_epi32(_mm_cvtsi32_si128(both[0]), both[1], 1), both[2], 2);
    __m512 v = _mm512_castps256_ps512(_mm256_cvtph_ps(_mm_insert_epi32(all, both[3], 3)));
    *first = each_four_times(v, 0, 2, 4, 6);
    *second = each_four_times(v, 1, 3, 5, 7);
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
// Likewise in the order BY_HALVES: 0, 1, 8, 9, 2, 3, 10, 11, then the others.
INLINE void words_by_halves(__m512i v, __m512i words[2]) {
    const int zeros = (int)0x80008000; // two indices of 0x80 give zeros
    words[0] = _mm512_shuffle_epi8(
        v, in_each_row(zeros | 0x00010000, zeros | 0x00090008, zeros | 0x00030002, zeros | 0x000b000a));
    words[1] = _mm512_shuffle_epi8(
        v, in_each_row(zeros | 0x00050004, zeros | 0x000d000c, zeros | 0x00070006, zeros | 0x000f000e));
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
    w->minimum = words[1];
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
    words_by_halves(_mm512_or_si512(low, _mm512_slli_epi16(high, 4)), w->scale);
    for (int half = 0; half < 2; half++) w->scale[half] = _mm512_sub_epi16(w->scale[half], _mm512_set1_epi16(32));
    w->d = halves_of_rows(p + offsetof(BlockQ3_K, d), step, F);
}

INLINE void whole_scales_q2_k(const uint8_t *p, size_t step, int F, WholeScales *w) {
    __m512i both = bytes_of_rows(p + offsetof(BlockQ2_K, scales), step, F);
    words_by_halves(_mm512_and_si512(both, bytes(15)), w->scale);
    w->minimum = _mm512_and_si512(_mm512_srli_epi16(both, 4), bytes(15));
    _Static_assert(offsetof(BlockQ2_K, dmin) == offsetof(BlockQ2_K, d) + 2, "two halves");
    two_halves_of_rows(p + offsetof(BlockQ2_K, d), step, F, &w->d, &w->dmin);
}

INLINE void whole_scales(int type, const uint8_t *p, size_t step, int F, WholeScales *w) {
    switch (type) {
    case TYPE_Q2_K: whole_scales_q2_k(p, step, F, w); break;
    case TYPE_Q3_K: whole_scales_q3_k(p, step, F, w); break;
    case TYPE_Q6_K: whole_scales_q6_k(p, step, F, w); break;
    default: whole_scales_k4(p, step, F, w);
    }
}

// What the sums of a superblock of up to four rows of weights are multiplied by, for each row of activations.
typedef struct {
    _Alignas(64) int16_t factor[MOST_ROWS][2][32]; // for each row eight words, in the order of WholeScales.scale
    _Alignas(64) float d[MOST_ROWS][16];           // d times unit, four times for each row
} WholeFactors;

// Returns for each row of weights what is subtracted from the products of a superblock. That is the sum over its blocks
// of minimum times sum of activations; of a type without minima, of factor times sum of activations.
INLINE __m512i subtracted(int type, const WholeScales *w, const __m512i factor[2], const WholeActivations *x) {
    __m512i sum = _mm512_setzero_si512();
    if (type == TYPE_Q2_K) {
        UNROLL(3)
        for (int i = 0; i < 3; i++) {
            __m512i digits = _mm512_broadcast_i32x4(_mm_load_si128((const void *)x->product[i]));
            sum = _mm512_dpbusd_epi32(i > 0 ? _mm512_slli_epi32(sum, 8) : sum, w->minimum, digits);
        }
        return sum;
    }
    if (!scales_16(type)) {
        __m512i times = _mm512_broadcast_i32x4(_mm_load_si128((const void *)x->times));
        __m512i whole = _mm512_broadcast_i32x4(_mm_load_si128((const void *)x->whole));
        return _mm512_dpwssd_epi32(sum, _mm512_mullo_epi16(w->minimum, times), whole);
    }
    UNROLL(2)
    for (int half = 0; half < 2; half++) {
        __m512i whole = _mm512_broadcast_i32x4(_mm_load_si128((const void *)(x->whole16 + 8 * half)));
        sum = _mm512_dpwssd_epi32(sum, factor[half], whole);
    }
    return sum;
}

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
        __m512i factor[2];
        UNROLL(2)
        for (int half = 0; half < parts; half++) {
            const int16_t *t = scales_16(type) ? x->times16 + 8 * half : x->times;
            __m512i times = _mm512_broadcast_i32x4(_mm_load_si128((const void *)t));
            factor[half] = _mm512_mullo_epi16(w.scale[half], times);
            _mm512_store_si512(to->factor[c][half], factor[half]);
        }
        __m512 unit = _mm512_set1_ps(x->unit), d = _mm512_mul_ps(w.d, unit);
        __m512 of_sums = type_has_minimum(type) ? _mm512_mul_ps(w.dmin, unit) : d;
        by_sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(subtracted(type, &w, factor, x)), of_sums, by_sum[c]);
        _mm512_store_ps(to->d[c], d);
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// `shifted` for two shifts to the same side. A rotation would take the units of dpbusd.
INLINE __m512i shifted_one_way(__m512i v, int low, int high) {
    if (low >= 0 && high >= 0) return _mm512_srlv_epi32(v, halves(low, high));
    return _mm512_sllv_epi32(v, halves(-low, -high));
}

// A table of 16 bytes for shuffles: `value` for the nibbles that have bit i, otherwise 0.
INLINE __m512i bit_of_nibble(int i, int value) {
    uint32_t four[4] = {0, 0, 0, 0};
    UNROLL(16)
    for (int nibble = 0; nibble < 16; nibble++)
        if (nibble >> i & 1) four[nibble / 4] |= (uint32_t)value << 8 * (nibble % 4);
    return in_each_row((int)four[0], (int)four[1], (int)four[2], (int)four[3]);
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
    case TYPE_Q3_K: // blocks i and i + 4
        v = _mm512_loadu_si512(type == TYPE_Q2_K ? q2->qs : q3->qs);
        __asm__("" : "+v"(v)); // keeps it in a register: each load would cross a line of the cache
        if (second) v = _mm512_srli_epi32(v, 4);
        if (type == TYPE_Q2_K) return _mm512_and_si512(v, bytes(odd ? 0x0c : 0x03));
        high = _mm512_and_si512(shifted_one_way(load_both(q3->hmask), 0, 4), bytes(15));
        high = _mm512_shuffle_epi8(bit_of_nibble(i, odd ? 0x10 : 0x04), high);
        return _mm512_ternarylogic_epi32(v, bytes(odd ? 0x0c : 0x03), high, 0xea); // a & b | c
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
    if (order_of(type) == EVERY_SECOND)
        return _mm512_set_epi64(TWO(b + 2, b + 3), TWO(b + 2, b + 3), TWO(b, b + 1), TWO(b, b + 1));
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
    const float share = order_of(type) == BY_HALVES ? 1.0f / TOO_LARGE : 1;
    const float of_sums = type == TYPE_Q2_K ? sum_factor(type) : share * sum_factor(type);
    UNROLL(4)
    for (int c = 0; c < C; c++) {
        float rest[16];
        _mm512_storeu_ps(rest, _mm512_mul_ps(by_sum[c], _mm512_set1_ps(of_sums)));
        UNROLL(4)
        for (int i = 0; i < F; i++) {
            float value = share * _mm512_reduce_add_ps(sum[i][c]);
            value += (rest[4 * i] + rest[4 * i + 1]) + (rest[4 * i + 2] + rest[4 * i + 3]);
            put_product(t, f + i * apart, value, y + (size_t)c * y_stride, add);
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
    static const MatrixKernel kernels[] = {
        [IN_FILE_ORDER] = INT8_ROWS_KERNEL(pack_in_file_order),
        [EVERY_SECOND] = INT8_ROWS_KERNEL(pack_every_second),
        [BY_HALVES] = INT8_ROWS_KERNEL(pack_by_halves),
    };
    return rows_function(type, 1) ? &kernels[order_of(type)] : NULL;
}
