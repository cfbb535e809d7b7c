// cpu/stack_product.h: products of each matrix of a stack with rows of its own: experts with the rows that chose them,
// heads with their part of all rows.
//
// A pair is a row of one matrix; pairs of a matrix lie one behind the other, those of matrix i from
// Workspace.experts.first[i] on, which the caller fills. All products are tasks of one pass, and a matrix is read once
// for all of its pairs; matrices without pairs are not read.
#ifndef QUILL_CPU_STACK_PRODUCT_H
#define QUILL_CPU_STACK_PRODUCT_H

#include "cpu/matmul.h"

enum { STACK_JOBS = 2 };

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Tensor *stack[STACK_JOBS]; // that share their rows
    float *y[STACK_JOBS];            // (pairs, n_out)
    int n_jobs;
    const float *x; // (pairs, n_in), `stride` apart
    size_t stride;
    bool one_row; // x is a single row, which all pairs share
    bool decodes;
    int n_stack, n_in;
    int n_matrices; // with pairs; set here
} StackProduct;

void stack_product_run(StackProduct p);
// What Workspace.packed must hold for so many pairs of up to max_n_in elements.
size_t stack_product_packed_bytes(const CpuKernels *k, int pairs, int n_stack, int max_n_in);

#endif
