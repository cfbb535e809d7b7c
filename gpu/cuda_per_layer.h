// gpu/cuda_per_layer.h: queues the launches of per-layer embeddings (Ends.per) and of the end of a layer.
#ifndef QUILL_CUDA_PER_LAYER_H
#define QUILL_CUDA_PER_LAYER_H

#include "gpu/cuda_model.h"
#include "gpu/cuda_scratch.h"

// CudaScratch.per = the per-layer embeddings of the step's rows, whose residual stream is embedded. Does nothing for a
// model without them.
void cuda_per_layer_embed(CudaScratch *s, const Ends *e);
// After the feed-forward: adds the layer's part of CudaScratch.per to x, and scales x; each if the layer has it. fused:
// the step has few rows.
void cuda_per_layer_end(Workspace *w, const CudaLayer *c, bool fused);

#endif
