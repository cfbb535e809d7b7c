// kv/kvstates.h: allocates the states of recurrent layers in a cache, counts their users, and keeps checkpoints.
//
// A state has a reference count, as blocks have, and is not written while it has two users. A block may keep the state
// after its last slot as a checkpoint: a sequence that is truncated to that slot, or whose prefix ends with that block,
// continues from there. A checkpoint that no sequence uses may be reused; the least recently used one goes first.
#ifndef QUILL_KVSTATES_H
#define QUILL_KVSTATES_H

#include "kv/kvshape.h"

typedef struct {
    StatePool pool;
    int *refs;       // (n_states) users: entries of sequences, and the block whose checkpoint the state is
    int *block_of;   // (n_states) the block whose checkpoint the state is; -1: none
    uint64_t *used;  // (n_states) value of `events` when the checkpoint was last made or found
    int *of_block;   // (n_blocks) the block's checkpoint; -1: none
    int n_left;      // states that kvstates_take can return
    int n_seqs;      // sequences that the pool has states for
    int n_active;    // sequences that have a state, counted by kv/seqstates.c
    int of_one;      // states of one sequence
    uint64_t events; // how often checkpoints were made or found
    int block;       // slots per block
    int back;        // KvShape.n_back
    int every;       // slots between the checkpoints of a long prompt, a multiple of a block
} KvStates;

Status kvstates_new(KvStates *s, const KvShape *shape, int n_blocks, int block); // QUILL_MEMORY
void kvstates_free(KvStates *s);

// Copies the part of a state that belongs to one recurrent layer, wherever it is, to `out`; or `values` into it.
void kvstates_load(const KvStates *s, int state, int layer, float *out); // out, values: (pool.floats)
void kvstates_store(KvStates *s, int state, int layer, const float *values);
int kvstates_left(const KvStates *s);        // states that kvstates_take can return: free ones and unused checkpoints
int kvstates_reserved(const KvStates *s);    // of these, states for the sequences that have none yet
int kvstates_take(KvStates *s);              // a state with one user; kvstates_left must not be 0
void kvstates_share(KvStates *s, int state); // adds a user
void kvstates_drop(KvStates *s, int state);  // removes a user
// Whether the caller is the only user and may overwrite the state. If the only other user is the block whose checkpoint
// it is, and no other state is left, the block gives it up.
bool kvstates_is_own(KvStates *s, int state);
// Makes the state the block's checkpoint, unless the block has one or the state is one already.
void kvstates_keep(KvStates *s, int block, int state);
// Moves the checkpoint of a block to another one with the same tokens, unless that has one.
void kvstates_move(KvStates *s, int from, int to);
void kvstates_forget(KvStates *s, int block); // drops the block's checkpoint: its slots will change
int kvstates_find(KvStates *s, int block);    // the block's checkpoint, marked as used now; -1: none

#endif
