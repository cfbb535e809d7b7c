// int8.h: what kernels of quantised weights times activations in int8 share (cpu_int8.c, cpu_madd.c): how activations
// lie, one function a type and number of rows, and the kernel as cpu.h has it. An instruction set adds the two
// functions that are declared and not defined here.
#ifndef QUILL_INT8_H
#define QUILL_INT8_H

#include "cpu.h"

#include "unpack.h"

#include <limits.h>

enum {
    SLAB = 256,           // elements that are done together: a super-block, or eight small ones
    MOST_ROWS = 4,        // of activations past one read of the weights
    FEATURES_A_TIME = 16, // past all rows of activations: their weights are in the cache for the second group of rows
};

// x ~ scale q. The sums are of the q that were stored, times their scale.
typedef struct {
    int8_t q[SLAB];
    float scale[8], sum[8]; // of 32
    float sum16[16];        // of 16
} Activations;

static size_t slabs_of(int n_in) { return ((size_t)n_in + SLAB - 1) / SLAB; }

static size_t packed_bytes(int n_rows, int n_in) { return (size_t)n_rows * slabs_of(n_in) * sizeof(Activations); }

// 32 elements, block b of a slab.
static void quantize32(const float *x, Activations *a, int b);

// Features [first, last) times C rows of activations; type and C are constants in every copy.
INLINE void multiply_features(int type, const Tensor *t, int first, int last, const Activations *a, size_t a_stride,
                              int C, float *y, size_t y_stride, bool add);

// The types of this kernel have whole blocks of 32; what a slab lacks is zero.
static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    (void)x_stride;
    (void)n_rows; // a tile is one row
    Activations *a = (Activations *)packed + (size_t)tile * slabs_of(n_in);
    for (int i = 0; i < n_in; i += SLAB, a++) {
        if (n_in - i < SLAB) memset(a, 0, sizeof *a);
        for (int b = 0; b < 8 && i + 32 * b < n_in; b++) quantize32(x + i + 32 * b, a, b);
    }
}

INLINE bool sixteens(int type) { return type == TYPE_Q2_K || type == TYPE_Q3_K || type == TYPE_Q6_K; }

INLINE size_t slab_bytes_of(int type) {
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
    default: return 8 * sizeof(BlockQ4_0); // and IQ4_NL
    }
}

// clang-format off
#define EACH_QUANTISED(X) \
    X(TYPE_Q4_0) X(TYPE_Q4_1) X(TYPE_Q5_0) X(TYPE_Q5_1) X(TYPE_Q8_0)   X(TYPE_Q2_K) \
    X(TYPE_Q3_K) X(TYPE_Q4_K) X(TYPE_Q5_K) X(TYPE_Q6_K) X(TYPE_IQ4_NL) X(TYPE_IQ4_XS)
// clang-format on

// One function a type and number of rows, as matvec has them.
typedef void MultiplyRows(const Tensor *t, int first, int last, const Activations *a, size_t a_stride, float *y,
                          size_t y_stride, bool add);

#define DEFINE_ROWS(TYPE, C)                                                                                           \
    static                                                                                                             \
        __attribute__((noinline)) void rows_##TYPE##_##C(const Tensor *t, int first, int last, const Activations *a,   \
                                                         size_t a_stride, float *y, size_t y_stride, bool add) {       \
        multiply_features(TYPE, t, first, last, a, a_stride, C, y, y_stride, add);                                     \
    }
#define DEFINE_TYPE(TYPE)                                                                                              \
    DEFINE_ROWS(TYPE, 1)                                                                                               \
    DEFINE_ROWS(TYPE, 2)                                                                                               \
    DEFINE_ROWS(TYPE, 3)                                                                                               \
    DEFINE_ROWS(TYPE, 4)
EACH_QUANTISED(DEFINE_TYPE)

#define TYPE_CASE(TYPE)                                                                                                \
    case TYPE: {                                                                                                       \
        static MultiplyRows *const functions[] = {rows_##TYPE##_1, rows_##TYPE##_2, rows_##TYPE##_3, rows_##TYPE##_4}; \
        return functions[n_rows - 1];                                                                                  \
    }
static MultiplyRows *rows_function(int type, int n_rows) {
    switch (type) { EACH_QUANTISED(TYPE_CASE) }
    return NULL;
}

static void run(const Tensor *w, int first, int last, const void *packed, int first_row, int n_rows, float *y,
                size_t y_stride, bool add, void *scratch) {
    (void)scratch;
    size_t slabs = slabs_of(w->n_in);
    int step = n_rows <= MOST_ROWS ? last - first : FEATURES_A_TIME;
    for (int f = first; f < last; f += step)
        for (int r = first_row; r < first_row + n_rows; r += MOST_ROWS)
            rows_function(w->type, int_min(MOST_ROWS, first_row + n_rows - r))(
                w, f, int_min(f + step, last), (const Activations *)packed + (size_t)r * slabs, slabs,
                y + (size_t)r * y_stride, y_stride, add);
}

// The kernel for a type, or NULL.
static const MatrixKernel *int8_matrix(int type) {
    static const MatrixKernel kernel = {
        .min_rows = 1,
        .tile = 1,
        .rows = INT_MAX,
        .packed_bytes = packed_bytes,
        .pack = pack,
        .run = run,
    };
    return rows_function(type, 1) ? &kernel : NULL;
}

#endif
