// cpu/cpu.c: the CPU backend: the five operations of a layer as plain steps over a thread pool, and the choice of
// kernels.
//
// Every operation cuts its work into tasks (rows, output features, heads); what a task computes comes from the table of
// kernels in Backend.impl. Few rows go through matvec or its integer twin (weights read once, straight from the file's
// blocks); many rows go through a matrix kernel.
#include "cpu/cpu.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const CpuKernels *kernels_of(const Backend *be) { return be->impl; }

// Work smaller than this many multiply-adds a task is not worth waking another core for.
enum { TASK_WORK = 1 << 15, MAX_JOBS = 3 };

static int task_count(const Workspace *w, double work, int most) {
    int by_work = work / TASK_WORK > 1e6 ? 1000000 : (int)(work / TASK_WORK);
    return int_max(1, int_min(int_min(by_work, most), 8 * threads_count(w->pool)));
}

static void *thread_scratch(const Workspace *w, int thread) { return w->panels + (size_t)thread * w->panel_bytes; }

// ---- steps over rows ------------------------------------------------------------------------------------------------

// Runs a step on ranges of rows: step(arg, first, last, thread).
typedef struct {
    void (*step)(void *arg, int first, int last, int thread);
    void *arg;
    int n_rows, n_tasks;
} RowRun;

static void row_task(void *arg, int task, int thread) {
    RowRun *r = arg;
    int first = (int)((int64_t)r->n_rows * task / r->n_tasks),
        last = (int)((int64_t)r->n_rows * (task + 1) / r->n_tasks);
    r->step(r->arg, first, last, thread);
}

static void over_rows(Workspace *w, int n_rows, double work_per_row, void (*step)(void *, int, int, int), void *arg) {
    RowRun r = {step, arg, n_rows, task_count(w, work_per_row * n_rows, n_rows)};
    threads_run(w->pool, row_task, &r, r.n_tasks);
}

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const Ends *ends;
    const KvPool *kv;
    const Batch *b;
    const float *norm;
    const int *rows; // NULL: all
    float eps;
    GateRow *gate;
} Step;

static void norm_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    Step *s = arg;
    size_t dim = (size_t)s->w->dim;
    for (int i = first; i < last; i++) {
        size_t row = (size_t)(s->rows ? s->rows[i] : i);
        s->k->rmsnorm(s->w->xn + (size_t)i * dim, s->w->x + row * dim, s->norm, s->w->dim, s->eps);
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// y (+)= W x for one matrix; up to MAX_JOBS that share x run together. With a gate y is act(gate x) * (W x), packed.
typedef struct {
    const Tensor *w;
    float *y;
    size_t y_stride;
    bool add;
    const Tensor *gate;
    Activation act;
} Job;

// The rows of activations that a product takes.
typedef struct {
    const float *x;
    size_t stride;
    int n;
    const void *packed; // where they are packed already, otherwise NULL
    const float *norm;  // the product is of their RMSNorm with these weights, otherwise NULL
    float eps;
    bool decodes; // batch_decodes of their batch
} Rows;

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Job *jobs;
    int n_jobs;
    Rows rows;
    int n_in;
    int step[MAX_JOBS];                   // features of a task of each job; 0: ever fewer
    int first_task[MAX_JOBS + 1];         // among those of one block of rows
    int block;                            // rows of a task
    const MatrixKernel *matrix[MAX_JOBS]; // NULL: matvec
    const void *packed[MAX_JOBS];
    // while packing
    const MatrixKernel *packer;
    void *pack_to;
} Product;

// Where the features of a job's task begin. Tasks that get smaller towards the end leave no thread waiting for
// another's last one, and are long streams of weights nevertheless.
static int first_feature(const Product *p, int j, int task) {
    int n_out = p->jobs[j].w->n_out, n = p->first_task[j + 1] - p->first_task[j], left = n - task;
    if (p->step[j]) return int_min(task * p->step[j], n_out);
    if (left == 0) return n_out;
    return (int)(n_out - (int64_t)n_out * left * (left + 1) / (n * (n + 1))) / 16 * 16;
}

// All tasks of a block of rows come before those of the next: its packed rows stay in the cache.
static void product_task(void *arg, int task, int thread) {
    Product *p = arg;
    int first_row = task / p->first_task[p->n_jobs] * p->block, n_rows = int_min(p->block, p->rows.n - first_row);
    task %= p->first_task[p->n_jobs];
    int j = 0;
    while (task >= p->first_task[j + 1]) j++;
    const Job *job = &p->jobs[j];
    int first = first_feature(p, j, task - p->first_task[j]), last = first_feature(p, j, task - p->first_task[j] + 1);
    if (first == last) return;
    void *scratch = thread_scratch(p->w, thread);
    if (job->gate)
        p->matrix[j]->run_glu(job->gate, job->w, job->act, first, last, p->packed[j], first_row, n_rows, job->y,
                              scratch);
    else if (p->matrix[j])
        p->matrix[j]->run(job->w, first, last, p->packed[j], first_row, n_rows, job->y, job->y_stride, job->add,
                          scratch);
    else
        p->k->matvec(job->w, first, last, p->rows.x + (size_t)first_row * p->rows.stride, p->rows.stride, n_rows,
                     job->y + (size_t)first_row * job->y_stride, job->y_stride, job->add, scratch);
}

static void pack_task(void *arg, int task, int thread) {
    (void)thread;
    Product *p = arg;
    const Rows *r = &p->rows;
    int first = task * p->packer->tile, n = int_min(p->packer->tile, r->n - first);
    const float *x = r->x + (size_t)first * r->stride;
    if (r->norm) p->packer->pack_norm(p->pack_to, task, x, r->stride, n, p->n_in, r->norm, r->eps);
    else p->packer->pack(p->pack_to, task, x, r->stride, n, p->n_in);
}

// How far integers pay. Without a matrix unit f32 panels cost as much for one row as for a tile of 16 or 32. With one,
// bytes are multiplied where they lie and cost as much again for each 16 rows; unpacking to bf16 costs more, but once.
// That is for decoding: short prompts keep bf16, with which a model's perplexity stays within 0.1% of the reference.
enum { FEW_ROWS = 32, SEVERAL_ROWS = 48 };

