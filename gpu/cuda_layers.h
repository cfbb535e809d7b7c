// gpu/cuda_layers.h: the operations of a layer, each of which queues its launches: those of Backend (kernels.h), which
// says what each computes.
//
// Few rows go through the fused kernels (gpu/launch.h); many rows through cuBLAS, with kernels for what stands between
// its products.
#ifndef QUILL_CUDA_LAYERS_H
#define QUILL_CUDA_LAYERS_H

#include "gpu/cuda_scratch.h"

// The embedding waits until cuda_layers_start queues it, so that a graph may hold it.
void cuda_layers_start(CudaScratch *s);
void cuda_layers_embed(Workspace *w, const Backend *be, const Ends *e, const KvPool kv[KV_KINDS], const Batch *b);
void cuda_layers_receive(Workspace *w, const Layer *l, const KvPool kv[KV_KINDS],
                         const Batch *b);             // DeviceMemory.receive
void cuda_layers_fetch(Workspace *w, const Batch *b); // DeviceMemory.fetch and .give
void cuda_layers_give(Workspace *w, const Batch *b);
void cuda_layers_attn_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b);
void cuda_layers_attention(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b);
void cuda_layers_attn_out(Workspace *w, const Layer *l, const Batch *b);
void cuda_layers_ffn_in(Workspace *w, const Layer *l, const Batch *b);
void cuda_layers_ffn_out(Workspace *w, const Layer *l, const Batch *b);
// CudaScratch.logits (n_rows, n_vocab) of the step's rows rows[0..n_rows), a device pointer.
void cuda_layers_head(Workspace *w, const Ends *e, const int *rows, int n_rows);
// Whether the batch goes through the fused kernels in all of n layers, so that a graph may replay the step.
bool cuda_layers_fused(const Workspace *w, const Layer *l, int n);

#endif
