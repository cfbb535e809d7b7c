// tests/rig/plain_forward.h: the logits of a small model by the formulas of its family alone, in double: without
// batches, caches, kernels or the program's own table of families.
//
// What it knows of a family is written down in plain_forward.c a second time, and compared with the golden logits of an
// outside reference in tests/test_families.c.
#ifndef QUILL_PLAIN_FORWARD_H
#define QUILL_PLAIN_FORWARD_H

#include "files/gguf.h"

// logits (n, vocabulary) of n tokens, the first of them at position 0, in a run whose context is n_ctx. The caller
// frees.
float *plain_forward(const Gguf *g, int n_ctx, const int *tokens, int n);

#endif
