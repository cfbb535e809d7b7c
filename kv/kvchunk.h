// kv/kvchunk.h: writes K and V of a sequence into a stream of frames (kv/kvframes.h).
#ifndef QUILL_KVCHUNK_H
#define QUILL_KVCHUNK_H

#include "kv/kvframes.h"
#include "kvcache.h"

// Writes a chunk of all layers, a ROWS frame for each: slots [first, first + n) of s, which are slots `at` to at + n -
// 1 of the stream. Errors of the kvwriter functions.
Status kvchunk_write(KvWriter *w, const KvCache *kv, const Sequence *s, int first, int n, int at);

#endif
