// base/rng.h: random numbers as a function of (seed, sequence, position): without state, so that a draw never depends
// on earlier draws.
//
// Three rounds of the 64-bit finaliser that Stafford tuned (mix 13, known from SplitMix64), one for each key.
#ifndef QUILL_RNG_H
#define QUILL_RNG_H

#include "base/device.h"

#include <stdint.h>

#define RNG_STEP 0x9e3779b97f4a7c15u // difference of consecutive states of SplitMix64

HOST_DEVICE static inline uint64_t rng_mix(uint64_t z) {
    z += RNG_STEP;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

HOST_DEVICE static inline uint64_t rng_bits(uint64_t seed, uint64_t sequence, uint64_t position) {
    return rng_mix(rng_mix(rng_mix(seed) ^ sequence) ^ position);
}

// A number in [0, 1) with 53 random bits.
HOST_DEVICE static inline double rng_uniform(uint64_t seed, uint64_t sequence, uint64_t position) {
    return (double)(rng_bits(seed, sequence, position) >> 11) * 0x1p-53;
}

#endif
