// cpu/latent.c: see cpu/latent.h.
#include "cpu/latent.h"

#include "cpu/stack_product.h"
#include "cpu/tasks.h"

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const KvPool *kv;
    const Batch *b;
    const float *from; // (n_rows, n_heads, n), or by head
    float *to;
    int n;
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

// ---- before attention -----------------------------------------------------------------------------------------------

// Offset of a row's cosines and sines.
static size_t rope_at(const Workspace *w, const Layer *l, int row) {
    return ((size_t)l->rope.table * (size_t)w->max_rows + (size_t)row) * (size_t)(w->n_rot / 2);
}

static void turn(const LatentStep *s, float *part, int row) {
    size_t at = rope_at(s->w, s->l, row);
    s->k->rope(part, s->w->rope_cos + at, s->w->rope_sin + at, s->l->rope.n_rot, s->l->rope.adjacent);
}

static void store_row(const LatentStep *s, int row) {
    const Layer *l = s->l;
    const KvPool *kv = s->kv;
    const Batch *b = s->b;
    int dim = l->heads.head_dim, v_dim = heads_v_dim(&l->heads);
    float *k = workspace_k(s->w, l) + (size_t)row * (size_t)s->w->kv_dim;
    s->k->rmsnorm(k, k, l->norm_k, v_dim, l->kind.eps);
    turn(s, k + v_dim, row);
    if (kv_is_sealed(kv->type_k)) return;
    int block = batch_table(b, kv)[(size_t)b->seq[row] * (size_t)b->max_blocks + (size_t)(b->slot[row] / kv->block)];
    size_t slot = kv_slot(kv, l->kv_layer, block, 0, b->slot[row] % kv->block);
    s->k->to_kv(kv->k + slot * (size_t)dim * kv_type_bytes(kv->type_k), kv->type_k, k, dim);
}

// Stores a row's K in its slot. Copies the part of Q with RoPE to w->q, and the other part, ordered by head, to
// latent[0].
static void split_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    LatentStep *s = arg;
    const Layer *l = s->l;
    size_t plain = (size_t)plain_dim(l), whole = (size_t)query_dim(l), n_heads = (size_t)l->heads.n_heads;
    size_t dim = (size_t)l->heads.head_dim, v_dim = (size_t)heads_v_dim(&l->heads), n_rot = whole - plain;
    for (int i = first; i < last; i++) {
        float temperature = rope_temperature(&l->rope, s->b->pos[i]);
        for (size_t head = 0; head < n_heads; head++) {
            float *from = s->w->latent[1] + ((size_t)i * n_heads + head) * whole;
            float *to = s->w->q + (size_t)i * (size_t)s->w->q_dim + head * dim + v_dim;
            for (size_t k = 0; temperature != 1 && k < whole; k++) from[k] *= temperature;
            turn(s, from + plain, i);
            memcpy(to, from + plain, n_rot * sizeof *to);
            memcpy(s->w->latent[0] + (head * (size_t)s->b->n_rows + (size_t)i) * plain, from, plain * sizeof *from);
        }
        store_row(s, i);
    }
}

// Transposes parts of n elements from (head, row) to (row, head): rows are w->q_dim apart, heads head_dim.
static void gather_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    LatentStep *s = arg;
    size_t n = (size_t)s->n, n_rows = (size_t)s->b->n_rows, dim = (size_t)s->l->heads.head_dim;
    for (size_t i = (size_t)first; i < (size_t)last; i++)
        for (size_t head = 0; head < (size_t)s->l->heads.n_heads; head++)
            memcpy(s->w->q + i * (size_t)s->w->q_dim + head * dim, s->from + (head * n_rows + i) * n,
                   n * sizeof *s->from);
}

static void norm_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    LatentStep *s = arg;
    for (int i = first; i < last; i++) {
        float *x = s->w->latent[0] + (size_t)i * (size_t)s->n;
        s->k->rmsnorm(x, x, s->l->norm_q_a, s->n, s->l->kind.eps);
    }
}

void latent_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    const CpuKernels *k = cpu_kernels_of(l->be);
    LatentStep s = {.k = k, .w = w, .l = l, .kv = kv, .b = b};
    bool direct = !l->q_a.data;
    size_t all = (size_t)l->wq.n_out;
    MatmulJob jobs[] = {
        {.w = direct ? &l->wq : &l->q_a, .y = w->latent[direct], .y_stride = direct ? all : (size_t)l->q_a.n_out},
        {.w = &l->wk, .y = workspace_k(w, l), .y_stride = (size_t)w->kv_dim}};
    matmul_run(k, w, jobs, 2, matmul_normed_rows(w, l->norm_att, l->kind.eps, b));
    if (!direct) {
        MatmulJob job = {.w = &l->wq, .y = w->latent[1], .y_stride = all};
        s.n = l->q_a.n_out;
        tasks_over_rows(w, b->n_rows, s.n, norm_rows, &s);
        matmul_run(k, w, &job, 1, matmul_rows(w->latent[0], s.n, b));
    }
    tasks_over_rows(w, b->n_rows, 2.0 * (double)all, split_rows, &s);
    run_heads(w, l, &l->k_b, b);
    s.from = w->latent[1];
    s.n = l->k_b.n_out;
    tasks_over_rows(w, b->n_rows, (double)l->heads.n_heads * s.n, gather_rows, &s);
}

// ---- after attention ------------------------------------------------------------------------------------------------

// Transposes the outputs of attention from rows w->q_dim apart to (head, row).
static void by_head(void *arg, int first, int last, int thread) {
    (void)thread;
    LatentStep *s = arg;
    size_t n = (size_t)heads_v_dim(&s->l->heads), n_rows = (size_t)s->b->n_rows;
    for (size_t i = (size_t)first; i < (size_t)last; i++)
        for (size_t head = 0; head < (size_t)s->l->heads.n_heads; head++)
            memcpy(s->w->latent[0] + (head * n_rows + i) * n, s->w->a + i * (size_t)s->w->q_dim + head * n,
                   n * sizeof *s->w->a);
}

// Transposes the products with v_b back to (row, head).
static void by_row(void *arg, int first, int last, int thread) {
    (void)thread;
    LatentStep *s = arg;
    size_t n = (size_t)s->l->v_b.n_out, n_rows = (size_t)s->b->n_rows, n_heads = (size_t)s->l->heads.n_heads;
    for (size_t i = (size_t)first; i < (size_t)last; i++)
        for (size_t head = 0; head < n_heads; head++)
            memcpy(s->w->latent[0] + (i * n_heads + head) * n, s->w->latent[1] + (head * n_rows + i) * n,
                   n * sizeof *s->w->a);
}

MatmulRows latent_out(Workspace *w, const Layer *l, const Batch *b) {
    LatentStep s = {.w = w, .l = l, .b = b};
    double work = (double)l->heads.n_heads * heads_v_dim(&l->heads);
    tasks_over_rows(w, b->n_rows, work, by_head, &s);
    run_heads(w, l, &l->v_b, b);
    tasks_over_rows(w, b->n_rows, work, by_row, &s);
    return matmul_rows(w->latent[0], l->heads.n_heads * l->v_b.n_out, b);
}
