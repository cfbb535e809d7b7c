// policy/policy.h: a policy decides which draft rows a request adds to a step, and which tokens come of the logits.
//
// The scheduler decides which requests run in a step. Each gets rows for tokens that are known and whose K and V are
// not computed yet. Its policy does the rest, in these parts:
//
//   fetch    before a request's first row: K and V that were computed elsewhere (--kv-dir)
//   pick     in place of the next rows of a prompt: which of its tokens get rows, where others have K and V already
//   room     before the rows of each step: how many slots they may write; eviction gives up old slots here
//   propose  behind the known rows: rows of unverified tokens, and which rows' logits are wanted
//   accept   after the step: logits, or the tokens that a device drew from them, become tokens of the request
//   end      the request has finished
//
// A policy leaves the parts NULL that it does not change, and names the policy that does them in `next`. The last one
// is plain decoding (policy/plain.h), which proposes nothing and accepts one token. The scheduler never includes a
// policy: it is given one for all requests, and a request may bring another (Request.policy).
//
//   static void propose(const Policy *p, Scheduler *s, SeqRows *rows) {       // speculation, on top of plain decoding
//       rows->n_draft = guess(p->arg, rows->seq, rows->draft, rows->room);    // tokens that may come next
//       rows->n_out += rows->n_draft;                                         // their logits too, to judge them
//   }
//   Policy speculative = {.propose = propose, .arg = guesser, .next = &plain_policy};
//
// Rows of unverified tokens ("drafts") are never part of Sequence.tokens. scheduler_emit keeps the K and V of a draft
// when the token that it stands for comes out and another one follows; all other drafts are forgotten after accept.
// So a draft is never named, shared, saved or counted, whatever a policy does. Drafts get the rows and blocks that the
// known tokens of all requests leave, and of sealed KV no slot that completes a group: a sealed group holds verified
// tokens only.
#ifndef QUILL_POLICY_H
#define QUILL_POLICY_H

#include "kvcache.h"

typedef struct Request Request;
typedef struct Scheduler Scheduler;
typedef struct Policy Policy;

// Rows of a sequence that end in a layer, once it has stored their K and V.
typedef struct {
    int layer; // Layer.index; -1: rows may end in each layer but the last
    // Called there with the rows [first, first + n) of the batch, those that the sequence still has: writes the ones
    // that go on to `rows`, ascending, those with logits among them, and returns how many.
    int (*choose)(void *arg, const Layer *l, const KvPool *kv, const Batch *b, int first, int n, int *rows);
    void *arg;
} RowsEnd;

// The rows of one sequence in a step: n_known tokens of the sequence, then n_draft unverified ones.
typedef struct {
    Request *request; // NULL: it ended while the step was on its way
    Sequence *seq;    // of that request
    int slot, first;  // of the first row: its slot, and the index of its token, which is its RoPE position too
    int n_known;
    // set by pick
    const int
        *picked; // (n_known) indices of tokens, ascending, each at the slot of its index; NULL: first, first + 1, ...
    bool ending; // none of the rows has logits, though one may be the prompt's last
    const RowsEnd *ends;      // NULL: all rows pass all layers
    const KvArrival *arrival; // NULL: all K and V that the rows see are there
    // set by propose
    int n_draft;
    int *draft;           // (room) their tokens
    int first_out, n_out; // the rows whose logits are wanted; before propose: the row of the last token, or none
    Probe *probe;         // NULL, or what attention reports of a step with rows of this sequence alone
    int room, room_out;   // given to propose: the most that n_draft and n_out may be
    // given to accept, one of them; the other is NULL
    const float *logits; // (n_out, n_vocab)
    const int *tokens;   // (n_out) -1: no logit was finite
    int n_emitted;       // tokens of the request that came of these rows
    // may be set by accept: the step's time and that of drafting, in steps of the same rows without drafts; 0: 1
    double cost;
} SeqRows;

struct Policy {
    // Called between steps for a request that begins, or begins again: appends slots of its next tokens to r->seq,
    // `most` of them and the rest of a block at most. Returns whether there was no more to append.
    bool (*fetch)(const Policy *p, Request *r, int most);
    // Before each step with rows of a prompt, for requests some of whose K and V are there without rows: chooses up to
    // `most` tokens behind n_cached, whose slots are reserved, and returns how many; 0: the next tokens as they stand.
    // Then `picked` takes the place of n_cached += n_known after the step; false: nothing of the step counts, and the
    // policy has set n_cached back.
    int (*pick)(const Policy *p, Scheduler *s, SeqRows *rows, int most);
    bool (*picked)(const Policy *p, Scheduler *s, SeqRows *rows);
    // The request is about to give its blocks back to others, and begins again later.
    void (*give_back)(const Policy *p, Request *r);
    // Slots that the rows of the next step may write, at least 1 unless the context is full. A request of a policy with
    // `room` has one sequence and no drafts, since slots that are given up cannot be taken back.
    int (*room)(const Policy *p, Request *r);
    bool endless; // with `room`: the context never ends a request
    // Once for each sequence that has rows in the step, chunks of a prompt too. Unless the rows reach the last token of
    // the sequence, rows->room and rows->n_out are 0.
    void (*propose)(const Policy *p, Scheduler *s, SeqRows *rows);
    // Once for each request whose rows reach the last token of a sequence, or have logits: the rows of its sequences,
    // in the order seq, more[0], more[1], ... May fork, truncate and release them and change Request.more. Afterwards
    // the request has finished (scheduler_emit of scheduler.h), or each of its sequences has a token whose K and V are
    // not computed.
    void (*accept)(const Policy *p, Scheduler *s, SeqRows *rows, int n);
    bool takes_drawn; // with `accept`: one token that a device drew will do, nobody looks at logits
    // Gives back what the policy keeps for a request: Request.more and Request.state. Request.seq stays the caller's.
    // Called for every request that was added, from scheduler_emit too.
    void (*end)(const Policy *p, Scheduler *s, Request *r);
    void *arg; // the policy's own
    const Policy *next;
};

#endif
