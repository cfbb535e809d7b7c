// bench/bench.h: `quill bench`: measures the speed of a model and the limits of the machine.
//
//   quill bench -m FILE                            prefill (-p tokens) and decode (-n tokens), tok/s and share of peak
//   quill bench --shape 1.1b --type Q4_K           the same for a random model, made in memory
//   quill bench --shape 8b --save F -p 0 -n 0      only writes the random model
//   quill bench --speculate ngram -m FILE          speed with and without speculation (bench/drafts.h)
//   quill bench --roofline                         measures the peak rates of the machine and stores them
//
// JSON also has latencies: ttft_ms of a prefill (until the prompt is computed, without the head and the sampling of the
// first token); itl_ms and tpot_ms of decoding, over all gaps of the measured repetitions.
#ifndef QUILL_BENCH_H
#define QUILL_BENCH_H

#include "cli/options.h"

Status bench_run(const Options *o); // `quill bench`

#endif
