// kv/chain.h: names for blocks of tokens: a hash that stands for a block's tokens and for all tokens before them.
//
// The name of a block is SHA-256 of its parent's name and its ids; the first block's parent is a root, which stands for
// what else the K and V depend on. Nobody can write a text whose blocks are taken for another one's.
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
