// blend/chunk.h: `quill chunk`: computes and stores the K and V of texts before they are used in prompts.
#ifndef QUILL_CHUNK_H
#define QUILL_CHUNK_H

#include "cli/options.h"

// `add FILE...`: computes each file alone, or each part that --chunk-split cuts it into, and stores its K and V in
// --kv-dir. --chunk finds it there with the same model, KV type and kernels. QUILL_USAGE: a file is
// empty or not text; QUILL_CONTEXT: it is longer than the context; QUILL_IO; the errors of engine_open and
// blender_open.
Status chunk_run(const Options *o);

#endif
