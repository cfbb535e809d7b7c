// cpu/stack_product.c: see cpu/stack_product.h.
#include "cpu/stack_product.h"

#include "cpu/tasks.h"

enum { MOST_TILE = 32, TASKS_A_THREAD = 16 };

size_t stack_product_packed_bytes(const CpuKernels *k, int pairs, int n_stack, int max_n_in) {
    int groups = int_min(pairs, n_stack); // the last tile of each may be partly filled
    return matmul_packed_most(k, pairs + groups * (MOST_TILE - 1), max_n_in) + (size_t)groups * 128;
}

// ---- products -------------------------------------------------------------------------------------------------------

static int pairs_of(const StackProduct *p, int expert) {
    return p->w->experts.first[expert + 1] - p->w->experts.first[expert];
}

static const MatrixKernel *kernel_for(const StackProduct *p, int job, int n_rows) {
    return matmul_kernel(p->k, p->stack[job], n_rows, p->decodes);
}

// Features of a task: whole matrices if there are enough of them, since long sequential reads are fastest; otherwise
// fewer, so that every thread gets some tasks; never more than the kernel allows.
static int task_step(const StackProduct *p, const MatrixKernel *m, int job, bool glu) {
    int n_out = p->stack[job]->n_out, least = !m || !m->features ? 16 : glu ? m->glu_least : m->least;
    int wanted = TASKS_A_THREAD * threads_count(p->w->pool), parts = (wanted + p->n_matrices - 1) / p->n_matrices;
    int step = (int)round_up((size_t)(n_out + parts - 1) / (size_t)parts, (size_t)least);
    return m && m->features ? int_min(step, glu ? m->glu_features : m->features) : step;
}

bool stack_glu_packs(const StackProduct *p, int matrix) {
    const StackGlu *g = p->glu;
    int n_rows = pairs_of(p, matrix);
    if (!g || n_rows == 0) return false;
    const MatrixKernel *m = matmul_glu_kernel(p->k, g->gate, g->up, g->down, n_rows, p->decodes);
    return m && !m->gate; // a kernel with a gate of its own would need it for the other matrices too
}

// Whether gate and up of a matrix are one product, which is the first job.
static bool is_glu(const StackProduct *p, int matrix) { return p->n_jobs == 2 && stack_glu_packs(p, matrix); }
// Whether the rows of a matrix are packed already, by the product of gate and up.
static bool is_packed(const StackProduct *p, int matrix) { return p->n_jobs == 1 && stack_glu_packs(p, matrix); }

static int row_blocks(const MatrixKernel *m, int n_rows) { return m ? (n_rows - 1) / int_min(m->rows, n_rows) + 1 : 1; }

// Sets the first task of each expert and job; returns the multiply-adds of all tasks.
static double plan_products(StackProduct *p) {
    ExpertRows *e = &p->w->experts;
    double work = 0;
    p->n_matrices = 0;
    for (int i = 0; i < p->n_stack; i++) p->n_matrices += (pairs_of(p, i) > 0) * p->n_jobs;
    e->task[0] = 0;
    for (int i = 0; i < p->n_stack * p->n_jobs; i++) {
        int n_rows = pairs_of(p, i / p->n_jobs), job = i % p->n_jobs, n_out = p->stack[job]->n_out;
        const MatrixKernel *m = kernel_for(p, job, n_rows);
        bool glu = is_glu(p, i / p->n_jobs);
        int tasks = n_rows == 0 || (glu && job > 0) ? 0 : (n_out - 1) / task_step(p, m, job, glu) + 1;
        e->task[i + 1] = e->task[i] + tasks * row_blocks(m, int_max(1, n_rows));
        work += (double)n_rows * n_out * p->n_in;
    }
    return work;
}

// The index i with first[i] <= at < first[i + 1]; first (n + 1) ascends.
static int part_of(const int *first, int n, int at) {
    int low = 0, high = n - 1; // the last one that begins at or before it
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (first[middle] <= at) low = middle;
        else high = middle - 1;
    }
    return low;
}

