// cpu/int8_vnni.c: products of few rows in integers: quantised weights, directly from the file, times activations in
// int8.
//
// The CPU (AVX-512 with VNNI) multiplies unsigned bytes of weights by the activations and adds four products in a lane.
// int8_weights.h and int8_block.h explain how both become bytes, and how offsets are subtracted. The limit is memory
// and not arithmetic. Rows of weights that are multiplied together are far apart in memory: each is a stream of its
// own, in other pages, and the hardware's prefetchers follow several streams at once. This reaches 88 to 93% of a plain
// loop's bandwidth, against 66 to 75% with neighbouring rows. Software prefetches in two distances cover the rest.
#define QUILL_SIMD 512
#include "cpu/cpuid.h"
#include "cpu/int8_block.h"
#define EACH_TYPE_HERE EACH_OTHER_TYPE // cpu/int8_whole.c has the K types
typedef Int8Activations RowActivations;
#include "cpu/int8.h"

enum {
    STREAMS = 4,  // rows of weights that are multiplied together with one row of activations
    FAR = 1536,   // prefetch distance in bytes into L2
    NEAR = 768,   // and into L1
    ALONE = 2048, // prefetch distance if a single row of weights is multiplied by several rows of activations
};

// ---- types of nibbles -----------------------------------------------------------------------------------------------
//
// Their blocks store the elements 0 to 15 in the low and 16 to 31 in the high nibbles of 16 bytes. A register has those
// bytes of four blocks. Its low and its high nibbles are multiplied into the same sums: those of a block are in one
// lane of 128 bits, and two conversions and scales are enough for a superblock. The activations are packed in this
// order: of four blocks the first halves, then the second halves.

INLINE bool in_nibbles(int type) {
    return type == TYPE_Q4_0 || type == TYPE_Q4_1 || type == TYPE_Q5_0 || type == TYPE_Q5_1 || type == TYPE_IQ4_NL ||
           type == TYPE_IQ4_XS || type == TYPE_MXFP4;
}

// MatrixKernel.pack
static void pack_in_nibbles(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    Int8Activations *a = (Int8Activations *)packed + (size_t)tile * superblocks_of(n_in);
    pack_quantized(packed, tile, x, x_stride, n_rows, n_in);
    const __m512i first = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13),
                  second = _mm512_add_epi64(first, _mm512_set1_epi64(2));
    for (size_t s = 0; s < superblocks_of(n_in); s++)
        for (int8_t *q = a[s].q; q < a[s].q + SUPERBLOCK; q += 128) {
            __m512i two = _mm512_loadu_si512(q), other = _mm512_loadu_si512(q + 64);
            _mm512_storeu_si512(q, _mm512_permutex2var_epi64(two, first, other));
            _mm512_storeu_si512(q + 64, _mm512_permutex2var_epi64(two, second, other));
        }
}

// The nibbles of the blocks `first` to `first` + 3 of a superblock. One instruction chooses words from two registers.
INLINE __m512i nibbles_of_four(int type, const uint8_t *p, int first) {
    const int stride = (int)superblock_bytes(type) / 8, head = stride - 16; // bytes in front of the nibbles
    if (type == TYPE_IQ4_XS) return _mm512_loadu_si512(((const BlockIQ4_XS *)(const void *)p)->qs + 16 * first);
    // Where the two registers are loaded from. In blocks of 17 bytes the nibbles of every second block begin at an odd
    // place.
    const int end = first ? 8 * stride - 128 : 0;
    const int from[2] = {stride % 2 ? first * stride + head : end, stride % 2 ? (first + 4) * stride - 64 : end + 64};
    short words[32];
    UNROLL(32)
    for (int i = 0; i < 32; i++) {
        int block = i / 8, at = (first + block) * stride + head + 2 * (i % 8);
        int in = stride % 2 ? block % 2 : at >= from[1];
        words[i] = (short)(32 * in + (at - from[in]) / 2);
    }
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(p + from[0]), _mm512_loadu_si512(words),
                                     _mm512_loadu_si512(p + from[1]));
}

