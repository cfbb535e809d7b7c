// kv/kvnames.h: names of KV blocks, and the index that finds the block with given tokens after a given prefix.
//
// A block whose slots are all computed may get a name (kv/chain.h). If two blocks have the same name, the index holds
// the first. Finding also compares the tokens, so that two texts whose hashes collide never share a block.
#ifndef QUILL_KVNAMES_H
#define QUILL_KVNAMES_H

#include <stdbool.h>

#include "kv/chain.h"

typedef struct {
    bool named, found; // named: the block has a name; found: it is in the index
    ChainHash name, parent;
    int same_bucket; // the next block in its bucket of the index; -1: none
} KvName;

typedef struct {
    KvName *of_block; // (n_blocks)
    int *ids;         // (n_blocks, block) the tokens of the blocks in the index; NULL: no block gets a name
    int *buckets;     // (n_buckets) the first block of each bucket; -1: none
    int n_buckets;    // a power of two
    int block;        // tokens of a block
} KvNames;

void kvnames_new(KvNames *x, int n_blocks, int block, bool index); // index: blocks may get names
void kvnames_free(KvNames *x);
// Names a block without a name. ids: its `block` tokens, which the index copies.
void kvnames_set(KvNames *x, int block, const ChainHash *name, const ChainHash *parent, const int *ids);
void kvnames_forget(KvNames *x, int block); // a block without a name is left as it is
// The block with that name, parent and tokens; -1: none.
int kvnames_find(const KvNames *x, const ChainHash *name, const ChainHash *parent, const int *ids);

#endif
