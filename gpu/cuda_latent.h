// gpu/cuda_latent.h: queues the launches of attention to compressed K and V (MIXER_LATENT), around the usual attention.
#ifndef QUILL_CUDA_LATENT_H
#define QUILL_CUDA_LATENT_H

#include "gpu/cuda_model.h"
#include "gpu/cuda_scratch.h"

// Consecutive rows of a step that use the same form: those of one sequence that use the expanded form, or rows of any
// sequences that use the absorbed one (cpu/latent_expand.h describes both). Steps of few rows are absorbed.
typedef struct {
    int first, n;
    bool expanded;
} CudaLatentRun;
// Sets *r to the next run of rows; false: there are no more. Start with (CudaLatentRun){0}.
bool cuda_latent_next(const CudaScratch *s, const Batch *b, CudaLatentRun *r);

// Backend.attn_in without sealing; chooses the form of each sequence. fused: the step has few rows.
void cuda_latent_in(Workspace *w, const CudaLayer *c, const KvPool *on_gpu, const Batch *b, bool fused);
// Attention of an expanded run: K and V of as many heads as fit into CudaScratch.expansion are computed for all slots
// of the sequence, then the rows attend to them.
void cuda_latent_attend(Workspace *w, const CudaLayer *c, const KvPool *on_gpu, const Batch *b, const CudaLatentRun *r);
// From attention's result to the input of Wo: returns (n_rows, n_heads * v) in f32, v: V's elements before they were
// compressed. The result of absorbed rows is (n_rows, n_heads, head_dim), whose heads begin with their sums of V, in
// CudaScratch.a if fused, otherwise in xn in the type of V_B's product.
float *cuda_latent_values(Workspace *w, const CudaLayer *c, const Batch *b, bool fused);

#endif
