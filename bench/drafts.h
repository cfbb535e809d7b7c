// bench/drafts.h: measures the gain of speculation: generates the same texts with and without drafts, alternating.
//
//   quill bench --speculate ngram -m FILE --replay OLD NEW     the prompt is OLD, the answer is forced to be NEW
//   quill bench --speculate builtin -m FILE --prompt-lines FILE     answers prompts, one per line of the file;
//   without --prompt-lines: generates from the BOS token alone
//
// Times are of decoding only. A replay measures the gain for an edit, independent of the model's own answer: each token
// is taken from NEW instead of sampled. OLD NEW OLD NEW ... are several edits. A replay also runs with drafts that are
// always right, in steps of 8 rows: the upper limit for drafters with such steps.
#ifndef QUILL_BENCH_DRAFTS_H
#define QUILL_BENCH_DRAFTS_H

#include "cli/options.h"

Status bench_drafts(const Options *o);

#endif
