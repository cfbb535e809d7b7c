// gpu/cuda_batch.h: copies a batch to the GPU, and divides it into ranges of rows that fit one launch.
#ifndef QUILL_CUDA_BATCH_H
#define QUILL_CUDA_BATCH_H

#include "gpu/cuda_scratch.h"

// Fills CudaScratch.batch, .out_row, .draws and .tiles, and queues the copy of a batch's numbers to device memory.
// Nothing is copied if the draws of the last step have already advanced the numbers there to the same values. The
// addresses of the numbers before the block tables depend only on the padded number of rows, so that a captured graph
// stays valid. False: something failed (cuda_device_failure).
bool cuda_batch_send(CudaScratch *s, const KvPool kv[KV_KINDS], const Batch *b);

// What the draws of the batch that was sent last advance; token NULL: nothing. Draws that advance something must be
// queued once for a batch; then call cuda_batch_advanced.
GpuAdvance cuda_batch_advance(const CudaScratch *s);
void cuda_batch_advanced(CudaScratch *s);

// A range of rows of the batch, and its part of the scratch memory.
typedef struct {
    GpuBatch batch;
    GpuScratch scratch;
    size_t first; // the first row of the range
} CudaRows;
// Sets *p to the next range of at most `most` rows; false: there are no more. Start with (CudaRows){0}.
bool cuda_batch_next(const CudaScratch *s, const Heads *h, int most, CudaRows *p);

void cuda_batch_copy_blocks(Workspace *w, KvPool *kv, const Batch *b); // Backend.copy_blocks
void cuda_batch_narrow(Workspace *w, const int *rows, const Batch *b); // Backend.narrow

#endif
