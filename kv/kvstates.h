// kv/kvstates.h: the states of recurrent layers in a cache: which are free, how many use each, and which are
// checkpoints.
//
// A state is shared by counting, as blocks are, and never changes while two use it. A block may keep the state behind
// its last slot as a checkpoint: a sequence that returns to that slot, or begins with that block, goes on from there. A
// checkpoint which no sequence uses lasts until its place is needed; the one that was used longest ago goes first.
#ifndef QUILL_KVSTATES_H
#define QUILL_KVSTATES_H

#include "kv/kvshape.h"

typedef struct {
    StatePool pool;
    int *refs;       // (n_states) users: entries of sequences, and the block of a checkpoint
    int *block_of;   // (n_states) whose checkpoint it is; -1: of none
    uint64_t *used;  // (n_states) when a checkpoint was made or taken, counted in such events
    int *of_block;   // (n_blocks) the block's checkpoint; -1: none
    uint64_t events; //
    int block;       // slots
    int every;       // slots between the checkpoints of a long prompt, a multiple of a block
} KvStates;

Status kvstates_new(KvStates *s, const KvShape *shape, int n_blocks, int block); // QUILL_MEMORY
void kvstates_free(KvStates *s);

int kvstates_left(const KvStates *s);         // how many can be taken
int kvstates_take(KvStates *s);               // with one user; one must be left
void kvstates_share(KvStates *s, int state);  // one user more
void kvstates_drop(KvStates *s, int state);   // one user less
bool kvstates_is_own(KvStates *s, int state); // no one else needs it: its checkpoint, if it is one, is given up
void kvstates_keep(KvStates *s, int block, int state); // as the block's checkpoint, unless it has one
void kvstates_forget(KvStates *s, int block);          // the block's slots change: its checkpoint goes
int kvstates_find(KvStates *s, int block);             // the block's checkpoint, noted as used; -1: none

#endif
