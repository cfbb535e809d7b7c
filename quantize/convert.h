// quantize/convert.h: the weights of a file in their new types, a few rows at a time on all threads.
#ifndef QUILL_CONVERT_H
#define QUILL_CONVERT_H

#include "base/progress.h"
#include "base/threads.h"
#include "files/imatrix.h"
#include "quantize/plan.h"
#include "quantize/prune.h"

typedef struct {
    const Gguf *g;
    const QuantizePlan *plan;
    const Imatrix *imatrix; // NULL: none
    const PruneRule *prune; // NULL: nothing is pruned
    ThreadPool *pool;
    Progress progress;
    size_t n_done; // weights; for the progress
} TensorConversion;

// A GgufMaker (files/gguf.h) over a TensorConversion: writes tensor i. Holds 16 million weights at most, and gives
// pages of the mapped file back behind itself. QUILL_MODEL: a weight that is not finite, or too large for the type; a
// signal.
Status convert_tensor(void *conversion, int i, int fd);

#endif
