// kverror.c: see kverror.h.
#include "kverror.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Status kverror_new(KvError *c, const Engine *e, int n_tokens) {
    KvShape shape = e->shape;
    if (shape.n_device > 0)
        return status_error(QUILL_USAGE,
                            "--kv-error: all layers on the CPU expected, found %d on the GPU; --device cpu "
                            "is",
                            shape.n_device);
    shape.type_k = shape.type_v = TYPE_F32;
    shape.block = 0;
    shape.n_blocks = 0;
    shape.n_seqs = 1;
    shape.n_ctx = n_tokens;
    shape.rotate = false;
    TRY(kv_new(&c->kv, &shape));
    c->exact = mem_alloc((size_t)e->work.max_rows * (size_t)e->work.q_dim * sizeof *c->exact);
    c->error = mem_alloc((size_t)shape.n_layers * sizeof *c->error);
    c->norm = mem_alloc((size_t)shape.n_layers * sizeof *c->norm);
    return OK;
}

void kverror_free(KvError *c) {
    kv_free(&c->kv);
    free(c->exact);
    free(c->error);
    free(c->norm);
}

// ---- the reference --------------------------------------------------------------------------------------------------

typedef struct {
    const KvError *c;
    const Workspace *w;
    const Layer *l;
    const Batch *b;
} Reference;

static double dot(const float *x, const float *y, int n) {
    double even = 0, odd = 0; // two sums: an addition need not wait for the one before
    for (int i = 0; i + 1 < n; i += 2) {
        even += (double)x[i] * (double)y[i];
        odd += (double)x[i + 1] * (double)y[i + 1];
    }
    return even + odd + (n % 2 ? (double)x[n - 1] * (double)y[n - 1] : 0);
}

// One row and head, in the order of the text: out = sum over slots of softmax(scale q k) v.
static void attend_exactly(const Reference *r, int row, int head, double *scores, double *out) {
    const Heads *h = &r->l->heads;
    const KvPool *kv = &r->c->kv.pool;
    int slot = r->b->pos[row], first = h->window ? int_max(0, slot + 1 - h->window) : 0, hd = h->head_dim;
    int kv_head = head / (h->n_heads / h->n_kv_heads);
    const float *q = r->w->q + (size_t)row * (size_t)r->w->q_dim + (size_t)head * (size_t)hd;
    const float *k = (const float *)kv->k + kv_index(kv, r->l->index, 0, kv_head, 0);
    const float *v = (const float *)kv->v + kv_index(kv, r->l->index, 0, kv_head, 0);
    double most = -INFINITY, sum = 0;
    for (int i = first; i <= slot; i++) {
        scores[i] = (double)h->scale * dot(q, k + (size_t)i * (size_t)hd, hd);
        most = fmax(most, scores[i]);
    }
    memset(out, 0, (size_t)hd * sizeof *out);
    for (int i = first; i <= slot; i++) {
        double p = exp(scores[i] - most);
        sum += p;
        for (int d = 0; d < hd; d++) out[d] += p * (double)v[(size_t)i * (size_t)hd + (size_t)d];
    }
    for (int d = 0; d < hd; d++) out[d] /= sum;
}

static void attend_row(void *arg, int row, int thread) {
    (void)thread;
    const Reference *r = arg;
    int hd = r->l->heads.head_dim;
    double *scores = mem_alloc((size_t)(r->b->pos[row] + 1) * sizeof *scores);
    double *out = r->c->exact + (size_t)row * (size_t)r->w->q_dim;
    for (int head = 0; head < r->l->heads.n_heads; head++)
        attend_exactly(r, row, head, scores, out + (size_t)head * (size_t)hd);
    free(scores);
}

// ---- both -----------------------------------------------------------------------------------------------------------

static void add_error(KvError *c, const Workspace *w, int layer, int n_rows) {
    for (size_t k = 0; k < (size_t)n_rows * (size_t)w->q_dim; k++) {
        double d = (double)w->a[k] - c->exact[k];
        c->error[layer] += d * d;
        c->norm[layer] += c->exact[k] * c->exact[k];
    }
}

void kverror_layers(KvError *c, Engine *e, const Batch *b) {
    Workspace *w = &e->work;
    Batch whole = *b;
    whole.slot = b->pos;
    whole.block_table = &(int){0};
    whole.max_blocks = 1;
    whole.probe = NULL;
    for (int i = 0; i < e->model.c.n_layers; i++) {
        const Layer *l = &e->model.layers[i];
        l->be->attn_in(w, l, &c->kv.pool, &whole);
        threads_run(w->pool, attend_row, &(Reference){c, w, l, &whole}, b->n_rows);
        l->be->attn_in(w, l, &e->kv.pool, b);
        l->be->attention(w, l, &e->kv.pool, b);
        add_error(c, w, i, b->n_rows);
        l->be->attn_out(w, l, b);
        l->be->ffn_in(w, l, b);
        l->be->ffn_out(w, l, b);
    }
}

double kverror_of(const KvError *c, int layer) { return sqrt(c->error[layer] / c->norm[layer]); }