// The best kernel for so many rows; NULL: matvec. Where the order of sums may not depend on their number, one for all.
static const MatrixKernel *matrix_for(const CpuKernels *k, const Tensor *t, int n_rows, bool decodes) {
    const MatrixKernel *many = k->matrix_of ? k->matrix_of(t->type) : NULL,
                       *several = k->several_of ? k->several_of(t->type) : NULL,
                       *few = k->few_of ? k->few_of(t->type) : NULL;
    if (several && decodes && !k->in_order && n_rows >= several->min_rows && n_rows <= SEVERAL_ROWS) return several;
    if (many && (k->in_order || n_rows >= many->min_rows)) return many;
    if (few && (k->in_order || n_rows <= FEW_ROWS)) return few;
    return k->matrix && (k->in_order || n_rows >= k->matrix->min_rows) ? k->matrix : NULL;
}

// Packs the rows once for each kind of matrix kernel that the jobs need.
static void pack_rows(Product *p) {
    uint8_t *at = p->w->packed;
    for (int j = 0; j < p->n_jobs; j++) {
        if (!p->matrix[j]) continue;
        for (int i = 0; i < j; i++)
            if (p->matrix[i] && p->matrix[i]->pack == p->matrix[j]->pack) p->packed[j] = p->packed[i];
        if (p->packed[j]) continue;
        p->packed[j] = p->pack_to = at;
        p->packer = p->matrix[j];
        at += round_up(p->packer->packed_bytes(p->rows.n, p->n_in), 128);
        threads_run(p->w->pool, pack_task, p, (p->rows.n + p->packer->tile - 1) / p->packer->tile);
    }
}

// Puts the norm of the rows into w->xn, unless all that the jobs need of it is packed.
static void norm_first(Product *p) {
    bool packs = true;
    for (int j = 0; j < p->n_jobs; j++) packs = packs && p->matrix[j] && p->matrix[j]->pack_norm;
    if (!p->rows.norm || packs) return;
    Step s = {.k = p->k, .w = p->w, .norm = p->rows.norm, .eps = p->rows.eps};
    over_rows(p->w, p->rows.n, p->n_in, norm_rows, &s);
    p->rows = (Rows){.x = p->w->xn, .stride = (size_t)p->w->dim, .n = p->rows.n, .decodes = p->rows.decodes};
}

// Features of a task: as many as the kernel takes, since its rows are read again for each, but two tasks for a thread.
static int task_features(const Product *p, const MatrixKernel *m, const Job *job) {
    int most = job->gate ? m->features / 2 : m->features, n_blocks = (p->rows.n + p->block - 1) / p->block;
    int64_t all = 0;
    for (int j = 0; j < p->n_jobs; j++) all += p->jobs[j].w->n_out;
    int64_t share = all * n_blocks / (2 * threads_count(p->w->pool)) / m->least * m->least;
    return (int)(share < m->least ? m->least : share < most ? share : most);
}

static void multiply(const CpuKernels *k, Workspace *w, const Job *jobs, int n_jobs, Rows rows) {
    Product p = {
        .k = k, .w = w, .jobs = jobs, .n_jobs = n_jobs, .rows = rows, .n_in = jobs[0].w->n_in, .block = rows.n};
    for (int j = 0; j < n_jobs; j++) {
        const Tensor *t = jobs[j].w;
        p.matrix[j] = matrix_for(k, t, rows.n, rows.decodes);
        p.packed[j] = rows.packed;
        if (p.matrix[j]) p.block = int_min(p.block, p.matrix[j]->rows);
        if (p.matrix[j] && p.matrix[j]->features) {
            p.step[j] = task_features(&p, p.matrix[j], &jobs[j]);
        } else {
            int tasks = task_count(w, (double)t->n_out * t->n_in * rows.n, (t->n_out + 15) / 16);
            if (j < n_jobs - 1) p.step[j] = (int)round_up((size_t)(t->n_out + tasks - 1) / (size_t)tasks, 16);
            else p.first_task[n_jobs] = p.first_task[j] + tasks;
        }
        if (p.step[j]) p.first_task[j + 1] = p.first_task[j] + (t->n_out + p.step[j] - 1) / p.step[j];
    }
    norm_first(&p);
    pack_rows(&p);
    int n_tasks = p.first_task[n_jobs] * ((rows.n + p.block - 1) / p.block);
    double work = 0;
    for (int j = 0; j < n_jobs; j++) work += (double)jobs[j].w->n_out * p.n_in * rows.n;
    if (work < 2 * TASK_WORK) // together too little for a second core
        for (int i = 0; i < n_tasks; i++) product_task(&p, i, 0);
    else threads_run(w->pool, product_task, &p, n_tasks);
}

static Rows plain_rows(const float *x, int stride, const Batch *b) {
    return (Rows){.x = x, .stride = (size_t)stride, .n = b->n_rows, .decodes = batch_decodes(b)};
}

static Rows normed(const Workspace *w, const float *norm, float eps, const Batch *b) {
    Rows r = plain_rows(w->x, w->dim, b);
    r.norm = norm;
    r.eps = eps;
    return r;
}

// ---- the operations -------------------------------------------------------------------------------------------------

static void copy_tail(KvPool *kv, int layer, const int copy[2]) {
    int from = kv->tail_of ? kv->tail_of[copy[0]] : -1, to = kv->tail_of ? kv->tail_of[copy[1]] : -1;
    size_t n = (size_t)kv->n_kv_heads * SEAL * (size_t)kv->head_dim * sizeof(float);
    if (from < 0 || to < 0) return;
    size_t src = kv_tail_index(kv, layer, from, 0, 0), dst = kv_tail_index(kv, layer, to, 0, 0);
    if (kv->tail_k) memcpy(kv->tail_k + dst, kv->tail_k + src, n);
    if (kv->tail_v) memcpy(kv->tail_v + dst, kv->tail_v + src, n);
}

static void op_copy_blocks(Workspace *w, KvPool *kv, const Batch *b) {
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
            memcpy(kv->v + dst * v, kv->v + src * v, v);
            copy_tail(kv, layer, copy[i]);
        }
}

