// cpu/layer.c: see cpu/layer.h. Each operation divides its work into tasks over rows, output features or heads; tasks
// call the kernels of Backend.impl (cpu/cpu.h).
#include "cpu/layer.h"

#include "cpu/attention.h"
#include "cpu/experts.h"
#include "cpu/latent.h"
#include "cpu/matmul.h"
#include "cpu/recurrent.h"
#include "cpu/row_heads.h"
#include "cpu/seq_rows.h"
#include "cpu/tasks.h"

#include <math.h>
#include <string.h>

// Arguments of tasks over rows; each task uses some of them.
typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const Ends *ends;
    const KvPool *kv;
    const Batch *b;
    const float *norm;
    GateRow *gate;
} RowStep;

// ---- blocks ---------------------------------------------------------------------------------------------------------

static void copy_tail(KvPool *kv, int layer, const int copy[2]) {
    int from = kv->tail_of ? kv->tail_of[copy[0]] : -1, to = kv->tail_of ? kv->tail_of[copy[1]] : -1;
    if (from < 0 || to < 0) return;
    for (int v = 0; v < kv_planes(kv); v++) {
        int dim = kv_plane_dim(kv, v);
        float *tail = kv_plane_tail(kv, v);
        size_t n = (size_t)kv->n_kv_heads * SEAL * (size_t)dim * sizeof(float);
        if (tail) memcpy(tail + kv_tail_at(kv, dim, layer, to, 0, 0), tail + kv_tail_at(kv, dim, layer, from, 0, 0), n);
    }
}

void layer_copy_blocks(Workspace *w, KvPool *kv, const Batch *b) {
    (void)w;
    const int(*copy)[2] = batch_copies(b, kv);
    int n_layers = kv->n_layers - kv->n_device;
    size_t k = kv->bytes_k / (size_t)n_layers / (size_t)kv->n_blocks;
    size_t v = kv->bytes_v / (size_t)n_layers / (size_t)kv->n_blocks;
    for (int layer = 0; layer < n_layers; layer++)
        for (int i = 0; i < b->n_copies; i++) {
            size_t base = (size_t)layer * (size_t)kv->n_blocks;
            size_t src = base + (size_t)copy[i][0], dst = base + (size_t)copy[i][1];
            memcpy(kv->k + dst * k, kv->k + src * k, k);
            if (v) memcpy(kv->v + dst * v, kv->v + src * v, v);
            copy_tail(kv, layer, copy[i]);
        }
}

// ---- the embedding and RoPE -----------------------------------------------------------------------------------------

static void compute_rope(Workspace *w, const Rope *r, int row, int pos) {
    size_t at = row_heads_rope_at(w, r->table, row);
    float *c = w->rope_cos + at, *s = w->rope_sin + at;
    for (int i = 0; i < r->n_rot / 2; i++) {
        double angle = pos * r->freq[i];
        c[i] = (float)cos(angle) * r->mscale;
        s[i] = (float)sin(angle) * r->mscale;
    }
}

// x / sqrt(mean(x * x) + eps)
static void normalise(float *x, int n, float eps) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    float scale = (float)(1 / sqrt(squares / n + (double)eps));
    for (int i = 0; i < n; i++) x[i] *= scale;
}

// Subtracts the mean from a row.
static void centre(float *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)x[i];
    float mean = (float)(sum / n);
    for (int i = 0; i < n; i++) x[i] -= mean;
}

static void embed_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    Workspace *w = s->w;
    for (int i = first; i < last; i++) {
        float *x = w->x + (size_t)i * (size_t)w->dim;
        s->k->embed(&s->ends->tok_embd, s->b->token[i], x);
        if (s->ends->embd_scale != 1)
            for (int k = 0; k < w->dim; k++) x[k] *= s->ends->embd_scale;
        if (s->ends->embd_eps != 0) normalise(x, w->dim, s->ends->embd_eps);
        if (s->ends->centred) centre(x, w->dim);
        for (int r = 0; r < s->ends->n_ropes; r++) compute_rope(w, &s->ends->ropes[r], i, s->b->pos[i]);
    }
}

// The input of Ends.join: the norms of the embedding and of the given hidden vector, one behind the other.
static void join_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    const Ends *e = s->ends;
    size_t dim = (size_t)s->w->dim;
    for (size_t i = (size_t)first; i < (size_t)last; i++) {
        float *to = s->w->joined + i * (size_t)s->w->join_dim;
        s->k->rmsnorm(to, s->w->x + i * dim, e->norm_embd, s->w->dim, e->eps);
        s->k->rmsnorm(to + dim, s->b->given + i * dim, e->norm_given, s->w->dim, e->eps);
    }
}

