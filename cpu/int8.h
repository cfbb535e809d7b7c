// cpu/int8.h: shared by the kernels that multiply quantised weights by a few rows of activations in int8
// (cpu/int8_vnni.c, cpu/int8_whole.c, cpu/int8_books.c, cpu/int8_avx2.c, cpu/int8_whole_avx2.c): one function for each
// type and number of rows, and the MatrixKernel. The including file defines EACH_TYPE_HERE(X), its types,
// RowActivations, a superblock of packed activations, and multiply_features, which is only declared here.
#ifndef QUILL_INT8_H
#define QUILL_INT8_H

#include "cpu/cpu.h"

#include <limits.h>

enum {
    MOST_ROWS = 4,        // rows of activations that share one read of the weights
    FEATURES_A_TIME = 16, // features for all rows of activations: the second group of rows finds the weights in cache
};

static size_t packed_bytes(int n_rows, int n_in) {
    return (size_t)n_rows * superblocks_of(n_in) * sizeof(RowActivations);
}

// Stores the product of feature f and a row, or adds it to what is there. y: the row's results.
INLINE void put_product(const Tensor *t, int f, float value, float *y, bool add) {
    if (t->bias) value += t->bias[f];
    y[f] = add ? y[f] + value : value;
}

// Multiplies features [first, last) by C rows of activations; type and C are constants in every copy.
INLINE void multiply_features(int type, const Tensor *t, int first, int last, const RowActivations *a, size_t a_stride,
                              int C, float *y, size_t y_stride, bool add);

// One function for each type and number of rows.
typedef void MultiplyRows(const Tensor *t, int first, int last, const RowActivations *a, size_t a_stride, float *y,
                          size_t y_stride, bool add);

#define DEFINE_ROWS(TYPE, C)                                                                                           \
    static __attribute__((noinline)) void rows_##TYPE##_##C(const Tensor *t, int first, int last,                      \
                                                            const RowActivations *a, size_t a_stride, float *y,        \
                                                            size_t y_stride, bool add) {                               \
        multiply_features(TYPE, t, first, last, a, a_stride, C, y, y_stride, add);                                     \
    }
#define DEFINE_TYPE(TYPE)                                                                                              \
    DEFINE_ROWS(TYPE, 1)                                                                                               \
    DEFINE_ROWS(TYPE, 2)                                                                                               \
    DEFINE_ROWS(TYPE, 3)                                                                                               \
    DEFINE_ROWS(TYPE, 4)
EACH_TYPE_HERE(DEFINE_TYPE)

#define TYPE_CASE(TYPE)                                                                                                \
    case TYPE: {                                                                                                       \
        static MultiplyRows *const functions[] = {rows_##TYPE##_1, rows_##TYPE##_2, rows_##TYPE##_3, rows_##TYPE##_4}; \
        return functions[n_rows - 1];                                                                                  \
    }
static MultiplyRows *rows_function(int type, int n_rows) {
    switch (type) { EACH_TYPE_HERE(TYPE_CASE) }
    return NULL;
}

static void run_int8_rows(const MatrixTask *t) {
    size_t n_superblocks = superblocks_of(t->w->n_in);
    int step = t->n_rows <= MOST_ROWS ? t->last - t->first : FEATURES_A_TIME, end = t->first_row + t->n_rows;
    for (int f = t->first; f < t->last; f += step)
        for (int r = t->first_row; r < end; r += MOST_ROWS)
            rows_function(t->w->type, int_min(MOST_ROWS, end - r))(
                t->w, f, int_min(f + step, t->last), (const RowActivations *)t->packed + (size_t)r * n_superblocks,
                n_superblocks, t->y + (size_t)r * t->y_stride, t->y_stride, t->add);
}

// The kernel for the types of the file; PACK is its MatrixKernel.pack, for tiles of one row.
#define INT8_ROWS_KERNEL(PACK)                                                                                         \
    { .min_rows = 1, .tile = 1, .rows = INT_MAX, .packed_bytes = packed_bytes, .pack = PACK, .run = run_int8_rows }

#endif
