// scheduler.h: picks the rows of each step.
//
//   while (scheduler_next(s, &batch))
//       scheduler_take(s, model_forward(m, w, &kv->pool, batch));
//
// A request is a sequence with a wish. Each step takes one decode row of every running sequence first and fills the
// rest of max_rows with prefill chunks of the tokens whose K and V are not computed yet, oldest request first. When
// blocks run out, the newest request gives its own back and computes them again later.
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
    SamplerParams sampling;
    uint64_t sequence_key; // of the RNG: 0 for a single prompt
    int max_new;           // tokens to generate at most; -1: until the context is full; 0: only prefill
    // Called for each sampled token, in order, after it was appended to seq.tokens, with the raw logits that it was
    // drawn from (n_vocab): RUNNING goes on, anything else finishes. NULL: goes on.
    Finish (*emit)(Request *r, int token, const float *logits);
    void *arg; // emit's own
    // kept by the scheduler
    int n_prompt; // tokens when it was added
    int n_reused; // of them, slots that were computed already
    int n_new;    // tokens generated
    Finish finish;
    Timeline time;
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
void scheduler_free(Scheduler *s); // the requests and their blocks stay the callers'

// The request stays the caller's and must live until it has finished. At least one token must be uncomputed.
void scheduler_add(Scheduler *s, Request *r);
bool scheduler_next(Scheduler *s, Batch **b);           // false: every request has finished
void scheduler_take(Scheduler *s, const float *logits); // (b->n_out, n_vocab)
void scheduler_interrupt(Scheduler *s);                 // finishes all with FINISH_INTERRUPT; async-signal-safe flag
int scheduler_max_rows(const Scheduler *s);
Request *scheduler_request(const Scheduler *s, int seq); // whose rows have this seq in the batch of scheduler_next

#endif
