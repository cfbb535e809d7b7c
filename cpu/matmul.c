// cpu/matmul.c: see cpu/matmul.h.
#include "cpu/matmul.h"

#include "cpu/tasks.h"

#include <assert.h>

// ---- the norm of rows -----------------------------------------------------------------------------------------------

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const float *norm;
    float eps;
    const int *rows; // NULL: all
} NormTask;

static void norm_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    NormTask *t = arg;
    size_t dim = (size_t)t->w->dim;
    for (int i = first; i < last; i++) {
        size_t row = (size_t)(t->rows ? t->rows[i] : i);
        t->k->rmsnorm(t->w->xn + (size_t)i * dim, t->w->x + row * dim, t->norm, t->w->dim, t->eps);
    }
}

void matmul_norm(const CpuKernels *k, Workspace *w, const float *norm, float eps, const int *rows, int n) {
    NormTask t = {k, w, norm, eps, rows};
    tasks_over_rows(w, n, w->dim, norm_rows, &t);
}

// ---- the choice of a kernel -----------------------------------------------------------------------------------------

// The table's kernel for a type; NULL: none.
static const MatrixKernel *kernel_of(const MatrixKernel *(*of)(int type), int type) { return of ? of(type) : NULL; }

// The panel kernel of the fastest vector instructions for this type: int8 or bf16.
static const MatrixKernel *vector_panels(const CpuKernels *k, int type) {
    const MatrixKernel *bytes = kernel_of(k->int8_panels, type);
    return k->in_order ? NULL : bytes ? bytes : kernel_of(k->bf16_lanes, type);
}

// The kernel that computes in f32 for n_rows; NULL: matvec.
static const MatrixKernel *kernel_exact(const CpuKernels *k, int n_rows) {
    return k->f32_panels && (k->in_order || n_rows >= k->f32_panels->min_rows) ? k->f32_panels : NULL;
}

const MatrixKernel *matmul_kernel(const CpuKernels *k, const Tensor *t, int n_rows, bool decodes) {
    const MatrixKernel *bf16 = kernel_of(k->bf16_panels, t->type), *tiles = kernel_of(k->int8_tiles, t->type),
                       *rows = kernel_of(k->int8_rows, t->type), *panels = vector_panels(k, t->type);
    if (tiles && !k->in_order && n_rows >= tiles->min_rows) {
        bool few = decodes ? n_rows <= tiles->most_rows : !bf16 || n_rows < bf16->min_rows;
        if (few) return tiles;
    }
    if (bf16 && (k->in_order || n_rows >= bf16->min_rows)) return bf16;
    if (panels && n_rows >= panels->min_rows) return panels;
    if (rows && (k->in_order || n_rows <= INT8_ROWS_MAX)) return rows;
    return kernel_exact(k, n_rows);
}

const MatrixKernel *matmul_glu_kernel(const CpuKernels *k, const Tensor *gate, const Tensor *up, const Tensor *down,
                                      int n_rows, bool decodes) {
    const MatrixKernel *m = matmul_kernel(k, gate, n_rows, decodes), *next = matmul_kernel(k, down, n_rows, decodes);
    bool packs = m && m->run_glu && up->data && gate->type == up->type && !gate->bias && !up->bias && next &&
                 next->pack == m->pack;
    size_t room = (size_t)n_rows * (size_t)down->n_in * sizeof(float);
    return packs && m->packed_bytes(n_rows, down->n_in) <= room ? m : NULL;
}

// A way in which kernels pack rows: kernels with the same `pack` share the packed rows.
typedef struct {
    const MatrixKernel *m; // one of its kernels
    int most;              // rows of a product
} PackedLayout;
enum { MOST_LAYOUTS = 10 };

// Lists the layouts of products of up to max_rows rows, whose matrices may have any type; returns their number.
static int list_layouts(const CpuKernels *k, int max_rows, PackedLayout out[MOST_LAYOUTS]) {
    int few = k->in_order ? max_rows : int_min(max_rows, INT8_ROWS_MAX), n = 0;
    const MatrixKernel *tiles = kernel_of(k->int8_tiles, TYPE_Q8_0); // no type has more rows, nor has a prompt
    const PackedLayout all[MOST_LAYOUTS] = {
        {k->f32_panels, max_rows},
        {kernel_of(k->bf16_panels, TYPE_Q8_0), max_rows},
        {kernel_of(k->int8_rows, TYPE_Q8_0), few},  // small blocks
        {kernel_of(k->int8_rows, TYPE_Q4_K), few},  // K types with two blocks in a byte
        {kernel_of(k->int8_rows, TYPE_Q6_K), few},  // other K types
        {kernel_of(k->int8_rows, TYPE_IQ3_S), few}, // IQ2 and IQ3
        {tiles, tiles ? int_min(max_rows, tiles->most_rows) : 0},
        {vector_panels(k, TYPE_Q8_0), max_rows}, // words
        {vector_panels(k, TYPE_Q4_0), max_rows}, // bytes
        {vector_panels(k, TYPE_BF16), max_rows},
    };
    for (int i = 0; i < MOST_LAYOUTS; i++) {
        int same = 0;
        if (!all[i].m) continue;
        while (same < n && out[same].m->pack != all[i].m->pack) same++;
        if (same == n) out[n++] = all[i];
        else out[same].most = int_max(out[same].most, all[i].most);
    }
    return n;
}

