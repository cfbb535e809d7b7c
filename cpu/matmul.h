// cpu/matmul.h: products of a layer's matrices with rows of activations: which kernel computes them, and how they are
// cut into tasks.
//
// Few rows go through matvec or its int8 twin, which read the weights once, straight from the file's blocks; many rows
// go through a matrix kernel, for which the activations are packed first.
#ifndef QUILL_CPU_MATMUL_H
#define QUILL_CPU_MATMUL_H

#include "cpu/cpu.h"

enum { MATMUL_JOBS = 3 }; // at most, in one call

// Number of rows up to which the int8 kernels are faster than panels of weights in f32 (INT8_ROWS_MAX) or bf16
// (INT8_TILES_MAX, with a matrix unit). Without a matrix unit f32 panels cost as much for one row as for a tile of 16
// or 32. With one, int8 weights are multiplied where they lie, at a cost for every 16 rows; unpacking to bf16 costs
// more, but once. Where the vectors multiply bytes or bf16 (int8_panels, bf16_lanes), panels take over from their
// min_rows on. INT8_TILES_MAX is for decoding: short prompts keep bf16, with which a model's perplexity stays within
// 0.1% of the reference.
enum { INT8_ROWS_MAX = 32, INT8_TILES_MAX = 48 };

// y (+)= W x for one matrix; up to MATMUL_JOBS that share x run together. With a gate y is act(gate x) * (W x), packed.
typedef struct {
    const Tensor *w;
    float *y;
    size_t y_stride;
    bool add;
    const Tensor *gate;
    Activation act;
} MatmulJob;

// The rows of activations that a product takes.
typedef struct {
    const float *x;
    size_t stride;
    int n;
    const void *packed; // where they are packed already, otherwise NULL
    const float *norm;  // the product is of their RMSNorm with these weights, otherwise NULL
    float eps;
    bool decodes; // batch_decodes of their batch
    bool exact;   // in f32, whatever the type of the weights
} MatmulRows;

// The best kernel of the table for so many rows; NULL: matvec. Where the order of sums may not depend on the number of
// rows (CpuKernels.in_order), it is one for all. decodes: batch_decodes of the batch.
const MatrixKernel *matmul_kernel(const CpuKernels *k, const Tensor *t, int n_rows, bool decodes);
// Bytes that the packed rows of one call take at most: the jobs of a call may need every layout that there is.
size_t matmul_packed_bytes(const CpuKernels *k, int max_rows, int max_n_in);

// The same of one layout: the largest.
size_t matmul_packed_most(const CpuKernels *k, int max_rows, int max_n_in);
// The kernel that computes in f32, for so many rows; NULL: matvec.
const MatrixKernel *matmul_kernel_exact(const CpuKernels *k, int n_rows);

// All rows of a batch at x, `stride` floats apart; or the RMSNorm of the rows of w->x.
MatmulRows matmul_rows(const float *x, int stride, const Batch *b);
MatmulRows matmul_normed_rows(const Workspace *w, const float *norm, float eps, const Batch *b);

// w->xn = the RMSNorm of n rows of w->x: rows[i], or i where rows is NULL.
void matmul_norm(const CpuKernels *k, Workspace *w, const float *norm, float eps, const int *rows, int n);

// Computes up to MATMUL_JOBS jobs that share their rows.
void matmul_run(const CpuKernels *k, Workspace *w, const MatmulJob *jobs, int n_jobs, MatmulRows rows);

#endif
