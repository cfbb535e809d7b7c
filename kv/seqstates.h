// kv/seqstates.h: the states of one sequence's recurrent layers: the one behind its computed tokens, and those that the
// rows reserved behind them will leave. For kvcache.c, whose header has what they are for.
#ifndef QUILL_SEQSTATES_H
#define QUILL_SEQSTATES_H

#include "kv/kvstates.h"

typedef struct {
    int n_tokens; // behind so many tokens of the sequence
    int state;    // among those of the pool
} SeqState;

typedef struct {
    SeqState *list; // (n) by rising n_tokens; the first one is that behind the computed tokens, if there are any
    int n, cap;
} SeqStates;

// Places for the states behind the rows of slots [now, n_slots) of a sequence with n_tokens tokens: of drafts each,
// otherwise the last one, which may take the place of the one in front of the rows; and for checkpoints, as long as
// there are idle places. n_drafts -1: no row is computed, and the last state alone has a place, of its own. False:
// there are too few.
bool seqstates_plan(KvStates *p, SeqStates *s, int now, int n_tokens, int n_slots, int n_drafts);
void seqstates_drop(KvStates *p, SeqStates *s, int n_tokens);           // those behind more than n_tokens
void seqstates_set(KvStates *p, SeqStates *s, int n_tokens, int state); // this one alone; n_tokens 0: none
// The rows of slots [from, to) are computed; blocks: the sequence's, which keep the checkpoints.
void seqstates_advance(KvStates *p, SeqStates *s, const int *blocks, int n_tokens, int from, int to);
// Goes back to the last checkpoint behind at most n_tokens, whose slot is a multiple of `group`; returns its n_tokens.
int seqstates_return(KvStates *p, SeqStates *s, const int *blocks, int n_tokens, int group);

#endif
