// gpu/cuda_recurrent.h: queues the launches of recurrent layers (their states: gpu/cuda_states.h) and of the gates of
// gated attention.
#ifndef QUILL_CUDA_RECURRENT_H
#define QUILL_CUDA_RECURRENT_H

#include "gpu/cuda_model.h"
#include "gpu/cuda_scratch.h"

// Backend.attn_in and .attention of a recurrent layer. fused: with the kernels for few rows.
void cuda_recurrent_in(Workspace *w, const CudaLayer *c, bool fused);
void cuda_recurrent_run(Workspace *w, const CudaLayer *c, bool fused);
// Computes the gates of an attention layer from the step's x, into CudaScratch.mix. Without `fused`, CudaScratch.xn has
// the input of the layer's QKV.
void cuda_recurrent_gate_in(Workspace *w, const CudaLayer *c, bool fused);
// a (rows, width) of `type` *= sigmoid of these gates
void cuda_recurrent_gate(Workspace *w, const CudaLayer *c, void *a, int type);

#endif
