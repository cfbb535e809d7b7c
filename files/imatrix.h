// files/imatrix.h: importance matrices: for each column of a model's matrices, the mean square of the activation that
// the column is multiplied with, over some text.
//
// quill reads llama.cpp's GGUF files (tensors NAME.in_sum2 and NAME.counts) and its older files (.dat), and writes the
// GGUF form. A file is not trusted: counts are compared with the bytes that are left, values are finite and not
// negative.
#ifndef QUILL_IMATRIX_H
#define QUILL_IMATRIX_H

#include "base/base.h"

typedef struct Imatrix Imatrix;

// QUILL_MODEL: not an importance matrix, or a damaged one; QUILL_IO.
Status imatrix_open(const char *path, Imatrix **out);
// For the fuzzer: parses the older form from memory. Messages call it `name`.
Status imatrix_read_dat(const char *name, const void *bytes, size_t n, Imatrix **out);
void imatrix_close(Imatrix *m); // NULL is fine

// (n_mat, n) mean squares of the inputs of a weight, "blk.0.attn_q.weight"; n_mat > 1: one for each expert. NULL: the
// file has none.
const float *imatrix_of(const Imatrix *m, Str weight, int *n, int *n_mat);
int imatrix_count(const Imatrix *m);        // number of weights (tensors) in the file
const char *imatrix_text(const Imatrix *m); // the name of the text that it was measured on; "": unknown
int imatrix_chunks(const Imatrix *m);       // number of chunks of that text; 0: unknown

// ---- writing --------------------------------------------------------------------------------------------------------

typedef struct {
    Str weight;
    const double *sums; // (n_mat, n) sums of squares
    int n;
    int n_mat;            // matrices in the tensor: more than one for experts
    const double *counts; // (n_mat) number of rows in each sum
} ImatrixSums;

Status imatrix_save(const char *path, const ImatrixSums *sums, int n, const char *text, int n_chunks, int chunk);

#endif
