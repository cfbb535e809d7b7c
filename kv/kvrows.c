// kv/kvrows.c: see kv/kvrows.h.
#include "kv/kvrows.h"

#include <assert.h>
#include <string.h>

#include "kernels.h"

size_t kvrows_bytes(const KvPool *kv, int n) {
    size_t bytes = 0;
    for (int v = 0; v < kv_planes(kv); v++)
        bytes += kv_moved_bytes(kv_plane_type(kv, v), kv_plane_dim(kv, v), (size_t)n);
    return bytes * (size_t)kv->n_kv_heads;
}

// Copies slots [first, first + n) from the planes to `rows`, or with `store` from `rows` to the planes.
static void move_rows(const KvPool *kv, int layer, const int *blocks, int first, int n, uint8_t *rows, bool store) {
    if (layer >= kv->n_layers - kv->n_device) {
        kv->be->memory->kv_move(kv, layer, blocks, first, n, rows, store);
        return;
    }
    for (int v = 0; v < kv_planes(kv); v++) {
        int type = kv_plane_type(kv, v), dim = kv_plane_dim(kv, v),
            whole = first + (int)kv_whole_slots(type, (size_t)n);
        float *tail = kv_plane_tail(kv, v);
        size_t sealed_bytes = kv_slot_bytes(type, dim), open_bytes = kv_slot_bytes(TYPE_F32, dim);
        assert(!kv_is_sealed(type) || first % SEAL == 0);
        for (int slot = first; slot < first + n; slot++) {
            int block = blocks[slot / kv->block], page = slot < whole ? -1 : kv_tail(kv, blocks, slot);
            size_t size = slot < whole ? sealed_bytes : open_bytes;
            for (int head = 0; head < kv->n_kv_heads; head++, rows += size) {
                uint8_t *stored = slot < whole
                                      ? kv_plane(kv, v) + kv_slot(kv, layer, block, head, slot % kv->block) * size
                                      : (uint8_t *)(tail + kv_tail_at(kv, dim, layer, page, head, slot % SEAL));
                memcpy(store ? stored : rows, store ? rows : stored, size);
            }
        }
    }
}

void kvrows_read(const KvPool *kv, int layer, const int *blocks, int first, int n, void *out) {
    move_rows(kv, layer, blocks, first, n, out, false);
}

void kvrows_write(KvPool *kv, int layer, const int *blocks, int first, int n, const void *rows) {
    move_rows(kv, layer, blocks, first, n, (uint8_t *)rows, true);
}

Status kvrows_intact(const KvPool kv[KV_KINDS]) {
    const Status *why = NULL;
    for (int kind = 0; kind < KV_KINDS && !why; kind++)
        if (kv[kind].n_device > 0) why = kv[kind].be->memory->failure();
    return why ? status_error(why->code, "the GPU failed: %.600s; its KV is not kept", why->message) : OK;
}
