// cpu/latent_expand.c: see cpu/latent_expand.h.
#include "cpu/latent_expand.h"

#include "cpu/attention.h"
#include "cpu/matmul.h"
#include "cpu/row_heads.h"
#include "cpu/tasks.h"
#include "formats/types.h"
#include "latent_sizes.h"

#include <assert.h>
#include <string.h>

enum {
    MOST_SLOTS = 1024, // slots of a piece, at most
    LEAST_SLOTS = 16,  // with room for fewer slots the absorbed form is used
    MOST_PAIRS = 256,  // rows that an attention kernel takes at once, at most
};

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const KvPool *kv;
    const Batch *b;
    const int *table;
    LatentSizes size;
    int from, n;     // the slots of the piece: [from, from + n)
    int first_row;   // the first row that sees them
    KvPool expanded; // (n_heads, n, query) K and (n_heads, n, v) V of the piece, f32
    Heads heads;     // of the expanded form
    AttendKernel attend;
    float *matrix;  // (n_heads * plain, rank) k_b transposed
    float *vectors; // (n, rank) the latent vectors of the piece
    float *product; // (n, n_heads * plain or v) before it is ordered by head
} Expansion;

static LatentSizes sizes_of(const Layer *l) {
    int plain = l->k_b.n_in, rot = l->rope.n_rot;
    return (LatentSizes){plain, rot, plain + rot, l->v_b.n_out, heads_v_dim(&l->heads), l->heads.n_heads};
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static size_t matrix_floats(const LatentSizes *s) { return (size_t)s->n_heads * (size_t)(s->plain * s->rank); }

static size_t product_floats(const LatentSizes *s) { return (size_t)s->n_heads * (size_t)int_max(s->plain, s->v); }

// The most slots of a piece for which latent[1] holds K and V, and latent[0] the other arrays.
static int piece_slots(const Workspace *w, const LatentSizes *s) {
    size_t all = (size_t)w->max_rows * (size_t)w->latent_dim, fixed = matrix_floats(s);
    size_t both = (size_t)s->n_heads * (size_t)(s->query + s->v), others = product_floats(s) + (size_t)s->rank;
    if (fixed >= all) return 0;
    size_t n = all / both < (all - fixed) / others ? all / both : (all - fixed) / others;
    return int_min(int_min((int)n, w->max_rows), MOST_SLOTS);
}

// ---- the choice -----------------------------------------------------------------------------------------------------

static const AttendKernel *kernel_of(const Layer *l) {
    const AttendKernel *a = attention_kernel(l);
    return a->gives_lse ? a : &cpu_kernels_of(l->be)->attend;
}

static bool possible(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const LatentSizes *s) {
    bool plain_rows = !kv->tail_of && !b->probe && !b->watch && !l->heads.window && !l->sinks;
    // A row of w->a has room for: the output, the output of one piece, and for each head the logarithm of the weights
    // of both.
    bool fits = s->query <= SEAL_HEAD && s->v <= SEAL_HEAD && 2 * s->n_heads * (s->v + 1) <= w->q_dim;
    const CpuKernels *k = cpu_kernels_of(l->be); // scalar kernels have no panels and do not expand
    const AttendKernel *a = kernel_of(l);
    return plain_rows && fits && k->f32_panels && !k->in_order && a->gives_lse && a->pairs <= MOST_PAIRS &&
           piece_slots(w, s) >= LEAST_SLOTS;
}

bool latent_expand_pays(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r) {
    LatentSizes s = sizes_of(l);
    int last = b->slot[r->first + r->n - 1];
    double seen = 0;
    if (r->n < 2 || !possible(w, l, kv, b, &s)) return false;
    for (int i = 0; i < r->n; i++) seen += b->slot[r->first + i] + 1;
    return latent_sizes_expand(&s, seen, r->n, last + 1);
}

// ---- expansion ------------------------------------------------------------------------------------------------------

// matrix = k_b transposed; a task is a head.
static void transpose_head(void *arg, int head, int thread) {
    (void)thread;
    enum { ROWS = 16 }; // rows transposed together, so that each write is 64 bytes
    const Expansion *e = arg;
    const LatentSizes *s = &e->size;
    Tensor k_b = tensor_of_stack(&e->l->k_b, head);
    float rows[ROWS * SEAL_HEAD], *to = e->matrix + (size_t)head * (size_t)(s->plain * s->rank);
    for (int first = 0, n; first < s->rank; first += n) {
        n = int_min(ROWS, s->rank - first);
        for (int i = 0; i < n; i++) e->k->embed(&k_b, first + i, rows + i * s->plain);
        for (int j = 0; j < s->plain; j++)
            for (int i = 0; i < n; i++) to[j * s->rank + first + i] = rows[i * s->plain + j];
    }
}

static float *key_at(const Expansion *e, int head, int i) {
    return (float *)(void *)e->expanded.k + ((size_t)head * (size_t)e->n + (size_t)i) * (size_t)e->size.query;
}

// Reads slots of the piece: latent vectors, and the part of K with RoPE, which all heads have.
static void read_slots(void *arg, int first, int last, int thread) {
    (void)thread;
    const Expansion *e = arg;
    const LatentSizes *s = &e->size;
    const KvPool *kv = e->kv;
    const TypeInfo *type = type_info(kv->type_k);
    float row[SEAL_HEAD];
    for (int i = first; i < last; i++) {
        int slot = e->from + i, block = e->table[slot / kv->block];
        size_t at = kv_index(kv, e->l->kv_layer, block, 0, slot % kv->block);
        type->dequantize(kv->k + at * kv_type_bytes(kv->type_k), row, (size_t)kv->head_dim);
        memcpy(e->vectors + (size_t)i * (size_t)s->rank, row, (size_t)s->rank * sizeof *row);
        for (int head = 0; head < s->n_heads; head++)
            memcpy(key_at(e, head, i) + s->plain, row + s->rank, (size_t)s->rot * sizeof *row);
    }
}

// Copies the heads of the product, n elements each, to the beginning of those of `to` (n_heads, slots, width).
static void order(const Expansion *e, int n, int width, float *to) {
    HeadRows from = {e->product, (size_t)e->size.n_heads * (size_t)n, (size_t)n};
    row_heads_regroup(e->w, e->n, e->size.n_heads, n, from,
                      (HeadRows){to, (size_t)width, (size_t)e->n * (size_t)width});
}

// product = the matrix of each head times the latent vectors
static void multiply(Expansion *e, const Tensor *stack) {
    const LatentSizes *s = &e->size;
    assert(stack->stack_rows == 0 || stack->stack_rows == stack->n_out);
    size_t width = (size_t)s->n_heads * (size_t)stack->n_out;
    MatmulRows rows = {.x = e->vectors, .stride = (size_t)s->rank, .n = e->n};
    Tensor all = *stack; // the matrices of all heads, one after another
    all.n_out *= s->n_heads;
    all.stack = 0;
    MatmulJob job = {.w = &all, .y = e->product, .y_stride = width};
    matmul_run(e->k, e->w, &job, 1, rows);
}

static void expand_piece(Expansion *e) {
    const LatentSizes *s = &e->size;
    Tensor keys = {.data = e->matrix,
                   .type = TYPE_F32,
                   .n_out = s->plain,
                   .n_in = s->rank,
                   .stack = s->n_heads,
                   .row_bytes = (size_t)s->rank * sizeof(float)};
    size_t width = (size_t)s->n_heads * (size_t)e->n;
    e->expanded = (KvPool){.n_layers = 1,
                           .n_blocks = 1,
                           .n_kv_heads = s->n_heads,
                           .block = e->n,
                           .head_dim = s->query,
                           .v_dim = s->v,
                           .type_k = TYPE_F32,
                           .type_v = TYPE_F32,
                           .k = (uint8_t *)e->w->latent[1],
                           .v = (uint8_t *)(e->w->latent[1] + width * (size_t)s->query)};
    tasks_over_rows(e->w, e->n, 4.0 * s->rank, read_slots, e);
    multiply(e, &keys);
    order(e, s->plain, s->query, key_at(e, 0, 0));
    multiply(e, &e->l->v_b);
    order(e, s->v, s->v, (float *)(void *)e->expanded.v);
}

// ---- attention ------------------------------------------------------------------------------------------------------

// A row of w->a: the output (n_heads, v), the output of one piece, then the logarithms of the weights of both
// (n_heads).
static size_t lse_at(const LatentSizes *s, bool piece) {
    return (size_t)s->n_heads * (size_t)(2 * s->v + (piece ? 1 : 0));
}

// Combines the output of a piece with that of earlier ones.
static void merge_piece(const LatentSizes *s, float *row, int head) {
    float *lse = row + lse_at(s, false) + head, more = row[lse_at(s, true) + (size_t)head];
    float max = fmaxf(*lse, more), a = expf(*lse - max), b = expf(more - max), sum = a + b;
    float *out = row + head * s->v;
    const float *part = out + s->n_heads * s->v;
    for (int i = 0; i < s->v; i++) out[i] = (a * out[i] + b * part[i]) / sum;
    *lse = max + logf(sum);
}

static int chunks_of(const Expansion *e) { return (e->b->n_rows - e->first_row - 1) / e->attend.pairs + 1; }

// A task is a head and some rows, the last rows first.
static void attend_task(void *arg, int task, int thread) {
    const Expansion *e = arg;
    const Workspace *w = e->w;
    const LatentSizes *s = &e->size;
    static const int table[1] = {0};
    int slot[MOST_PAIRS], n_chunks = chunks_of(e), head = task % s->n_heads;
    int first = e->first_row + (n_chunks - 1 - task / s->n_heads) * e->attend.pairs;
    int n = int_min(e->attend.pairs, e->b->n_rows - first);
    bool later = e->from > 0;
    for (int i = 0; i < n; i++) slot[i] = int_min(e->b->slot[first + i] - e->from, e->n - 1);
    float *rows = w->a + (size_t)first * (size_t)w->q_dim;
    AttendTask t = {.heads = &e->heads,
                    .kv = &e->expanded,
                    .table = table,
                    .slot = slot,
                    .q = w->q + (size_t)first * (size_t)w->q_dim,
                    .out = rows + (later ? s->n_heads * s->v : 0),
                    .stride = (size_t)w->q_dim,
                    .kv_head = head,
                    .last = n,
                    .lse = rows + lse_at(s, later),
                    .scratch = tasks_scratch(w, thread)};
    e->attend.run(&t);
    for (int i = 0; later && i < n; i++) merge_piece(s, rows + (size_t)i * (size_t)w->q_dim, head);
}

void latent_expand_attend(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const SequenceRows *r) {
    Expansion e = {.k = cpu_kernels_of(l->be), .w = w, .l = l, .kv = kv, .b = b, .table = r->table};
    const LatentSizes *s = &e.size;
    e.size = sizes_of(l);
    e.heads = (Heads){.n_heads = s->n_heads,
                      .n_kv_heads = s->n_heads,
                      .head_dim = s->query,
                      .v_dim = s->v,
                      .scale = l->heads.scale,
                      .softcap = l->heads.softcap};
    e.attend = *kernel_of(l);
    e.matrix = w->latent[0];
    int piece = piece_slots(w, s), n_slots = b->slot[b->n_rows - 1] + 1;
    e.vectors = e.matrix + matrix_floats(s);
    e.product = e.vectors + (size_t)piece * (size_t)s->rank;
    threads_run(w->pool, transpose_head, &e, s->n_heads);
    for (e.from = 0; e.from < n_slots; e.from += e.n) {
        e.n = int_min(piece, n_slots - e.from);
        while (b->slot[e.first_row] < e.from) e.first_row++;
        expand_piece(&e);
        threads_run(w->pool, attend_task, &e, s->n_heads * chunks_of(&e));
    }
}
