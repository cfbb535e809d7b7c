// scheduler.h: decides which sequences have rows in each step.
//
//   while (scheduler_next(s, &batch))
//       scheduler_take(s, model_forward(m, w, &kv->pool, batch));
//
// A request is a prompt with its sampling parameters and limits. Each step first takes one row of every decoding
// sequence, then fills the rest of max_rows with prefill chunks (tokens whose K and V are not computed yet), oldest
// request first. So no decoding sequence waits longer for its next token than one step of max_rows rows takes. Rows
// that are left go to the drafts of policies (policy/policy.h). A policy also decides what becomes of the logits: plain
// decoding, speculation and beams differ in their policies only.
//
// A request begins when there are blocks for all of its tokens and one more for every other sequence that may grow.
// Requests behind it wait too, so that none is passed over for ever. A request that has begun is never paused in favour
// of a waiting one. If blocks run out all the same, the newest request gives its blocks back and computes its tokens
// again later. Every step has at least one row. A request ends with FINISH_CONTEXT only when it has the cache to
// itself, and then gives its blocks back if others wait. Memory limits the number of sequences in a step, max_seqs at
// most.
//
// A request may own several sequences (Request.more). They decode in the same steps, all of them or none, and their
// policy accepts their logits together.
//
// Policy.fetch loads K and V that were computed elsewhere into the blocks of a request that begins. In a step with rows
// of other requests it loads a limited number of slots, so that the step stays short; the request waits for the rest.
//
// If a device draws the tokens (SchedulerShape.draws), the host need not wait for them: while a step runs,
// scheduler_ahead gives the next step, whose rows read the tokens of this one in the device's memory. The end of a
// request is seen one step late then, and its row of that step is dropped.
#ifndef QUILL_SCHEDULER_H
#define QUILL_SCHEDULER_H

#include "base/stats.h"
#include "grammar/constraint.h"
#include "policy/policy.h"
#include "sampler.h"

// What became of the drafts of a request; 0 where no policy proposes any.
typedef struct {
    int n_steps, n_tokens;     // steps with a row of a generated token or a draft, and the tokens that came of them
    int n_drafted, n_accepted; // drafts
    double cost;               // of these steps and of drafting, in steps without drafts, as the policy estimates it
} DraftCounts;

static inline void draft_counts_add(DraftCounts *sum, const DraftCounts *c) {
    sum->n_steps += c->n_steps;
    sum->n_tokens += c->n_tokens;
    sum->n_drafted += c->n_drafted;
    sum->n_accepted += c->n_accepted;
    sum->cost += c->cost;
}

typedef enum {
    RUNNING,
    FINISH_EOG,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CONTEXT,
    FINISH_INTERRUPT,
    FINISH_BROKEN, // no token had a finite logit: broken weights, or biases that forbid them all
} Finish;
const char *finish_name(Finish f); // the "finish_reason" of --json: eog, stop, length (both limits), interrupt, error

struct Request {
    // given by the caller
    // Holds the prompt's tokens, of which n_cached may be computed already; the scheduler appends to it. The caller
    // owns it: it must not move while the request runs, and the caller releases it (kvcache_release) and frees it
    // (sequence_free) afterwards.
    Sequence *seq;
    // More answers to the same prompt, linked by next: they begin with this one's blocks and with the logits of its
    // last prompt row, without a row of their own. Their sequences are empty until then. If this one ends before that,
    // they end with it.
    Request *branches;
    const Policy *policy; // NULL: the scheduler's
    int width;            // sequences that the policy will make of it at most, max_seqs at most; 0: one
    SamplerParams sampling;
    uint64_t sequence_key;  // of the RNG: 0 for a single prompt
    Constraint *constraint; // of the tokens behind the prompt; NULL: any may come. An answer that nothing may follow
                            // ends as if a token had ended it
    int max_new;            // tokens to generate at most; -1: until the context is full; 0: only prefill
    // (n_vocab) the logits after the last token, given if all tokens of seq are computed already: the first token is
    // drawn from them when the request is added, without a row. NULL: a token is uncomputed.
    const float *logits;
    // Called for each token, in order, after it was appended to seq.tokens, with the raw logits that it was drawn from
    // (n_vocab). RUNNING continues the request, anything else finishes it. NULL: it continues.
    Finish (*emit)(Request *r, int token, const float *logits);
    bool blind; // emit ignores the logits, which may be NULL then
    void *arg;  // for emit
    // kept by the policy, which frees them in Policy.end
    Sequence *more; // (n_more) sequences besides seq; their blocks, their tokens and the array are the policy's to free
    int n_more;
    void *state;
    // kept by the scheduler
    int n_prompt;       // tokens when it was added
    int n_reused;       // of them, slots that were computed already
    int n_new;          // tokens generated
    DraftCounts drafts; // summed up from what the caller gave
    Finish finish;
    bool fetched;  // Policy.fetch has nothing more for it
    int n_kept;    // for --kv-dir (kv/kvdir.h): slots that the directory has
    Timeline time; // .start may be given: when the request came; 0: now
    Request *next; // in the scheduler's list
};