static size_t packed_by(const MatrixKernel *m, int n_rows, int max_n_in) {
    return round_up(m->packed_bytes(n_rows, max_n_in), 128);
}

size_t matmul_packed_bytes(const CpuKernels *k, int max_rows, int max_n_in) {
    PackedLayout all[MOST_LAYOUTS];
    size_t bytes = 0;
    for (int i = list_layouts(k, max_rows, all); i-- > 0;) bytes += packed_by(all[i].m, all[i].most, max_n_in);
    return bytes;
}

size_t matmul_packed_most(const CpuKernels *k, int max_rows, int max_n_in) {
    PackedLayout all[MOST_LAYOUTS];
    size_t most = 0;
    for (int i = list_layouts(k, max_rows, all); i-- > 0;) { // the few rows of every expert are packed together
        size_t n = packed_by(all[i].m, max_rows, max_n_in);
        if (n > most) most = n;
    }
    return most;
}

// ---- tasks ----------------------------------------------------------------------------------------------------------

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const MatmulJob *jobs;
    int n_jobs;
    MatmulRows rows;
    int n_in;
    int step[MATMUL_JOBS];                   // features of a task of each job; 0: tasks become smaller towards the end
    int first_task[MATMUL_JOBS + 1];         // number of the job's first task among the tasks of a block of rows
    int block;                               // rows of a task
    const MatrixKernel *matrix[MATMUL_JOBS]; // NULL: matvec
    const void *packed[MATMUL_JOBS];
    // while packing
    const MatrixKernel *packer;
    void *pack_to;
} Matmul;

// The first feature of a job's task. With tasks that become smaller towards the end, no thread waits long for the last
// task of another, and most tasks are still long streams of weights.
static int first_feature(const Matmul *p, int j, int task) {
    int n_out = p->jobs[j].w->n_out, n = p->first_task[j + 1] - p->first_task[j], left = n - task;
    if (p->step[j]) return int_min(task * p->step[j], n_out);
    if (left == 0) return n_out;
    return (int)(n_out - (int64_t)n_out * left * (left + 1) / (n * (n + 1))) / 16 * 16;
}

// Tasks are ordered by blocks of rows, so that the packed rows of a block stay in the cache.
static void matmul_task(void *arg, int task, int thread) {
    Matmul *p = arg;
    int first_row = task / p->first_task[p->n_jobs] * p->block, n_rows = int_min(p->block, p->rows.n - first_row);
    task %= p->first_task[p->n_jobs];
    int j = 0;
    while (task >= p->first_task[j + 1]) j++;
    const MatmulJob *job = &p->jobs[j];
    int first = first_feature(p, j, task - p->first_task[j]), last = first_feature(p, j, task - p->first_task[j] + 1);
    if (first == last) return;
    void *scratch = tasks_scratch(p->w, thread);
    if (!p->matrix[j]) {
        p->k->matvec(&(MatvecTask){.w = job->w,
                                   .first = first,
                                   .last = last,
                                   .x = p->rows.x + (size_t)first_row * p->rows.stride,
                                   .x_stride = p->rows.stride,
                                   .n_rows = n_rows,
                                   .y = job->y + (size_t)first_row * job->y_stride,
                                   .y_stride = job->y_stride,
                                   .add = job->add,
                                   .scratch = scratch});
        return;
    }
    MatrixTask t = {.w = job->w,
                    .first = first,
                    .last = last,
                    .packed = p->packed[j],
                    .first_row = first_row,
                    .n_rows = n_rows,
                    .scratch = scratch};
    if (job->gate) {
        t.gate = job->gate, t.act = job->act, t.h = job->y;
        p->matrix[j]->run_glu(&t);
    } else {
        t.y = job->y, t.y_stride = job->y_stride, t.add = job->add;
        p->matrix[j]->run(&t);
    }
}

