// look/kl.h: how far a model's predictions are from another's over the same text: logits in a file, and the
// Kullback-Leibler divergence from them.
//
// The file: "quillkl1", then u32 tokens of the vocabulary, u32 scored positions, u64 XXH3 of the text's tokens and the
// chunk's length; then for each scored position, in order, the logits as f32. Little-endian.
#ifndef QUILL_KL_H
#define QUILL_KL_H

#include "base/base.h"
#include "base/tempfile.h"

// One of the two: a file that is written, or one that is compared with.
typedef struct {
    int n_vocab, n_rows;
    const float *base; // (n_rows, n_vocab), unaligned, of the file; NULL: it is written
    FileMap map;
    TempFile out;
    double *kl;   // (n_rows) in nats
    bool *agrees; // (n_rows) the likeliest token is the same
} KlRun;

// text_hash: of what must be the same in both runs. QUILL_IO; QUILL_MODEL: another file, or one of another text or
// vocabulary.
Status kl_write(KlRun *k, const char *path, int n_vocab, int n_rows, uint64_t text_hash);
Status kl_open(KlRun *k, const char *path, int n_vocab, int n_rows, uint64_t text_hash);
Status kl_put(KlRun *k, const float *logits);            // the next row, of a file that is written
void kl_compare(KlRun *k, int row, const float *logits); // may run in many threads, one a row
Status kl_end(KlRun *k, Status st);                      // publishes the file if st is OK; frees all

typedef struct {
    double mean, error, median, p99, most; // nats; error: of the mean
    double same;                           // share of equal top tokens
} KlSummary;

KlSummary kl_summary(const KlRun *k, int n_rows);

#endif
