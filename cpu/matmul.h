// cpu/matmul.h: products of a layer's matrices with rows of activations: which kernel computes them, and how they are
// cut into tasks.
//
// Few rows use matvec or its int8 counterpart, which read the weights once, directly from the file's blocks. Many rows
// use a matrix kernel, for which the activations are packed first.
#ifndef QUILL_CPU_MATMUL_H
#define QUILL_CPU_MATMUL_H

#include "cpu/cpu.h"

enum { MATMUL_JOBS = 4 }; // the most jobs in one call

// Number of rows up to which the int8 kernels are faster than panels of weights in f32, which cost as much for one row
// as for a tile of 16 or 32. If the vector units multiply bytes or bf16 (int8_panels, bf16_lanes), these panels are
// used from their min_rows on. With a matrix unit int8 weights are multiplied directly from the file up to their
// most_rows, at a cost for every 16 rows; unpacking to bf16 costs more, but only once. This applies to decoding: short
// prompts use bf16 from its min_rows on, which keeps a model's perplexity within 0.1% of the reference.
enum { INT8_ROWS_MAX = 32 };

// y (+)= W x for one matrix. Up to MATMUL_JOBS jobs that share x run together. With a gate, y is act(gate x) * (W x),
// packed.
typedef struct {
    const Tensor *w;
    float *y;
    size_t y_stride;
    bool add;
    const Tensor *gate;
    Activation act;
} MatmulJob;

// The rows of activations of a product.
typedef struct {
    const float *x;
    size_t stride;
    int n;
    const void *packed; // the rows if they are packed already, otherwise NULL
    const float *norm;  // weights of an RMSNorm that is applied to the rows first; NULL: none
    float eps;
    bool decodes; // batch_decodes of their batch
    bool exact;   // compute in f32, whatever the type of the weights
} MatmulRows;

// The best kernel of the table for n_rows; NULL: matvec. With CpuKernels.in_order the kernel does not depend on the
// number of rows. decodes: batch_decodes of the batch.
const MatrixKernel *matmul_kernel(const CpuKernels *k, const Tensor *t, int n_rows, bool decodes);
// The kernel that multiplies gate and up together and packs their result for down, in no more than n_rows rows of f32;
// NULL: there is none for these tensors.
const MatrixKernel *matmul_glu_kernel(const CpuKernels *k, const Tensor *gate, const Tensor *up, const Tensor *down,
                                      int n_rows, bool decodes);
// The most bytes of the packed rows of one call, whose jobs may need all layouts.
size_t matmul_packed_bytes(const CpuKernels *k, int max_rows, int max_n_in);

// The bytes of the largest single layout.
size_t matmul_packed_most(const CpuKernels *k, int max_rows, int max_n_in);

// All rows of a batch at x, `stride` floats apart; or the RMSNorm of the rows of w->x.
MatmulRows matmul_rows(const float *x, int stride, const Batch *b);
MatmulRows matmul_normed_rows(const Workspace *w, const float *norm, float eps, const Batch *b);

// w->xn = the RMSNorm of n rows of w->x: row rows[i], or row i if `rows` is NULL.
void matmul_norm(const CpuKernels *k, Workspace *w, const float *norm, float eps, const int *rows, int n);

// Computes up to MATMUL_JOBS jobs that share their rows.
void matmul_run(const CpuKernels *k, Workspace *w, const MatmulJob *jobs, int n_jobs, MatmulRows rows);

#endif
