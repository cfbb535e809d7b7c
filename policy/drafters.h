// policy/drafters.h: --speculate as drafters: opens the draft model that it names, and holds it against the target.
#ifndef QUILL_DRAFTERS_H
#define QUILL_DRAFTERS_H

#include <string.h>

#include "engine_config.h"
#include "policy/speculate.h"

#define DRAFTERS_NGRAM "ngram" // the word for n-grams in --speculate
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
    DraftMemory memory;   // of the model; zeros without one
} Drafters;

// Opens the draft model that config->speculate names, if any; target->kv is not looked at, and n_seqs are how many it
// may draft for at once. QUILL_MODEL: it has another vocabulary or is larger than the target; and what opening a file
// gives.
Status drafters_open(const EngineConfig *config, const DraftTarget *target, int n_seqs, Drafters *out);
// Takes the memory that `memory` says. QUILL_MEMORY.
Status drafters_begin(Drafters *d, const EngineConfig *config, const DraftTarget *target);
void drafters_close(Drafters *d);
// Rows of logits that steps need for the drafts of so many sequences.
int drafters_rows(const EngineConfig *config, int n_seqs);
// What --speculate names: n-grams, and the part that is a draft model's name; NULL: there is none.
static inline bool drafters_use_ngram(const char *speculate) {
    size_t n = strlen(DRAFTERS_NGRAM);
    return strncmp(speculate, DRAFTERS_NGRAM, n) == 0 && (speculate[n] == 0 || speculate[n] == ',');
}
static inline const char *drafters_model(const char *speculate) {
    if (!drafters_use_ngram(speculate)) return speculate;
    const char *rest = speculate + strlen(DRAFTERS_NGRAM);
    return *rest ? rest + 1 : NULL;
}

#endif
