// blend/chunk.h: `quill chunk`: computes and stores the K and V of texts before they are used in prompts.
#ifndef QUILL_CHUNK_H
#define QUILL_CHUNK_H

#include "cli/options.h"

// `add FILE...`: computes each file alone, or each part that --chunk-split cuts it into, and stores its K and V in
// --kv-dir. --chunk finds it there with the same model, KV type and kernels. QUILL_USAGE, QUILL_IO; QUILL_CONTEXT: a
// file is empty, not text, or too long.
Status chunk_run(const Options *o);

#endif
