// kv/kvrows.h: copies K and V of consecutive slots of a sequence between a pool and the byte order of KV files.
//
// The byte order does not depend on blocks or layout. For slots [first, first + n) of one layer: K as (n, n_kv_heads)
// heads of type_k, then V likewise of type_v, unless V lies in K (KvPool.v_in_k). With a sealed type `first` must begin
// a group; whole groups are sealed, each as (SEAL, n_kv_heads) of its parts, and the rows of the last, open group are
// dense f32. The layer may be in a device's memory.
#ifndef QUILL_KVROWS_H
#define QUILL_KVROWS_H

#include "kv/kvpool.h"

// Bytes of n slots of one layer.
size_t kvrows_bytes(const KvPool *kv, int n);
// `blocks` is the sequence's block table; the pending block copies (Batch.copy) must have been made.
void kvrows_read(const KvPool *kv, int layer, const int *blocks, int first, int n, void *out);
void kvrows_write(KvPool *kv, int layer, const int *blocks, int first, int n, const void *rows);
// QUILL_MODEL, QUILL_MEMORY: a device has failed, so that rows read from it may be wrong. Call after reading.
Status kvrows_intact(const KvPool kv[KV_KINDS]);

#endif