// ---- rows as a file has them ----

size_t kv_rows_bytes(const KvPool *kv, int n) {
    size_t k = kv_moved_bytes(kv->type_k, kv->head_dim, (size_t)n);
    size_t v = kv_moved_bytes(kv->type_v, kv->head_dim, (size_t)n);
    return (k + v) * (size_t)kv->n_kv_heads;
}

// The rows of slots [first, first + n) from the planes to where they lie in order, or back into the planes.
static void move_rows(const KvPool *kv, int layer, const int *blocks, int first, int n, uint8_t *rows, bool store) {
    if (layer >= kv->n_layers - kv->n_device) {
        kv->be->memory->kv_move(kv, layer, blocks, first, n, rows, store);
        return;
    }
    for (int v = 0; v < 2; v++) {
        int type = v ? kv->type_v : kv->type_k, whole = first + (int)kv_whole_slots(type, (size_t)n);
        float *tail = v ? kv->tail_v : kv->tail_k;
        size_t sealed_bytes = kv_slot_bytes(type, kv->head_dim), open_bytes = kv_slot_bytes(TYPE_F32, kv->head_dim);
        assert(!kv_is_sealed(type) || first % SEAL == 0);
        for (int slot = first; slot < first + n; slot++) {
            int block = blocks[slot / kv->block], page = slot < whole ? -1 : kv_tail(kv, blocks, slot);
            size_t size = slot < whole ? sealed_bytes : open_bytes;
            for (int head = 0; head < kv->n_kv_heads; head++, rows += size) {
                uint8_t *stored = slot < whole
                                      ? (v ? kv->v : kv->k) + kv_slot(kv, layer, block, head, slot % kv->block) * size
                                      : (uint8_t *)(tail + kv_tail_index(kv, layer, page, head, slot % SEAL));
                memcpy(store ? stored : rows, store ? rows : stored, size);
            }
        }
    }
}

void kv_read_rows(const KvPool *kv, int layer, const int *blocks, int first, int n, void *out) {
    move_rows(kv, layer, blocks, first, n, out, false);
}

void kv_write_rows(KvPool *kv, int layer, const int *blocks, int first, int n, const void *rows) {
    move_rows(kv, layer, blocks, first, n, (uint8_t *)rows, true);
}

Status kv_intact(const KvPool kv[KV_KINDS]) {
    const char *why = NULL;
    for (int kind = 0; kind < KV_KINDS && !why; kind++)
        if (kv[kind].n_device > 0) why = kv[kind].be->memory->failure();
    return why ? status_error(QUILL_MODEL, "the GPU failed: %s; its KV is not kept", why) : OK;
}

void rope_turn(const Rope *r, float *head, double positions) {
    for (int i = 0; i < r->n_rot / 2; i++) {
        double angle = positions * r->freq[i], c = cos(angle), s = sin(angle);
        float *a = &head[r->adjacent ? 2 * i : i], *b = &head[r->adjacent ? 2 * i + 1 : i + r->n_rot / 2];
        double x = (double)*a, y = (double)*b;
        *a = (float)(x * c - y * s);
        *b = (float)(x * s + y * c);
    }
}

// Where a row's cosines and sines of a table begin.
static size_t turn_at(const Workspace *w, const Rope *r, int row) {
    return ((size_t)r->table * (size_t)w->max_rows + (size_t)row) * (size_t)(w->n_rot / 2);
}

static void find_turns(Workspace *w, const Rope *r, int row, int pos) {
    float *c = w->rope_cos + turn_at(w, r, row), *s = w->rope_sin + turn_at(w, r, row);
    for (int i = 0; i < r->n_rot / 2; i++) {
        double angle = pos * r->freq[i];
        c[i] = (float)cos(angle) * r->mscale;
        s[i] = (float)sin(angle) * r->mscale;
    }
}

static void embed_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    Step *s = arg;
    Workspace *w = s->w;
    for (int i = first; i < last; i++) {
        float *x = w->x + (size_t)i * (size_t)w->dim;
        s->k->embed(&s->ends->tok_embd, s->b->token[i], x);
        if (s->ends->embd_scale != 1)
            for (int k = 0; k < w->dim; k++) x[k] *= s->ends->embd_scale;
        for (int r = 0; r < s->ends->n_ropes; r++) find_turns(w, &s->ends->ropes[r], i, s->b->pos[i]);
    }
}

static void op_embed(Workspace *w, const Backend *be, const Ends *e, const KvPool *kv, const Batch *b) {
    (void)kv;
    Step s = {.k = kernels_of(be), .w = w, .ends = e, .b = b};
    over_rows(w, b->n_rows, w->dim + 20.0 * e->n_ropes * w->n_rot, embed_rows, &s);
}

static void op_narrow(Workspace *w, const int *rows, const Batch *b) {
    size_t dim = (size_t)w->dim, q_dim = (size_t)w->q_dim, half = (size_t)w->n_rot / 2;
    for (int i = 0; i < b->n_rows; i++) { // none moves over one that is still to be moved
        size_t row = (size_t)rows[i], to = (size_t)i;
        if (row == to) continue;
        memcpy(w->x + to * dim, w->x + row * dim, dim * sizeof *w->x);
        memcpy(w->q + to * q_dim, w->q + row * q_dim, q_dim * sizeof *w->q);
        for (int r = 0; r < w->n_ropes; r++) {
            size_t table = (size_t)r * (size_t)w->max_rows;
            memcpy(w->rope_cos + (table + to) * half, w->rope_cos + (table + row) * half, half * sizeof *w->rope_cos);
            memcpy(w->rope_sin + (table + to) * half, w->rope_sin + (table + row) * half, half * sizeof *w->rope_sin);
        }
    }
}

