// gpu/cuda_products.h: products of many rows with a stack of matrices, by cuBLAS, with dense weights or slices unpacked
// to a dense type.
#ifndef QUILL_CUDA_PRODUCTS_H
#define QUILL_CUDA_PRODUCTS_H

#include "gpu/cuda_model.h"
#include "gpu/cuda_scratch.h"

// Queues y (n_rows, n) = x W^T, or += with `add`. W: rows [first, first + n) of the stack; x (n_rows, n_in) is of
// k->type; rows of y are y_stride floats apart.
void cuda_products_multiply(CudaScratch *s, const Stack *k, int first, int n, const void *x, int n_rows, float *y,
                            size_t y_stride, bool add);
// Queues h (n_rows, width) of `type` = act(gate + its bias) * (up + its bias), or ACT_XIELU of the one product; k: the
// stack of gate and up; x as above.
// Overwrites CudaScratch.y, which is in BF16 if x and h are, so that the products are rounded once more.
void cuda_products_gated(CudaScratch *s, const Stack *k, const void *x, int n_rows, const LayerKind *kind, void *h,
                         int type);

// Products of heads with their own matrices, M.
typedef struct {
    int n_heads;      // of the stack
    int first, n;     // heads [first, first + n) are multiplied
    GpuHeadRows x, y; // of head `first` on; x is of the stack's type, and all heads have the same if x.head is 0
    int y_type;       // F32 or the stack's type
    int n_rows;
    bool transposed; // y = M^T x in place of M x
} HeadProducts;
// Queues one batched product; several if the weights must be unpacked in slices.
void cuda_products_heads(CudaScratch *s, const Stack *k, const HeadProducts *p);

#endif
