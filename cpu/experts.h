// cpu/experts.h: mixture-of-experts feed-forward (FFN_EXPERTS) on the CPU: the router, and the products of each expert
// with the rows routed to it.
//
// The router is computed in f32, whatever the type of its weights; of equal scores the expert with the lower number is
// chosen. A row's output is the shared expert's output plus the sum over its experts in the order of falling scores, so
// that with CpuKernels.in_order it does not depend on the batch. Experts without rows are read neither
// from memory nor from the file. All products of a step run in one pass over the thread pool, and an expert's weights
// are read once for all of its rows.
#ifndef QUILL_CPU_EXPERTS_H
#define QUILL_CPU_EXPERTS_H

#include "kernels.h"

// The bytes of Workspace.packed that experts need for rows of up to max_n_in elements.
size_t experts_packed_bytes(const Backend *be, const Workspace *w, int max_n_in);

// Backend.ffn_in and ffn_out. If a router's result is not finite, w->experts.broken is the layer's number, and the
// row's output is NaN.
void experts_in(Workspace *w, const Layer *l, const Batch *b);
void experts_out(Workspace *w, const Layer *l, const Batch *b);

#endif