// w->per = (norm_per(w->per) + the token's own part * sqrt(per)) / sqrt(2), for each layer's part.
static void embed_per_layer(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    const Ends *e = s->ends;
    Workspace *w = s->w;
    float root = sqrtf((float)e->per), half = sqrtf(0.5f);
    // the input of the norm should be divided by sqrt(dim); an eps dim times as large gives the same result
    float eps = e->eps * (float)w->dim;
    for (int i = first; i < last; i++) {
        float *per = w->per + (size_t)i * (size_t)w->per_dim, *own = w->per_token + (size_t)i * (size_t)w->per_dim;
        s->k->embed(&e->per_embd, s->b->token[i], own);
        for (int at = 0; at < w->per_dim; at += e->per) s->k->rmsnorm(per + at, per + at, e->norm_per, e->per, eps);
        for (int k = 0; k < w->per_dim; k++) per[k] = (per[k] + own[k] * root) * half;
    }
}

void layer_embed(Workspace *w, const Backend *be, const Ends *e, const KvPool *kv, const Batch *b) {
    (void)kv;
    RowStep s = {.k = cpu_kernels_of(be), .w = w, .ends = e, .b = b};
    tasks_over_rows(w, b->n_rows, w->dim + 20.0 * e->n_ropes * w->n_rot, embed_rows, &s);
    if (e->join.data) {
        tasks_over_rows(w, b->n_rows, 4.0 * w->dim, join_rows, &s);
        MatmulJob join = {.w = &e->join, .y = w->x, .y_stride = (size_t)w->dim};
        matmul_run(s.k, w, &join, 1, matmul_rows(w->joined, w->join_dim, b));
    }
    if (e->per == 0) return;
    MatmulJob job = {.w = &e->per_proj, .y = w->per, .y_stride = (size_t)w->per_dim};
    matmul_run(s.k, w, &job, 1, matmul_rows(w->x, w->dim, b));
    tasks_over_rows(w, b->n_rows, 4.0 * w->per_dim, embed_per_layer, &s);
}

void layer_narrow(Workspace *w, const int *rows, const Batch *b) {
    size_t dim = (size_t)w->dim, q_dim = (size_t)w->q_dim, half = (size_t)w->n_rot / 2, per_dim = (size_t)w->per_dim;
    size_t mix_dim = (size_t)w->mix_dim;
    for (int i = 0; i < b->n_rows; i++) { // rows ascend: none is overwritten before it has moved
        int row = rows[i];
        if (row == i) continue;
        memcpy(w->x + (size_t)i * dim, w->x + (size_t)row * dim, dim * sizeof *w->x);
        memcpy(w->q + (size_t)i * q_dim, w->q + (size_t)row * q_dim, q_dim * sizeof *w->q);
        if (per_dim) memcpy(w->per + (size_t)i * per_dim, w->per + (size_t)row * per_dim, per_dim * sizeof *w->per);
        if (mix_dim > 0) // the gates of Q
            memcpy(w->mix + (size_t)i * mix_dim, w->mix + (size_t)row * mix_dim, mix_dim * sizeof *w->mix);
        for (int table = 0; table < w->n_ropes; table++) {
            size_t to = row_heads_rope_at(w, table, i), from = row_heads_rope_at(w, table, row);
            memcpy(w->rope_cos + to, w->rope_cos + from, half * sizeof *w->rope_cos);
            memcpy(w->rope_sin + to, w->rope_sin + from, half * sizeof *w->rope_sin);
        }
    }
}

// ---- before attention -----------------------------------------------------------------------------------------------

// Applies norm (NULL: none), RoPE and the Hadamard rotation to a head of Q or K.
static void finish_head(const RowStep *s, float *head, const float *norm, int row) {
    const Layer *l = s->l;
    bool behind = l->kind.qk_norm == QK_NORM_TURNED;
    if (norm && !behind) s->k->rmsnorm(head, head, norm, l->heads.head_dim, l->kind.eps);
    row_heads_turn(s->k, s->w, l, head, row);
    if (norm && behind) s->k->rmsnorm(head, head, norm, l->heads.head_dim, l->kind.eps);
    if (s->kv->rotate) sealed_hadamard(head, l->heads.head_dim);
}