// Adds 16 to the elements of four blocks whose fifth bit is set. p: the 32 bits of the first block.
INLINE void add_fifth_bits(const uint8_t *p, size_t stride, __m512i u[2]) {
    UNROLL(2)
    for (size_t i = 0; i < 2; i++) {
        uint64_t set = 0;
        UNROLL(4)
        for (size_t j = 0; j < 4; j++) {
            uint16_t word;
            memcpy(&word, p + j * stride + 2 * i, sizeof word);
            set |= (uint64_t)word << 16 * j;
        }
        u[i] = _mm512_mask_add_epi8(u[i], set, u[i], bytes(16));
    }
}

// Loads a superblock. u[0] and u[1] are of its first four blocks.
INLINE void load_nibbles(int type, const uint8_t *p, Int8Weights *w) {
    const size_t stride = superblock_bytes(type) / 8;
    const BlockIQ4_XS *xs = (const void *)p;
    if (type == TYPE_IQ4_XS || type == TYPE_MXFP4) {
        __m256 d = type == TYPE_MXFP4 ? mxfp4_scales(p) : scales_iq4_xs(xs);
        w->scale = join(d, d);
    } else w->scale = _mm512_cvtph_ps(heads(p, (int)stride, type_has_minimum(type)));
    UNROLL(2)
    for (int four = 0; four < 2; four++) {
        __m512i *u = w->u + 2 * four, v = nibbles_of_four(type, p, 4 * four);
        u[0] = _mm512_and_si512(v, bytes(15));
        u[1] = _mm512_and_si512(_mm512_srli_epi32(v, 4), bytes(15));
        if (type == TYPE_Q5_0 || type == TYPE_Q5_1) add_fifth_bits(p + (4 * four + 1) * stride - 20, stride, u);
        UNROLL(2)
        for (int i = 0; i < 2; i++) {
            if (type == TYPE_MXFP4) u[i] = mxfp4_levels(u[i]);
            if (type == TYPE_IQ4_NL || type == TYPE_IQ4_XS) u[i] = iq4_levels(u[i]);
        }
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

INLINE void load_superblock(int type, const uint8_t *p, Int8Weights *w) {
    if (in_nibbles(type)) load_nibbles(type, p, w);
    else load_weights(type, p, w);
}

// sum += the products of a superblock; by_sum += the contribution of the activations' sums, without sum_factor (in the
// upper half of the lanes if scales are of 32).
INLINE void add_superblock(int type, const Int8Weights *w, const Int8Activations *a, __m512 sum[2], __m512 *by_sum) {
    __m512 scale = _mm512_loadu_ps(a->scale), factor;
    if (scales_16(type)) {
        const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        factor = _mm512_mul_ps(w->scale, _mm512_permutexvar_ps(twice, scale));
        *by_sum = _mm512_fmadd_ps(w->by_sum16, _mm512_loadu_ps(a->sum16), *by_sum);
    } else {
        factor = _mm512_mul_ps(w->scale, scale); // with the sums in the upper half
        *by_sum = _mm512_add_ps(*by_sum, factor);
    }
    // Sums of one block are in each lane of 128 bits, or of 256 bits. The factors of blocks are spread to the lanes.
    const bool small_lanes = scales_16(type) || in_nibbles(type);
    const int step = in_nibbles(type) ? 2 : 1; // registers of weights whose products are added up
    UNROLL(4)
    for (int i = 0; i < 4; i += step) {
        __m512i spread = small_lanes ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3) : halves(0, 1);
        spread = _mm512_add_epi32(spread, _mm512_set1_epi32((small_lanes ? 4 : 2) * i / step));
        __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w->u[i], _mm512_loadu_si512(a->q + 64 * i));
        if (step == 2) dot = _mm512_dpbusd_epi32(dot, w->u[i + 1], _mm512_loadu_si512(a->q + 64 * (i + 1)));
        __m512 *to = &sum[i / step % 2];
        *to = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(spread, factor), *to);
    }
}

