// cpu/seq_rows.c: see cpu/seq_rows.h.
#include "cpu/seq_rows.h"

SequenceRows seq_rows_at(const Batch *b, const KvPool *kv, int first) {
    SequenceRows r = {batch_table(b, kv) + (size_t)b->seq[first] * (size_t)b->max_blocks, first, 1, b->slot[first]};
    while (first + r.n < b->n_rows && b->seq[first + r.n] == b->seq[first]) r.n++;
    return r;
}

AttendTask seq_rows_task(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r) {
    return (AttendTask){.heads = &l->heads,
                        .kv = kv,
                        .table = r->table,
                        .slot = b->slot + r->first,
                        .q = w->q + (size_t)r->first * (size_t)w->q_dim,
                        .out = w->a + (size_t)r->first * (size_t)w->q_dim,
                        .stride = (size_t)w->q_dim,
                        .layer = l->kv_layer,
                        .sinks = l->sinks,
                        .k = workspace_k(w, l) + (size_t)r->first * (size_t)w->kv_dim,
                        .v = workspace_v(w, l) + (size_t)r->first * (size_t)w->kv_dim,
                        .kv_stride = (size_t)w->kv_dim,
                        .first_slot = r->slot,
                        .page = r->slot % SEAL ? kv_tail(kv, r->table, r->slot) : -1};
}

// Does seq_rows_seal for one plane, K or V.
static void seal_plane(const AttendTask *t, bool value, int last_slot) {
    const KvPool *kv = t->kv;
    int type = kv_plane_type(kv, value), dim = kv_plane_dim(kv, value);
    size_t size = kv_slot_bytes(type, dim);
    uint8_t group[SEAL_MOST];
    for (int first = t->first_slot / SEAL * SEAL; first + SEAL - 1 <= last_slot; first += SEAL) {
        const float *rows[SEAL];
        for (int i = 0; i < SEAL; i++) rows[i] = attend_open(t, value, first + i);
        sealed_pack_group(type, !value, rows, dim, group);
        for (int i = 0; i < SEAL; i++) {
            int slot = first + i, block = t->table[slot / kv->block];
            memcpy(kv_plane(kv, value) + kv_slot(kv, t->layer, block, t->kv_head, slot % kv->block) * size,
                   group + (size_t)i * size, size);
        }
    }
}

void seq_rows_seal(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r,
                   int head) {
    AttendTask t = seq_rows_task(w, l, kv, b, r);
    t.kv_head = head;
    if (kv_is_sealed(kv->type_k)) seal_plane(&t, false, r->slot + r->n - 1);
    if (kv_is_sealed(kv->type_v) && !kv->v_in_k) seal_plane(&t, true, r->slot + r->n - 1);
}

// Copies the rows of slots [first, last] of one plane.
static void keep_plane(const Workspace *w, const Layer *l, const KvPool *kv, const SequenceRows *r, bool value,
                       int first, int last) {
    int page = kv_tail(kv, r->table, last), dim = kv_plane_dim(kv, value);
    const float *rows = value ? workspace_v(w, l) : workspace_k(w, l);
    float *tail = kv_plane_tail(kv, value);
    for (int slot = first; tail && slot <= last; slot++)
        for (int head = 0; head < kv->n_kv_heads; head++) {
            size_t from = (size_t)(r->first + slot - r->slot) * (size_t)w->kv_dim + (size_t)(head * dim);
            size_t to = kv_tail_at(kv, dim, l->kv_layer, page, head, slot % SEAL);
            memcpy(tail + to, rows + from, (size_t)dim * sizeof(float));
        }
}

void seq_rows_keep_tail(const Workspace *w, const Layer *l, const KvPool *kv, const SequenceRows *r) {
    int last = r->slot + r->n - 1, first = int_max(r->slot, last / SEAL * SEAL);
    if (last % SEAL == SEAL - 1) return;
    for (int v = 0; v < kv_planes(kv); v++) keep_plane(w, l, kv, r, v, first, last);
}
