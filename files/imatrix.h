// files/imatrix.h: importance matrices: for each matrix of a model the mean square of what its columns are multiplied
// with, over some text.
//
// Read: llama.cpp's GGUF files (tensors NAME.in_sum2 and NAME.counts) and its older files (.dat). Written: the GGUF
// form. Nothing of a file is trusted: counts are bounded by the bytes that are there, values are finite and not
// negative.
#ifndef QUILL_IMATRIX_H
#define QUILL_IMATRIX_H

#include "base/base.h"

typedef struct Imatrix Imatrix;

// QUILL_MODEL: another file, or a damaged one; QUILL_IO.
Status imatrix_open(const char *path, Imatrix **out);
// For the fuzzer: the older form over bytes. `name` stands in messages.
Status imatrix_read_dat(const char *name, const void *bytes, size_t n, Imatrix **out);
void imatrix_close(Imatrix *m); // NULL is fine

// (n_mat, n) mean squares of the inputs of a weight, "blk.0.attn_q.weight"; n_mat > 1: one for each expert. NULL: the
// file has none.
const float *imatrix_of(const Imatrix *m, Str weight, int *n, int *n_mat);
int imatrix_count(const Imatrix *m);        // weights that it is about
const char *imatrix_text(const Imatrix *m); // the name of the text that was run, "" if the file does not say
int imatrix_chunks(const Imatrix *m);       // pieces of text that were run; 0: unknown

// ---- writing --------------------------------------------------------------------------------------------------------

typedef struct {
    Str weight;
    const double *sums; // (n_mat, n) of squares
    int n;
    int n_mat;            // matrices in the tensor: experts
    const double *counts; // (n_mat) how many rows were added up
} ImatrixSums;

Status imatrix_save(const char *path, const ImatrixSums *sums, int n, const char *text, int n_chunks, int chunk);

#endif
