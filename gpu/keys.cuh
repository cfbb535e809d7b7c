// gpu/keys.cuh: where the slots of a sequence are in a pool, which of them a row sees, and the score of a sink. No
// kernels: several objects include it.
#ifndef QUILL_KEYS_CUH
#define QUILL_KEYS_CUH

#include "gpu/gpu.h"
#include "gpu/launch.h"

// The batch for a layer of this pool: block_table is the pool's.
inline GpuBatch in_pool(const GpuBatch *b, const KvPool *kv) {
    GpuBatch own = *b;
    if (kv->kind == KV_WINDOW) own.block_table = b->window_table;
    return own;
}

// Index of a sequence's slot in a plane of the pool; offset of its head_dim elements in a dense plane.
__device__ __forceinline__ size_t slot_at(const KvPool &kv, const GpuBatch &b, int layer, int seq, int head, int slot) {
    int block = b.block_table[(size_t)seq * (size_t)b.table_step + (size_t)(slot / kv.block)];
    return kv_slot(&kv, layer, block, head, slot % kv.block);
}
__device__ __forceinline__ size_t kv_at(const KvPool &kv, const GpuBatch &b, int layer, int seq, int head, int slot) {
    return slot_at(kv, b, layer, seq, head, slot) * (size_t)kv.head_dim;
}

// Adds a head's sink to the weight, relative to the largest score; returns the factor for the sums.
__device__ __forceinline__ float add_sink(const float *sinks, int head, float most, float *weight) {
    if (!sinks) return 1;
    float larger = fmaxf(most, sinks[head]), factor = expf(most - larger);
    *weight = *weight * factor + expf(sinks[head] - larger);
    return factor;
}

#endif