// Applies norms and RoPE to K and V of a row and stores them in their slot.
static void store_row(const RowStep *s, int row) {
    const Layer *l = s->l;
    size_t hd = (size_t)l->heads.head_dim, vd = (size_t)heads_v_dim(&l->heads), at = (size_t)row * (size_t)s->w->kv_dim;
    bool by_row = l->kind.qk_norm == QK_NORM_ROW;
    float *all_k = workspace_k(s->w, l) + at, *all_v = workspace_v(s->w, l) + at;
    if (!l->wv.data) memcpy(all_v, all_k, (size_t)l->heads.n_kv_heads * hd * sizeof *all_v);
    if (by_row && l->norm_k) s->k->rmsnorm(all_k, all_k, l->norm_k, layer_norm_k(l), l->kind.eps);
    for (int n = 0; n < l->heads.n_kv_heads; n++) {
        float *k = all_k + (size_t)n * hd, *v = all_v + (size_t)n * vd;
        finish_head(s, k, by_row ? NULL : l->norm_k, row);
        if (l->norm_v) s->k->rmsnorm(v, v, l->norm_v, (int)vd, l->kind.eps);
        row_heads_store(s->k, l, s->kv, s->b, row, n, false, k);
        row_heads_store(s->k, l, s->kv, s->b, row, n, true, v);
    }
}

// GATE_IN_WQ: Wq's product has, for each head, Q and then its gate. Copies Q to w->q.
static void take_queries(const RowStep *s, int row) {
    const Heads *h = &s->l->heads;
    size_t hd = (size_t)h->head_dim;
    const float *both = s->w->mix + (size_t)row * (size_t)s->w->mix_dim;
    float *q = s->w->q + (size_t)row * (size_t)s->w->q_dim;
    for (size_t n = 0; n < (size_t)h->n_heads; n++) memcpy(q + n * hd, both + 2 * n * hd, hd * sizeof *q);
}

// a *= sigmoid(gate), computed by the gate kernel as silu(gate) * (a / gate). A gate near 0 becomes 1e-12.
static void gate_heads(void *arg, int first, int last, int thread) {
    (void)thread;
    const RowStep *s = arg;
    const Heads *h = &s->l->heads;
    int hd = h->head_dim, step = layer_gate_step(s->l);
    for (int row = first; row < last; row++) {
        float *gate = s->w->mix + (size_t)row * (size_t)s->w->mix_dim + layer_gate_at(s->l),
              *a = s->w->a + (size_t)row * (size_t)s->w->q_dim;
        for (int n = 0; n < h->n_heads; n++, a += hd, gate += step) {
            for (int i = 0; i < hd; i++) {
                gate[i] = fabsf(gate[i]) < 1e-12f ? 1e-12f : gate[i];
                a[i] /= gate[i];
            }
            s->k->gate(ACT_SILU, gate, a, hd);
            memcpy(a, gate, (size_t)hd * sizeof *a);
        }
    }
}

// QK-norm, RoPE and the store of K and V, row by row.
static void store_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    const Layer *l = s->l;
    const Heads *h = &l->heads;
    bool by_row = l->kind.qk_norm == QK_NORM_ROW;
    for (int i = first; i < last; i++) {
        float *q = s->w->q + (size_t)i * (size_t)s->w->q_dim, temperature = rope_temperature(&l->rope, s->b->pos[i]);
        if (l->kind.gate == GATE_IN_WQ) take_queries(s, i);
        if (by_row && l->norm_q) s->k->rmsnorm(q, q, l->norm_q, layer_norm_q(l), l->kind.eps);
        for (int n = 0; n < h->n_heads; n++)
            finish_head(s, q + (size_t)n * (size_t)h->head_dim, by_row ? NULL : l->norm_q, i);
        for (int n = 0; temperature != 1 && n < h->n_heads * h->head_dim; n++) q[n] *= temperature;
        if (layer_owns_kv(l)) store_row(s, i);
    }
}

static void seal_head(void *arg, int head, int thread) {
    (void)thread;
    RowStep *s = arg;
    for (int row = 0; row < s->b->n_rows;) {
        SequenceRows r = seq_rows_at(s->b, s->kv, row);
        seq_rows_seal(s->w, s->l, s->kv, s->b, &r, head);
        row += r.n;
    }
}

