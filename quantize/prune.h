// quantize/prune.h: sets the least important weights of each row to zero before quantisation: by magnitude, or by
// magnitude times the norm of the activations that they are multiplied with (Wanda: Sun and others, "A Simple and
// Effective Pruning Approach for Large Language Models", 2023).
#ifndef QUILL_PRUNE_H
#define QUILL_PRUNE_H

#include "base/base.h"

typedef struct {
    int keep, of; // keeps `keep` of each `of` neighbouring weights; of == 0: `share` applies
    double share; // this share of a row's weights becomes zero
    bool wanda;
} PruneRule;

// what: "2:4", "0.5"; by: "magnitude", "wanda". QUILL_USAGE.
Status prune_parse(const char *what, const char *by, PruneRule *out);
// Zeroes weights of a row of n. norms: (n) for wanda, otherwise NULL. Of equal scores the later weights become zero.
// scratch: (n).
void prune_row(const PruneRule *r, float *x, const float *norms, size_t n, float *scratch);

#endif
