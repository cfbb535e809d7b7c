// look/all_logits.h: computes the logits after every token of a text, for `quill logits` and `quill perplexity`.
#ifndef QUILL_ALL_LOGITS_H
#define QUILL_ALL_LOGITS_H

#include "engine.h"

enum { LOOK_SLICE = 32 }; // rows of logits held at once: a vocabulary of 150,000 makes 19 MB of them

// Called with the logits (n, n_vocab) of rows [first, first + n). Returns false to stop.
typedef bool LookSlice(void *arg, const float *logits, int first, int n);

// Computes n tokens with an empty cache, as many rows at a time as a step takes, and calls `take` with all their
// logits. watch: NULL, or called in every layer. The engine must have been opened with max_out = LOOK_SLICE.
void look_all_logits(Engine *e, const int *ids, int n, const Watch *watch, LookSlice *take, void *arg);

#endif
