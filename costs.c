// costs.c: what a step costs, counted from its batch.
//
// A row at slot s of a layer with window w sees   seen(s) = s + 1,   or min(s + 1, w) where w > 0, or s % w + 1 in
// chunks.
//
// FLOPs; a multiplication and an addition count as two:
//     each row, each layer:  2 n_out n_in for each matrix; of experts, only those that the row is routed to
//                            2 seen(s) n_heads (head_dim + v_dim) for the scores (QK) and their sum (PV)
//     each row of logits:    2 n_vocab dim
//   Compressed K and V count as in the absorbed form (cpu/latent.h), also where the expanded form computes them.
//   In the layer in which a row ends (Batch.ended) it needs only Wq, Wk and Wv, or what the state takes of it; in the
//   layers after it nothing. A row without logits ends in the last layer (model_last_rows names the exceptions).
//   Norms, biases, RoPE, softmax and the gate are not counted, as in published figures.
//
// Bytes read from or written to memory, once a step for all rows together:
//     weights: the matrices, norms and biases of every layer that a row enters; the output norm and the head if there
//              are logits
//     experts: n_experts (1 - (1 - n_used / n_experts)^rows) of them: the expected number of different experts if rows
//              choose independently and uniformly; exactly n_used for one row
//     the embedding: one row of the table for each row of the batch
//     K and V: for each sequence one read of every slot that at least one of its rows sees, from the first slot that
//              its first row sees to the slot of its last row; and one write for each row
//     states of recurrent layers: one read and one write for each sequence. Their FLOPs for each row and layer:
//              2 channels taps + 6 n_values key_dim value_dim   (MIXER_SSD: 4)
//   Activations are not counted: they stay in the processor's caches.
//
// Sums are doubles: exact up to 2^53.
#include "costs.h"

#include <math.h>
#include <stdlib.h>

// The bytes of one matrix; of a stack, those of one of its matrices.
static double weight_bytes(const Tensor *t) { return (double)tensor_bytes(t) / (t->stack > 0 ? t->stack : 1); }

static double weight_flops(const Tensor *t) { return 2.0 * (double)t->n_out * (double)t->n_in; }

// Expected number of different experts that n rows use.
static double experts_read(const Layer *l, int n) {
    double all = l->kind.n_experts, used = l->kind.n_used;
    return all * (1 - pow(1 - used / all, n));
}

// Whether t is a stack with a matrix for each head: every row uses all of them.
static bool of_heads(const Layer *l, const Tensor *t) { return t == &l->k_b || t == &l->v_b; }

// Whether t is applied before attention or a recurrence. A row that ends in the layer needs these matrices too.
static bool before_attention(const Layer *l, const Tensor *t) {
    bool recurrent = t == &l->w_mix || t == &l->w_z || t == &l->w_beta || t == &l->w_alpha;
    return recurrent || t == &l->wq || t == &l->wk || t == &l->wv || t == &l->q_a;
}

double costs_matrix_bytes(const Layer *l, const Tensor *t, int n_rows) {
    double all = t->stack && of_heads(l, t) ? t->stack : t->stack ? experts_read(l, n_rows) : 1;
    return n_rows > 0 ? weight_bytes(t) * all : 0;
}

// ---- the parts of a step --------------------------------------------------------------------------------------------

// The embedding and the head.
static Cost ends_cost(const Model *m, int n_rows, int n_out) {
    const Ends *e = &m->ends;
    Cost c = {.bytes = (double)n_rows * (double)e->tok_embd.row_bytes};
    if (e->per > 0) {
        c.flops += n_rows * weight_flops(&e->per_proj);
        c.bytes += (double)n_rows * (double)e->per_embd.row_bytes + weight_bytes(&e->per_proj);
    }
    if (e->tok_embd.scales) c.bytes += (double)n_rows * m->c.dim / e->tok_embd.group * (double)sizeof(float);
    if (n_out > 0) {
        c.flops += n_out * weight_flops(&e->head);
        c.bytes += weight_bytes(&e->head) + (double)m->c.dim * (double)sizeof(float);
    }
    return c;
}

// Adds the weights of a layer, which n_rows enter and n_on leave.
static void add_weights(Cost *c, const Model *m, const Layer *l, int n_rows, int n_on) {
#define ADDRESS(field) &l->field,
    const Tensor *all[] = {EACH_LAYER_MATRIX(ADDRESS)};
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        int n = before_attention(l, all[k]) ? n_rows : n_on;
        int used = of_heads(l, all[k]) ? all[k]->stack : all[k]->stack ? l->kind.n_used : 1;
        c->flops += n * weight_flops(all[k]) * used;
        c->bytes += costs_matrix_bytes(l, all[k], n);
    }
    c->bytes += (double)layer_norm_floats(l, m->c.dim) * (double)sizeof(float);
}

static int seen(const Layer *l, int slot) { return slot + 1 - heads_oldest(&l->heads, slot); }

// FLOPs of a layer's attention or recurrence for one row.
static double mixer_flops(const Layer *l, int slot) {
    const Heads *h = &l->heads;
    const Recurrence *r = &l->rec;
    if (l->kind.mixer == MIXER_NONE) return 0;
    if (mixer_is_recurrent(l->kind.mixer))
        return 2.0 * r->channels * r->taps +
               (l->kind.mixer == MIXER_SSD ? 4.0 : 6.0) * r->n_values * r->key_dim * r->value_dim;
    return 2.0 * seen(l, slot) * h->n_heads * (h->head_dim + heads_v_dim(h));
}

