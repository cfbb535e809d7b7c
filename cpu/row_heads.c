// cpu/row_heads.c: see cpu/row_heads.h.
#include "cpu/row_heads.h"

#include "cpu/tasks.h"

#include <string.h>

size_t row_heads_rope_at(const Workspace *w, int table, int row) {
    return ((size_t)table * (size_t)w->max_rows + (size_t)row) * (size_t)(w->n_rot / 2);
}

void row_heads_turn(const CpuKernels *k, const Workspace *w, const Layer *l, float *head, int row) {
    size_t at = row_heads_rope_at(w, l->rope.table, row);
    k->rope(head, w->rope_cos + at, w->rope_sin + at, l->rope.n_rot, l->rope.adjacent);
}

void row_heads_store(const CpuKernels *k, const Layer *l, const KvPool *kv, const Batch *b, int row, int head,
                     bool value, const float *x) {
    int type = kv_plane_type(kv, value), dim = kv_plane_dim(kv, value);
    if (kv_is_sealed(type)) return;
    int block = batch_table(b, kv)[(size_t)b->seq[row] * (size_t)b->max_blocks + (size_t)(b->slot[row] / kv->block)];
    size_t slot = kv_slot(kv, l->kv_layer, block, head, b->slot[row] % kv->block);
    k->to_kv(kv_plane(kv, value) + slot * (size_t)dim * kv_type_bytes(type), type, x, dim);
}

typedef struct {
    HeadRows from, to;
    int n_heads;
    size_t bytes; // of a head of a row
} Regroup;

static void regroup_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    const Regroup *r = arg;
    for (size_t i = (size_t)first; i < (size_t)last; i++)
        for (size_t head = 0; head < (size_t)r->n_heads; head++)
            memcpy(r->to.at + i * r->to.row + head * r->to.head, r->from.at + i * r->from.row + head * r->from.head,
                   r->bytes);
}

void row_heads_regroup(Workspace *w, int n_rows, int n_heads, int n, HeadRows from, HeadRows to) {
    Regroup r = {from, to, n_heads, (size_t)n * sizeof(float)};
    tasks_over_rows(w, n_rows, (double)n_heads * n, regroup_rows, &r);
}
