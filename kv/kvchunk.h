// kv/kvchunk.h: writes K and V of a sequence into a stream of frames (kv/kvframes.h).
#ifndef QUILL_KVCHUNK_H
#define QUILL_KVCHUNK_H

#include "kv/kvframes.h"
#include "kvcache.h"

// Writes a chunk of all layers, a ROWS frame for each: n slots of s from `first` on. In the stream they begin at slot
// `at`. Errors of the kvwriter functions.
Status kvchunk_write(KvWriter *w, const KvCache *kv, const Sequence *s, int first, int n, int at);

#endif
