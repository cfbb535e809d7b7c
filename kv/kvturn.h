// kv/kvturn.h: stored keys at other positions: RoPE's angles grow with the position, so a key that is turned on by the
// difference is the key that its token has there, but for rounding.
#ifndef QUILL_KVTURN_H
#define QUILL_KVTURN_H

#include "kernels.h"

// Turns keys by `positions` (any sign) in place: n heads of a dense type as kvrows_read gives them, of a layer with
// that RoPE. The angles are computed in double, products in f32. By 0 nothing changes.
void kvturn_keys(const KvPool *kv, const Rope *r, double positions, void *keys, size_t n);

// A head of a dense cache as f32, without the Hadamard rotation of the cache; and back.
void kvturn_load(const KvPool *kv, const void *at, float *head);
void kvturn_store(const KvPool *kv, float *head, void *at);

#endif
