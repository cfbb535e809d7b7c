// policy/draft_model.h: a small model that drafts for a large one, the target: its weights, its KV cache, its steps.
//
// For each sequence of the target the draft model has a sequence of its own, with the same tokens followed by drafts:
//
//   draft_model_follow(d, &own, text, most)             // own has the tokens of text again, without wrong drafts
//   const float *logits = draft_model_step(d, owns, n)  // for n sequences, the logits after the last token of each
//   sequence_push(&own, &token, 1)                      // appends a draft; the next step continues after it
//
// The draft model computes on the CPU, with the target's threads, between the target's steps.
#ifndef QUILL_DRAFT_MODEL_H
#define QUILL_DRAFT_MODEL_H

#include "policy/draft_steps.h"
#include "tokenizer.h"

typedef struct DraftModel DraftModel;

// The draft's vocabulary must be the target's, piece by piece. QUILL_MODEL names the first piece that differs.
Status draft_model_check_vocabulary(const Tokenizer *draft, const char *draft_name, const Tokenizer *target,
                                    const char *target_name);

// Loads the model. It owns `g` from now on, also on failure. n_vocab: of the target; draft_model_step returns logits of
// this width. QUILL_MODEL.
Status draft_model_open(Gguf *g, const Backend *be, int n_vocab, DraftModel **out);
// Allocates its cache and scratch memory; call it before the first step. kv: context, sequences and blocks of the
// cache; this function sets layers and types. QUILL_MEMORY.
Status draft_model_begin(DraftModel *d, ThreadPool *pool, KvShape kv);
void draft_model_free(DraftModel *d);
const Model *draft_model_weights(const DraftModel *d);

// What draft_model_begin will allocate.
DraftMemory draft_model_memory(const DraftModel *d, int n_threads, int n_seqs);

// Gives `own` the tokens of `text`, keeping K and V of a common prefix, and reserves slots for `most` more tokens.
// False: the cache has no room, and `own` is empty.
bool draft_model_follow(DraftModel *d, Sequence *own, const Sequence *text, int most);
// Computes all uncomputed tokens of n sequences, at least one of each. Returns the logits after their last tokens,
// (n, n_vocab), valid until the next step.
const float *draft_model_step(DraftModel *d, Sequence *const *own, int n);
void draft_model_release(DraftModel *d, Sequence *own); // frees its blocks and its arrays

#endif
