// kv/kvchunk.c: see kv/kvchunk.h.
#include "kv/kvchunk.h"

Status kvchunk_write(KvWriter *w, const KvCache *kv, const Sequence *s, int first, int n, int at) {
    for (int layer = 0; layer < kv_n_layers(kv->pool); layer++) {
        uint8_t *room = kvwriter_room(w, (KvChunk){(uint32_t)layer, (uint32_t)at, (uint32_t)n});
        kvcache_load_rows(kv, s, layer, first, n, room);
        TRY(kvwriter_rows(w));
    }
    return OK;
}
