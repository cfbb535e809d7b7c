// bench/drafts.h: what speculation gains: the same texts with drafts and without, in turns.
//
//   quill bench --speculate ngram -m FILE --replay OLD NEW     the prompt is OLD, the answer is forced to be NEW
//   quill bench --speculate builtin -m FILE --prompt-lines FILE     answers to prompts, one a line; none: a text from
//   nothing
//
// Times are of decoding. A replay shows what an edit gains, whatever the model would say: each drawn token is the next
// one of NEW; OLD NEW OLD NEW ... are several edits. It also runs with drafts that are all right, in steps of 8 rows:
// no drafter gains more in such steps.
#ifndef QUILL_BENCH_DRAFTS_H
#define QUILL_BENCH_DRAFTS_H

#include "cli/options.h"

Status bench_drafts(const Options *o);

#endif
