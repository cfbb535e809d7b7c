// look/all_logits.h: the logits behind every token of a text, for logits and perplexity.
#ifndef QUILL_ALL_LOGITS_H
#define QUILL_ALL_LOGITS_H

#include "engine.h"

enum { LOOK_SLICE = 32 }; // rows of logits held at once: a vocabulary of 150,000 makes 19 MB of them

// Takes the logits (n, n_vocab) of rows [first, first + n); false: enough.
typedef bool LookSlice(void *arg, const float *logits, int first, int n);

// Computes n tokens from an empty cache, as many rows at a time as the engine takes, and hands over all their logits.
// watch: NULL, or who looks at the layers. The engine was opened with max_out = LOOK_SLICE.
void look_all_logits(Engine *e, const int *ids, int n, const Watch *watch, LookSlice *take, void *arg);

#endif
