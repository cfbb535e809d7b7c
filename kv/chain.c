// kv/chain.c: see kv/chain.h.
#include "kv/chain.h"

#include <sha2.h>

static ChainHash finish(SHA2_CTX *hash) {
    ChainHash found;
    SHA256Final(found.bytes, hash);
    return found;
}

ChainHash chain_root(const void *bytes, size_t n) {
    SHA2_CTX hash;
    SHA256Init(&hash);
    SHA256Update(&hash, bytes, n);
    return finish(&hash);
}

ChainHash chain_next(const ChainHash *parent, const int *tokens, int n) {
    SHA2_CTX hash;
    SHA256Init(&hash);
    SHA256Update(&hash, parent->bytes, sizeof parent->bytes);
    SHA256Update(&hash, (const uint8_t *)tokens, (size_t)n * sizeof *tokens);
    return finish(&hash);
}
