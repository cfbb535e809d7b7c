// bench/bench.h: how fast a model runs here, and what the machine could give.
//
//   quill bench -m FILE                            prefill (-p tokens) and decode (-n tokens), tok/s and share of peak
//   quill bench --shape 1.1b --type Q4_K           the same of a random model, made in memory
//   quill bench --shape 8b --save F -p 0 -n 0      only writes the random model
//   quill bench --roofline                         measures the machine's ceilings and stores them
//
// JSON has latencies too: ttft_ms of a prefill (until the prompt is computed: the head and the sampling of the first
// token come on top), itl_ms and tpot_ms of decoding, over all gaps of the measured repetitions.
#ifndef QUILL_BENCH_H
#define QUILL_BENCH_H

#include "files/gguf.h"
#include "cli/options.h"

Status bench_run(const Options *o); // `quill bench`

// A model of random valid blocks in memory: "1.1b", "1b", "8b" or "dim=..,layers=..,heads=..,ffn=..,vocab=..
// [,kv_heads=..][,head_dim=..][,ctx=..][,tied=0|1]", also "8b,layers=4"; all matrices in `type` (TYPE_). It carries a
// vocabulary (bytes, ASCII, words), so that it runs here and elsewhere. The same seed gives the same bytes.
// QUILL_USAGE: the key that is wrong and what is allowed; QUILL_MEMORY: it would not fit.
Status shape_model(const char *shape, int type, uint64_t seed, Gguf **out); // bench/shape.c

#endif