// Multiplies F weight rows, `apart` rows apart, by C rows of activations; F and C are constants in every copy.
INLINE void multiply_rows(int type, const Tensor *t, int f, int F, int apart, const Int8Activations *a, size_t a_stride,
                          int C, float *y, size_t y_stride, bool add) {
    const uint8_t *row = (const uint8_t *)t->data + (size_t)f * t->row_bytes;
    size_t block_bytes = superblock_bytes(type), row_step = (size_t)apart * t->row_bytes;
    int whole = t->n_in / SUPERBLOCK;
    __m512 sum[STREAMS][MOST_ROWS][2], by_sum[STREAMS][MOST_ROWS]; // in registers: F C <= 4
    Int8Weights w;
    UNROLL(4)
    for (int i = 0; i < F; i++) UNROLL(4)
    for (int c = 0; c < C; c++) sum[i][c][0] = sum[i][c][1] = by_sum[i][c] = _mm512_setzero_ps();
    for (int s = 0; s < whole; s++) UNROLL(4)
    for (int i = 0; i < F; i++) {
        const uint8_t *p = row + (size_t)i * row_step + (size_t)s * block_bytes;
        for (size_t at = 0; at < block_bytes; at += 64) {
            if (F == 1) {
                __builtin_prefetch(p + ALONE + at, 0, 3);
                continue;
            }
            __builtin_prefetch(p + FAR + at, 0, 2);
            __builtin_prefetch(p + NEAR + at, 0, 3);
        }
        load_superblock(type, p, &w);
        UNROLL(4)
        for (int c = 0; c < C; c++)
            add_superblock(type, &w, &a[(size_t)c * a_stride + (size_t)s], sum[i][c], &by_sum[i][c]);
    }
    if (t->n_in % SUPERBLOCK) UNROLL(4)
    for (int i = 0; i < F; i++) {
        SuperblockRoom room;
        size_t done = (size_t)whole * block_bytes;
        load_superblock(type, superblock_whole(type, row + (size_t)i * row_step + done, t->row_bytes - done, room), &w);
        UNROLL(4)
        for (int c = 0; c < C; c++)
            add_superblock(type, &w, &a[(size_t)c * a_stride + (size_t)whole], sum[i][c], &by_sum[i][c]);
    }
    UNROLL(4)
    for (int i = 0; i < F; i++) UNROLL(4)
    for (int c = 0; c < C; c++) {
        __m512 rest =
            _mm512_maskz_mul_ps(scales_16(type) ? 0xffff : 0xff00, by_sum[i][c], _mm512_set1_ps(sum_factor(type)));
        float value = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[i][c][0], sum[i][c][1]), rest));
        put_product(t, f + i * apart, value, y + (size_t)c * y_stride, add);
    }
}

// Multiplies a range of features; rows that are multiplied together are an equal part of the range apart.
INLINE void multiply_features(int type, const Tensor *t, int first, int last, const Int8Activations *a, size_t a_stride,
                              int C, float *y, size_t y_stride, bool add) {
    const int F = C == 1 ? STREAMS : C == 2 ? STREAMS / 2 : 1;
    int apart = (last - first) / F, f = first;
    for (; f < first + apart; f++) multiply_rows(type, t, f, F, apart, a, a_stride, C, y, y_stride, add);
    for (f = first + F * apart; f < last; f++) multiply_rows(type, t, f, 1, 1, a, a_stride, C, y, y_stride, add);
}

const MatrixKernel *cpu_vnni_bytes(int type) {
    static const MatrixKernel plain = INT8_ROWS_KERNEL(pack_quantized), nibbles = INT8_ROWS_KERNEL(pack_in_nibbles);
    if (!rows_function(type, 1)) return NULL;
    return in_nibbles(type) ? &nibbles : &plain;
}

const MatrixKernel *cpu_vnni_matrix(int type) {
    const MatrixKernel *books = cpuid_has_vbmi() ? cpu_vnni_books(type) : NULL, *of_bytes = cpu_vnni_bytes(type);
    return books ? books : of_bytes ? of_bytes : cpu_vnni_whole(type);
}
