// cpu/latent.c: see cpu/latent.h.
#include "cpu/latent.h"

#include "cpu/attention.h"
#include "cpu/latent_expand.h"
#include "cpu/row_heads.h"
#include "cpu/stack_product.h"
#include "cpu/tasks.h"

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const KvPool *kv;
    const Batch *b;
} LatentStep;

size_t latent_packed_bytes(const CpuKernels *k, const Workspace *w) {
    if (w->latent_dim == 0) return 0;
    return stack_product_packed_bytes(k, w->max_rows * w->latent_heads, w->latent_heads,
                                      w->latent_dim / w->latent_heads);
}

// Elements of a head of wq's output: first those without RoPE, then those with RoPE.
static int plain_dim(const Layer *l) { return l->k_b.n_in; }
static int query_dim(const Layer *l) { return plain_dim(l) + l->rope.n_rot; }

// ---- products of heads ----------------------------------------------------------------------------------------------

// latent[1] (head, row, n_out) = the head's matrix times latent[0] (head, row, n_in)
static void run_heads(Workspace *w, const Layer *l, const Tensor *stack, const Batch *b) {
    int *first = w->experts.first, n_heads = l->heads.n_heads;
    for (int i = 0; i <= n_heads; i++) first[i] = i * b->n_rows;
    stack_product_run((StackProduct){.k = cpu_kernels_of(l->be),
                                     .w = w,
                                     .stack = {stack},
                                     .y = {w->latent[1]},
                                     .n_jobs = 1,
                                     .x = w->latent[0],
                                     .stride = (size_t)stack->n_in,
                                     .decodes = batch_decodes(b),
                                     .n_stack = n_heads,
                                     .n_in = stack->n_in});
}

static HeadRows by_row(float *at, int row, int head) { return (HeadRows){at, (size_t)row, (size_t)head}; }
static HeadRows by_head(float *at, int n, const Batch *b) {
    return (HeadRows){at, (size_t)n, (size_t)n * (size_t)b->n_rows};
}

// ---- before attention -----------------------------------------------------------------------------------------------

static void store_row(const LatentStep *s, int row) {
    const Layer *l = s->l;
    int v_dim = heads_v_dim(&l->heads);
    float *k = workspace_k(s->w, l) + (size_t)row * (size_t)s->w->kv_dim;
    s->k->rmsnorm(k, k, l->norm_k, v_dim, l->kind.eps);
    row_heads_turn(s->k, s->w, l, k + v_dim, row);
    row_heads_store(s->k, l, s->kv, s->b, row, 0, false, k);
}

// RoPE of Q; stores K in the row's slot.
static void finish_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    LatentStep *s = arg;
    const Layer *l = s->l;
    int plain = plain_dim(l), whole = query_dim(l);
    for (int i = first; i < last; i++) {
        float temperature = rope_temperature(&l->rope, s->b->pos[i]), *q = s->w->q + (size_t)i * (size_t)s->w->q_dim;
        for (int head = 0; head < l->heads.n_heads; head++, q += whole) {
            for (int k = 0; temperature != 1 && k < whole; k++) q[k] *= temperature;
            row_heads_turn(s->k, s->w, l, q + plain, i);
        }
        store_row(s, i);
    }
}

static void norm_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    LatentStep *s = arg;
    int n = s->l->q_a.n_out;
    for (int i = first; i < last; i++) {
        float *x = s->w->latent[0] + (size_t)i * (size_t)n;
        s->k->rmsnorm(x, x, s->l->norm_q_a, n, s->l->kind.eps);
    }
}

void latent_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    const CpuKernels *k = cpu_kernels_of(l->be);
    LatentStep s = {.k = k, .w = w, .l = l, .kv = kv, .b = b};
    bool direct = !l->q_a.data;
    size_t stride = (size_t)w->q_dim;
    MatmulJob jobs[] = {{.w = direct ? &l->wq : &l->q_a,
                         .y = direct ? w->q : w->latent[0],
                         .y_stride = direct ? stride : (size_t)l->q_a.n_out},
                        {.w = &l->wk, .y = workspace_k(w, l), .y_stride = (size_t)w->kv_dim}};
    matmul_run(k, w, jobs, 2, matmul_normed_rows(w, l->norm_att, l->kind.eps, b));
    if (!direct) {
        MatmulJob job = {.w = &l->wq, .y = w->q, .y_stride = stride};
        tasks_over_rows(w, b->n_rows, l->q_a.n_out, norm_rows, &s);
        matmul_run(k, w, &job, 1, matmul_rows(w->latent[0], l->q_a.n_out, b));
    }
    tasks_over_rows(w, b->n_rows, 2.0 * l->wq.n_out, finish_rows, &s);
}