// Computes Q, K, V and gates, and stores K and V.
static void project(RowStep *s) {
    const Layer *l = s->l;
    Workspace *w = s->w;
    bool both = l->kind.gate == GATE_IN_WQ;
    MatmulJob jobs[4] = {{.w = &l->wq, .y = both ? w->mix : w->q, .y_stride = (size_t)(both ? w->mix_dim : w->q_dim)}};
    int n = 1;
    if (l->kind.gate == GATE_OWN) jobs[n++] = (MatmulJob){.w = &l->w_mix, .y = w->mix, .y_stride = (size_t)w->mix_dim};
    if (l->wk.data) jobs[n++] = (MatmulJob){.w = &l->wk, .y = workspace_k(w, l), .y_stride = (size_t)w->kv_dim};
    if (l->wv.data) jobs[n++] = (MatmulJob){.w = &l->wv, .y = workspace_v(w, l), .y_stride = (size_t)w->kv_dim};
    matmul_run(s->k, w, jobs, n, matmul_normed_rows(w, l->norm_att, l->kind.eps, s->b));
    tasks_over_rows(w, s->b->n_rows, 2.0 * w->q_dim, store_rows, s);
}

void layer_attn_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    RowStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l, .kv = kv, .b = b};
    if (mixer_is_recurrent(l->kind.mixer)) {
        recurrent_in(w, l, b);
        return;
    }
    if (l->kind.mixer == MIXER_LATENT) latent_in(w, l, kv, b);
    else project(&s);
    if (kv->tail_of && layer_owns_kv(l)) threads_run(w->pool, seal_head, &s, l->heads.n_kv_heads);
}

void layer_attention(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    if (mixer_is_recurrent(l->kind.mixer)) recurrent_run(w, l, b);
    else if (l->kind.mixer == MIXER_LATENT) latent_attend(w, l, kv, b);
    else attention_run(w, l, kv, b);
}

// ---- adding to the residual stream ----------------------------------------------------------------------------------

static void add_normed_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    size_t dim = (size_t)s->w->dim;
    for (size_t i = (size_t)first; i < (size_t)last; i++) {
        float *y = s->w->xn + i * dim, *x = s->w->x + i * dim;
        s->k->rmsnorm(y, y, s->norm, s->w->dim, kind_eps_out(&s->l->kind));
        for (size_t k = 0; k < dim; k++) x[k] += y[k];
    }
}

// x += W rows, or the norm of that.
static void add_product(Workspace *w, const Layer *l, const Tensor *t, const float *norm, MatmulRows rows) {
    const CpuKernels *k = cpu_kernels_of(l->be);
    MatmulJob job = {.w = t, .y = norm ? w->xn : w->x, .y_stride = (size_t)w->dim, .add = !norm};
    matmul_run(k, w, &job, 1, rows);
    RowStep s = {.k = k, .w = w, .l = l, .norm = norm};
    if (norm) tasks_over_rows(w, rows.n, 2.0 * w->dim, add_normed_rows, &s);
}

void layer_attn_out(Workspace *w, const Layer *l, const Batch *b) {
    RowStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l};
    if (l->kind.gate) tasks_over_rows(w, b->n_rows, 20.0 * w->q_dim, gate_heads, &s);
    MatmulRows rows = l->kind.mixer == MIXER_LATENT
                          ? latent_out(w, l, b)
                          : matmul_rows(w->a, mixer_is_recurrent(l->kind.mixer) ? l->wo.n_in : w->q_dim, b);
    add_product(w, l, &l->wo, l->norm_att_out, rows);
}

// ---- the feed-forward -----------------------------------------------------------------------------------------------

static void gate_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    size_t n = (size_t)s->w->ffn;
    const LayerKind *kind = &s->l->kind;
    const float *up = s->l->w_up.data ? s->w->up : s->w->h;
    for (int i = first; i < last; i++) {
        float *h = s->w->h + (size_t)i * n;
        if (kind->act == ACT_XIELU) s->k->xielu(&kind->xielu, h, s->l->w_gate.n_out);
        else s->gate(kind->act, h, up + (size_t)i * n, s->l->w_gate.n_out);
    }
}

static const MatrixKernel *matrix_of_rows(const CpuKernels *k, const Tensor *t, const Batch *b) {
    return matmul_kernel(k, t, b->n_rows, batch_decodes(b));
}

// Whether ffn_in stores its activations in w->h packed for w_down: both kernels pack in the same way, the packed
// activations fit, and no callback wants to see them. ffn_in and ffn_out get the same answer.
static bool glu_is_packed(const CpuKernels *k, const Layer *l, const Batch *b) {
    if (b->watch && b->watch->feeds) return false;
    const MatrixKernel *m = matmul_glu_kernel(k, &l->w_gate, &l->w_up, &l->w_down, b->n_rows, batch_decodes(b));
    return m && b->n_rows > m->tile;
}

