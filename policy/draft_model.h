// policy/draft_model.h: a small model that drafts for a large one, the target: its weights, its KV cache, its steps.
#ifndef QUILL_DRAFT_MODEL_H
#define QUILL_DRAFT_MODEL_H

#include "policy/draft_steps.h"
#include "policy/drafter.h"
#include "tokenizer.h"

typedef struct DraftModel DraftModel;

// The draft's vocabulary must be the target's, piece by piece. QUILL_MODEL names the first piece that differs.
Status draft_model_check_vocabulary(const Tokenizer *draft, const char *draft_name, const Tokenizer *target,
                                    const char *target_name);

// Loads the model. It owns `g` from now on, also on failure. n_vocab: of the target; its drafter returns logits of
// this width. QUILL_MODEL.
Status draft_model_open(Gguf *g, const Backend *be, int n_vocab, DraftModel **out);
// Allocates its cache and scratch memory; call it before the first step. kv: context, sequences and blocks of the
// cache; this function sets layers and types. QUILL_MEMORY.
Status draft_model_begin(DraftModel *d, ThreadPool *pool, KvShape kv);
void draft_model_free(DraftModel *d);
const Model *draft_model_weights(const DraftModel *d);

// What draft_model_begin will allocate. n_back: KvShape.n_back.
DraftMemory draft_model_memory(const DraftModel *d, int n_threads, int n_seqs, int n_back);

Drafter draft_model_drafter(DraftModel *d);

#endif
