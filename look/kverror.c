// look/kverror.c: see look/kverror.h.
#include "look/kverror.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Status kverror_new(KvError *c, const Engine *e, int n_tokens) {
    const Workspace *w = &e->work;
    size_t n_layers = (size_t)e->model.c.n_layers, n = n_layers * (size_t)n_tokens * (size_t)w->kv_dim;
    if (e->shape.n_device > 0)
        return status_error(QUILL_USAGE,
                            "--kv-error: all layers must be on the CPU, found %d on the GPU; add "
                            "--device cpu",
                            e->shape.n_device);
    *c = (KvError){.n_tokens = n_tokens, .kv_dim = w->kv_dim};
    c->k = pages_alloc(n * sizeof *c->k, true);
    c->v = pages_alloc(n * sizeof *c->v, true);
    c->exact = mem_alloc((size_t)w->max_rows * (size_t)w->q_dim * sizeof *c->exact);
    c->error = mem_alloc(n_layers * sizeof *c->error);
    c->norm = mem_alloc(n_layers * sizeof *c->norm);
    c->n_bytes = n * sizeof *c->k;
    if (c->k && c->v) return OK;
    return status_error(QUILL_MEMORY, "--kv-error: the system refused 2 x %zu bytes for the K and V of %d tokens",
                        c->n_bytes, n_tokens);
}

void kverror_free(KvError *c) {
    pages_free(c->k, c->n_bytes);
    pages_free(c->v, c->n_bytes);
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
    double even = 0, odd = 0; // two independent chains of additions
    for (int i = 0; i + 1 < n; i += 2) {
        even += (double)x[i] * (double)y[i];
        odd += (double)x[i + 1] * (double)y[i + 1];
    }
    return even + odd + (n % 2 ? (double)x[n - 1] * (double)y[n - 1] : 0);
}

// Offset of a token and KV head in c->k and c->v.
static size_t held_at(const KvError *c, const Layer *l, int token, int head, int dim) {
    return ((size_t)l->index * (size_t)c->n_tokens + (size_t)token) * (size_t)c->kv_dim + (size_t)(head * dim);
}

// Attention of one row and head over the tokens of the text: out = sum over tokens of softmax(scale q k) v.
static void attend_exactly(const Reference *r, int row, int head, double *scores, double *out) {
    const Heads *h = &r->l->heads;
    int pos = r->b->pos[row], first = heads_oldest(h, pos), hd = h->head_dim;
    int vd = heads_v_dim(h);
    int kv_head = head / (h->n_heads / h->n_kv_heads);
    const float *q = r->w->q + (size_t)row * (size_t)r->w->q_dim + (size_t)head * (size_t)hd;
    const float *sink = r->l->sinks ? &r->l->sinks[head] : NULL;
    double most = sink ? (double)*sink : -INFINITY;
    for (int i = first; i <= pos; i++) {
        scores[i] = (double)h->scale * dot(q, r->c->k + held_at(r->c, r->l, i, kv_head, hd), hd);
        if (h->softcap != 0) scores[i] = (double)h->softcap * tanh(scores[i] / (double)h->softcap);
        most = fmax(most, scores[i]);
    }
    double sum = sink ? exp((double)*sink - most) : 0;
    memset(out, 0, (size_t)vd * sizeof *out);
    for (int i = first; i <= pos; i++) {
        const float *v = r->c->v + held_at(r->c, r->l, i, kv_head, vd);
        double p = exp(scores[i] - most);
        sum += p;
        for (int d = 0; d < vd; d++) out[d] += p * (double)v[d];
    }
    for (int d = 0; d < vd; d++) out[d] /= sum;
}

static void attend_row(void *arg, int row, int thread) {
    (void)thread;
    const Reference *r = arg;
    int vd = heads_v_dim(&r->l->heads);
    double *scores = mem_alloc((size_t)(r->b->pos[row] + 1) * sizeof *scores);
    double *out = r->c->exact + (size_t)row * (size_t)r->w->q_dim;
    for (int head = 0; head < r->l->heads.n_heads; head++)
        attend_exactly(r, row, head, scores, out + (size_t)head * (size_t)vd);
    free(scores);
}

// ---- the comparison -------------------------------------------------------------------------------------------------

static void add_error(KvError *c, const Workspace *w, const Layer *l, int n_rows) {
    size_t n = (size_t)l->heads.n_heads * (size_t)heads_v_dim(&l->heads);
    for (size_t row = 0; row < (size_t)n_rows; row++)
        for (size_t k = row * (size_t)w->q_dim; k < row * (size_t)w->q_dim + n; k++) {
            double d = (double)w->a[k] - c->exact[k];
            c->error[l->index] += d * d;
            c->norm[l->index] += c->exact[k] * c->exact[k];
        }
}

static void attended(void *arg, const Workspace *w, const Layer *l, const Batch *b) {
    KvError *c = arg;
    for (int i = 0; i < b->n_rows; i++) {
        size_t from = (size_t)i * (size_t)w->kv_dim, to = held_at(c, l, b->pos[i], 0, 0);
        memcpy(c->k + to, workspace_k(w, l) + from, (size_t)w->kv_dim * sizeof *c->k);
        memcpy(c->v + to, workspace_v(w, l) + from, (size_t)w->kv_dim * sizeof *c->v);
    }
    threads_run(w->pool, attend_row, &(Reference){c, w, l, b}, b->n_rows);
    add_error(c, w, l, b->n_rows);
}

Watch kverror_watch(KvError *c) { return (Watch){.attended = attended, .arg = c}; }

double kverror_of(const KvError *c, int layer) {
    return c->norm[layer] > 0 ? sqrt(c->error[layer] / c->norm[layer]) : 0; // a layer without K and V
}
