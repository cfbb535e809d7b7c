// tests/rig/plain_forward.h: the logits of a small model by the formulas of its family, in double: without batches,
// caches, kernels or the program's table of families.
//
// plain_forward.c describes the families a second time; tests/test_families.c compares it with golden logits of another
// program.
#ifndef QUILL_PLAIN_FORWARD_H
#define QUILL_PLAIN_FORWARD_H

#include "files/gguf.h"

// The logits (n, vocabulary) of n tokens, the first of them at position 0, in a run whose context is n_ctx. The caller
// frees them.
float *plain_forward(const Gguf *g, int n_ctx, const int *tokens, int n);

#endif
