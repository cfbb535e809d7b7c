// base/hash.c: see base/hash.h.
#define _GNU_SOURCE
#include "base/hash.h"

#include <sys/random.h>

#include "base/clock.h"

HashKey hash_key(void) {
    HashKey k;
    if (getrandom(&k, sizeof k, GRND_NONBLOCK) != (ssize_t)sizeof k) { // not seeded yet, early after boot
        uint64_t now = (uint64_t)(clock_now() * 1e9);
        k = (HashKey){now * 0x9e3779b97f4a7c15u, (uint64_t)(uintptr_t)&k ^ now << 32};
    }
    k.factor |= 1;
    return k;
}
