// bench/bench.h: how fast a model runs here, and what the machine could give.
//
//   quill bench -m FILE                            prefill (-p tokens) and decode (-n tokens), tok/s and share of peak
//   quill bench --shape 1.1b --type Q4_K           the same of a random model, made in memory
//   quill bench --shape 8b --save F -p 0 -n 0      only writes the random model
//   quill bench --speculate ngram -m FILE          what speculation gains (bench/drafts.h)
//   quill bench --roofline                         measures the machine's ceilings and stores them
//
// JSON has latencies too: ttft_ms of a prefill (until the prompt is computed: the head and the sampling of the first
// token come on top), itl_ms and tpot_ms of decoding, over all gaps of the measured repetitions.
#ifndef QUILL_BENCH_H
#define QUILL_BENCH_H

#include "cli/options.h"

Status bench_run(const Options *o); // `quill bench`

#endif
