// bench/shape.h: models of random valid blocks: the speed of a shape without its weights.
#ifndef QUILL_SHAPE_H
#define QUILL_SHAPE_H

#include "files/gguf.h"

// A model of random valid blocks in memory: "1.1b", "1b", "8b", "moe-7b-a1b" or "dim=..,layers=..,heads=..,ffn=..,vocab=..
// [,kv_heads=..][,head_dim=..][,ctx=..][,tied=0|1][,experts=..,used=..]", also "8b,layers=4"; all matrices in `type` (TYPE_). It carries a
// vocabulary (bytes, ASCII, words), so that it runs here and elsewhere. The same seed gives the same bytes.
// QUILL_USAGE: the key that is wrong and what is allowed; QUILL_MEMORY: it would not fit.
Status shape_model(const char *shape, int type, uint64_t seed, Gguf **out);

#endif
