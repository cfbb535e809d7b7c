// costs.c: what a step costs, counted from its batch.
//
// A row at slot s of a layer with window w sees   seen(s) = s + 1,   or min(s + 1, w) where w > 0.
//
// FLOPs, a multiplication and an addition being two:
//     each row, each layer:  2 n_out n_in for each of its seven matrices
//                            4 seen(s) n_heads head_dim for the scores (QK) and their sum (PV)
//     each row of logits:    2 n_vocab dim
//   Norms, biases, RoPE, softmax and the gate are not counted, as in the field's figures.
//
// Bytes that must come from or go to memory, each once a step however many rows there are:
//     weights: every layer's matrices, norms and biases; the output norm and the head if there are logits
//     the embedding: one row of the table a row of the batch
//     K and V: read once a sequence, all slots that one of its rows sees: from the first one that its first row sees
//              to its last row's own; and written once a row
//   Activations are not counted: they stay in the caches.
//
// Sums are doubles: exact up to 2^53.
#include "costs.h"

static double weight_bytes(const Tensor *t) {
    double n = (double)t->n_out * (double)t->row_bytes;
    if (t->type == TYPE_I8G) n += (double)t->n_out * (double)t->n_in / t->group * (double)sizeof(float);
    if (t->bias) n += (double)t->n_out * (double)sizeof(float);
    return n;
}

static double weight_flops(const Tensor *t) { return 2.0 * (double)t->n_out * (double)t->n_in; }

// Everything that does not depend on slots.
static Cost cost_linear(const Model *m, int n_rows, int n_out) {
    Cost c = {.bytes = (double)n_rows * (double)m->tok_embd.row_bytes};
    if (m->tok_embd.type == TYPE_I8G) c.bytes += (double)n_rows * m->c.dim / m->tok_embd.group * (double)sizeof(float);
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
        const Tensor *all[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->w_gate, &l->w_up, &l->w_down};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) {
            c.flops += n_rows * weight_flops(all[k]);
            c.bytes += weight_bytes(all[k]);
        }
        int n_norms = 2 * m->c.dim + ((l->norm_q != NULL) + (l->norm_k != NULL)) * m->c.head_dim;
        c.bytes += (double)n_norms * (double)sizeof(float);
    }
    if (n_out > 0) {
        c.flops += n_out * weight_flops(&m->head);
        c.bytes += weight_bytes(&m->head) + (double)m->c.dim * (double)sizeof(float);
    }
    return c;
}

static int seen(const Layer *l, int slot) {
    int w = l->heads.window;
    return w > 0 ? int_min(slot + 1, w) : slot + 1;
}

// What attention adds for one row, without the bytes.
static double row_flops(const Model *m, int slot) {
    double n = 0;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Heads *h = &m->layers[i].heads;
        n += 4.0 * seen(&m->layers[i], slot) * h->n_heads * h->head_dim;
    }
    return n;
}

// What one sequence's n rows, the first and the last at these slots, read and write of K and V; slot_bytes of a layer.
static double sequence_bytes(const Model *m, double slot_bytes, int first, int last, int n) {
    double slots = 0;
    for (int i = 0; i < m->c.n_layers; i++) slots += last - first + seen(&m->layers[i], first) + n;
    return slots * slot_bytes;
}

Cost cost_batch(const Model *m, const KvPool *kv, const Batch *b) {
    Cost c = cost_linear(m, b->n_rows, b->n_out);
    double slot_bytes =
        (double)(kv_slot_bytes(kv->type_k, kv->head_dim) + kv_slot_bytes(kv->type_v, kv->head_dim)) * kv->n_kv_heads;
    for (int r = 0, n; r < b->n_rows; r += n) {
        for (n = 0; r + n < b->n_rows && b->seq[r + n] == b->seq[r]; n++) c.flops += row_flops(m, b->slot[r + n]);
        c.bytes += sequence_bytes(m, slot_bytes, b->slot[r], b->slot[r + n - 1], n);
    }
    return c;
}

Cost cost_rows(const Model *m, const KvShape *kv, int first, int n_rows, int n_out) {
    Cost c = cost_linear(m, n_rows, n_out);
    if (n_rows <= 0) return c;
    for (int i = 0; i < n_rows; i++) c.flops += row_flops(m, first + i);
    double slot_bytes = (double)kv_bytes_per_slot(kv) / kv->n_layers;
    c.bytes += sequence_bytes(m, slot_bytes, first, first + n_rows - 1, n_rows);
    return c;
}
