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
// The logits of the file's prediction head, (n - 1 + n_drafts, vocabulary): of its rows for tokens[1] to tokens[n - 1],
// which take the model's hidden vectors of the tokens before, then for drafts, which take the head's own of the row
// before.
float *plain_head(const Gguf *g, const int *tokens, int n, const int *drafts, int n_drafts);

#endif
