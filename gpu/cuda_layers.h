// gpu/cuda_layers.h: the CUDA backend's operations of a layer; each queues its launches. Backend (kernels.h) says what
// each computes.
//
// Few rows use the fused kernels (gpu/launch.h); many rows use cuBLAS, and kernels for the operations between its
// products.
#ifndef QUILL_CUDA_LAYERS_H
#define QUILL_CUDA_LAYERS_H

#include "gpu/cuda_scratch.h"

// cuda_layers_embed only sends the batch; cuda_layers_start queues the embedding, so that a graph may contain it.
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
// Computes CudaScratch.logits (n_rows, n_vocab) of the step's rows rows[0..n_rows). rows: a device pointer.
void cuda_layers_head(Workspace *w, const Ends *e, const int *rows, int n_rows);
// Whether all of the n layers use the fused kernels for this batch, so that the step may be a graph.
bool cuda_layers_fused(const Workspace *w, const Layer *l, int n);

#endif
