// quantize/convert.h: converts the weights of a file to their new types, some rows at a time, with all threads.
#ifndef QUILL_CONVERT_H
#define QUILL_CONVERT_H

#include "base/progress.h"
#include "base/threads.h"
#include "files/imatrix.h"
#include "quantize/exchange.h"
#include "quantize/plan.h"
#include "quantize/prune.h"

typedef struct {
    const Gguf *g;
    const QuantizePlan *plan;
    const Imatrix *imatrix; // NULL: none
    const PruneRule *prune; // NULL: nothing is pruned
    const FileExchange *exchange;
    ThreadPool *pool;
    Progress progress;
    size_t n_done; // weights converted so far, for the progress line
} TensorConversion;

// A GgufMaker (files/gguf.h); `conversion` is a TensorConversion. Writes tensor i. Holds at most 16 million weights in
// memory, and drops pages of the mapped file after reading them. QUILL_MODEL: a weight is not finite or too large for
// the type; 128 + the number of a signal.
Status convert_tensor(void *conversion, int i, int fd);

#endif