void layer_ffn_in(Workspace *w, const Layer *l, const Batch *b) {
    if (l->kind.ffn == FFN_EXPERTS) {
        experts_in(w, l, b);
        return;
    }
    const CpuKernels *k = cpu_kernels_of(l->be);
    MatmulRows rows = matmul_normed_rows(w, l->norm_ffn, l->kind.eps, b);
    if (glu_is_packed(k, l, b)) {
        MatmulJob job = {.w = &l->w_up, .y = w->h, .gate = &l->w_gate, .act = l->kind.act};
        matmul_run(k, w, &job, 1, rows);
        return;
    }
    MatmulJob jobs[] = {{.w = &l->w_gate, .y = w->h, .y_stride = (size_t)w->ffn},
                        {.w = &l->w_up, .y = w->up, .y_stride = (size_t)w->ffn}};
    matmul_run(k, w, jobs, l->w_up.data ? 2 : 1, rows);
    const MatrixKernel *m = matrix_of_rows(k, &l->w_gate, b);
    RowStep s = {.k = k, .w = w, .l = l, .gate = l->w_up.data && m && m->gate ? m->gate : k->gate};
    tasks_over_rows(w, b->n_rows, 8.0 * w->ffn, gate_rows, &s);
}

// h = act(h) * the layer's part of w->per
static void gate_per_layer(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    const Workspace *w = s->w;
    int n = s->l->per_gate.n_out;
    for (int i = first; i < last; i++)
        s->k->gate(s->l->kind.act, w->h + (size_t)i * (size_t)w->ffn,
                   w->per + (size_t)i * (size_t)w->per_dim + (size_t)(s->l->index * n), n);
}

static void add_per_layer(Workspace *w, const Layer *l, const Batch *b) {
    RowStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l};
    MatmulJob job = {.w = &l->per_gate, .y = w->h, .y_stride = (size_t)w->ffn};
    matmul_run(s.k, w, &job, 1, matmul_rows(w->x, w->dim, b));
    tasks_over_rows(w, b->n_rows, 8.0 * l->per_gate.n_out, gate_per_layer, &s);
    add_product(w, l, &l->per_out, l->norm_per, matmul_rows(w->h, w->ffn, b));
}

static void scale_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    size_t dim = (size_t)s->w->dim;
    for (size_t i = (size_t)first * dim; i < (size_t)last * dim; i++) s->w->x[i] *= s->l->kind.out_scale;
}

static void centre_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    for (int i = first; i < last; i++) centre(s->w->x + (size_t)i * (size_t)s->w->dim, s->w->dim);
}

void layer_ffn_out(Workspace *w, const Layer *l, const Batch *b) {
    MatmulRows rows = matmul_rows(w->h, w->ffn, b);
    if (l->kind.ffn == FFN_EXPERTS) experts_out(w, l, b);
    else {
        if (glu_is_packed(cpu_kernels_of(l->be), l, b)) rows.packed = w->h;
        add_product(w, l, &l->w_down, l->norm_ffn_out, rows);
    }
    if (l->per_gate.data) add_per_layer(w, l, b);
    RowStep s = {.w = w, .l = l};
    if (l->kind.out_scale != 0) tasks_over_rows(w, b->n_rows, w->dim, scale_rows, &s);
    if (l->kind.centred) tasks_over_rows(w, b->n_rows, 2.0 * w->dim, centre_rows, &s);
}

// ---- the head -------------------------------------------------------------------------------------------------------

static void cap_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    RowStep *s = arg;
    size_t n = (size_t)s->w->n_vocab;
    for (int i = first; i < last; i++) s->k->softcap(s->w->logits + (size_t)i * n, s->w->n_vocab, s->ends->softcap);
}

void layer_logits(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows) {
    const CpuKernels *k = cpu_kernels_of(be);
    matmul_norm(k, w, e->norm_out, e->eps, rows, n_rows);
    MatmulJob job = {.w = &e->head, .y = w->logits, .y_stride = (size_t)w->n_vocab};
    matmul_run(k, w, &job, 1,
               (MatmulRows){.x = w->xn, .stride = (size_t)w->dim, .n = n_rows, .decodes = batch_decodes(b)});
    RowStep s = {.k = k, .w = w, .ends = e};
    if (e->softcap != 0) tasks_over_rows(w, n_rows, 4.0 * w->n_vocab, cap_rows, &s);
}

void layer_hidden(Workspace *w, const Backend *be, const Ends *e, int n_rows) {
    matmul_norm(cpu_kernels_of(be), w, e->norm_out, e->eps, NULL, n_rows);
}
