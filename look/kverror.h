// look/kverror.h: how far attention over a run's cache is from attention over all of the text, layer by layer.
//
// The reference is attention in float64 over the K and V of every token, which lie in f32 beside the run's cache. Both
// start from the run's own residual stream, so that a layer answers for its own cache alone and not for what the layers
// before it have changed.
#ifndef QUILL_KVERROR_H
#define QUILL_KVERROR_H

#include "engine.h"

typedef struct {
    int n_tokens, kv_dim;
    float *k, *v;         // (n_layers, n_tokens, kv_dim) of every token
    size_t n_bytes;       // of each
    double *exact;        // (max_rows, q_dim) what attention ought to find
    double *error, *norm; // (n_layers) squares, summed over all rows
} KvError;

// For texts of up to n_tokens. QUILL_MEMORY; QUILL_USAGE: layers on a GPU.
Status kverror_new(KvError *c, const Engine *e, int n_tokens);
void kverror_free(KvError *c);
// For Batch.watch in steps of one sequence's rows, whose positions count its tokens.
Watch kverror_watch(KvError *c);
double kverror_of(const KvError *c, int layer); // relative L2 over all rows so far

#endif
