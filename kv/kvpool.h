// kv/kvpool.h: the memory of K and V, and of the states of recurrent layers: what it holds, and where in it a slot is.
// The cache (kvcache.h) decides which blocks and states a sequence has.
#ifndef QUILL_KVPOOL_H
#define QUILL_KVPOOL_H

#include "formats/sealed.h"
#include "base/base.h"

typedef struct Backend Backend;

// The model's two pools of K and V. KV_FULL holds the layers that see the whole sequence. KV_WINDOW holds the layers
// with a window: its blocks are reused as soon as no row can see them.
enum { KV_FULL, KV_WINDOW, KV_KINDS };

// The K and V of the layers of one kind, in blocks of `block` slots. Each plane, K and V, is an array (n_layers,
// n_blocks, n_kv_heads, block) of kv_slot_bytes. Dense types hold head_dim values per slot in K and v_dim in V.
// Sealed types (kv_is_sealed) quantise groups of SEAL slots. A row reads the groups before its own as sealed data and
// its own group as dense data, so that what it reads depends on its slot only, not on how steps were cut. A group is
// sealed in the step that computes its last slot. Until then a tail page keeps its rows from step to step; the page
// belongs to the block of the group's first slot. With sealed types the rows of a sequence in a batch must be
// consecutive slots.
// The last n_device layers, with their tail pages, are in a device's memory; k, v, tail_k and tail_v hold the others.
typedef struct {
    int kind;     // KV_FULL or KV_WINDOW
    int n_layers; // may be 0: then there are no planes
    int n_blocks, n_kv_heads, block, head_dim;
    int v_dim;          // values of V per slot; 0: head_dim
    bool v_in_k;        // V of a slot is the first v_dim values of its K; there is no plane for V
    int type_k, type_v; // types of formats/kv_types.h
    uint8_t *k, *v;
    size_t bytes_k, bytes_v; // of k and v
    int n_device;
    const Backend *be; // the device that holds the last n_device layers; NULL: none
    void *device;
    // sealed types
    bool rotate;            // stored K and its queries are multiplied by a Hadamard matrix
    int n_tails;            // pages
    int *tail_of;           // (n_blocks) the page of the block's open group, -1: none; NULL: no plane is sealed
    float *tail_k, *tail_v; // (host layers, n_tails, n_kv_heads, SEAL, head_dim or v_dim); NULL: that plane is dense
} KvPool;

// The states of recurrent layers, f32: (n_states, layers, floats). One state covers all recurrent layers of one
// sequence after one of its tokens. The cache assigns states to sequences (kvcache.h). The last n_device layers are in
// a device's memory; data holds the others.
typedef struct {
    int n_layers, n_states; // n_layers 0: no layer is recurrent, and there are no states
    size_t floats;          // of one layer: recurrence_floats
    float *data;            // (n_states, n_layers - n_device, floats); NULL: the host has none
    int n_device;
    const Backend *be; // the device that holds the last n_device layers; NULL: none
    float *device;     // (n_states, n_device, floats) in the device's memory
} StatePool;
static inline float *state_at(const StatePool *p, int state, int layer) { // a layer of the host's
    return p->data + ((size_t)state * (size_t)(p->n_layers - p->n_device) + (size_t)layer) * p->floats;
}

static inline size_t kv_type_bytes(int type) { return type == TYPE_F32 ? 4 : 2; } // of an element of a dense type
// Index, in slots, of one slot of one block and KV head in a plane.
HOST_DEVICE static inline size_t kv_slot(const KvPool *kv, int layer, int block, int head, int offset) {
    return (((size_t)layer * (size_t)kv->n_blocks + (size_t)block) * (size_t)kv->n_kv_heads + (size_t)head) *
               (size_t)kv->block +
           (size_t)offset;
}
static inline int kv_v_dim(const KvPool *kv) { return kv->v_dim > 0 ? kv->v_dim : kv->head_dim; }
// The plane that K or V (`value`) is read from: its memory, its type, its values per slot, its tail pages.
static inline uint8_t *kv_plane(const KvPool *kv, bool value) { return value && !kv->v_in_k ? kv->v : kv->k; }
static inline int kv_plane_type(const KvPool *kv, bool value) { return value && !kv->v_in_k ? kv->type_v : kv->type_k; }
static inline int kv_plane_dim(const KvPool *kv, bool value) {
    return value && !kv->v_in_k ? kv_v_dim(kv) : kv->head_dim;
}
static inline float *kv_plane_tail(const KvPool *kv, bool value) {
    return value && !kv->v_in_k ? kv->tail_v : kv->tail_k;
}
// Number of planes: K, and V unless it is part of K.
static inline int kv_planes(const KvPool *kv) { return kv->v_in_k ? 1 : 2; }
// Bytes of K and V of a slot in one layer.
static inline size_t kv_slot_bytes_both(const KvPool *kv) {
    size_t v = kv->v_in_k ? 0 : kv_slot_bytes(kv->type_v, kv_v_dim(kv));
    return (kv_slot_bytes(kv->type_k, kv->head_dim) + v) * (size_t)kv->n_kv_heads;
}
// Index, in elements, of the first value of a slot in a dense plane of K.
static inline size_t kv_index(const KvPool *kv, int layer, int block, int head, int offset) {
    return kv_slot(kv, layer, block, head, offset) * (size_t)kv->head_dim;
}
// Index of the first value of slot `offset` of a page's group in tail_k or tail_v, with `dim` values per slot.
// kv_tail_index is the same for tail_k.
HOST_DEVICE static inline size_t kv_tail_at(const KvPool *kv, int dim, int layer, int page, int head, int offset) {
    return ((((size_t)layer * (size_t)kv->n_tails + (size_t)page) * (size_t)kv->n_kv_heads + (size_t)head) * SEAL +
            (size_t)offset) *
           (size_t)dim;
}
HOST_DEVICE static inline size_t kv_tail_index(const KvPool *kv, int layer, int page, int head, int offset) {
    return kv_tail_at(kv, kv->head_dim, layer, page, head, offset);
}
// The tail page of the group that contains a slot of a sequence; -1: it has none, or no plane is sealed.
static inline int kv_tail(const KvPool *kv, const int *blocks, int slot) {
    return kv->tail_of ? kv->tail_of[blocks[slot / SEAL * SEAL / kv->block]] : -1;
}

static inline int kv_n_layers(const KvPool kv[KV_KINDS]) { return kv[KV_FULL].n_layers + kv[KV_WINDOW].n_layers; }

#endif
