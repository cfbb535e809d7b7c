// look/activations.c: see look/activations.h.
#include "look/activations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/imatrix.h"

static int width_of(const Model *m, WatchFeed feed, const Layer *l) {
    switch (feed) {
    case FEEDS_ATTENTION_OUT: return l->wo.n_in;
    case FEEDS_FFN_OUT: return l->kind.ffn == FFN_EXPERTS ? l->shared_down.n_in : l->w_down.n_in;
    default: return m->c.dim;
    }
}

Status activations_new(Activations *a, const Engine *e) {
    const Model *m = &e->model;
    *a = (Activations){0};
    if (m->n_device > 0)
        return status_error(QUILL_USAGE,
                            "--imatrix-out: all layers must be on the CPU, found %d on a GPU; add "
                            "--device cpu",
                            m->n_device);
    for (int i = 0; i < m->c.n_layers; i++)
        if (m->layers[i].kind.mixer == MIXER_LATENT || m->layers[i].norm_experts || m->layers[i].per_gate.data)
            return status_error(
                QUILL_USAGE,
                "--imatrix-out: layers of Q, K, V, their output and a feed-forward expected, found those "
                "of %s, which have products besides; quantise it without an imatrix",
                m->c.arch);
    a->model = m;
    a->widest = m->c.dim;
    for (int i = 0; i < m->c.n_layers; i++)
        a->widest = int_max(int_max(a->widest, m->layers[i].shared_down.n_in),
                            int_max(m->layers[i].wo.n_in, m->layers[i].w_down.n_in));
    size_t n = (size_t)m->c.n_layers * FEEDS_HEAD + 1;
    a->sums = mem_alloc(n * (size_t)a->widest * sizeof *a->sums);
    a->count = mem_alloc(n * sizeof *a->count);
    a->gated = mem_alloc((size_t)a->widest * sizeof *a->gated);
    size_t experts = (size_t)m->c.n_layers * (size_t)m->c.n_experts;
    if (experts == 0) return OK;
    for (int k = 0; k < 2; k++) a->expert_sums[k] = mem_alloc(experts * (size_t)a->widest * sizeof(double));
    a->expert_count = mem_alloc(experts * sizeof *a->expert_count);
    return OK;
}

void activations_free(Activations *a) {
    free(a->sums);
    free(a->count);
    for (int k = 0; k < 2; k++) free(a->expert_sums[k]);
    free(a->expert_count);
    free(a->gated);
    *a = (Activations){0};
}

static size_t index_of(const Model *m, WatchFeed feed, int layer) {
    return feed == FEEDS_HEAD ? (size_t)m->c.n_layers * FEEDS_HEAD : (size_t)layer * FEEDS_HEAD + feed;
}

// Adds the squares of a row of n activations: of x after RMS normalization with `norm`, or of x itself if norm is NULL.
static void add_row(double *sums, const float *x, const float *norm, float eps, int n) {
    double square = 0, scale = 1;
    for (int i = 0; i < n && norm; i++) square += (double)x[i] * (double)x[i];
    if (norm) scale = 1 / sqrt(square / n + (double)eps);
    for (int i = 0; i < n; i++) {
        double v = (double)x[i] * scale * (norm ? (double)norm[i] : 1);
        sums[i] += v * v;
    }
}

static size_t expert_at(const Activations *a, const Layer *l, int expert) {
    return (size_t)l->index * (size_t)a->model->c.n_experts + (size_t)expert;
}

// Adds, for each pair of a row and one of its experts, the input of the gate and up matrices and that of down.
static void experts_fed(Activations *a, const Workspace *w, const Layer *l) {
    const ExpertRows *e = &w->experts;
    size_t widest = (size_t)a->widest, width = (size_t)l->w_down.n_in;
    for (int i = 0; i < l->kind.n_experts; i++) {
        size_t at = expert_at(a, l, i);
        for (int pair = e->first[i]; pair < e->first[i + 1]; pair++) {
            if (route_weighs_inputs(l->kind.routing)) // a pair has an input of its own
                add_row(a->expert_sums[0] + at * widest, e->x + (size_t)pair * (size_t)w->dim, NULL, 0, w->dim);
            else
                add_row(a->expert_sums[0] + at * widest, w->x + (size_t)e->row[pair] * (size_t)w->dim, l->norm_ffn,
                        l->kind.eps, w->dim);
            add_row(a->expert_sums[1] + at * widest, w->h + (size_t)pair * width, NULL, 0, (int)width);
        }
        a->expert_count[at] += e->first[i + 1] - e->first[i];
    }
}

// What Wo takes of gated attention.
static const float *gated_row(Activations *a, const Workspace *w, const Layer *l, int row, const float *found) {
    const float *gates = w->mix + (size_t)row * (size_t)w->mix_dim + layer_gate_at(l);
    int hd = l->heads.head_dim, step = layer_gate_step(l);
    for (int i = 0; i < l->wo.n_in; i++) a->gated[i] = found[i] / (1 + expf(-gates[i / hd * step + i % hd]));
    return a->gated;
}

