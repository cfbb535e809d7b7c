// kv/chain.h: names of KV blocks: hashes of a block's tokens and of all tokens before them.
//
// The name of a block is SHA-256 of its parent's name and its token ids. The parent of the first block is a root, a
// hash of everything else that K and V depend on. SHA-256 is used so that nobody can construct a text whose blocks have
// the names of another text's blocks.
#ifndef QUILL_CHAIN_H
#define QUILL_CHAIN_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint8_t bytes[32];
} ChainHash;

ChainHash chain_root(const void *bytes, size_t n);
ChainHash chain_next(const ChainHash *parent, const int *tokens, int n);

#endif