static void product_task(void *arg, int task, int thread) {
    StackProduct *p = arg;
    const ExpertRows *e = &p->w->experts;
    int part = part_of(e->task, p->n_stack * p->n_jobs, task), expert = part / p->n_jobs, job = part % p->n_jobs;
    Tensor w = tensor_of_stack(p->stack[job], expert);
    size_t pair = (size_t)e->first[expert], y_stride = (size_t)w.n_out;
    int n_rows = pairs_of(p, expert);
    const MatrixKernel *m = kernel_for(p, job, n_rows);
    bool glu = is_glu(p, expert);
    int step = task_step(p, m, job, glu), steps = (w.n_out - 1) / step + 1,
        rows = m ? int_min(m->rows, n_rows) : n_rows;
    task -= e->task[part];
    int first = task % steps * step, last = int_min(first + step, w.n_out), row = task / steps * rows;
    float *y = p->y[job] + pair * y_stride;
    void *scratch = tasks_scratch(p->w, thread);
    if (!m) {
        p->k->matvec(&(MatvecTask){.w = &w,
                                   .first = first,
                                   .last = last,
                                   .x = p->x + (p->one_row ? 0 : pair) * p->stride,
                                   .x_stride = p->stride,
                                   .n_rows = n_rows,
                                   .y = y,
                                   .y_stride = y_stride,
                                   .scratch = scratch});
        return;
    }
    MatrixTask t = {.w = &w, .first = first, .last = last, .first_row = row, .scratch = scratch};
    t.packed = is_packed(p, expert) ? (const void *)(p->x + pair * p->stride) : p->w->packed + e->at[expert];
    t.n_rows = int_min(rows, n_rows - row);
    if (glu) {
        Tensor up = tensor_of_stack(p->stack[1], expert);
        t.gate = &w, t.w = &up, t.act = p->glu->act, t.h = y;
        m->run_glu(&t);
    } else {
        t.y = y, t.y_stride = y_stride;
        m->run(&t);
    }
}

// ---- packing --------------------------------------------------------------------------------------------------------

// Packing tasks are (expert, tile); during packing e->task has the first task of each expert.
static void pack_task(void *arg, int task, int thread) {
    (void)thread;
    StackProduct *p = arg;
    const ExpertRows *e = &p->w->experts;
    int expert = part_of(e->task, p->n_stack, task), n_rows = p->one_row ? 1 : pairs_of(p, expert);
    const MatrixKernel *m = kernel_for(p, 0, n_rows);
    int tile = task - e->task[expert], first = tile * m->tile;
    size_t row = (size_t)first + (p->one_row ? 0 : (size_t)e->first[expert]);
    m->pack(p->w->packed + e->at[expert], tile, p->x + row * p->stride, p->stride, int_min(m->tile, n_rows - first),
            p->n_in);
}

// Packs the rows of each expert for the kernel of the first job; a single shared row is packed only once.
static void pack_pairs(StackProduct *p) {
    ExpertRows *e = &p->w->experts;
    size_t at = 0;
    int packed = 0; // experts
    e->task[0] = 0;
    for (int i = 0; i < p->n_stack; i++) {
        int n_rows = pairs_of(p, i);
        const MatrixKernel *m = n_rows > 0 && !is_packed(p, i) ? kernel_for(p, 0, n_rows) : NULL;
        bool again = p->one_row && packed > 0;
        e->task[i + 1] = e->task[i] + (m && !again ? (n_rows - 1) / m->tile + 1 : 0);
        e->at[i] = again ? 0 : at;
        if (!m || again) continue;
        at += round_up(m->packed_bytes(n_rows, p->n_in), 128);
        packed++;
    }
    threads_run(p->w->pool, pack_task, p, e->task[p->n_stack]);
}

// Whether both jobs use the same packed rows, for every expert's number of rows.
static bool same_packing(const StackProduct *p) {
    for (int i = 0; i < p->n_stack; i++) {
        int n = pairs_of(p, i);
        const MatrixKernel *a = n ? kernel_for(p, 0, n) : NULL, *b = n ? kernel_for(p, 1, n) : NULL;
        if (!a != !b || (a && a->pack != b->pack)) return false;
    }
    return true;
}

void stack_product_run(StackProduct p) {
    if (p.n_jobs == 2 && !same_packing(&p)) { // gate and up of different types: one after the other
        StackProduct second = p;
        p.n_jobs = second.n_jobs = 1;
        second.stack[0] = p.stack[1];
        second.y[0] = p.y[1];
        stack_product_run(p);
        stack_product_run(second);
        return;
    }
    pack_pairs(&p);
    double work = plan_products(&p);
    int n_tasks = p.w->experts.task[p.n_stack * p.n_jobs];
    if (work < 2 * TASK_WORK)
        for (int i = 0; i < n_tasks; i++) product_task(&p, i, 0);
    else threads_run(p.w->pool, product_task, &p, n_tasks);
}