// Bytes of K and V of one slot in a layer.
static double slot_bytes(const Layer *l, const KvPool kv[KV_KINDS]) {
    return l->kv_kind < 0 ? 0 : (double)kv_slot_bytes_both(&kv[l->kv_kind]);
}

// Adds the attention or recurrence of those rows of the batch that end in no layer before `end`; ended NULL: of all.
static void add_mixer(Cost *c, const Layer *l, const KvPool kv[KV_KINDS], const Batch *b, const int *ended, int end) {
    int before = -1; // the row before this one
    for (int i = 0; i < b->n_rows; i++) {
        if (ended && ended[i] < end) continue;
        bool next = before >= 0 && b->seq[i] == b->seq[before]; // it sees the slots up to its own, read already or not
        c->flops += mixer_flops(l, b->slot[i]);
        c->bytes += (next ? b->slot[i] - b->slot[before] : seen(l, b->slot[i])) * slot_bytes(l, kv);
        before = i;
    }
}

// Bytes of K and V that n rows write in a layer.
static double bytes_written(const Layer *l, const KvPool kv[KV_KINDS], int n) {
    return layer_owns_kv(l) ? n * slot_bytes(l, kv) : 0;
}

// Bytes of states that n_seqs sequences read and write in a step.
static double state_bytes(const Model *m, int n_seqs) {
    if (m->c.n_recurrent == 0) return 0;
    return 2.0 * n_seqs * m->c.n_recurrent * (double)recurrence_floats(&m->c.rec) * (double)sizeof(float);
}

Cost costs_attention(const Model *m, const KvPool kv[KV_KINDS], const Batch *b) {
    Cost c = {.bytes = state_bytes(m, b->n_seqs)};
    for (int i = 0; i < m->c.n_layers; i++) {
        c.bytes += bytes_written(&m->layers[i], kv, b->n_rows);
        add_mixer(&c, &m->layers[i], kv, b, NULL, 0);
    }
    return c;
}

// ---- a step ---------------------------------------------------------------------------------------------------------

static void add_layer(Cost *c, const Model *m, const Layer *l, const KvPool kv[KV_KINDS], const Batch *b,
                      const int *ended) {
    int n = 0, n_on = 0; // rows that enter the layer, and rows that leave it
    for (int i = 0; i < b->n_rows; i++) n += ended[i] >= l->index, n_on += ended[i] > l->index;
    if (n == 0) return;
    add_weights(c, m, l, n, n_on);
    c->bytes += bytes_written(l, kv, n);
    // A state depends on every row: in a recurrent layer rows end after the mixer.
    add_mixer(c, l, kv, b, ended, mixer_is_recurrent(l->kind.mixer) ? l->index : l->index + 1);
}

// Writes to `ended` where the rows will end (Batch.ended) in a step without Batch.narrow.
static void foresee(const Model *m, const KvPool kv[KV_KINDS], const Batch *b, int *ended) {
    bool sealed = kv_any_sealed(kv->type_k, kv->type_v);
    bool all = b->probe || b->whole || model_last_rows(m, sealed, b->n_rows, b->n_out) == b->n_rows;
    for (int i = 0; i < b->n_rows; i++) ended[i] = m->c.n_layers - (all ? 0 : 1);
    for (int i = 0; i < b->n_out; i++) ended[b->out_row[i]] = m->c.n_layers;
}

Cost costs_batch(const Model *m, const KvPool kv[KV_KINDS], const Batch *b) {
    int *foreseen = b->ended ? NULL : mem_alloc((size_t)(b->n_rows + 1) * sizeof *foreseen);
    if (foreseen) foresee(m, kv, b, foreseen);
    Cost c = ends_cost(m, b->n_rows, b->n_out);
    c.bytes += state_bytes(m, b->n_seqs);
    for (int i = 0; i < m->c.n_layers; i++) add_layer(&c, m, &m->layers[i], kv, b, foreseen ? foreseen : b->ended);
    free(foreseen);
    return c;
}

Cost costs_rows(const Model *m, const KvShape *s, int first, int n_rows, int n_out) {
    KvShape one = *s; // a copy with one block of one slot, which is enough to know the bytes of a slot
    one.block = one.n_blocks = 1;
    const KvPool kv[KV_KINDS] = {kvshape_pool(&one, KV_FULL), kvshape_pool(&one, KV_WINDOW)};
    int *rows = mem_alloc((size_t)(2 * n_rows + n_out + 1) * sizeof *rows);
    int *slot = rows, *seq = slot + n_rows, *out_row = seq + n_rows;
    for (int i = 0; i < n_rows; i++) slot[i] = first + i, seq[i] = 0;
    for (int i = 0; i < n_out; i++) out_row[i] = n_rows - n_out + i;
    Batch b = {.n_rows = n_rows, .n_out = n_out, .n_seqs = 1, .slot = slot, .seq = seq, .out_row = out_row};
    Cost c = costs_batch(m, kv, &b);
    free(rows);
    return c;
}
