// gpu/cuda_experts.h: queues the launches of a mixture-of-experts feed-forward.
//
// Few rows use kernels that read each chosen expert once for up to four of its rows. Many rows are sorted by expert and
// multiplied in tiles on the tensor cores. The caller chooses with `fused`, and passes the same value to both halves.
#ifndef QUILL_CUDA_EXPERTS_H
#define QUILL_CUDA_EXPERTS_H

#include "gpu/cuda_model.h"
#include "gpu/cuda_scratch.h"

// The two halves of the layer's feed-forward: Backend.ffn_in and ffn_out. fused: the step has few rows.
void cuda_experts_in(Workspace *w, const CudaLayer *c, bool fused);
void cuda_experts_out(Workspace *w, const CudaLayer *c, bool fused);

#endif
