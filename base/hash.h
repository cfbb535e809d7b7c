// base/hash.h: keyed hashing, for tables over names and strings from a file.
//
// Every table gets a random key of its own, so that no file can contain strings that are known to collide and make
// loading take quadratic time. One step multiplies 64 by 64 bits and combines the product's halves by exclusive or.
#ifndef QUILL_HASH_H
#define QUILL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t start, factor; // factor is odd
} HashKey;

HashKey hash_key(void); // a new random key

static inline uint64_t hash_step(HashKey k, uint64_t h, uint64_t word) {
    __extension__ typedef unsigned __int128 Wide;
    Wide product = (Wide)((h ^ word) + k.start) * k.factor;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_bytes(HashKey k, const char *s, size_t n) {
    uint64_t h = hash_step(k, k.start, n), word;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = hash_step(k, h, word);
    }
    uint32_t low = 0, high = 0; // of the last 0 to 7 bytes; two loads may overlap
    if (n >= 4) {
        memcpy(&low, s, 4);
        memcpy(&high, s + n - 4, 4);
    } else if (n > 0) {
        low = (unsigned char)s[0] | (uint32_t)(unsigned char)s[n / 2] << 8 | (uint32_t)(unsigned char)s[n - 1] << 16;
    }
    return hash_step(k, h, low | (uint64_t)high << 32);
}

#endif
