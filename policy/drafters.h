// policy/drafters.h: --speculate as drafters: opens the draft model that it names, and holds it against the target.
#ifndef QUILL_DRAFTERS_H
#define QUILL_DRAFTERS_H

#include "engine_config.h"
#include "policy/speculate.h"

// A draft of so many tokens at most, unless the user says otherwise.
#define DRAFT_MAX 16

// The model that drafts are for, and what computes it.
typedef struct {
    const Gguf *gguf;
    const Tokenizer *tok; // NULL: read from the file where it is needed
    const Model *model;
    const Backend *be; // the host's
    ThreadPool *pool;
    const KvShape *kv;
    const char *unit; // that many rows are multiplied on (bench/roofline.h)
} DraftTarget;

typedef struct {
    Speculate *speculate; // NULL: none
    DraftModel *model;    // NULL: none
} Drafters;

// QUILL_MODEL: the draft model has another vocabulary or is larger than the target; and what opening a file gives.
Status drafters_open(const EngineConfig *config, const DraftTarget *target, Drafters *out);
void drafters_close(Drafters *d);
// Rows of logits that steps need for the drafts of so many sequences.
int drafters_rows(const EngineConfig *config, int n_seqs);
// The part of --speculate that names a draft model; NULL: there is none.
const char *drafters_model(const char *speculate);
bool drafters_use_ngram(const char *speculate);

#endif
