// bench/ops.h: `quill bench --ops`: times each operation of a decoding step separately.
//
// A step has one row of each sequence, after -d tokens. An operation is timed over all layers in turn, so that it
// reads all of its weights: on the CPU by the clock; on a GPU as a recorded graph that is replayed, and again with
// kernels that begin early, if the GPU supports that. Measured are the five operations of a layer, the head, and
// sampling with the default options. Bytes read are counted as in costs.h. Times include waiting for memory.
#ifndef QUILL_BENCH_OPS_H
#define QUILL_BENCH_OPS_H

#include "cli/options.h"

// QUILL_USAGE: the layers are divided between the CPU and a GPU.
Status bench_ops(const Options *o);

#endif
