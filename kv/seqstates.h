// kv/seqstates.h: the recurrent states of one sequence: the state after its computed tokens, and places for the states
// after its reserved rows. Used by kvcache.c; kvcache.h explains the states.
#ifndef QUILL_SEQSTATES_H
#define QUILL_SEQSTATES_H

#include "kv/kvstates.h"

typedef struct {
    int n_tokens; // the state after the first n_tokens tokens of the sequence
    int state;    // its index in the pool
} SeqState;

typedef struct {
    // (n) by rising n_tokens: those of KvShape.n_back, the state after the computed tokens, planned ones
    SeqState *list;
    int n, cap;
    int wanted[2]; // set by the caller: ends of blocks where the state should become a checkpoint; 0: none
} SeqStates;

// Takes states for the rows of slots [now, n_slots) of a sequence with n_tokens tokens. Without drafts: one for the
// state after the last row, which overwrites the sequence's present state if nobody needs that (KvShape.n_back). With
// n_drafts: one after each of the last n_drafts rows and one before them. As long as states are left, also those of
// checkpoints. n_drafts -1: the slots are loaded, not computed; only the last state is taken, and never in place.
// False: too few states are left.
bool seqstates_plan(KvStates *p, SeqStates *s, int now, int n_tokens, int n_slots, int n_drafts);
// Where the next checkpoint of a prompt of n_tokens tokens will be, of which `now` are computed; above n_tokens: none.
int seqstates_next_checkpoint(const KvStates *p, const SeqStates *s, int now, int n_tokens);
// Takes a state for one more row after those of the last plan, which are still being computed. Never in place: the step
// of that row may be dropped, and then the state before it is needed. False: no state is left.
bool seqstates_plan_ahead(KvStates *p, SeqStates *s, int n_slots);
void seqstates_drop(KvStates *p, SeqStates *s, int n_tokens);           // drops the states after more than n_tokens
void seqstates_set(KvStates *p, SeqStates *s, int n_tokens, int state); // keeps only this state; n_tokens 0: none
// The rows of slots [from, to) are computed: the state after `to` becomes the sequence's. blocks: the sequence's
// blocks, which keep the checkpoints.
void seqstates_advance(KvStates *p, SeqStates *s, const int *blocks, int n_tokens, int from, int to);
// Returns to the last state after at most n_tokens tokens, a multiple of `group`: one of the sequence's own, or a
// checkpoint. The result is its n_tokens.
int seqstates_return(KvStates *p, SeqStates *s, const int *blocks, int n_tokens, int group);

#endif
