// quantize/importance.h: the importance of a tensor's columns, from an importance matrix (files/imatrix.h).
#ifndef QUILL_IMPORTANCE_H
#define QUILL_IMPORTANCE_H

#include "files/imatrix.h"
#include "quantize/plan.h"

// Compares the matrices of a plan with the file; *n_found: how many of them the file has. QUILL_MODEL: the file was
// made with another model.
Status importance_check(const Imatrix *m, const QuantizePlan *p, const char *path, int *n_found);

// The importance (n_mat, n) of a tensor's columns, scaled to mean 1 in each matrix. It is never 0, so that every weight
// counts. The caller frees it. NULL: the file does not have this tensor.
float *importance_of(const Imatrix *m, const GgufTensor *t);
// Converts it to norms: the square root of each value.
void importance_to_norms(const GgufTensor *t, const float *importance, float *norms);

#endif
