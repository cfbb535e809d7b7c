// kv/kvplanes.h: allocates the memory of a pool of KV blocks: its planes of K and V and its tail pages, on the host and
// on the device.
#ifndef QUILL_KVPLANES_H
#define QUILL_KVPLANES_H

#include "kv/kvshape.h"

// pool: from kvshape_pool, for the shape s. QUILL_MEMORY; some planes may be allocated then: call kvplanes_free.
Status kvplanes_new(KvPool *pool, const KvShape *s);
void kvplanes_free(KvPool *pool);

#endif