// QK-norm, RoPE and the store of K and V, row by row.
static void turn_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    Step *s = arg;
    Workspace *w = s->w;
    const Layer *l = s->l;
    const Heads *h = &l->heads;
    const Batch *b = s->b;
    const KvPool *kv = s->kv;
    size_t hd = (size_t)h->head_dim;
    for (int i = first; i < last; i++) {
        const float *c = w->rope_cos + turn_at(w, &l->rope, i), *sn = w->rope_sin + turn_at(w, &l->rope, i);
        for (int n = 0; n < h->n_heads; n++) {
            float *q = w->q + (size_t)i * (size_t)w->q_dim + (size_t)n * hd;
            if (l->norm_q) s->k->rmsnorm(q, q, l->norm_q, h->head_dim, l->kind.eps);
            s->k->rope(q, c, sn, l->rope.n_rot, l->rope.adjacent);
            if (kv->rotate) hadamard(q, h->head_dim);
        }
        int block = batch_table(b, kv)[(size_t)b->seq[i] * (size_t)b->max_blocks + (size_t)(b->slot[i] / kv->block)];
        for (int n = 0; n < h->n_kv_heads; n++) {
            float *k = w->k + (size_t)i * (size_t)w->kv_dim + (size_t)n * hd;
            float *v = w->v + (size_t)i * (size_t)w->kv_dim + (size_t)n * hd;
            if (l->norm_k) s->k->rmsnorm(k, k, l->norm_k, h->head_dim, l->kind.eps);
            s->k->rope(k, c, sn, l->rope.n_rot, l->rope.adjacent);
            if (kv->rotate) hadamard(k, h->head_dim);
            size_t at = kv_index(kv, l->kv_layer, block, n, b->slot[i] % kv->block);
            if (!kv_is_sealed(kv->type_k))
                s->k->to_kv(kv->k + at * kv_type_bytes(kv->type_k), kv->type_k, k, h->head_dim);
            if (!kv_is_sealed(kv->type_v))
                s->k->to_kv(kv->v + at * kv_type_bytes(kv->type_v), kv->type_v, v, h->head_dim);
        }
    }
}

// ---- rows of a sequence ---------------------------------------------------------------------------------------------

// The rows of one sequence in a batch.
typedef struct {
    const int *table;
    int first, n; // rows
    int slot;     // of the first
} Run;

// The run that begins at row `first`.
static Run run_at(const Batch *b, const KvPool *kv, int first) {
    Run r = {batch_table(b, kv) + (size_t)b->seq[first] * (size_t)b->max_blocks, first, 1, b->slot[first]};
    while (first + r.n < b->n_rows && b->seq[first + r.n] == b->seq[first]) r.n++;
    return r;
}

static AttendTask task_of(const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, const Run *r) {
    return (AttendTask){.heads = &l->heads,
                        .kv = kv,
                        .table = r->table,
                        .slot = b->slot + r->first,
                        .q = w->q + (size_t)r->first * (size_t)w->q_dim,
                        .out = w->a + (size_t)r->first * (size_t)w->q_dim,
                        .layer = l->kv_layer,
                        .k = w->k + (size_t)r->first * (size_t)w->kv_dim,
                        .v = w->v + (size_t)r->first * (size_t)w->kv_dim,
                        .first_slot = r->slot,
                        .page = r->slot % SEAL ? kv_tail(kv, r->table, r->slot) : -1};
}

// Seals the groups of a run whose last slot is among its rows.
static void seal_run(const AttendTask *t, bool value, int last_slot) {
    const KvPool *kv = t->kv;
    int type = value ? kv->type_v : kv->type_k;
    size_t size = kv_slot_bytes(type, kv->head_dim);
    uint8_t group[SEAL_MOST];
    for (int first = t->first_slot / SEAL * SEAL; first + SEAL - 1 <= last_slot; first += SEAL) {
        const float *rows[SEAL];
        for (int i = 0; i < SEAL; i++) rows[i] = attend_open(t, value, first + i);
        seal_group(type, !value, rows, kv->head_dim, group);
        for (int i = 0; i < SEAL; i++) {
            int slot = first + i, block = t->table[slot / kv->block];
            memcpy((value ? kv->v : kv->k) + kv_slot(kv, t->layer, block, t->kv_head, slot % kv->block) * size,
                   group + (size_t)i * size, size);
        }
    }
}

static void seal_head(void *arg, int head, int thread) {
    (void)thread;
    Step *s = arg;
    for (int row = 0; row < s->b->n_rows;) {
        Run r = run_at(s->b, s->kv, row);
        AttendTask t = task_of(s->w, s->l, s->kv, s->b, &r);
        t.kv_head = head;
        if (kv_is_sealed(s->kv->type_k)) seal_run(&t, false, r.slot + r.n - 1);
        if (kv_is_sealed(s->kv->type_v)) seal_run(&t, true, r.slot + r.n - 1);
        row += r.n;
    }
}

// Keeps a run's rows of the group that stays open behind it.
static void keep_tail(const Workspace *w, int layer, const KvPool *kv, const Run *r) {
    int last = r->slot + r->n - 1, first = int_max(r->slot, last / SEAL * SEAL), hd = kv->head_dim;
    if (last % SEAL == SEAL - 1) return;
    int page = kv_tail(kv, r->table, last);
    for (int slot = first; slot <= last; slot++)
        for (int head = 0; head < kv->n_kv_heads; head++) {
            size_t from = (size_t)(r->first + slot - r->slot) * (size_t)w->kv_dim + (size_t)(head * hd);
            size_t to = kv_tail_index(kv, layer, page, head, slot % SEAL);
            if (kv->tail_k) memcpy(kv->tail_k + to, w->k + from, (size_t)hd * sizeof(float));
            if (kv->tail_v) memcpy(kv->tail_v + to, w->v + from, (size_t)hd * sizeof(float));
        }
}

static void op_attn_in(Workspace *w, const Layer *l, KvPool *kv, const Batch *b) {
    const CpuKernels *k = kernels_of(l->be);
    Step s = {.k = k, .w = w, .l = l, .kv = kv, .b = b};
    Job jobs[] = {{.w = &l->wq, .y = w->q, .y_stride = (size_t)w->q_dim},
                  {.w = &l->wk, .y = w->k, .y_stride = (size_t)w->kv_dim},
                  {.w = &l->wv, .y = w->v, .y_stride = (size_t)w->kv_dim}};
    multiply(k, w, jobs, 3, normed(w, l->norm_att, l->kind.eps, b));
    over_rows(w, b->n_rows, 2.0 * w->q_dim, turn_rows, &s);
    if (kv->tail_of) threads_run(w->pool, seal_head, &s, l->heads.n_kv_heads);
}

