// look/kl.h: compares a model's predictions with another model's over the same text: writes logits to a file, and
// computes the Kullback-Leibler divergence from them.
//
// The file: "quillkl1", then u32 tokens of the vocabulary, u32 scored positions, u64 XXH3 of the text's tokens and the
// chunk's length; then for each scored position, in order, the logits as f32. Little-endian.
#ifndef QUILL_KL_H
#define QUILL_KL_H

#include "base/base.h"
#include "base/tempfile.h"

// A file of logits that is being written, or one that is compared with.
typedef struct {
    int n_vocab, n_rows;
    const float *base; // (n_rows, n_vocab) of the file, unaligned; NULL: the file is being written
    FileMap map;
    TempFile out;
    double *kl;   // (n_rows) in nats
    bool *agrees; // (n_rows) both models have the same most likely token
} KlRun;

// text_hash: hash of everything that must be equal in both runs: tokens and chunk length. QUILL_IO; QUILL_MODEL: the
// file has another format, another text or another vocabulary.
Status kl_write(KlRun *k, const char *path, int n_vocab, int n_rows, uint64_t text_hash);
Status kl_open(KlRun *k, const char *path, int n_vocab, int n_rows, uint64_t text_hash);
Status kl_put(KlRun *k, const float *logits);            // writes the next row
void kl_compare(KlRun *k, int row, const float *logits); // threads may call it for different rows
Status kl_end(KlRun *k, Status st);                      // publishes the written file if st is OK; frees everything

typedef struct {
    double mean, error, median, p99, most; // in nats; error: standard error of the mean
    double same;                           // share of rows with the same most likely token
} KlSummary;

KlSummary kl_summary(const KlRun *k, int n_rows);

#endif
