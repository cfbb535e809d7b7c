// policy/policy.h: a policy decides which draft rows a request adds to a step, and turns logits into tokens.
//
// The scheduler decides which requests run in a step. Each gets rows for tokens that are known and whose K and V are
// not computed yet. Its policy does the rest, in these parts:
//
//   fetch      before a request's first row: loads K and V that were computed elsewhere (--kv-dir)
//   pick       instead of the next rows of a prompt: chooses which tokens get rows if others have K and V already
//   picked     after such a step: counts the slots as computed, or voids the step
//   room       before the rows of each step: how many slots they may write; eviction drops old slots here
//   preempted  before the request's blocks are freed for another one: it begins again later
//   propose    after the known rows: adds rows of unverified tokens, and says which rows need logits
//   observe    after the step: reads the hidden vectors of rows, from which a prediction head drafts
//   accept     after the step: turns logits, or the tokens that a device drew from them, into tokens of the request
//   end        the request has finished
//
// A policy leaves the parts NULL that it does not change, and sets `next` to the policy that provides them. The last
// policy of the chain is plain decoding (policy/plain.h), which proposes nothing and accepts one token. The scheduler
// includes no policy's header: scheduler_new is given one for all requests, and Request.policy may set another.
//
//   static void propose(const Policy *p, Scheduler *s, StepRows *rows) {      // speculation, on top of plain decoding
//       rows->n_draft = guess(p->arg, rows->seq, rows->draft, rows->room);    // tokens that may come next
//       rows->n_out += rows->n_draft;                                         // their logits too, to judge them
//   }
//   Policy speculative = {.propose = propose, .arg = guesser, .next = &plain_policy};
//
// Rows of unverified tokens ("drafts") are never part of Sequence.tokens. scheduler_emit keeps the K and V of a draft
// if the emitted token equals the draft and another token follows; all other drafts are dropped after accept. So a
// draft is never named, shared, saved or counted, whatever a policy does. Drafts only get rows and blocks that the
// known tokens of all requests leave free. With sealed KV they get no slot that completes a group: a sealed group holds
// verified tokens only.
#ifndef QUILL_POLICY_H
#define QUILL_POLICY_H

#include "kvcache.h"

typedef struct Request Request;
typedef struct Scheduler Scheduler;
typedef struct Policy Policy;

// Ends rows of a sequence in a layer, after it has stored their K and V.
typedef struct {
    int layer; // Layer.index; -1: rows may end in each layer but the last
    // Called in that layer with the sequence's remaining rows, [first, first + n) of the batch. Writes the rows that
    // continue to `rows`, ascending, including those with logits, and returns their number.
    int (*choose)(void *arg, const Layer *l, const KvPool *kv, const Batch *b, int first, int n, int *rows);
    void *arg;
} RowsEnd;

// The rows of one sequence in a step: n_known tokens of the sequence, then n_draft unverified ones.
typedef struct {
    Request *request; // NULL: it ended while the step was in flight
    Sequence *seq;    // of that request
    int slot, first;  // of the first row: its slot, and the index of its token, which is its RoPE position too
    int n_known;
    // set by pick
    const int
        *picked; // (n_known) indices of tokens, ascending, each at the slot of its index; NULL: first, first + 1, ...
    bool ending; // no row has logits, even if one is the prompt's last
    const RowsEnd *ends;      // NULL: all rows pass all layers
    const KvArrival *arrival; // NULL: all K and V that the rows see are in the cache
    // set by propose
    int n_draft;
    int *draft;           // (room) the tokens of the drafts
    int first_out, n_out; // the rows whose logits are wanted; before propose: the row of the last token, or none
    Probe *probe;         // records attention weights; needs a step with rows of this sequence only. NULL: none
    int room, room_out;   // given to propose: the upper limits of n_draft and n_out
    bool wants_hidden;    // the hidden vectors of all its rows, for observe
    const float *hidden;  // given to observe: (n_known + n_draft, dim) of model_last_hidden
    // given to accept, one of them; the other is NULL
    const float *logits; // (n_out, n_vocab)
    const int *tokens;   // (n_out) -1: no logit was finite
    int n_emitted;       // number of tokens emitted from these rows
    // May be set by accept: the time of the step and of drafting, relative to a step without drafts; 0 counts as 1.
    double cost;
} StepRows;

struct Policy {
    // Called between steps for a request that begins, or begins again after a preemption: loads slots of its next
    // tokens into r->seq, at most `most` plus the rest of a block. Returns true when there is no more to load.
    bool (*fetch)(const Policy *p, Request *r, int most);
    // Called before each step with rows of a prompt, for requests that have some K and V without computing rows.
    // Chooses up to `most` tokens after n_cached, whose slots are reserved, and returns their number; 0: the scheduler
    // takes the next tokens in order. If it returned more, `picked` is called after the step and advances n_cached;
    // false: the results of the step are void, and the policy has set n_cached back.
    int (*pick)(const Policy *p, Scheduler *s, StepRows *rows, int most);
    bool (*picked)(const Policy *p, Scheduler *s, StepRows *rows);
    // Called before the request is preempted: its blocks are freed, and it begins again later.
    void (*preempted)(const Policy *p, Request *r);
    // Returns how many slots the rows of the next step may write, at least 1 unless the context is full. A request of a
    // policy with `room` has one sequence and no drafts, since dropped slots cannot be restored.
    int (*room)(const Policy *p, Request *r);
    bool endless; // with `room`: the context limit never ends a request
    // Called once for each sequence that has rows in the step, also for chunks of a prompt. Unless the rows reach the
    // last token of the sequence, rows->room and rows->n_out are 0.
    void (*propose)(const Policy *p, Scheduler *s, StepRows *rows);
    // Called after the step, before any accept, for each sequence whose propose has set wants_hidden. Not called if
    // rows of the step have ended early (StepRows.ends).
    void (*observe)(const Policy *p, Scheduler *s, StepRows *rows);
    // Called once for each request whose rows reach the last token of a sequence, or have logits. rows: those of its n
    // sequences, in the order seq, more[0], more[1], ... May fork, truncate and release sequences and change
    // Request.more. Afterwards either the request has finished (scheduler_emit of scheduler.h), or each of its
    // sequences has a token whose K and V are not computed.
    void (*accept)(const Policy *p, Scheduler *s, StepRows *rows, int n);
    bool takes_drawn; // with `accept`: it accepts a token that a device drew, without logits
    // Frees what the policy keeps for a request: Request.more and Request.state, not Request.seq. Called for every
    // request that was added, possibly from inside scheduler_emit.
    void (*end)(const Policy *p, Scheduler *s, Request *r);
    void *arg; // private data of the policy
    const Policy *next;
};

// ---- the chain ------------------------------------------------------------------------------------------------------
// The first policy from p on that has the part; NULL: none has it. A policy that adds to what the next policies
// do calls the part of the policy that policy_with_X(p->next) finds.

#define POLICY_WITH(part)                                                                                              \
    static inline const Policy *policy_with_##part(const Policy *p) {                                                  \
        while (p && !p->part) p = p->next;                                                                             \
        return p;                                                                                                      \
    }
POLICY_WITH(fetch)
POLICY_WITH(pick)
POLICY_WITH(preempted)
POLICY_WITH(room)
POLICY_WITH(propose)
POLICY_WITH(observe)
POLICY_WITH(accept)
POLICY_WITH(end)
#undef POLICY_WITH

#endif
