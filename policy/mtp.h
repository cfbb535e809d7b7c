// policy/mtp.h: drafts with the multi-token prediction head of the model's own file (model_load_head).
//
// The head is a model of one layer. Its row for token i takes the model's hidden vector of token i - 1
// (model_last_hidden) and the embedding of token i, attends to the head's rows before it, and predicts token i + 1. For
// further drafts its own hidden vector takes the place of the model's. So it needs the hidden vectors of all rows that
// the model computes:
//
//   mtp_observe(h, &t, rows)                   // after each step of the model, for each text: keeps the vectors
//   if (mtp_follow(h, t, text, most))          // t has the text's tokens, without the drafts of before
//       logits = mtp_step(h, texts, n)         // for n texts, the logits after the last token of each
//   mtp_push(t, token)                         // appends a draft; the next step continues after it
//   mtp_leave(h, t, text)                      // the request has ended
//
// Rows wait until their token is known, and are computed together, at most MTP_WAITING at once. Where the model did not
// compute a token, because its K and V were shared or loaded, there is no vector, and the head has no row for it: it
// attends to the rows that it has. The rows of an ended text stay until the memory is needed, and a text that begins
// with the same tokens continues them: the next turn of a chat, other answers to a prompt, a common beginning. So do
// the rows of a preempted text, which the head computes again if it had to give them up.
//
// The head computes on the CPU, with the model's threads, between the model's steps.
#ifndef QUILL_MTP_H
#define QUILL_MTP_H

#include "policy/draft_steps.h"
#include "policy/policy.h"

typedef struct Mtp Mtp;
typedef struct MtpText MtpText; // the head's rows of a text

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

// Keeps rows->hidden. *t is NULL before the first rows of a text; the head owns it.
void mtp_observe(Mtp *h, MtpText **t, const StepRows *rows);
// Prepares drafts after the last token of a text, which is not computed yet, and reserves slots for `most` of them.
// False: the head has not seen the token before it, or its cache is full.
bool mtp_follow(Mtp *h, MtpText *t, const Sequence *text, int most);
int mtp_behind(const MtpText *t); // number of rows that the next step computes besides the draft's
// Returns the logits after the last tokens of n texts, (n, n_vocab), valid until the next step.
const float *mtp_step(Mtp *h, MtpText *const *texts, int n);
void mtp_push(MtpText *t, int token);
const Sequence *mtp_tokens(const MtpText *t); // the text with its drafts; it has no blocks
void mtp_leave(Mtp *h, MtpText *t, const Sequence *text);

#endif
