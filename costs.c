// costs.c: what a step costs, counted from its batch.
//
// A row at slot s of a layer with window w sees   seen(s) = s + 1,   or min(s + 1, w) where w > 0.
//
// FLOPs; a multiplication and an addition count as two:
//     each row, each layer:  2 n_out n_in for each matrix; of experts, only those that the row is routed to
//                            2 seen(s) n_heads (head_dim + v_dim) for the scores (QK) and their sum (PV)
//     each row of logits:    2 n_vocab dim
//   Compressed K and V count as in the absorbed form (cpu/latent.h), also where the expanded form computes them.
//   In the last layer, a row without logits needs only Wq, Wk and Wv, or what the state takes of it (model_last_rows
//   names the exceptions).
//   Norms, biases, RoPE, softmax and the gate are not counted, as in published figures.
//
// Bytes read from or written to memory, once a step for all rows together:
//     weights: the matrices, norms and biases of every layer; the output norm and the head if there are logits
//     experts: n_experts (1 - (1 - n_used / n_experts)^rows) of them: the expected number of different experts if rows
//              choose independently and uniformly; exactly n_used for one row
//     the embedding: one row of the table for each row of the batch
//     K and V: for each sequence one read of every slot that at least one of its rows sees, from the first slot that
//              its first row sees to the slot of its last row; and one write for each row
//     states of recurrent layers: one read and one write for each sequence. Their FLOPs for each row and layer:
//              2 channels taps + 6 n_values key_dim value_dim
//   Activations are not counted: they stay in the processor's caches.
//
// Sums are doubles: exact up to 2^53.
#include "costs.h"

#include <math.h>

static double weight_bytes(const Tensor *t) { // the bytes of one matrix; of a stack, those of one of its matrices
    double n = (double)t->n_out * (double)t->row_bytes;
    if (t->scales) n += (double)t->n_out * (double)t->n_in / t->group * (double)sizeof(float);
    if (t->bias) n += (double)t->n_out * (double)sizeof(float);
    return n;
}

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

#define ADDRESS(field) &l->field,
#define ALL_MATRICES EACH_LAYER_MATRIX(ADDRESS)

// The part of the cost that does not depend on slots. n_last rows go through all of the last layer.
static Cost cost_linear(const Model *m, int n_rows, int n_last, int n_out) {
    Cost c = {.bytes = (double)n_rows * (double)m->ends.tok_embd.row_bytes};
    if (m->ends.per > 0) {
        c.flops += n_rows * weight_flops(&m->ends.per_proj);
        c.bytes += (double)n_rows * (double)m->ends.per_embd.row_bytes + weight_bytes(&m->ends.per_proj);
    }
    if (m->ends.tok_embd.scales) c.bytes += (double)n_rows * m->c.dim / m->ends.tok_embd.group * (double)sizeof(float);
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
        const Tensor *all[] = {ALL_MATRICES};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) {
            int n = i == m->c.n_layers - 1 && !before_attention(l, all[k]) ? n_last : n_rows;
            int used = of_heads(l, all[k]) ? all[k]->stack : all[k]->stack ? l->kind.n_used : 1;
            c.flops += n * weight_flops(all[k]) * used;
            c.bytes += costs_matrix_bytes(l, all[k], n);
        }
        c.bytes += (double)layer_norm_floats(l, m->c.dim) * (double)sizeof(float);
    }
    if (n_out > 0) {
        c.flops += n_out * weight_flops(&m->ends.head);
        c.bytes += weight_bytes(&m->ends.head) + (double)m->c.dim * (double)sizeof(float);
    }
    return c;
}

static int seen(const Layer *l, int slot) {
    int w = l->heads.window;
    return w > 0 ? int_min(slot + 1, w) : slot + 1;
}

// Layers [from, to).
typedef struct {
    int from, to;
} LayerSpan;

// FLOPs of attention for one row.
static double row_flops(const Model *m, LayerSpan layers, int slot) {
    double n = 0;
    for (int i = layers.from; i < layers.to; i++) {
        const Heads *h = &m->layers[i].heads;
        const Recurrence *r = &m->layers[i].rec;
        if (mixer_is_recurrent(m->layers[i].kind.mixer)) {
            n += 2.0 * r->channels * r->taps + 6.0 * r->n_values * r->key_dim * r->value_dim;
            continue;
        }
        n += 2.0 * seen(&m->layers[i], slot) * h->n_heads * (h->head_dim + heads_v_dim(h));
    }
    return n;
}