// Sequence i of a request: seq, more[0], more[1], ... i <= r->n_more.
static inline Sequence *request_sequence(const Request *r, int i) { return i ? &r->more[i - 1] : r->seq; }

typedef struct {
    int n_vocab;
    int max_rows; // of a step
    int max_out;  // rows of logits of a step; max_seqs at least
    int max_seqs; // sequences of a step
    // A device draws the tokens of a step where nobody wants to see logits: the step comes with Batch.draw.
    bool draws, draws_ahead; // draws_ahead: scheduler_ahead may be used
} SchedulerShape;

// `policy` is used for requests without one of their own. It stays the caller's and must outlive the scheduler.
Scheduler *scheduler_new(KvCache *kv, Sampler *sampler, SchedulerShape shape, const Policy *policy);
void scheduler_free(Scheduler *s); // the requests and their blocks stay the callers'

// The request stays the caller's and must live until it has finished. At least one token must be uncomputed, but
// for a request that brings logits, which may be finished when this returns.
void scheduler_add(Scheduler *s, Request *r);
bool scheduler_next(Scheduler *s, Batch **b);           // false: every request has finished
void scheduler_take(Scheduler *s, const float *logits); // (b->n_out, n_vocab)
// The same for a batch with draws: (b->n_out) tokens, -1 where no logit was finite.
void scheduler_take_tokens(Scheduler *s, const int *tokens);
// Between scheduler_next and scheduler_take_tokens of a batch with draws: the batch after it, if its rows are certain
// already; their tokens are -1. scheduler_next returns it again after this one is taken. False: it is not certain.
bool scheduler_ahead(Scheduler *s, Batch **b);
void scheduler_interrupt(Scheduler *s); // the next scheduler_next finishes all requests with FINISH_INTERRUPT
// Between scheduler_take and scheduler_next: finishes one request, and the branches that it still has to begin, with
// FINISH_INTERRUPT. One that has finished already stays as it is.
void scheduler_cancel(Scheduler *s, Request *r);
int scheduler_max_rows(const Scheduler *s);
int64_t scheduler_preemptions(const Scheduler *s); // how often a request had to give its blocks back
// The rows of a sequence in the batch of scheduler_next, and the request they belong to; NULL: the batch was begun
// ahead, and the request has ended.
const SeqRows *scheduler_rows(const Scheduler *s, int seq);
Request *scheduler_request(const Scheduler *s, int seq);

// ---- for policies --------------------------------------------------------------------------------------------------

// For Policy.accept: the logits that may be drawn from behind the tokens of `q`: those given, or where the request is
// constrained a copy with -inf for refused tokens, valid until the next call.
const float *scheduler_allowed(const Scheduler *s, const Request *r, const Sequence *q, const float *logits);
// For Policy.accept: the token that the request's sampler draws behind the tokens of `q`; -1: no logit is finite.
int scheduler_draw(const Scheduler *s, const Request *r, const Sequence *q, const float *logits);
// For Policy.accept: the next token of rows->request, in order: appended to its seq, emitted, and held against its
// limits; token < 0 finishes it as broken. Returns whether the request continues; if not, ignore the rest of its rows.
// logits: those it was drawn from, or NULL where Request.emit does not look.
bool scheduler_emit(Scheduler *s, SeqRows *rows, int token, const float *logits);
// For Policy.accept of a policy that emits nothing and keeps its tokens to itself (beams): counts the token that was
// appended to each sequence of rows->request. FINISH_LENGTH, FINISH_CONTEXT: the request has reached a limit and the
// policy has to finish it; RUNNING: it may continue.
Finish scheduler_count(Scheduler *s, SeqRows *rows);
void scheduler_finish(Scheduler *s, Request *r, Finish why); // for Policy.accept: no more comes of the request
// The policy that accepts for a request.
const Policy *scheduler_accepting(const Scheduler *s, const Request *r);
// For Policy.propose: the most drafts that the rows may have if all sequences of the step share the room for them.
int scheduler_draft_room(const Scheduler *s, const SeqRows *rows);
// The step's batch; in Policy.propose only its numbers of rows so far, and of sequences.
const Batch *scheduler_batch(const Scheduler *s);
int64_t scheduler_steps(const Scheduler *s); // that were planned so far: tells one step from the next
KvCache *scheduler_kv(Scheduler *s);
int scheduler_n_vocab(const Scheduler *s);

#endif
