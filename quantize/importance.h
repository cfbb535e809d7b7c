// quantize/importance.h: what an importance matrix (files/imatrix.h) says of the columns of a tensor.
#ifndef QUILL_IMPORTANCE_H
#define QUILL_IMPORTANCE_H

#include "files/imatrix.h"
#include "quantize/plan.h"

// Checks the matrices of a plan against the file; *n_found: those that it is about. QUILL_MODEL: it is another model's.
Status importance_check(const Imatrix *m, const QuantizePlan *p, const char *path, int *n_found);

// (n_mat, n) of a tensor, of mean 1 in each of its matrices and nowhere 0, so that no weight is free; the caller frees
// it. NULL: the file says nothing of it.
float *importance_of(const Imatrix *m, const GgufTensor *t);
// The same array as norms: the square root of each.
void importance_to_norms(const GgufTensor *t, const float *importance, float *norms);

#endif
