// base/falling.h: the order of floats as integers.
#ifndef QUILL_FALLING_H
#define QUILL_FALLING_H

#include <stdint.h>
#include <string.h>

// A number that is smaller for a larger float. -0 and 0 have the same. v is not NaN.
static inline uint32_t falling_bits(float v) {
    uint32_t bits;
    v += 0.0f; // turns -0 into 0
    memcpy(&bits, &v, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7fffffff;
}

#endif
