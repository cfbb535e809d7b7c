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
                        .layer = l->kv_layer,
                        .sinks = l->sinks,
                        .k = w->k + (size_t)r->first * (size_t)w->kv_dim,
                        .v = w->v + (size_t)r->first * (size_t)w->kv_dim,
                        .first_slot = r->slot,
                        .page = r->slot % SEAL ? kv_tail(kv, r->table, r->slot) : -1};
}

// One plane of seq_rows_seal.
static void seal_plane(const AttendTask *t, bool value, int last_slot) {
    const KvPool *kv = t->kv;
    int type = value ? kv->type_v : kv->type_k;
    size_t size = kv_slot_bytes(type, kv->head_dim);
    uint8_t group[SEAL_MOST];
    for (int first = t->first_slot / SEAL * SEAL; first + SEAL - 1 <= last_slot; first += SEAL) {
        const float *rows[SEAL];
        for (int i = 0; i < SEAL; i++) rows[i] = attend_open(t, value, first + i);
        sealed_pack_group(type, !value, rows, kv->head_dim, group);
        for (int i = 0; i < SEAL; i++) {
            int slot = first + i, block = t->table[slot / kv->block];
            memcpy((value ? kv->v : kv->k) + kv_slot(kv, t->layer, block, t->kv_head, slot % kv->block) * size,
                   group + (size_t)i * size, size);
        }
    }
}

void seq_rows_seal(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r,
                   int head) {
    AttendTask t = seq_rows_task(w, l, kv, b, r);
    t.kv_head = head;
    if (kv_is_sealed(kv->type_k)) seal_plane(&t, false, r->slot + r->n - 1);
    if (kv_is_sealed(kv->type_v)) seal_plane(&t, true, r->slot + r->n - 1);
}

void seq_rows_keep_tail(const Workspace *w, int layer, const KvPool *kv, const SequenceRows *r) {
    int last = r->slot + r->n - 1, first = int_max(r->slot, last / SEAL * SEAL), hd = kv->head_dim;
    if (last % SEAL == SEAL - 1) return;
    int page = kv_tail(kv, r->table, last);
    for (int slot = first; slot <= last; slot++)
        for (int head = 0; head < kv->n_kv_heads; head++) {
            size_t from = (size_t)(r->first + slot - r->slot) * (size_t)w->kv_dim + (size_t)(head * hd);
            size_t to = kv_tail_index(kv, layer, page, head, slot % SEAL);
            if (kv->tail_k) memcpy(kv->tail_k + to, w->k + from, (size_t)hd * sizeof(float));
            if (kv->tail_v) memcpy(kv->tail_v + to, w->v + from, (size_t)hd * sizeof(float));
        }
}
