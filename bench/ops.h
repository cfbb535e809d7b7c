// bench/ops.h: what each operation of a decoding step takes by itself: `quill bench --ops`.
//
// A step has one row of each sequence, behind -d tokens. An operation is timed over all layers, one layer after the
// other, so that it reads all of its weights: on the CPU by the clock, on a GPU as one recorded graph that is replayed,
// with kernels that begin early too where the GPU can. Besides the five operations of a layer: the head, and sampling
// with the default options. What an operation reads is counted as costs.h does; times include waiting for memory.
#ifndef QUILL_BENCH_OPS_H
#define QUILL_BENCH_OPS_H

#include "cli/options.h"

// QUILL_USAGE: the layers are divided between the CPU and a GPU.
Status bench_ops(const Options *o);

#endif
