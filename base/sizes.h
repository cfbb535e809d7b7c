// base/sizes.h: sizes whose overflow is checked, rounding, the smaller and the larger of two integers.
#ifndef QUILL_SIZES_H
#define QUILL_SIZES_H

#include <stdbool.h>
#include <stddef.h>

// False: the result does not fit, and *out is undefined.
static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
static inline int int_min(int a, int b) { return a < b ? a : b; }
static inline int int_max(int a, int b) { return a > b ? a : b; }
static inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; } // to a multiple of unit

#endif
