// look/kverror.h: measures in each layer the error of attention over the run's KV cache, against attention over the
// whole text.
//
// The reference is attention in float64 over the K and V of every token, stored in f32 beside the run's cache. In each
// layer both start from the run's own residual stream, so that the error of a layer is due to its own cache and not to
// earlier layers.
#ifndef QUILL_KVERROR_H
#define QUILL_KVERROR_H

#include "engine.h"

typedef struct {
    int n_tokens, kv_dim;
    float *k, *v;         // (n_layers, n_tokens, kv_dim) of every token
    size_t n_bytes;       // bytes of k, and of v
    double *exact;        // (max_rows, q_dim) result of the reference
    double *error, *norm; // (n_layers) squares of the difference and of the reference, summed over all rows
} KvError;

// Allocates for texts of up to n_tokens tokens. QUILL_MEMORY; QUILL_USAGE: layers on a GPU.
Status kverror_new(KvError *c, const Engine *e, int n_tokens);
void kverror_free(KvError *c);
// For Batch.watch. A step holds rows of one sequence, and a row's position is the number of its token in the text.
Watch kverror_watch(KvError *c);
double kverror_of(const KvError *c, int layer); // relative L2 error over all rows so far

#endif