static void pack_task(void *arg, int task, int thread) {
    (void)thread;
    Matmul *p = arg;
    const MatmulRows *r = &p->rows;
    int first = task * p->packer->tile, n = int_min(p->packer->tile, r->n - first);
    const float *x = r->x + (size_t)first * r->stride;
    if (r->norm) p->packer->pack_norm(p->pack_to, task, x, r->stride, n, p->n_in, r->norm, r->eps);
    else p->packer->pack(p->pack_to, task, x, r->stride, n, p->n_in);
}

// Packs the rows once for each kind of matrix kernel that the jobs need.
static void pack_rows(Matmul *p) {
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

// Computes the norm of the rows into w->xn, unless the kernels of all jobs compute it while packing.
static void norm_first(Matmul *p) {
    bool packs = true;
    for (int j = 0; j < p->n_jobs; j++) packs = packs && p->matrix[j] && p->matrix[j]->pack_norm;
    if (!p->rows.norm || packs) return;
    matmul_norm(p->k, p->w, p->rows.norm, p->rows.eps, NULL, p->rows.n);
    p->rows.x = p->w->xn;
    p->rows.stride = (size_t)p->w->dim;
    p->rows.norm = NULL;
}

// Features of a task: as many as the kernel takes, since each task reads the rows again, but at least two tasks for
// each thread.
static int task_features(const Matmul *p, const MatrixKernel *m, const MatmulJob *job) {
    int most = job->gate ? m->glu_features : m->features, least = job->gate ? m->glu_least : m->least;
    int n_blocks = (p->rows.n + p->block - 1) / p->block;
    int64_t all = 0;
    for (int j = 0; j < p->n_jobs; j++) all += p->jobs[j].w->n_out;
    int64_t share = all * n_blocks / (2 * threads_count(p->w->pool)) / least * least;
    return (int)(share < least ? least : share < most ? share : most);
}

// Sets the features of a task of each job, and the number of tasks.
static void plan_tasks(Matmul *p) {
    const MatmulRows *rows = &p->rows;
    for (int j = 0; j < p->n_jobs; j++) {
        const Tensor *t = p->jobs[j].w;
        p->matrix[j] = rows->exact ? kernel_exact(p->k, rows->n) : matmul_kernel(p->k, t, rows->n, rows->decodes);
        p->packed[j] = rows->packed;
        if (p->matrix[j]) p->block = int_min(p->block, p->matrix[j]->rows);
        if (p->matrix[j] && p->matrix[j]->features) {
            p->step[j] = task_features(p, p->matrix[j], &p->jobs[j]);
        } else {
            int tasks = tasks_count(p->w, (double)t->n_out * t->n_in * rows->n, (t->n_out + 15) / 16);
            if (j < p->n_jobs - 1) p->step[j] = (int)round_up((size_t)(t->n_out + tasks - 1) / (size_t)tasks, 16);
            else p->first_task[p->n_jobs] = p->first_task[j] + tasks;
        }
        if (p->step[j]) p->first_task[j + 1] = p->first_task[j] + (t->n_out + p->step[j] - 1) / p->step[j];
    }
}

void matmul_run(const CpuKernels *k, Workspace *w, const MatmulJob *jobs, int n_jobs, MatmulRows rows) {
    assert(n_jobs <= MATMUL_JOBS);
    Matmul p = {.k = k, .w = w, .jobs = jobs, .n_jobs = n_jobs, .rows = rows, .n_in = jobs[0].w->n_in, .block = rows.n};
    plan_tasks(&p);
    norm_first(&p);
    pack_rows(&p);
    int n_tasks = p.first_task[n_jobs] * ((rows.n + p.block - 1) / p.block);
    double work = 0;
    for (int j = 0; j < n_jobs; j++) work += (double)jobs[j].w->n_out * p.n_in * rows.n;
    if (work < 2 * TASK_WORK) // too little work for a second core
        for (int i = 0; i < n_tasks; i++) matmul_task(&p, i, 0);
    else threads_run(w->pool, matmul_task, &p, n_tasks);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

MatmulRows matmul_rows(const float *x, int stride, const Batch *b) {
    return (MatmulRows){.x = x, .stride = (size_t)stride, .n = b->n_rows, .decodes = batch_decodes(b)};
}

MatmulRows matmul_normed_rows(const Workspace *w, const float *norm, float eps, const Batch *b) {
    MatmulRows r = matmul_rows(w->x, w->dim, b);
    r.norm = norm;
    r.eps = eps;
    return r;
}
