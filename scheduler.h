// scheduler.h: picks the rows of each step.
//
//   while (scheduler_next(s, &batch))
//       scheduler_take(s, model_forward(m, w, &kv->pool, batch));
//
// A request is a sequence with a wish. Each step takes one decode row of every running sequence first and fills the
// rest of max_rows with prefill chunks of the tokens whose K and V are not computed yet, oldest request first: no
// running sequence waits longer for its next token than one step of max_rows rows takes.
//
// A request begins when there are blocks for all of its tokens and one more for every other that may grow; those behind
// it wait with it, so that none is passed over for ever. Who has begun goes on whoever waits. When blocks run out all
// the same, the newest request gives its own back and computes them again later. Every step has a row of somebody; only
// a request that has the cache to itself and finds no slot ends for want of one (FINISH_CONTEXT), and gives back what
// it holds where others wait. The width of the batch is what memory allows, max_seqs at most.
//
// What was computed elsewhere (scheduler_fetch) is looked for when a request begins, where it takes the blocks that it
// has been let in with: it does not wait in the cache for its turn. In steps with rows of others no more comes than
// keeps them short, and the request waits for the rest.
//
// Where a device draws the tokens (scheduler_draws) nobody waits for them: while a step runs, scheduler_ahead has the
// next one, whose rows take the tokens of this one where they lie. What ends a request is seen one step late then, and
// that step's row of it is dropped.
#ifndef QUILL_SCHEDULER_H
#define QUILL_SCHEDULER_H

#include "kvcache.h"
#include "sampler.h"
#include "stats.h"

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

typedef struct Request Request;
struct Request {
    // given by the caller
    Sequence seq; // the prompt's tokens; n_cached slots of them may be computed already
    // More answers to the same prompt, linked by next: they begin with this one's blocks and with the logits of its
    // last prompt row, without a row of their own. Their seq is empty until then. If this one ends before, they do too.
    Request *branches;
    SamplerParams sampling;
    uint64_t sequence_key; // of the RNG: 0 for a single prompt
    int max_new;           // tokens to generate at most; -1: until the context is full; 0: only prefill
    // (n_vocab) those after the last token, where all of seq is computed already: the first token is drawn from them
    // when the request is added, without a row. NULL: a token is uncomputed.
    const float *logits;
    // Called for each sampled token, in order, after it was appended to seq.tokens, with the raw logits that it was
    // drawn from (n_vocab): RUNNING goes on, anything else finishes. NULL: goes on.
    Finish (*emit)(Request *r, int token, const float *logits);
    bool blind; // emit does not look at the logits, which may be NULL then
    void *arg;  // emit's own
    // kept by the scheduler
    int n_prompt; // tokens when it was added
    int n_reused; // of them, slots that were computed already
    int n_new;    // tokens generated
    Finish finish;
    bool fetched;  // nothing more of it is to be had elsewhere
    int n_kept;    // the engine's: slots that --kv-dir has
    Timeline time; // .start given: when it came; 0: now
    Request *next; // in the scheduler's list
};

typedef struct Scheduler Scheduler;

Scheduler *scheduler_new(KvCache *kv, Sampler *sampler, int n_vocab, int max_rows, int max_seqs);
// Sequences that give up slots go on past the context. Called before each step of a request, as evict_room is: how many
// slots it may write; `rows` are to be added then, and what is returned there is the batch's probe. One request at a
// time.
typedef struct {
    int (*room)(void *arg, Request *r);
    Probe *(*probe)(void *arg, Request *r, int n_rows);
    bool endless; // the context never ends a request
    void *arg;
} Eviction;
void scheduler_evict(Scheduler *s, Eviction eviction);
// Steps whose logits nobody wants to see come with Batch.draw from now on; `ahead`: scheduler_ahead may be used.
void scheduler_draws(Scheduler *s, bool ahead);
// Called between steps for a request that begins, or begins again: appends slots of its next tokens to r->seq, `most`
// of them and the rest of a block at most, and returns whether there was no more to append.
void scheduler_fetch(Scheduler *s, bool (*fetch)(void *arg, Request *r, int most), void *arg);
void scheduler_free(Scheduler *s); // the requests and their blocks stay the callers'

// The request stays the caller's and must live until it has finished. At least one token must be uncomputed, but
// for a request that brings logits, which may be finished when this returns.
void scheduler_add(Scheduler *s, Request *r);
bool scheduler_next(Scheduler *s, Batch **b);                // false: every request has finished
void scheduler_take(Scheduler *s, const float *logits);      // (b->n_out, n_vocab)
void scheduler_take_tokens(Scheduler *s, const int *tokens); // of a batch with draws: (b->n_out), -1: nothing was left
// Between scheduler_next and scheduler_take_tokens of a batch with draws: the batch after it, where that is certain but
// for the tokens, which are -1. scheduler_next gives it again when this one is taken. False: there is none.
bool scheduler_ahead(Scheduler *s, Batch **b);
void scheduler_interrupt(Scheduler *s); // finishes all with FINISH_INTERRUPT; async-signal-safe flag
// Between scheduler_take and scheduler_next: finishes one request, and the branches that it still has to begin, with
// FINISH_INTERRUPT. One that has finished already stays as it is.
void scheduler_cancel(Scheduler *s, Request *r);
int scheduler_max_rows(const Scheduler *s);
int64_t scheduler_preemptions(const Scheduler *s); // how often a request had to give its blocks back
// Whose rows have this seq in the batch of scheduler_next; NULL: it was begun ahead, and the request has ended.
Request *scheduler_request(const Scheduler *s, int seq);

#endif
