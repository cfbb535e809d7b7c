// policy/draft_model.h: a small model that drafts for a large one: its weights, its KV cache, and steps of its own.
//
// It has a sequence for each that it drafts for, which holds the same tokens and, behind them, the drafts:
//
//   draft_model_follow(d, &own, text, most)             // own is text again: wrong drafts are forgotten
//   const float *logits = draft_model_step(d, owns, n)  // of n sequences, what comes behind the last token of each
//   sequence_push(&own, &token, 1)                      // a draft; and on with the next step
//
// It computes on the CPU, with the threads of the target, between the target's steps.
#ifndef QUILL_DRAFT_MODEL_H
#define QUILL_DRAFT_MODEL_H

#include "kvcache.h"
#include "model.h"
#include "tokenizer.h"

typedef struct DraftModel DraftModel;

// The draft's vocabulary must be the target's, piece by piece. QUILL_MODEL names the first piece that differs.
Status draft_model_check_vocabulary(const Tokenizer *draft, const char *draft_name, const Tokenizer *target,
                                    const char *target_name);

// Reads the model, which owns `g`, failing or not. n_vocab: of the target, whose logits these are to look like.
// QUILL_MODEL.
Status draft_model_open(Gguf *g, const Backend *be, int n_vocab, DraftModel **out);
// Takes its cache and its scratch memory; before the first step. kv: context, sequences and blocks as the cache is to
// have them; layers and types are set here. QUILL_MEMORY.
Status draft_model_begin(DraftModel *d, ThreadPool *pool, KvShape kv);
void draft_model_free(DraftModel *d);
const Model *draft_model_weights(const DraftModel *d);

// What it takes of the host's memory, known before it is taken.
typedef struct {
    size_t weights, scratch; // bytes
    size_t slot;             // of a slot of its cache
} DraftMemory;

DraftMemory draft_model_memory(const DraftModel *d, int n_threads, int n_seqs);

// Makes `own` the tokens of `text`, with what is computed of them, and room for `most` more. False: it does not fit,
// and own is empty.
bool draft_model_follow(DraftModel *d, Sequence *own, const Sequence *text, int most);
// Computes what is uncomputed of n sequences, at least a token each. Returns (n, n_vocab) logits behind the last
// tokens, valid until the next step.
const float *draft_model_step(DraftModel *d, Sequence *const *own, int n);
void draft_model_release(DraftModel *d, Sequence *own); // gives back all of it

#endif