// Bytes of K and V that one sequence's rows read, the first and the last of them at these slots.
static double slots_read(const Model *m, LayerSpan layers, const KvPool kv[KV_KINDS], int first, int last) {
    double bytes = 0;
    for (int i = layers.from; i < layers.to; i++) {
        const Layer *l = &m->layers[i];
        if (l->kv_kind >= 0) bytes += (last - first + seen(l, first)) * (double)kv_slot_bytes_both(&kv[l->kv_kind]);
    }
    return bytes;
}

// Bytes of K and V that a row writes.
static double row_bytes(const KvPool kv[KV_KINDS]) {
    double bytes = 0;
    for (int kind = 0; kind < KV_KINDS; kind++) bytes += (double)kv_slot_bytes_both(&kv[kind]) * kv[kind].n_layers;
    return bytes;
}

// Adds the attention of rows, all n of the batch or those named, in some layers.
static void add_attention(Cost *c, const Model *m, LayerSpan layers, const Batch *b, const int *rows, int n_rows,
                          const KvPool kv[KV_KINDS]) {
    for (int i = 0, n; i < n_rows; i += n) {
        int first = rows ? rows[i] : i, last = first;
        for (n = 0; i + n < n_rows; n++) {
            int row = rows ? rows[i + n] : i + n;
            if (b->seq[row] != b->seq[first]) break;
            c->flops += row_flops(m, layers, b->slot[row]);
            last = row;
        }
        c->bytes += slots_read(m, layers, kv, b->slot[first], b->slot[last]);
    }
}

// Bytes of states that n_seqs sequences read and write in a step.
static double state_bytes(const Model *m, int n_seqs) {
    if (m->c.n_recurrent == 0) return 0;
    return 2.0 * n_seqs * m->c.n_recurrent * (double)recurrence_floats(&m->c.rec) * (double)sizeof(float);
}

Cost costs_attention(const Model *m, const KvPool *kv, const Batch *b) {
    Cost c = {.bytes = row_bytes(kv) * b->n_rows + state_bytes(m, b->n_seqs)};
    add_attention(&c, m, (LayerSpan){0, m->c.n_layers}, b, NULL, b->n_rows, kv);
    return c;
}

// How many rows the last layer's attention or recurrence computes, if n_last of n_rows continue after it. A recurrence
// needs all rows for its state.
static int rows_of_last_mixer(const Model *m, int n_rows, int n_last) {
    return mixer_is_recurrent(m->layers[m->c.n_layers - 1].kind.mixer) ? n_rows : n_last;
}

Cost costs_batch(const Model *m, const KvPool *kv, const Batch *b) {
    int n_last = b->probe || b->whole
                     ? b->n_rows
                     : model_last_rows(m, kv_is_sealed(kv->type_k) || kv_is_sealed(kv->type_v), b->n_rows, b->n_out);
    int last = m->c.n_layers - 1;
    Cost c = cost_linear(m, b->n_rows, n_last, b->n_out);
    c.bytes += row_bytes(kv) * b->n_rows + state_bytes(m, b->n_seqs); // state_bytes: read and written
    add_attention(&c, m, (LayerSpan){0, last}, b, NULL, b->n_rows, kv);
    n_last = rows_of_last_mixer(m, b->n_rows, n_last);
    add_attention(&c, m, (LayerSpan){last, last + 1}, b, n_last < b->n_rows ? b->out_row : NULL, n_last, kv);
    return c;
}

Cost costs_rows(const Model *m, const KvShape *s, int first, int n_rows, int n_out) {
    KvShape one = *s; // a copy with one block of one slot, which is enough to know the bytes of a slot
    one.block = one.n_blocks = 1;
    const KvPool kv[KV_KINDS] = {kvshape_pool(&one, KV_FULL), kvshape_pool(&one, KV_WINDOW)};
    int n_last = model_last_rows(m, kv_is_sealed(s->type_k) || kv_is_sealed(s->type_v), n_rows, n_out);
    Cost c = cost_linear(m, n_rows, n_last, n_out);
    if (n_rows <= 0) return c;
    c.bytes += row_bytes(kv) * n_rows + state_bytes(m, 1);
    n_last = rows_of_last_mixer(m, n_rows, n_last);
    for (int part = 0; part < 2; part++) { // 0: all layers but the last; 1: n_last rows in the last layer
        LayerSpan layers =
            part == 0 ? (LayerSpan){0, m->c.n_layers - 1} : (LayerSpan){m->c.n_layers - 1, m->c.n_layers};
        int n = part == 0 ? n_rows : n_last, end = first + n_rows;
        for (int i = end - n; i < end; i++) c.flops += row_flops(m, layers, i);
        if (n > 0) c.bytes += slots_read(m, layers, kv, end - n, end - 1);
    }
    return c;
}