static void fed(void *arg, WatchFeed feed, const Workspace *w, const Layer *l, const Batch *b) {
    Activations *a = arg;
    const Ends *ends = &a->model->ends;
    size_t at = index_of(a->model, feed, l->index);
    int n = width_of(a->model, feed, l);
    bool experts = l->kind.ffn == FFN_EXPERTS && feed == FEEDS_FFN_OUT;
    if (experts) experts_fed(a, w, l);
    const float *h = experts ? w->h + expert_rows_shared(w, l) : w->h;
    const float *rows[] = {w->x, w->a, w->x, h, w->x};
    const float *norms[] = {l->norm_att, NULL, l->norm_ffn, NULL, ends->norm_out};
    // Rows of attention are as wide as those of the widest layer; recurrent layers write theirs without gaps.
    int attended = mixer_is_recurrent(l->kind.mixer) ? l->wo.n_in : w->q_dim;
    int strides[] = {w->dim, attended, w->dim, experts ? n : w->ffn, w->dim};
    bool gated = feed == FEEDS_ATTENTION_OUT && l->kind.gate;
    for (int i = 0; i < b->n_rows; i++) {
        const float *row = rows[feed] + (size_t)i * (size_t)strides[feed];
        if (gated) row = gated_row(a, w, l, i, row);
        add_row(a->sums + at * (size_t)a->widest, row, norms[feed], feed == FEEDS_HEAD ? ends->eps : l->kind.eps, n);
    }
    a->count[at] += b->n_rows;
}

Watch activations_watch(Activations *a) { return (Watch){.feeds = fed, .arg = a}; }

// ---- the file -------------------------------------------------------------------------------------------------------

typedef struct {
    const Activations *a;
    ImatrixSums *sums; // (n)
    int n;
} SumsList;

// Adds the file's tensor that contains a matrix, unless it was added before: Q, K and V may lie in one tensor.
static void add_sums(SumsList *list, const Tensor *t, WatchFeed feed, const Layer *l) {
    const Gguf *g = list->a->model->gguf;
    for (int i = 0; t->data && i < gguf_n_tensors(g); i++) {
        const GgufTensor *of = gguf_tensor_at(g, i);
        const uint8_t *first = of->data, *data = t->data;
        if (data < first || data >= first + of->n_bytes) continue;
        if (list->n && str_eq(list->sums[list->n - 1].weight, of->name)) return;
        size_t at = index_of(list->a->model, feed, l->index);
        list->sums = mem_resize(list->sums, (size_t)(list->n + 1) * sizeof *list->sums);
        list->sums[list->n++] =
            (ImatrixSums){of->name, list->a->sums + at * (size_t)list->a->widest, t->n_in, 1, &list->a->count[at]};
        return;
    }
}

// Adds a stack of experts: copies the sums of each expert, `widest` columns apart, to rows of n_in columns.
static void add_expert_sums(SumsList *list, const Tensor *t, bool behind, const Layer *l) {
    const Activations *a = list->a;
    size_t n_in = (size_t)t->n_in, at = expert_at(a, l, 0);
    double *sums = a->expert_sums[behind];
    double *own = gguf_alloc((Gguf *)a->model->gguf, (size_t)t->stack * n_in * sizeof *own);
    for (size_t i = 0; i < (size_t)t->stack; i++)
        memcpy(own + i * n_in, sums + (at + i) * (size_t)a->widest, n_in * sizeof *own);
    int before = list->n;
    add_sums(list, t, FEEDS_FFN_IN, l);
    if (list->n == before) return;
    ImatrixSums *s = &list->sums[before];
    s->sums = own, s->n_mat = t->stack, s->counts = a->expert_count + at;
}

Status activations_save(const Activations *a, const char *path, const char *text, int n_chunks, int chunk) {
    SumsList list = {.a = a};
    const Model *m = a->model;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
        bool experts = l->kind.ffn == FFN_EXPERTS;
        const Tensor none = {0};
        const struct {
            const Tensor *t;
            WatchFeed feed;
        } fed_by[] = {
            {&l->wq, FEEDS_QKV},
            {&l->wk, FEEDS_QKV},
            {&l->wv, FEEDS_QKV},
            {&l->wo, FEEDS_ATTENTION_OUT},
            {experts ? &none : &l->w_gate, FEEDS_FFN_IN},
            {experts ? &none : &l->w_up, FEEDS_FFN_IN},
            {experts ? &none : &l->w_down, FEEDS_FFN_OUT},
            {&l->shared_gate, FEEDS_FFN_IN},
            {&l->shared_up, FEEDS_FFN_IN},
            {&l->shared_down, FEEDS_FFN_OUT},
            {&l->w_mix, FEEDS_QKV},
            {&l->w_z, FEEDS_QKV},
            {&l->w_beta, FEEDS_QKV},
            {&l->w_alpha, FEEDS_QKV},
        };
        for (size_t k = 0; k < ARRAY_LEN(fed_by); k++) add_sums(&list, fed_by[k].t, fed_by[k].feed, l);
        if (!experts) continue;
        add_expert_sums(&list, &l->w_gate, false, l);
        add_expert_sums(&list, &l->w_up, false, l);
        add_expert_sums(&list, &l->w_down, true, l);
    }
    add_sums(&list, &m->ends.head, FEEDS_HEAD, &m->layers[m->c.n_layers - 1]);
    Status st = imatrix_save(path, list.sums, list.n, text, n_chunks, chunk);
    free(list.sums);
    return st;
}
