// encode/lanes.h: vectors whose sixteen lanes are sixteen sub-blocks, for encode/vector_fit.c.
//
// Uses the compiler's vector extension. Whatever the registers are, each lane goes through the same operations in the
// same order, and no product is fused with a sum, so that every instruction set gives the same bits.
#ifndef QUILL_LANES_H
#define QUILL_LANES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "encode/fit.h"
#include "formats/types.h"

#define LANES_INLINE static inline __attribute__((always_inline))

typedef float Lanes __attribute__((vector_size(4 * FIT_LANES)));
typedef int32_t LaneMask __attribute__((vector_size(4 * FIT_LANES))); // -1 or 0 in each lane

LANES_INLINE Lanes lanes_set(float x) { return x - (Lanes){0}; }
LANES_INLINE Lanes lanes_select(LaneMask mask, Lanes a, Lanes b) {
    return (Lanes)(((LaneMask)a & mask) | ((LaneMask)b & ~mask));
}
LANES_INLINE Lanes lanes_where(LaneMask mask, Lanes a) { return (Lanes)((LaneMask)a & mask); } // else 0
LANES_INLINE Lanes lanes_min(Lanes a, Lanes b) { return lanes_select(a < b, a, b); }
LANES_INLINE Lanes lanes_max(Lanes a, Lanes b) { return lanes_select(a > b, a, b); }
LANES_INLINE Lanes lanes_abs(Lanes a) { return (Lanes)((LaneMask)a & 0x7fffffff); }
LANES_INLINE Lanes lanes_clamp(Lanes v, float lo, float hi) {
    return lanes_min(lanes_max(v, lanes_set(lo)), lanes_set(hi));
}
// Rounds to the nearest integer, ties to even; |v| < 2^22. The intermediate sum is too large to have fraction bits.
LANES_INLINE Lanes lanes_round(Lanes v) { return (v + 0x1.8p23f) - 0x1.8p23f; }
// 1 / v; 0 for |v| <= 1e-30, which is 0 in f16.
LANES_INLINE Lanes lanes_inverse(Lanes v) {
    LaneMask some = lanes_abs(v) > lanes_set(1e-30f);
    return lanes_where(some, 1.0f / lanes_select(some, v, lanes_set(1)));
}
// Rounds every lane to a half; values beyond the largest half become that.
LANES_INLINE Lanes lanes_half(Lanes v) {
    v = lanes_clamp(v, -65504, 65504);
    for (int l = 0; l < FIT_LANES; l++) v[l] = half_float(float_half(v[l]));
    return v;
}
// The same, but a value other than 0 does not become 0: it becomes at least the smallest half.
LANES_INLINE Lanes lanes_half_some(Lanes v) {
    Lanes least = lanes_select(v > 0, lanes_set(0x1p-24f), lanes_set(-0x1p-24f)), half = lanes_half(v);
    return lanes_select((half == 0) & (v != 0), least, half);
}
// Every lane gets the sum over its super-block of `per` lanes.
LANES_INLINE Lanes lanes_group_sum(Lanes v, int per) {
    for (int first = 0; first < FIT_LANES; first += per) {
        float sum = 0;
        for (int l = 0; l < per; l++) sum += v[first + l];
        for (int l = 0; l < per; l++) v[first + l] = sum;
    }
    return v;
}
// Every lane gets the element of the largest magnitude in its super-block, with its sign.
LANES_INLINE Lanes lanes_group_far(Lanes v, int per) {
    for (int first = 0; first < FIT_LANES; first += per) {
        float far = 0;
        for (int l = 0; l < per; l++)
            if (__builtin_fabsf(v[first + l]) > __builtin_fabsf(far)) far = v[first + l];
        for (int l = 0; l < per; l++) v[first + l] = far;
    }
    return v;
}

#endif
