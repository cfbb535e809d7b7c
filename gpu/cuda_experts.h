// gpu/cuda_experts.h: the feed-forward of a layer of experts on the GPU: queues its launches.
//
// Few rows go through kernels that read each chosen expert once for up to four of its rows; many rows, sorted by
// expert, through tiles on the tensor cores. Which of them it is, the caller says of both halves alike.
#ifndef QUILL_CUDA_EXPERTS_H
#define QUILL_CUDA_EXPERTS_H

#include "gpu/cuda_model.h"
#include "gpu/cuda_scratch.h"

// The two halves of the layer's feed-forward: Backend.ffn_in and ffn_out. fused: the step has few rows.
void cuda_experts_in(Workspace *w, const CudaLayer *c, bool fused);
void cuda_experts_out(Workspace *w, const CudaLayer *c, bool fused);

#endif