// ---- attention ------------------------------------------------------------------------------------------------------

// Copies the part of Q without RoPE, ordered by head, to latent[0]; moves the other part to its place in wider heads.
static void split_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    const LatentStep *s = arg;
    const Layer *l = s->l;
    size_t plain = (size_t)plain_dim(l), whole = (size_t)query_dim(l), n_heads = (size_t)l->heads.n_heads;
    size_t dim = (size_t)l->heads.head_dim, v_dim = (size_t)heads_v_dim(&l->heads), n_rot = whole - plain;
    for (size_t i = (size_t)first; i < (size_t)last; i++) {
        float *q = s->w->q + i * (size_t)s->w->q_dim;
        for (size_t head = 0; head < n_heads; head++)
            memcpy(s->w->latent[0] + (head * (size_t)s->b->n_rows + i) * plain, q + head * whole, plain * sizeof *q);
        for (size_t k = 0; k < n_heads; k++) { // in an order in which no head is overwritten before it has moved
            size_t head = dim >= whole ? n_heads - 1 - k : k;
            memmove(q + head * dim + v_dim, q + head * whole + plain, n_rot * sizeof *q);
        }
    }
}

// w->a (rows, n_heads * v) = v_b times the attention output.
static void multiply_out(Workspace *w, const Layer *l, const Batch *b) {
    int n_heads = l->heads.n_heads, v_dim = heads_v_dim(&l->heads), n = l->v_b.n_out;
    row_heads_regroup(w, b->n_rows, n_heads, v_dim, by_row(w->a, w->q_dim, v_dim), by_head(w->latent[0], v_dim, b));
    run_heads(w, l, &l->v_b, b);
    row_heads_regroup(w, b->n_rows, n_heads, n, by_head(w->latent[1], n, b), by_row(w->a, w->q_dim, n));
}

static bool attention_is_watched(const Batch *b) { return b->watch && b->watch->attended; }

static void attend_absorbed(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    LatentStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l, .kv = kv, .b = b};
    int n = l->k_b.n_out;
    tasks_over_rows(w, b->n_rows, l->wq.n_out, split_rows, &s);
    run_heads(w, l, &l->k_b, b);
    row_heads_regroup(w, b->n_rows, l->heads.n_heads, n, by_head(w->latent[1], n, b),
                      by_row(w->q, w->q_dim, l->heads.head_dim));
    attention_run(w, l, kv, b);
    if (!attention_is_watched(b)) multiply_out(w, l, b);
}

void latent_attend(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    for (int row = 0, n; row < b->n_rows; row += n) {
        SequenceRows r = seq_rows_at(b, kv, row), next;
        bool expanded = latent_expand_pays(w, l, kv, b, &r);
        for (n = r.n; !expanded && row + n < b->n_rows; n += next.n) { // sequences that are computed together
            next = seq_rows_at(b, kv, row + n);
            if (latent_expand_pays(w, l, kv, b, &next)) break;
        }
        Workspace part = *w; // rows [row, row + n)
        Batch rows = *b;
        part.q += (size_t)row * (size_t)w->q_dim;
        part.a += (size_t)row * (size_t)w->q_dim;
        part.k += (size_t)row * (size_t)w->kv_dim;
        rows.n_rows = n;
        rows.slot += row, rows.pos += row, rows.seq += row;
        r.first = 0;
        if (expanded) latent_expand_attend(&part, l, kv, &rows, &r);
        else attend_absorbed(&part, l, kv, &rows);
    }
}

MatmulRows latent_out(Workspace *w, const Layer *l, const Batch *b) {
    if (attention_is_watched(b)) multiply_out(w, l, b);
    return matmul_rows(w->a, w->q_dim, b);
}
