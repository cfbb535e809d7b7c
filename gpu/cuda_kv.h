// gpu/cuda_kv.h: K and V in the GPU's memory, and the attention sums of a Probe there.
//
// KvPool.device is a KvPool of the same shape whose planes are device pointers; it has the last n_device layers of the
// host's pool. These functions implement DeviceMemory (kernels.h), which documents them.
#ifndef QUILL_CUDA_KV_H
#define QUILL_CUDA_KV_H

#include "kernels.h"

Status cuda_kv_new(KvPool *kv); // QUILL_MEMORY: no room
void cuda_kv_free(KvPool *kv);
void cuda_kv_move(const KvPool *kv, int layer, const int *blocks, int first, int n, void *rows, bool store);
void cuda_kv_close_up(KvPool *kv, const int *blocks, int n_blocks, const int *keep, int n);

Status cuda_kv_probe_new(Probe *p, int n_layers, int n_kv_heads); // QUILL_MEMORY: no room
void cuda_kv_probe_free(Probe *p);
void cuda_kv_probe_move(Probe *p, int first, int n_layers, int n_kv_heads, bool store);

#endif
