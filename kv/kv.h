// kv/kv.h: `quill kv`: looking into KV files without the model that they belong to.
#ifndef QUILL_KV_H
#define QUILL_KV_H

#include "cli/options.h"

// info FILE, check FILE, cut FILE, diff FILE FILE, list DIR, remove FILE... of --kv-dir. QUILL_USAGE, QUILL_IO; QUILL_MODEL: a damaged file; 1 without a
// message: diff has found a difference over o->kv.tolerance.
Status kv_run(const Options *o);

#endif
