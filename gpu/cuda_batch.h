// gpu/cuda_batch.h: a batch goes to the GPU, and is cut into ranges of rows that a launch takes.
#ifndef QUILL_CUDA_BATCH_H
#define QUILL_CUDA_BATCH_H

#include "gpu/cuda_scratch.h"

// Queues the copy of a batch's numbers into device memory and fills CudaScratch.batch, .out_row, .draws and .tiles. The
// numbers before the block tables lie at places that depend on the padded number of rows alone, so that a graph finds
// them. False: something failed (cuda_device_failure).
bool cuda_batch_send(CudaScratch *s, const KvPool kv[KV_KINDS], const Batch *b);

// Some rows of the batch, and the scratch that goes with them.
typedef struct {
    GpuBatch batch;
    GpuScratch scratch;
    size_t first; // row
} CudaRows;
// The next rows, at most `most`; false: there are no more. Begins with (CudaRows){0}.
bool cuda_batch_next(const CudaScratch *s, const Heads *h, int most, CudaRows *p);

void cuda_batch_copy_blocks(Workspace *w, KvPool *kv, const Batch *b); // Backend.copy_blocks
void cuda_batch_narrow(Workspace *w, const int *rows, const Batch *b); // Backend.narrow

#endif