// ---- attention ------------------------------------------------------------------------------------------------------

// Rows whose attention is cut into tasks together: a run's, or of sealed planes its rows of one group, since all rows
// of a task see the same slots sealed.
typedef struct {
    Run run;
    int row, n_rows; // of the run
    int first_task, n_chunks;
} Span;

typedef struct {
    AttendKernel attend;
    Workspace *w;
    const Layer *l;
    const KvPool *kv;
    const Batch *b;
    int n_tasks;
    int n_parts; // of a single row's keys
} Attention;

// What was rounded to bf16 loses nothing in a unit that multiplies it; files in F32 are computed in f32.
static AttendKernel attend_of(const Layer *l) {
    const CpuKernels *k = kernels_of(l->be);
    return k->attend_bf16 && k->matrix_of(l->wo.type) ? *k->attend_bf16 : k->attend;
}

// The span that begins at row `row` of the run.
static Span span_at(const Attention *a, Run run, int row, int first_task) {
    Span s = {.run = run, .row = row, .n_rows = run.n - row, .first_task = first_task};
    int group = a->l->heads.n_heads / a->l->heads.n_kv_heads;
    if (a->kv->tail_of) s.n_rows = int_min(s.n_rows, SEAL - (run.slot + row) % SEAL);
    s.n_chunks = (s.n_rows * group + a->attend.pairs - 1) / a->attend.pairs;
    return s;
}

static int span_tasks(const Attention *a, const Span *s) { return s->n_chunks * a->l->heads.n_kv_heads; }

// The spans of a batch one after another; false: that was the last.
static bool next_span(const Attention *a, Span *s) {
    int first_task = s->first_task + span_tasks(a, s), row = s->row + s->n_rows, next_run = s->run.first + s->run.n;
    if (row < s->run.n) *s = span_at(a, s->run, row, first_task);
    else if (next_run < a->b->n_rows) *s = span_at(a, run_at(a->b, a->kv, next_run), 0, first_task);
    else return false;
    return true;
}

// ---- one row's keys in parts ----
// They are a task each where KV heads alone leave threads idle. A part's outputs and lse lie in w->h, which is free.

enum { PART_KEYS = 256 }; // of a part at least

static size_t part_floats(const Workspace *w, const Heads *h) { return (size_t)w->q_dim + (size_t)h->n_heads; }

// How many: tasks for all threads alike.
static int count_parts(const Attention *a) {
    const Heads *h = &a->l->heads;
    const Workspace *w = a->w;
    int threads = threads_count(w->pool), common = threads, rest = h->n_kv_heads;
    if (a->b->n_rows != 1 || !a->attend.in_parts || kernels_of(a->l->be)->in_order) return 1;
    while (rest) {
        int next = common % rest;
        common = rest;
        rest = next;
    }
    int keys = int_min(a->b->slot[0] + 1, h->window ? h->window : INT_MAX);
    size_t room = (size_t)w->max_rows * (size_t)w->ffn / part_floats(w, h);
    return int_max(1, int_min(int_min(threads / common, keys / PART_KEYS), room < INT_MAX ? (int)room : INT_MAX));
}

static void part_task(void *arg, int task, int thread) {
    Attention *a = arg;
    const Heads *h = &a->l->heads;
    Run run = run_at(a->b, a->kv, 0);
    AttendTask t = task_of(a->w, a->l, a->kv, a->b, &run);
    int part = task / h->n_kv_heads, first = attend_first(&t, run.slot);
    int64_t keys = run.slot + 1 - first;
    t.kv_head = task % h->n_kv_heads;
    t.last = h->n_heads / h->n_kv_heads;
    t.from = first + (int)(keys * part / a->n_parts);
    t.end = first + (int)(keys * (part + 1) / a->n_parts);
    t.out = a->w->h + (size_t)part * part_floats(a->w, h);
    t.lse = t.out + a->w->q_dim;
    t.scratch = thread_scratch(a->w, thread);
    a->attend.run(&t);
}

// w->a from what the parts found, each by what it weighs.
static void merge_parts(const Attention *a) {
    const Heads *h = &a->l->heads;
    const Workspace *w = a->w;
    size_t stride = part_floats(w, h), hd = (size_t)h->head_dim;
    memset(w->a, 0, (size_t)w->q_dim * sizeof *w->a);
    for (int head = 0; head < h->n_heads; head++) {
        const float *lse = w->h + w->q_dim + head, *from = w->h + (size_t)head * hd;
        float *to = w->a + (size_t)head * hd, max = -INFINITY, sum = 0;
        for (int part = 0; part < a->n_parts; part++) max = fmaxf(max, lse[(size_t)part * stride]);
        for (int part = 0; part < a->n_parts; part++) sum += expf(lse[(size_t)part * stride] - max);
        for (int part = 0; part < a->n_parts; part++) {
            float weight = expf(lse[(size_t)part * stride] - max) / sum;
            for (size_t i = 0; i < hd; i++) to[i] += weight * from[(size_t)part * stride + i];
        }
    }
}

// ---- rows and heads ----

static void attend_task(void *arg, int task, int thread) {
    Attention *a = arg;
    const Heads *h = &a->l->heads;
    int group = h->n_heads / h->n_kv_heads;
    task = a->n_tasks - 1 - task; // the longest rows come last; hand them out first
    Span s = span_at(a, run_at(a->b, a->kv, 0), 0, 0);
    while (task >= s.first_task + span_tasks(a, &s)) next_span(a, &s);
    int chunk = (task - s.first_task) / h->n_kv_heads, first = s.row * group, last = first + s.n_rows * group;
    AttendTask t = task_of(a->w, a->l, a->kv, a->b, &s.run);
    t.kv_head = (task - s.first_task) % h->n_kv_heads;
    t.first = first + chunk * a->attend.pairs;
    t.last = int_min(t.first + a->attend.pairs, last);
    t.scratch = thread_scratch(a->w, thread);
    a->attend.run(&t);
}

// ---- what queries looked at -----------------------------------------------------------------------------------------

