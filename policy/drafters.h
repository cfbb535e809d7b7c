// policy/drafters.h: sets up the drafters that --speculate names: opens the draft model and checks that it suits the
// target.
#ifndef QUILL_DRAFTERS_H
#define QUILL_DRAFTERS_H

#include <string.h>

#include "engine_config.h"
#include "policy/draft_model.h"
#include "policy/mtp.h"
#include "policy/speculate.h"

#define DRAFTERS_NGRAM "ngram" // the word for n-grams in --speculate
#define DRAFTERS_MTP "mtp"     // the word for the model's own prediction head
// The default of the most drafts of a sequence in a step.
#define DRAFT_MAX 16

// The model that drafts are for (the target), and its backend, threads and cache.
typedef struct {
    const Gguf *gguf;
    const Tokenizer *tok; // NULL: read from the file if needed
    const Model *model;
    const Backend *be; // the host's
    ThreadPool *pool;
    const KvShape *kv;
    const char *unit; // the unit that computes products of many rows (a name of bench/roofline.h)
} DraftTarget;

typedef struct {
    Speculate *speculate; // NULL: none
    DraftModel *model;    // NULL: none
    Mtp *mtp;             // NULL: none
    DraftMemory memory;   // of the draft model or of the prediction head; zeros without one
} Drafters;

// Opens the draft model or the prediction head that config->speculate names, if any. Ignores target->kv. n_seqs: the
// most sequences to draft for at once. QUILL_MODEL: the draft model has another vocabulary or is larger than the
// target; or the errors of mtp_open. Also returns the errors of opening a file.
Status drafters_open(const EngineConfig *config, const DraftTarget *target, int n_seqs, Drafters *out);
// Allocates the memory that d->memory counts. QUILL_MEMORY.
Status drafters_begin(Drafters *d, const EngineConfig *config, const DraftTarget *target);
void drafters_close(Drafters *d);
// Rows of logits that steps with drafts for n_seqs sequences need.
int drafters_rows(const EngineConfig *config, int n_seqs);
// The parts of --speculate: whether it names n-grams, and the name of the draft model, or DRAFTERS_MTP; NULL: neither.
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
