// kv/kv.h: `quill kv`: inspects and cuts KV files without the model that they belong to.
#ifndef QUILL_KV_H
#define QUILL_KV_H

#include "cli/options.h"

// Runs info FILE..., check FILE..., cut FILE, diff FILE FILE, or, for files of --kv-dir, list DIR and remove FILE...
// QUILL_USAGE, QUILL_IO; QUILL_MODEL: a damaged file; code 1 without a message: diff has found a difference
// (kv/kvdiff.h).
Status kv_run(const Options *o);

#endif
