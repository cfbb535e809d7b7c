// blend/chunk.h: `quill chunk`: the KV of texts, computed ahead of the questions that use them.
#ifndef QUILL_CHUNK_H
#define QUILL_CHUNK_H

#include "cli/options.h"

// `add FILE...`: computes each file, or each part that --chunk-split cuts it into, alone, and keeps its K and V in
// --kv-dir, where --chunk of the same model, KV type and kernels finds it. QUILL_USAGE, QUILL_IO; QUILL_CONTEXT: a file
// is empty, no text, or too long.
Status chunk_run(const Options *o);

#endif
