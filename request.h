// request.h: one prompt that is being answered: its sequences, its limits, what the caller gives and what it gets.
//
//   Request r = {.seq = &prompt, .sampling = how, .max_new = 100, .emit = print, .arg = out};
//   scheduler_add(s, &r);                          // ... steps, until r.finish is no longer RUNNING
//
// The caller owns the request and its first sequence. The scheduler (scheduler.h) decides in which steps the request
// has rows and writes the results into it; a policy (policy/policy.h) may give it further sequences and a state.
//
// The functions below answer the scheduler's questions about one request. Lengths are counted in tokens, places in the
// cache in slots (of one token) and blocks (of KvPool.block slots).
#ifndef QUILL_REQUEST_H
#define QUILL_REQUEST_H

#include "base/stats.h"
#include "grammar/constraint.h"
#include "policy/policy.h"
#include "sampling.h"

// Statistics of the drafts of a request; zeros if no policy proposes drafts.
typedef struct {
    int64_t n_steps, n_tokens; // steps with a row of a generated token or a draft, and the tokens emitted after them
    int64_t n_drafted, n_accepted; // proposed and accepted drafts
    double cost;                   // of these steps and of drafting, estimated by the policy, in steps without drafts
} DraftCounts;

static inline void draft_counts_add(DraftCounts *sum, const DraftCounts *c) {
    sum->n_steps += c->n_steps;
    sum->n_tokens += c->n_tokens;
    sum->n_drafted += c->n_drafted;
    sum->n_accepted += c->n_accepted;
    sum->cost += c->cost;
}

static inline double draft_counts_per_step(const DraftCounts *c) {
    return c->n_steps ? (double)c->n_tokens / (double)c->n_steps : 0;
}

typedef enum {
    RUNNING,
    FINISH_EOG,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CONTEXT,
    FINISH_INTERRUPT,
    FINISH_BROKEN, // no logit was finite: broken weights; or biases, or an incomplete form, that forbid all tokens
} Finish;
const char *finish_name(Finish f); // the "finish_reason" of --json: eog, stop, length (both limits), interrupt, error

struct Request {
    // given by the caller
    // Holds the prompt's tokens, of which n_cached may be computed already; the scheduler appends to it. The caller
    // owns it: it must not move while the request runs, and the caller ends it (sequence_end) afterwards.
    Sequence *seq;
    // Requests for further answers to the same prompt, linked by next. When the prompt is computed, they begin with
    // this request's blocks and with the logits of its last prompt row. Their sequences are empty until then. If this
    // request ends earlier, they end with it.
    Request *branches;
    const Policy *policy; // NULL: the scheduler's
    int width;            // the most sequences that the policy will create for it, at most max_seqs; 0: one
    SamplerParams sampling;
    uint64_t sequence_key; // key of the RNG: 0 for a single prompt
    // a constraint on the generated tokens; NULL: none. When it allows no further token, the request finishes with
    // FINISH_EOG
    Constraint *constraint;
    int max_new; // the most tokens to generate; -1: until the context is full; 0: only prefill
    // (n_vocab) the logits after the last token, given if all tokens of seq are computed already: the first token is
    // drawn from them when the request is added, without a row. NULL: seq has an uncomputed token.
    const float *logits;
    // Called for each token, in order, after it was appended to seq.tokens, with the raw logits that it was drawn from
    // (n_vocab). RUNNING continues the request, any other value finishes it. NULL: the request continues.
    Finish (*emit)(Request *r, int token, const float *logits);
    bool blind; // emit ignores the logits, which may then be NULL
    void *arg;  // for emit
    // owned by the policy, which frees them in Policy.end
    Sequence *more; // (n_more) sequences besides seq; the policy frees their blocks, their tokens and the array
    int n_more;
    void *state;
    // set by the scheduler
    int n_prompt;       // number of tokens when the request was added
    int n_reused;       // how many of these were computed already
    int n_new;          // number of generated tokens
    DraftCounts drafts; // added to the counts that the caller gave
    Finish finish;
    // with FINISH_BROKEN: the model gave no finite logit, or a device drew and did not say; otherwise biases or a form
    // forbid all tokens
    bool no_logit;
    bool fetched; // Policy.fetch has nothing more to load for it
    // for --kv-dir (kv/kvdir.h): slots loaded from the directory; slots known to be saved there
    int n_loaded, n_kept;
    Timeline time; // the caller may set .start, the time when the request arrived; 0: now
    Request *next; // in the scheduler's list
};

// ---- its sequences: seq, more[0], more[1], ... ----------------------------------------------------------------------

static inline int request_n_sequences(const Request *r) { return 1 + r->n_more; }
// Sequence i, i < request_n_sequences(r).
static inline Sequence *request_sequence(const Request *r, int i) { return i ? &r->more[i - 1] : r->seq; }
// Number of sequences that are still to be created: its branches, and those that its policy will fork.
int request_n_coming(const Request *r);
void request_release(Request *r, KvCache *kv); // frees their blocks; the tokens stay

// ---- its progress ---------------------------------------------------------------------------------------------------

bool request_has_blocks(const Request *r); // it has begun, and was not preempted since
// Whether each of its sequences has exactly one uncomputed token, a generated one.
bool request_is_decoding(const Request *r);
// Whether r is about to compute blocks that `later` begins with, so that `later` can share them afterwards.
bool request_is_computing_for(const Request *r, const Request *later, const KvCache *kv);
// Recurrent layers: asks for checkpoints of r where requests that have not begun part from it, so that they can share
// what r computes: where the next one parts, and where the first difference is.
void request_want_checkpoints(Request *r, const KvCache *kv);

// ---- the blocks that it needs ---------------------------------------------------------------------------------------

// Blocks that it still needs for all of its tokens and the next one; blocks shared with its first sequence count once.
int request_blocks_to_begin(const Request *r, const KvCache *kv);
int request_n_growing(const Request *r, const KvCache *kv); // how many of its sequences may need another block later

#endif
