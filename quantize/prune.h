// quantize/prune.h: weights that become zero before the others are quantised: the least ones of each row, by magnitude
// or by magnitude times the norm of what they are multiplied with (Wanda: Sun and others, "A Simple and Effective
// Pruning Approach for Large Language Models", 2023).
#ifndef QUILL_PRUNE_H
#define QUILL_PRUNE_H

#include "base/base.h"

typedef struct {
    int keep, of; // so many of each group of neighbours stay; of 0: by `share`
    double share; // of a row's weights becomes zero
    bool wanda;
} PruneRule;

// what: "2:4", "0.5"; by: "magnitude", "wanda". QUILL_USAGE.
Status prune_parse(const char *what, const char *by, PruneRule *out);
// Zeroes weights of a row of n. norms: (n) of wanda, or NULL. Ties: the later ones become zero. scratch: (n).
void prune_row(const PruneRule *r, float *x, const float *norms, size_t n, float *scratch);

#endif
