// look/activations.h: the mean square of what a model's matrices are multiplied with, column by column: an importance
// matrix (files/imatrix.h) of the text that runs.
#ifndef QUILL_ACTIVATIONS_H
#define QUILL_ACTIVATIONS_H

#include "engine.h"

typedef struct {
    const Model *model;
    double *sums;  // (n_layers, FEEDS_HEAD) of up to `widest` columns each, then the head's
    double *count; // (n_layers * FEEDS_HEAD + 1) rows that were added up
    int widest;
    // of experts: (n_layers, n_experts) of `widest` columns each, what gate and up take, then what down takes
    double *expert_sums[2];
    double *expert_count; // (n_layers, n_experts)
} Activations;

// QUILL_USAGE: layers on a GPU, or kernels that cannot be watched.
Status activations_new(Activations *a, const Engine *e);
void activations_free(Activations *a);
Watch activations_watch(Activations *a); // for Batch.watch of model_hidden
// text: the name of what was run, in n_chunks pieces of up to `chunk` tokens.
Status activations_save(const Activations *a, const char *path, const char *text, int n_chunks, int chunk);

#endif
