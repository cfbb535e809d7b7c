// base/race.h: a draw among weighted candidates as a race: each has a time, and the least wins.
//
// The times are independent and exponential, at a rate that is the candidate's weight, so that each wins with the
// probability weight / sum of weights (the Gumbel-max trick in another form). A candidate's random number is keyed by
// the draw and by the candidate alone. Two draws with one key from similar weights therefore mostly give the same
// candidate, whatever its rank (Daliri et al. 2024, arXiv 2408.07978): a draft model draws the token that its target
// model will draw.
//
// Only operations whose result IEEE 754 fixes, and none that a compiler may contract: the host and the GPU compute the
// same bits.
#ifndef QUILL_RACE_H
#define QUILL_RACE_H

#include "base/device.h"
#include "base/rng.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDA_ARCH__
#define RACE_MUL(a, b) __dmul_rn(a, b)
#else
#define RACE_MUL(a, b) ((a) * (b))
#endif

// ln(x) of a normal x > 0, within 4 ulp or 1e-17. x = 2^k m with m around 1; ln m = 2 atanh((m - 1) / (m + 1)) by its
// series.
HOST_DEVICE static inline double race_log(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int k = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m = RACE_MUL(m, 0.5);
        k++;
    }
    double s = (m - 1) / (m + 1), z = RACE_MUL(s, s), sum = 0;
    for (int i = 23; i >= 1; i -= 2) sum = RACE_MUL(sum, z) + 1.0 / i;
    return RACE_MUL((double)k, 0x1.62e42fefa39efp-1) + RACE_MUL(RACE_MUL(2.0, s), sum);
}

// The time of candidate `id` in the race of a draw, whose key is rng_bits' result; INFINITY for a weight of 0.
HOST_DEVICE static inline double race_time(uint64_t draw, int id, float weight) {
    uint64_t bits = rng_mix(draw ^ (uint64_t)(uint32_t)id);
    double u = RACE_MUL((double)(bits >> 12) + 0.5, 0x1p-52); // in (0, 1)
    return weight > 0 ? -race_log(u) / (double)weight : (double)INFINITY;
}

#endif
