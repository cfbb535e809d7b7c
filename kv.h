// kv.h: `quill kv`: looking into KV files without the model that they belong to.
#ifndef QUILL_KV_H
#define QUILL_KV_H

#include "options.h"

// info FILE, check FILE, cut FILE, diff FILE FILE. QUILL_USAGE, QUILL_IO; QUILL_MODEL: a damaged file.
Status kv_run(const Options *o);

#endif
