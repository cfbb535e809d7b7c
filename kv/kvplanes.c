// kv/kvplanes.c: the memory of KV pools. See kvplanes.h.
#include "kv/kvplanes.h"

#include "kernels.h"

// Bytes of one plane's tail pages in the host's memory.
static size_t tail_bytes(const KvPool *pool, bool value) {
    int layers = pool->n_layers - pool->n_device;
    if (value ? !kv_is_sealed(pool->type_v) || pool->v_in_k : !kv_is_sealed(pool->type_k)) return 0;
    return kv_tail_at(pool, kv_plane_dim(pool, value), layers, 0, 0, 0) * sizeof(float);
}

// Allocates the planes in the host's memory; false: out of memory.
static bool new_host_planes(KvPool *pool, bool huge) {
    size_t tails_k = tail_bytes(pool, false), tails_v = tail_bytes(pool, true);
    if (!(pool->k = pages_alloc(pool->bytes_k, huge))) return false;
    if (!pool->v_in_k && !(pool->v = pages_alloc(pool->bytes_v, huge))) return false;
    if (tails_k && !(pool->tail_k = pages_alloc(tails_k, false))) return false;
    return !tails_v || (pool->tail_v = pages_alloc(tails_v, false));
}

Status kvplanes_new(KvPool *pool, const KvShape *s) {
    // Huge pages only for the paged layout. A contiguous block is first touched in a few bytes of each head's part of
    // each layer; a huge page for each of these would commit most of a long context at the first token.
    bool host = pool->n_layers > pool->n_device, huge = s->block > 0;
    if (kvshape_bytes(s) == SIZE_MAX || (host && !new_host_planes(pool, huge)))
        return status_error(QUILL_MEMORY,
                            "KV cache: %zu bytes for %d slots were refused by the system; try a smaller -c",
                            kvshape_bytes(s), s->n_ctx);
    return pool->n_device > 0 ? s->be->memory->kv_new(pool) : OK;
}

void kvplanes_free(KvPool *pool) {
    if (pool->device) pool->be->memory->kv_free(pool);
    pages_free(pool->k, pool->bytes_k);
    pages_free(pool->v, pool->bytes_v);
    pages_free(pool->tail_k, tail_bytes(pool, false));
    pages_free(pool->tail_v, tail_bytes(pool, true));
    pool->device = NULL;
    pool->k = pool->v = NULL;
    pool->tail_k = pool->tail_v = NULL;
}
