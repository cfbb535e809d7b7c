// look/activations.h: measures the mean square of the activations that each column of a model's matrices is multiplied
// with: an importance matrix (files/imatrix.h) of the text that is run.
#ifndef QUILL_ACTIVATIONS_H
#define QUILL_ACTIVATIONS_H

#include "engine.h"

typedef struct {
    const Model *model;
    double *sums;  // (n_layers, FEEDS_HEAD) of up to `widest` columns each, then the head's
    double *count; // (n_layers * FEEDS_HEAD + 1) rows in each sum
    int widest;
    // experts: (n_layers, n_experts) of `widest` columns each: [0] inputs of gate and up, [1] inputs of down
    double *expert_sums[2];
    double *expert_count; // (n_layers, n_experts)
    float *gated;         // (widest) a row of gated attention
} Activations;

// QUILL_USAGE: layers on a GPU, or of another kind than Q, K, V, their output and a feed-forward.
Status activations_new(Activations *a, const Engine *e);
void activations_free(Activations *a);
Watch activations_watch(Activations *a); // for Batch.watch of model_hidden
// text: the name of the text that was run, in n_chunks chunks of up to `chunk` tokens.
Status activations_save(const Activations *a, const char *path, const char *text, int n_chunks, int chunk);

#endif
