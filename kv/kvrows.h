// kv/kvrows.h: K and V of consecutive slots of a sequence, out of a pool's planes and back, as files and the network
// carry them.
//
// The order of the bytes shows no block and no layout: of n slots from `first` on in one layer, K as (n, n_kv_heads)
// slots of type_k, then V likewise of type_v, unless it lies in K (KvPool.v_in_k). Of a sealed type `first` begins a
// group; whole groups come sealed, each as (SEAL, n_kv_heads) of its parts, and the rows of the last, open group dense,
// in f32. The layer's planes may be in a device's memory.
#ifndef QUILL_KVROWS_H
#define QUILL_KVROWS_H

#include "kernels.h"

// Bytes of n slots of one layer.
size_t kvrows_bytes(const KvPool *kv, int n);
// `blocks` is the sequence's block table; copies that a batch was to make (Batch.copy) must have been made.
void kvrows_read(const KvPool *kv, int layer, const int *blocks, int first, int n, void *out);
void kvrows_write(KvPool *kv, int layer, const int *blocks, int first, int n, const void *rows);
// Whether what was read is what was computed: QUILL_MODEL after a device has failed.
Status kvrows_intact(const KvPool kv[KV_KINDS]);

#endif
