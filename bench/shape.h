// bench/shape.h: makes models of a given shape with random weights, to measure speed without a model file.
#ifndef QUILL_SHAPE_H
#define QUILL_SHAPE_H

#include "files/gguf.h"

// Makes a model of random valid blocks in memory, with all matrices in `type` (TYPE_). shape: "1.1b", "1b", "8b",
// "moe-7b-a1b", "delta-1b", "ssd-1b", "mla-16b-a2b", or
// "dim=..,layers=..,heads=..,ffn=..,vocab=..[,kv_heads=..][,head_dim=..][,ctx=..]
// [,tied=0|1][,experts=..,used=..][,full_every=..,key_heads=..,value_heads=..,state=..[,width=..]]
// [,kv_rank=..,rot=..,v_dim=..]"; keys may follow a name, as in "8b,layers=4". The
// model has a vocabulary (bytes, ASCII, words), so that other programs can run it too. The same seed gives the same
// bytes. QUILL_USAGE: a wrong key; the message says what is allowed. QUILL_MEMORY: the model does not fit.
Status shape_model(const char *shape, int type, uint64_t seed, Gguf **out);

#endif
