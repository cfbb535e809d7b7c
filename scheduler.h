// scheduler.h: decides which sequences have rows in each step.
//
//   while (scheduler_next(s, &batch))
//       scheduler_take(s, model_forward(m, w, kv->pool, batch));
//
// A request (request.h) is a prompt with its sampling parameters and limits. Each step first takes one row of every
// decoding sequence, then fills the rest of max_rows with prefill chunks (tokens whose K and V are not computed yet),
// oldest request first. So a decoding sequence waits for its next token at most as long as one step of max_rows rows
// takes. The remaining rows go to the drafts of policies (policy/policy.h). A policy also turns logits into tokens:
// plain decoding, speculation and beam search differ in their policies only.
//
// A request begins when there are blocks for all of its tokens and one more for every other sequence that may grow. Its
// branches begin in turn where max_seqs has no room for all of them.
// While the oldest waiting request cannot begin, newer ones wait too, so that it is not passed over for ever. A request
// that has begun is never paused in favour of a waiting one. If blocks run out nevertheless, the newest request is
// preempted: it frees its blocks and computes its tokens again later. Every step has at least one row. A request ends
// with FINISH_CONTEXT when its context is full. For lack of blocks it does so only when no other request uses the
// cache, and then frees its blocks if others wait. A step has at most max_seqs sequences, fewer if memory is short.
//
// A request may own several sequences (Request.more). They decode in the same steps, all of them or none, and their
// policy accepts their logits together.
//
// Policy.fetch loads saved K and V into the blocks of a request that begins. In a step with rows of other requests it
// loads a limited number of slots, so that the step stays short; the request waits for the rest.
//
// If a device draws the tokens (SchedulerShape.draws), the host need not wait for them: while a step runs,
// scheduler_ahead plans the next step, whose rows read the tokens of this one in the device's memory. The scheduler
// then notices the end of a request one step late and drops the request's row of that step.
#ifndef QUILL_SCHEDULER_H
#define QUILL_SCHEDULER_H

#include "request.h"
#include "sampler.h"

typedef struct {
    int n_vocab;
    int max_rows; // the most rows of a step
    int max_out;  // rows of logits of a step; max_seqs at least
    int max_seqs; // the most sequences of a step
    // draws: a device can draw tokens; steps whose requests do not need logits have Batch.draw. draws_ahead:
    // scheduler_ahead may be used.
    bool draws, draws_ahead;
} SchedulerShape;

// `policy` is used for requests without one of their own. The caller owns it; it must outlive the scheduler.
Scheduler *scheduler_new(KvCache *kv, Sampler *sampler, SchedulerShape shape, const Policy *policy);
void scheduler_free(Scheduler *s); // the callers still own the requests and their blocks

// The caller owns the request, which must live until it has finished. At least one token must be uncomputed unless the
// request has `logits`; a request with logits may be finished when this returns.
void scheduler_add(Scheduler *s, Request *r);
bool scheduler_next(Scheduler *s, Batch **b); // plans a step; false: every request has finished
// Called before scheduler_take for a batch with `whole`: gives policies the hidden vectors of its rows, (n_rows, dim).
void scheduler_observe(Scheduler *s, const float *hidden, int dim);
void scheduler_take(Scheduler *s, const float *logits); // the step's results (b->n_out, n_vocab)
// The same for a batch with draws: (b->n_out) tokens, -1 where no logit was finite.
void scheduler_take_tokens(Scheduler *s, const int *tokens);
// Whether the step of scheduler_next may be abandoned in the middle (model_forward_until). Not with recurrent layers or
// sealed types, whose states and tail pages are written in place; not while attention weights are recorded, or while a
// request has a policy that picks rows: such steps run to their end.
bool scheduler_may_abandon(const Scheduler *s);
// In place of scheduler_take, for an abandoned step: no slot of it counts as computed, no block gets a name, and blocks
// that only it would have used are free again. The caller then finishes the requests (scheduler_interrupt,
// scheduler_cancel).
void scheduler_abandon(Scheduler *s);
// Called between scheduler_next and scheduler_take_tokens of a batch with draws. Returns the following batch if its
// rows are certain already; their tokens are -1. The next scheduler_next returns this batch again. False: the rows
// depend on the drawn tokens.
bool scheduler_ahead(Scheduler *s, Batch **b);
void scheduler_interrupt(Scheduler *s); // the next scheduler_next finishes all requests with FINISH_INTERRUPT
// Called between scheduler_take and scheduler_next: finishes a request, and those of its branches that have not begun,
// with FINISH_INTERRUPT. Does nothing if the request has finished.
void scheduler_cancel(Scheduler *s, Request *r);
int scheduler_max_rows(const Scheduler *s);
int scheduler_max_seqs(const Scheduler *s);        // of a step: each has at least a row
int64_t scheduler_preemptions(const Scheduler *s); // how many times a request was preempted
// The rows of a sequence in the batch of scheduler_next. Their request is NULL if scheduler_ahead planned the batch and
// the request has ended since.
const StepRows *scheduler_rows(const Scheduler *s, int seq);

// ---- for policies --------------------------------------------------------------------------------------------------

// For Policy.accept: the logits from which the token after those of `q` may be drawn. Without a constraint these are
// `logits`; with one they are a copy with -inf for forbidden tokens, valid until the next call.
const float *scheduler_allowed(const Scheduler *s, const Request *r, const Sequence *q, const float *logits);
// For Policy.accept: the token that the request's sampler draws after those of `q`; -1: no logit is finite.
int scheduler_draw(const Scheduler *s, const Request *r, const Sequence *q, const float *logits);
// For Policy.accept: takes the next token of rows->request, in order: appends it to seq, emits it, and checks the
// limits. token < 0 finishes the request with FINISH_EOG if scheduler_ends, else with FINISH_BROKEN. Returns whether
// the request continues; if not, ignore the rest of its rows. logits: those that the token was drawn from; may be NULL
// if Request.emit ignores them.
bool scheduler_emit(Scheduler *s, StepRows *rows, int token, const float *logits);
// For Policy.accept, where no token may follow those of `q`: whether the answer ends there, because the model gave
// logits and the form is complete. Sets r->no_logit. logits: without the form; NULL: not known.
bool scheduler_ends(const Scheduler *s, Request *r, const Sequence *q, const float *logits);
// For Policy.accept of a policy that keeps its tokens itself instead of emitting them (beam search): counts the token
// that was appended to each sequence of rows->request. FINISH_LENGTH, FINISH_CONTEXT: the request has reached a limit
// and the policy must finish it; RUNNING: it may continue.
Finish scheduler_count(Scheduler *s, StepRows *rows);
void scheduler_finish(Scheduler *s, Request *r, Finish why); // for Policy.accept: finishes the request
// The policy whose `accept` is called for a request.
const Policy *scheduler_accepting(const Scheduler *s, const Request *r);
// For Policy.propose: the most drafts that the rows may have if all sequences of the step share the room equally.
int scheduler_draft_room(const Scheduler *s, const StepRows *rows);
// The step's batch. During Policy.propose only n_rows, n_out and n_seqs are valid; they count what was added so far.
const Batch *scheduler_batch(const Scheduler *s);
// The number of steps that scheduler_next has planned, which identifies the current step for a policy that proposes
// drafts. Steps of scheduler_ahead do not count; they have no drafts.
int64_t scheduler_steps(const Scheduler *s);
KvCache *scheduler_kv(Scheduler *s);
int scheduler_n_vocab(const Scheduler *s);

#endif
