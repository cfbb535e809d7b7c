// gpu/cuda_latent.h: queues the launches of attention to compressed K and V (MIXER_LATENT), around the usual attention.
#ifndef QUILL_CUDA_LATENT_H
#define QUILL_CUDA_LATENT_H

#include "gpu/cuda_model.h"
#include "gpu/cuda_scratch.h"

// Backend.attn_in without sealing. fused: the step has few rows.
void cuda_latent_in(Workspace *w, const CudaLayer *c, const KvPool *on_gpu, bool fused);
// From attention's result (n_rows, n_heads, head_dim), whose heads begin with their sums of V, to the input of Wo:
// returns (n_rows, n_heads * v) in f32, v: V's elements before they were compressed. The result is in CudaScratch.a if
// fused, otherwise in xn in the type of V_B's product.
float *cuda_latent_values(Workspace *w, const CudaLayer *c, bool fused);

#endif
