// cpu/stack_product.h: multiplies each matrix of a stack with its own input rows: experts with the rows routed to them,
// heads with their part of every row.
//
// A pair is one input row of one matrix. The pairs of a matrix are adjacent: matrix i has pairs
// [Workspace.experts.first[i], first[i + 1]), which the caller sets. All products are tasks of one pass over the thread
// pool. A matrix is read once for all of its pairs; matrices without pairs are not read.
#ifndef QUILL_CPU_STACK_PRODUCT_H
#define QUILL_CPU_STACK_PRODUCT_H

#include "cpu/matmul.h"

enum { STACK_JOBS = 2 };

// The three stacks of a feed-forward, whose result is down (act(gate x) * (up x)).
typedef struct {
    const Tensor *gate, *up, *down;
    Activation act;
} StackGlu;

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Tensor *stack[STACK_JOBS]; // (n_jobs) stacks that are multiplied with the same rows: gate and up
    float *y[STACK_JOBS];            // (pairs, n_out)
    int n_jobs;
    const float *x; // (pairs, n_in), `stride` apart
    size_t stride;
    bool one_row; // x is a single row, the input of every pair
    bool decodes;
    int n_stack, n_in;
    // If it is set, this is the product of gate and up, or that of down with x = y[0]. Matrices for which
    // stack_glu_packs holds have their activations packed in y[0], in place of gate x: the caller does not compute
    // them.
    const StackGlu *glu;
    int n_matrices; // set by stack_product_run: matrices with pairs, of all jobs together
} StackProduct;

void stack_product_run(StackProduct p);
bool stack_glu_packs(const StackProduct *p, int matrix);
// The bytes of Workspace.packed for that many pairs of up to max_n_in elements.
size_t stack_product_packed_bytes(const CpuKernels *k, int pairs, int n_stack, int max_n_in);

#endif
