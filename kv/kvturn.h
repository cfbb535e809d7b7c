// kv/kvturn.h: moves stored keys to other positions: rotates them by RoPE's angles for the difference of positions.
//
// The result is the key that the token would have at the new position, except for rounding.
#ifndef QUILL_KVTURN_H
#define QUILL_KVTURN_H

#include "layer.h"
#include "kv/kvpool.h"

// Rotates keys by `positions` (any sign) in place: n heads of a dense type, as kvrows_read returns them, of a layer
// with RoPE r. Angles are computed in double, products in f32. With 0 the keys do not change.
void kvturn_keys(const KvPool *kv, const Rope *r, double positions, void *keys, size_t n);
// The same for n keys, `stride` bytes apart, each by positions[i].
void kvturn_each(const KvPool *kv, const Rope *r, const int *positions, void *keys, int n, size_t stride);

// Converts one head of a dense cache to f32 without the cache's Hadamard rotation. For the tests.
void kvturn_load(const KvPool *kv, const void *at, float *head);

#endif