static float dot(const float *a, const float *b, int n) { // eight sums: the compiler makes vectors of them
    float s[8] = {0}, rest = 0;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += a[i + k] * b[i + k];
    for (; i < n; i++) rest += a[i] * b[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])) + rest;
}

// Adds the softmax weights of one row and head to `mass`; K is read again, since attention keeps no scores.
static void add_mass(const AttendTask *t, int pair, float *scores, float *mass) {
    const KvPool *kv = t->kv;
    int slot = t->slot[pair / (t->heads->n_heads / t->heads->n_kv_heads)], first = attend_first(t, slot);
    const float *q = t->q + attend_query(t, pair);
    float key[SEAL_HEAD], max = -INFINITY, sum = 0;
    for (int s = first; s <= slot; s++) {
        const uint8_t *at = kv->k + attend_key(t, s) * kv_type_bytes(kv->type_k);
        type_info(kv->type_k)->dequantize(at, key, (size_t)kv->head_dim);
        scores[s] = softcap(dot(q, key, kv->head_dim) * t->heads->scale, t->heads->softcap);
        max = fmaxf(max, scores[s]);
    }
    for (int s = first; s <= slot; s++) sum += scores[s] = expf(scores[s] - max);
    for (int s = first; s <= slot; s++) mass[s] += scores[s] / sum;
}

static void probe_head(void *arg, int head, int thread) {
    (void)thread;
    Attention *a = arg;
    Run r = run_at(a->b, a->kv, 0);
    AttendTask t = task_of(a->w, a->l, a->kv, a->b, &r);
    Probe *p = a->b->probe;
    int group = t.heads->n_heads / t.heads->n_kv_heads;
    size_t at = (size_t)a->l->index * (size_t)t.heads->n_kv_heads + (size_t)head;
    t.kv_head = head;
    for (int pair = p->first_row * group; pair < r.n * group; pair++)
        add_mass(&t, pair, p->scores + (size_t)head * (size_t)p->n_slots, p->mass + at * (size_t)p->n_slots);
}

// Counts the tasks; returns the multiply-adds of all of them.
static double count_tasks(Attention *a) {
    double work = 0;
    Span s = span_at(a, run_at(a->b, a->kv, 0), 0, 0);
    a->n_tasks = 0;
    do {
        a->n_tasks += span_tasks(a, &s);
        work += 2.0 * s.n_rows * a->w->q_dim * (a->b->slot[s.run.first + s.row + s.n_rows - 1] + 1);
    } while (next_span(a, &s));
    return work;
}

static void op_attention(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    enum { FEWEST_PAIRS = 32 };
    Attention a = {.attend = attend_of(l), .w = w, .l = l, .kv = kv, .b = b};
    double work = count_tasks(&a);
    a.n_parts = count_parts(&a);
    while (a.n_tasks < threads_count(w->pool) && a.attend.pairs > FEWEST_PAIRS) { // one for every thread
        a.attend.pairs /= 2;
        count_tasks(&a);
    }
    if (a.n_parts > 1) {
        threads_run(w->pool, part_task, &a, a.n_parts * l->heads.n_kv_heads);
        merge_parts(&a);
    } else if (work < 2 * TASK_WORK)
        for (int i = 0; i < a.n_tasks; i++) attend_task(&a, i, 0);
    else threads_run(w->pool, attend_task, &a, a.n_tasks);
    if (b->probe) threads_run(w->pool, probe_head, &a, l->heads.n_kv_heads);
    for (int row = 0; kv->tail_of && row < b->n_rows;) {
        Run r = run_at(b, kv, row);
        keep_tail(w, l->kv_layer, kv, &r);
        row += r.n;
    }
}

// ---- what is added to x ---------------------------------------------------------------------------------------------

static void add_normed_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    Step *s = arg;
    size_t dim = (size_t)s->w->dim;
    for (size_t i = (size_t)first; i < (size_t)last; i++) {
        float *y = s->w->xn + i * dim, *x = s->w->x + i * dim;
        s->k->rmsnorm(y, y, s->norm, s->w->dim, s->eps);
        for (size_t k = 0; k < dim; k++) x[k] += y[k];
    }
}

// x += W rows, or the norm of that.
static void add_product(Workspace *w, const Layer *l, const Tensor *t, const float *norm, Rows rows) {
    const CpuKernels *k = kernels_of(l->be);
    Job job = {.w = t, .y = norm ? w->xn : w->x, .y_stride = (size_t)w->dim, .add = !norm};
    multiply(k, w, &job, 1, rows);
    Step s = {.k = k, .w = w, .norm = norm, .eps = l->kind.eps};
    if (norm) over_rows(w, rows.n, 2.0 * w->dim, add_normed_rows, &s);
}

static void op_attn_out(Workspace *w, const Layer *l, const Batch *b) {
    add_product(w, l, &l->wo, l->norm_att_out, plain_rows(w->a, w->q_dim, b));
}

// ---- the feed-forward -----------------------------------------------------------------------------------------------

static void gate_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    Step *s = arg;
    size_t n = (size_t)s->w->ffn;
    for (int i = first; i < last; i++)
        s->gate(s->l->kind.act, s->w->h + (size_t)i * n, s->w->up + (size_t)i * n, s->w->ffn);
}

static const MatrixKernel *matrix_of_rows(const CpuKernels *k, const Tensor *t, const Batch *b) {
    return matrix_for(k, t, b->n_rows, batch_decodes(b));
}

// Whether w->h holds the FFN's activations packed for w_down: one kernel does all three products, and they fit. The
// answer is the same in ffn_in and ffn_out.
static bool glu_is_packed(const CpuKernels *k, const Layer *l, const Batch *b) {
    const MatrixKernel *m = matrix_of_rows(k, &l->w_gate, b);
    int n_rows = b->n_rows;
    return m && m->run_glu && n_rows > m->tile && l->w_gate.type == l->w_up.type && !l->w_gate.bias && !l->w_up.bias &&
           matrix_of_rows(k, &l->w_down, b) == m &&
           m->packed_bytes(n_rows, l->w_down.n_in) <= (size_t)n_rows * (size_t)l->w_down.n_in * sizeof(float);
}

