// cpu/int8_vnni.c: products of few rows in integers: quantised weights, directly from the file, times activations in
// int8.
//
// The CPU (AVX-512 with VNNI) multiplies unsigned bytes of weights by the activations and adds four products in a lane.
// int8_block.h explains how both become bytes, and how offsets are subtracted. The limit is memory and not arithmetic.
// Rows of weights that are multiplied together are far apart in memory: each is a stream of its own, in other pages,
// and the hardware's prefetchers follow several streams at once. This reaches 88 to 93% of a plain loop's bandwidth,
// against 66 to 75% with neighbouring rows. Software prefetches in two distances cover the rest.
#define QUILL_SIMD 512
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

// ---- products -------------------------------------------------------------------------------------------------------

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
    UNROLL(4)
    for (int i = 0; i < 4; i++) { // each lane has four elements: spreads the factors of blocks to lanes
        __m512i spread =
            scales_16(type) ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3) : halves(0, 1);
        spread = _mm512_add_epi32(spread, _mm512_set1_epi32(scales_16(type) ? 4 * i : 2 * i));
        __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w->u[i], _mm512_loadu_si512(a->q + 64 * i));
        sum[i % 2] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(spread, factor), sum[i % 2]);
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
        load_weights(type, p, &w);
        UNROLL(4)
        for (int c = 0; c < C; c++)
            add_superblock(type, &w, &a[(size_t)c * a_stride + (size_t)s], sum[i][c], &by_sum[i][c]);
    }
    if (t->n_in % SUPERBLOCK) UNROLL(4)
    for (int i = 0; i < F; i++) {
        SuperblockRoom room;
        size_t done = (size_t)whole * block_bytes;
        load_weights(type, superblock_whole(type, row + (size_t)i * row_step + done, t->row_bytes - done, room), &w);
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
        int feature = f + i * apart;
        float *out = &y[(size_t)c * y_stride + (size_t)feature];
        if (t->bias) value += t->bias[feature];
        *out = add ? *out + value : value;
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

const MatrixKernel *cpu_vnni_matrix(int type) {
    static const MatrixKernel kernel = INT8_ROWS_KERNEL(pack_quantized);
    return rows_function(type, 1) ? &kernel : cpu_vnni_whole(type);
}
