// policy/mtp.h: drafts with the multi-token prediction head of the model's own file (model_load_head).
//
// The head is a model of one layer. Its row for token i takes the model's hidden vector of token i - 1
// (model_last_hidden) and the embedding of token i, attends to the head's rows before it, and predicts token i + 1. For
// further drafts its own hidden vector takes the place of the model's. So it needs the hidden vectors of all rows that
// the model computes.
//
// Rows wait until their token is known, and are computed together, at most MTP_WAITING at once. Where the model did not
// compute a token, because its K and V were shared or loaded, there is no vector, and the head has no row for it: it
// attends to the rows that it has. The rows of an ended text stay until the memory is needed, and a text that begins
// with the same tokens continues them: the next turn of a chat, other answers to a prompt, a common beginning. So do
// the rows of a preempted text, which the head computes again if it had to give them up.
#ifndef QUILL_MTP_H
#define QUILL_MTP_H

#include "policy/draft_steps.h"
#include "policy/drafter.h"

typedef struct Mtp Mtp;

enum { MTP_WAITING = 128 }; // hidden vectors that a text keeps for rows to be computed; more than DRAFT_MOST

// QUILL_MODEL: the errors of model_load_head. The model must outlive the head.
Status mtp_open(const Model *m, Mtp **out);
// What mtp_begin will allocate. weights: those that only the head uses.
DraftMemory mtp_memory(const Mtp *h, int n_threads, int n_seqs);
// Allocates the cache and the scratch memory; call it before any text is observed. kv: as draft_steps_begin.
// QUILL_MEMORY.
Status mtp_begin(Mtp *h, ThreadPool *pool, KvShape kv);
void mtp_free(Mtp *h);
size_t mtp_row_bytes(const Mtp *h); // bytes of weights that one row of the head reads
Drafter mtp_drafter(Mtp *h);

#endif