static void op_ffn_in(Workspace *w, const Layer *l, const Batch *b) {
    const CpuKernels *k = kernels_of(l->be);
    Rows rows = normed(w, l->norm_ffn, l->kind.eps, b);
    if (glu_is_packed(k, l, b)) {
        Job job = {.w = &l->w_up, .y = w->h, .gate = &l->w_gate, .act = l->kind.act};
        multiply(k, w, &job, 1, rows);
        return;
    }
    Job jobs[] = {{.w = &l->w_gate, .y = w->h, .y_stride = (size_t)w->ffn},
                  {.w = &l->w_up, .y = w->up, .y_stride = (size_t)w->ffn}};
    multiply(k, w, jobs, 2, rows);
    const MatrixKernel *m = matrix_of_rows(k, &l->w_gate, b);
    Step s = {.w = w, .l = l, .gate = m && m->gate ? m->gate : k->gate};
    over_rows(w, b->n_rows, 8.0 * w->ffn, gate_rows, &s);
}

static void op_ffn_out(Workspace *w, const Layer *l, const Batch *b) {
    Rows rows = plain_rows(w->h, w->ffn, b);
    if (glu_is_packed(kernels_of(l->be), l, b)) rows.packed = w->h;
    add_product(w, l, &l->w_down, l->norm_ffn_out, rows);
}

// ---- the head -------------------------------------------------------------------------------------------------------

static void cap_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    Step *s = arg;
    size_t n = (size_t)s->w->n_vocab;
    for (int i = first; i < last; i++) s->k->softcap(s->w->logits + (size_t)i * n, s->w->n_vocab, s->ends->softcap);
}

static void op_logits(Workspace *w, const Backend *be, const Ends *e, const Batch *b, const int *rows, int n_rows) {
    const CpuKernels *k = kernels_of(be);
    Step s = {.k = k, .w = w, .ends = e, .norm = e->norm_out, .eps = e->eps, .rows = rows};
    over_rows(w, n_rows, w->dim, norm_rows, &s);
    Job job = {.w = &e->head, .y = w->logits, .y_stride = (size_t)w->n_vocab};
    multiply(k, w, &job, 1, (Rows){.x = w->xn, .stride = (size_t)w->dim, .n = n_rows, .decodes = batch_decodes(b)});
    if (e->softcap != 0) over_rows(w, n_rows, 4.0 * w->n_vocab, cap_rows, &s);
}

// ---- the choice -----------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
#include <cpuid.h>

// What the CPU has, asked once: in a virtual machine every CPUID leaves the guest, for 20 to 70 us.
typedef struct {
    unsigned c1;         // leaf 1, ECX
    unsigned b7, c7, d7; // leaf 7
    unsigned a7_1;       // leaf 7, subleaf 1, EAX
    uint64_t saved;      // register states that the system saves (XCR0)
} Features;

static const Features *features(void) {
    static Features f;
    static bool known;
    if (known) return &f;
    unsigned most = __get_cpuid_max(0, NULL), a = 0, b, c, d;
    if (most >= 1) __cpuid(1, a, b, f.c1, d);
    if (most >= 7) __cpuid_count(7, 0, a, f.b7, f.c7, f.d7);
    if (most >= 7 && a >= 1) __cpuid_count(7, 1, f.a7_1, b, c, d);
    if (f.c1 >> 27 & 1) { // OSXSAVE
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        f.saved = (uint64_t)high << 32 | low;
    }
    known = true;
    return &f;
}

static bool os_saves(uint64_t states) { return (features()->saved & states) == states; }

static bool has_avx2(void) { // with FMA, F16C
    const Features *f = features();
    return os_saves(0x6) && (f->c1 >> 12 & 1) && (f->c1 >> 29 & 1) && (f->b7 >> 5 & 1);
}

static bool has_avx512(void) { // F, DQ, BW, VL
    unsigned b = features()->b7;
    return has_avx2() && os_saves(0xe6) && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
}

static bool has_vnni(void) { return has_avx512() && (features()->c7 >> 11 & 1); } // AVX512-VNNI

#if defined(QUILL_AMX)
static bool has_amx(void) { // AMX-TILE, AMX-BF16, AMX-INT8, AVX512-BF16
    const Features *f = features();
    bool there = (f->d7 >> 24 & 1) && (f->d7 >> 22 & 1) && (f->d7 >> 25 & 1) && (f->a7_1 >> 5 & 1);
    return there && has_avx512() && os_saves(0x60000) && cpu_amx_enable();
}
#endif
#endif

static bool has_any(void) { return true; }
static __attribute__((unused)) bool has_none(void) { return false; }

// Fastest last; "auto" takes the last that this CPU has, with scalar never chosen by itself.
typedef struct {
    const char *isa;
    bool (*available)(void);
    const CpuKernels *kernels;
    const MatrixKernel *(*matrix_of)(int type);
    const AttendKernel *attend_bf16;
    const MatrixKernel *(*few_of)(int type);
    const char *few; // what few_of computes with
    const MatrixKernel *(*several_of)(int type);
} Choice;

static const Choice choices[] = {
    {"scalar", has_any, &cpu_scalar, NULL, NULL, NULL, NULL, NULL},
    {"portable", has_any, &cpu_portable, NULL, NULL, NULL, NULL, NULL},
#if defined(__x86_64__)
    {"avx2", has_avx2, &cpu_avx2, NULL, NULL, cpu_madd_matrix, "avx2", NULL},
    {"avx512", has_avx512, &cpu_avx512, NULL, NULL, cpu_vnni_matrix, "avx512 vnni", NULL},
#else // known by name, and refused as what this CPU cannot run
    {"avx2", has_none, &cpu_portable, NULL, NULL, NULL, NULL, NULL},
    {"avx512", has_none, &cpu_portable, NULL, NULL, NULL, NULL, NULL},
#endif
#if defined(QUILL_AMX)
    {"amx", has_amx, &cpu_avx512, cpu_amx_matrix, &cpu_amx_attend, cpu_vnni_matrix, "avx512 vnni", cpu_amx_int8_matrix},
#else
    {"amx", has_none, &cpu_portable, NULL, NULL, NULL, NULL, NULL},
#endif
};

bool cpu_has_isa(const char *isa) {
    for (size_t i = 0; i < ARRAY_LEN(choices); i++)
        if (strcmp(isa, choices[i].isa) == 0) return choices[i].available();
    return false;
}

const char *cpu_isa_list(void) {
    static char list[64];
    list[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        if (!choices[i].available()) continue;
        if (list[0]) strcat(list, ", ");
        strcat(list, choices[i].isa);
    }
    return list;
}

// The jobs of one product may need every layout that there is.
static size_t backend_packed_bytes(const Backend *be, int max_rows, int max_n_in) {
    const CpuKernels *k = kernels_of(be);
    const MatrixKernel *few = k->few_of ? k->few_of(TYPE_Q8_0) : NULL,
                       *several = k->several_of ? k->several_of(TYPE_Q8_0) : NULL,
                       *all = k->matrix_of ? k->matrix_of(TYPE_Q8_0) : NULL;
    size_t n = 0;
    if (k->matrix) n += round_up(k->matrix->packed_bytes(max_rows, max_n_in), 128);
    if (all) n += round_up(all->packed_bytes(max_rows, max_n_in), 128);
    if (few) n += round_up(few->packed_bytes(k->in_order ? max_rows : int_min(max_rows, FEW_ROWS), max_n_in), 128);
    if (several) n += round_up(several->packed_bytes(int_min(max_rows, SEVERAL_ROWS), max_n_in), 128);
    return n;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

// What "auto", or the user's word, stands for on this CPU.
static Status choose(const char *isa, size_t *out) {
    bool automatic = strcmp(isa, "auto") == 0, known = false;
    for (size_t i = 0; i < ARRAY_LEN(choices); i++)
        if (automatic ? choices[i].available() : strcmp(isa, choices[i].isa) == 0) {
            *out = i;
            known = true;
        }
    if (!known)
        return status_error(QUILL_USAGE, "--isa %s: one of auto, scalar, portable, avx2, avx512, amx expected", isa);
    if (!choices[*out].available())
        return status_error(QUILL_MODEL, "--isa %s: this CPU cannot run it; it has %s", isa, cpu_isa_list());
    return OK;
}

// The choice as this CPU can run it: AVX-512 without VNNI has the integers of AVX2.
static Choice choice_here(size_t i) {
    Choice c = choices[i];
#if defined(__x86_64__)
    if (c.few_of == cpu_vnni_matrix && !has_vnni()) {
        c.few_of = cpu_madd_matrix;
        c.few = "avx2";
    }
#endif
    return c;
}

static CpuKernels kernels_for(const Choice *c, bool in_order) {
    CpuKernels k = *c->kernels;
    k.isa = c->isa;
    k.matrix_of = c->matrix_of;
    k.few_of = c->few_of;
    k.several_of = c->several_of;
    k.in_order = in_order;
    k.attend_bf16 = c->attend_bf16;
    if (in_order) {
        k.attend.run = k.attend_in_order;
        k.attend_bf16 = NULL; // its tiles begin where the rows of a task do
    }
    return k;
}

enum { WORDS = 192 };

// Which kernels run, in words.
static void describe(const Choice *c, bool in_order, char out[WORDS]) {
    const char *f32 = c->kernels->isa;
    char few[64] = "", several[40] = "", many[80];
    if (!c->kernels->matrix) {
        snprintf(out, WORDS, "plain f32 loops (the reference)");
        return;
    }
    if (c->few) snprintf(few, sizeof few, "int8 %s (16- and 32-bit weights: f32 %s", c->few, f32);
    const char *attention = c->attend_bf16 && !in_order ? " and attention" : "";
    if (c->matrix_of) snprintf(many, sizeof many, "bf16 %s panels%s (F32 weights: f32 %s)", c->isa, attention, f32);
    else snprintf(many, sizeof many, "f32 %s panels", f32);
    if (c->several_of) snprintf(several, sizeof several, "up to %d sequences int8 %s; ", SEVERAL_ROWS, c->isa);
    if (!in_order && c->few) snprintf(out, WORDS, "matvec %s); %sprefill %s", few, several, many);
    else if (!in_order) snprintf(out, WORDS, "matvec f32 %s; prefill %s", f32, many);
    else if (c->few && !c->matrix_of) snprintf(out, WORDS, "%s panels) for any number of rows", few);
    else snprintf(out, WORDS, "%s for any number of rows", many);
}

static Status backend_for(const char *isa, bool in_order, const Backend **out) {
    static CpuKernels kernels[ARRAY_LEN(choices)][2];
    static Backend backends[ARRAY_LEN(choices)][2];
    static char words[ARRAY_LEN(choices)][2][WORDS];
    size_t i = 0;
    TRY(choose(isa, &i));
    Choice choice = choice_here(i);
    CpuKernels *k = &kernels[i][in_order];
    *k = kernels_for(&choice, in_order);
    describe(&choice, in_order, words[i][in_order]);
    size_t scratch = k->attend.scratch;
    if (k->attend_bf16) scratch = larger(scratch, k->attend_bf16->scratch);
    if (k->matrix) scratch = larger(scratch, k->matrix->scratch);
    if (k->matrix_of) scratch = larger(scratch, k->matrix_of(TYPE_Q8_0)->scratch); // the same for all types
    if (k->several_of) scratch = larger(scratch, k->several_of(TYPE_Q8_0)->scratch);
    backends[i][in_order] = (Backend){
        .name = "cpu",
        .isa = k->isa,
        .kernels = words[i][in_order],
        .packed_bytes = backend_packed_bytes,
        .panel_bytes = round_up(scratch, 4096),
        .impl = k,
        .copy_blocks = op_copy_blocks,
        .narrow = op_narrow,
        .embed = op_embed,
        .attn_in = op_attn_in,
        .attention = op_attention,
        .attn_out = op_attn_out,
        .ffn_in = op_ffn_in,
        .ffn_out = op_ffn_out,
        .logits = op_logits,
    };
    *out = &backends[i][in_order];
    return OK;
}

Status cpu_backend(const char *isa, const Backend **out) { return backend_for(isa, false, out); }

Status cpu_backend_deterministic(const char *isa, const Backend **out) { return backend_for(isa, true, out); }
