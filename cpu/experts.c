// cpu/experts.c: see cpu/experts.h.
#include "cpu/experts.h"

#include "cpu/matmul.h"
#include "cpu/tasks.h"

#include <math.h>

enum { EXPERT_JOBS = 2, MOST_TILE = 32, TASKS_A_THREAD = 16 };

size_t experts_packed_bytes(const Backend *be, const Workspace *w, int max_n_in) {
    int pairs = w->max_rows * w->n_used, groups = int_min(pairs, w->n_experts); // each ends with a tile in part filled
    return matmul_packed_most(cpu_kernels_of(be), pairs + groups * (MOST_TILE - 1), max_n_in) + (size_t)groups * 128;
}

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const float *x; // (n_rows, dim) normalised
} ExpertStep;

// ---- the router -----------------------------------------------------------------------------------------------------

// The n_used largest of n logits by falling value, of equals the first.
static void choose(const float *logits, int n, int n_used, int *chosen) {
    for (int k = 0; k < n_used; k++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            // among those that come behind the last one chosen
            bool left = k == 0 || logits[i] < logits[chosen[k - 1]] ||
                        (logits[i] == logits[chosen[k - 1]] && i > chosen[k - 1]);
            if (left && (best < 0 || logits[i] > logits[best])) best = i;
        }
        chosen[k] = best;
    }
}

// Softmax weights of the chosen ones, whose first has the largest logit.
static void weigh(const LayerKind *kind, const float *logits, const int *chosen, float *weight) {
    float max = logits[chosen[0]], sum = 0;
    for (int k = 0; k < kind->n_used; k++) weight[k] = expf(logits[chosen[k]] - max);
    if (kind->routing == ROUTE_CHOSEN)
        for (int k = 0; k < kind->n_used; k++) sum += weight[k];
    else
        for (int i = 0; i < kind->n_experts; i++) sum += expf(logits[i] - max);
    for (int k = 0; k < kind->n_used; k++) weight[k] = weight[k] / sum * kind->route_scale;
}

static void route_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    const LayerKind *kind = &s->l->kind;
    ExpertRows *e = &s->w->experts;
    for (int row = first; row < last; row++) {
        const float *logits = e->logits + (size_t)row * (size_t)kind->n_experts;
        int *chosen = e->chosen + (size_t)row * (size_t)kind->n_used;
        float *weight = e->weight + (size_t)row * (size_t)kind->n_used;
        bool finite = true;
        for (int i = 0; i < kind->n_experts; i++) finite = finite && isfinite(logits[i]);
        if (finite) {
            choose(logits, kind->n_experts, kind->n_used, chosen);
            weigh(kind, logits, chosen, weight);
            continue;
        }
        for (int k = 0; k < kind->n_used; k++) chosen[k] = k, weight[k] = NAN;
        int none = 0;
        __atomic_compare_exchange_n(&e->broken, &none, s->l->index + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

// Puts the pairs of each expert one behind the other.
static void group_pairs(ExpertRows *e, const LayerKind *kind, int n_rows) {
    int pairs = n_rows * kind->n_used, *first = e->first;
    memset(first, 0, (size_t)(kind->n_experts + 1) * sizeof *first);
    for (int i = 0; i < pairs; i++) first[e->chosen[i] + 1]++;
    for (int i = 0; i < kind->n_experts; i++) first[i + 1] += first[i];
    for (int i = 0; i < pairs; i++) {
        e->place[i] = first[e->chosen[i]]++; // now where the next pair goes
        e->row[e->place[i]] = i / kind->n_used;
    }
    for (int i = kind->n_experts; i > 0; i--) first[i] = first[i - 1];
    first[0] = 0;
}

static void route(ExpertStep *s, MatmulRows rows) {
    const LayerKind *kind = &s->l->kind;
    ExpertRows *e = &s->w->experts;
    MatmulJob jobs[] = {{.w = &s->l->router, .y = e->logits, .y_stride = (size_t)kind->n_experts},
                        {.w = &s->l->shared_route, .y = e->shared, .y_stride = 1}};
    rows.exact = true;
    matmul_run(s->k, s->w, jobs, s->l->shared_route.data ? 2 : 1, rows);
    tasks_over_rows(s->w, rows.n, 2.0 * kind->n_experts * kind->n_used, route_rows, s);
    group_pairs(e, kind, rows.n);
}

// ---- products -------------------------------------------------------------------------------------------------------

// Products of each expert's matrices with its pairs' activations.
typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Tensor *stack[EXPERT_JOBS];
    float *y[EXPERT_JOBS]; // (pairs, n_out)
    int n_jobs;
    const float *x; // (pairs, n_in), `stride` apart
    size_t stride;
    bool one_row; // x is a single row, which all pairs share
    bool decodes;
    int n_experts, n_in;
    int n_matrices; // of experts with pairs
    int tiles;      // of packed rows
} ExpertProduct;

static int pairs_of(const ExpertProduct *p, int expert) {
    return p->w->experts.first[expert + 1] - p->w->experts.first[expert];
}

static const MatrixKernel *kernel_for(const ExpertProduct *p, int job, int n_rows) {
    return matmul_kernel(p->k, p->stack[job], n_rows, p->decodes);
}

// Features of a task: whole matrices where there are enough of them, since long streams are read fastest, otherwise as
// many as give every thread some tasks; no more than the kernel takes.
static int task_step(const ExpertProduct *p, const MatrixKernel *m, int job) {
    int n_out = p->stack[job]->n_out, least = m && m->features ? m->least : 16;
    int wanted = TASKS_A_THREAD * threads_count(p->w->pool), parts = (wanted + p->n_matrices - 1) / p->n_matrices;
    int step = (int)round_up((size_t)(n_out + parts - 1) / (size_t)parts, (size_t)least);
    return m && m->features ? int_min(step, m->features) : step;
}

static int row_blocks(const MatrixKernel *m, int n_rows) { return m ? (n_rows - 1) / int_min(m->rows, n_rows) + 1 : 1; }

// Fills the first task of each expert and job; the multiply-adds of all tasks.
static double plan_products(ExpertProduct *p) {
    ExpertRows *e = &p->w->experts;
    double work = 0;
    p->n_matrices = 0;
    for (int i = 0; i < p->n_experts; i++) p->n_matrices += (pairs_of(p, i) > 0) * p->n_jobs;
    e->task[0] = 0;
    for (int i = 0; i < p->n_experts * p->n_jobs; i++) {
        int n_rows = pairs_of(p, i / p->n_jobs), job = i % p->n_jobs, n_out = p->stack[job]->n_out;
        const MatrixKernel *m = kernel_for(p, job, n_rows);
        int tasks = n_rows == 0 ? 0 : (n_out - 1) / task_step(p, m, job) + 1;
        e->task[i + 1] = e->task[i] + tasks * row_blocks(m, int_max(1, n_rows));
        work += (double)n_rows * n_out * p->n_in;
    }
    return work;
}

// The part of an ascending list of n + 1 numbers that holds `at`.
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
    ExpertProduct *p = arg;
    const ExpertRows *e = &p->w->experts;
    int part = part_of(e->task, p->n_experts * p->n_jobs, task), expert = part / p->n_jobs, job = part % p->n_jobs;
    Tensor w = tensor_of_stack(p->stack[job], expert);
    size_t pair = (size_t)e->first[expert], y_stride = (size_t)w.n_out;
    int n_rows = pairs_of(p, expert);
    const MatrixKernel *m = kernel_for(p, job, n_rows);
    int step = task_step(p, m, job), steps = (w.n_out - 1) / step + 1, rows = m ? int_min(m->rows, n_rows) : n_rows;
    task -= e->task[part];
    int first = task % steps * step, last = int_min(first + step, w.n_out), row = task / steps * rows;
    float *y = p->y[job] + pair * y_stride;
    void *scratch = tasks_scratch(p->w, thread);
    if (m)
        m->run(&w, first, last, p->w->packed + e->at[expert], row, int_min(rows, n_rows - row), y, y_stride, false,
               scratch);
    else
        p->k->matvec(&w, first, last, p->x + (p->one_row ? 0 : pair) * p->stride, p->stride, n_rows, y, y_stride, false,
                     scratch);
}

// ---- packing --------------------------------------------------------------------------------------------------------

// Tasks of packing are (expert, tile); e->task has the first of each expert meanwhile.
static void pack_task(void *arg, int task, int thread) {
    (void)thread;
    ExpertProduct *p = arg;
    const ExpertRows *e = &p->w->experts;
    int expert = part_of(e->task, p->n_experts, task), n_rows = p->one_row ? 1 : pairs_of(p, expert);
    const MatrixKernel *m = kernel_for(p, 0, n_rows);
    int tile = task - e->task[expert], first = tile * m->tile;
    size_t row = (size_t)first + (p->one_row ? 0 : (size_t)e->first[expert]);
    m->pack(p->w->packed + e->at[expert], tile, p->x + row * p->stride, p->stride, int_min(m->tile, n_rows - first),
            p->n_in);
}

// Packs the rows of each expert for the kernel of its first job; a single row once for all.
static void pack_pairs(ExpertProduct *p) {
    ExpertRows *e = &p->w->experts;
    size_t at = 0;
    int packed = 0; // experts
    e->task[0] = 0;
    for (int i = 0; i < p->n_experts; i++) {
        int n_rows = pairs_of(p, i);
        const MatrixKernel *m = n_rows > 0 ? kernel_for(p, 0, n_rows) : NULL;
        bool again = p->one_row && packed > 0;
        e->task[i + 1] = e->task[i] + (m && !again ? (n_rows - 1) / m->tile + 1 : 0);
        e->at[i] = again ? 0 : at;
        if (!m || again) continue;
        at += round_up(m->packed_bytes(n_rows, p->n_in), 128);
        packed++;
    }
    threads_run(p->w->pool, pack_task, p, e->task[p->n_experts]);
}

// Whether jobs take rows packed in one way, however many an expert has.
static bool same_packing(const ExpertProduct *p) {
    for (int i = 0; i < p->n_experts; i++) {
        int n = pairs_of(p, i);
        const MatrixKernel *a = n ? kernel_for(p, 0, n) : NULL, *b = n ? kernel_for(p, 1, n) : NULL;
        if (!a != !b || (a && a->pack != b->pack)) return false;
    }
    return true;
}

static void run_product(ExpertProduct p) {
    if (p.n_jobs == 2 && !same_packing(&p)) { // gate and up of different types: one after the other
        ExpertProduct second = p;
        p.n_jobs = second.n_jobs = 1;
        second.stack[0] = p.stack[1];
        second.y[0] = p.y[1];
        run_product(p);
        run_product(second);
        return;
    }
    pack_pairs(&p);
    double work = plan_products(&p);
    int n_tasks = p.w->experts.task[p.n_experts * p.n_jobs];
    if (work < 2 * TASK_WORK)
        for (int i = 0; i < n_tasks; i++) product_task(&p, i, 0);
    else threads_run(p.w->pool, product_task, &p, n_tasks);
}

static ExpertProduct product_of(const ExpertStep *s, const Batch *b, const float *x, int n_in) {
    return (ExpertProduct){.k = s->k,
                           .w = s->w,
                           .x = x,
                           .stride = (size_t)n_in,
                           .decodes = batch_decodes(b),
                           .n_experts = s->l->kind.n_experts,
                           .n_in = n_in};
}

// ---- the layer ------------------------------------------------------------------------------------------------------

static void gather_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    size_t dim = (size_t)s->w->dim;
    for (int pair = first; pair < last; pair++)
        memcpy(s->w->experts.x + (size_t)pair * dim, s->x + (size_t)s->w->experts.row[pair] * dim, dim * sizeof *s->x);
}

static void gate_pairs(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    size_t n = (size_t)s->l->w_gate.n_out;
    for (size_t pair = (size_t)first; pair < (size_t)last; pair++)
        s->k->gate(s->l->kind.act, s->w->h + pair * n, s->w->up + pair * n, (int)n);
}

static void gate_shared(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    size_t n = (size_t)s->l->shared_gate.n_out, at = expert_rows_shared(s->w, s->l);
    for (size_t row = (size_t)first; row < (size_t)last; row++)
        s->k->gate(s->l->kind.act, s->w->h + at + row * n, s->w->up + at + row * n, (int)n);
}

static void shared_in(ExpertStep *s, MatmulRows rows) {
    size_t n = (size_t)s->l->shared_gate.n_out, at = expert_rows_shared(s->w, s->l);
    MatmulJob jobs[] = {{.w = &s->l->shared_gate, .y = s->w->h + at, .y_stride = n},
                        {.w = &s->l->shared_up, .y = s->w->up + at, .y_stride = n}};
    matmul_run(s->k, s->w, jobs, 2, rows);
    tasks_over_rows(s->w, rows.n, 8.0 * (double)n, gate_shared, s);
}

void experts_in(Workspace *w, const Layer *l, const Batch *b) {
    ExpertStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l, .x = w->x};
    int pairs = b->n_rows * l->kind.n_used;
    if (l->norm_ffn) {
        matmul_norm(s.k, w, l->norm_ffn, l->kind.eps, NULL, b->n_rows);
        s.x = w->xn;
    }
    MatmulRows rows = matmul_rows(s.x, w->dim, b);
    route(&s, rows);
    ExpertProduct p = product_of(&s, b, s.x, w->dim);
    p.one_row = b->n_rows == 1;
    if (p.one_row) p.stride = 0;
    else {
        tasks_over_rows(w, pairs, w->dim, gather_rows, &s);
        p.x = w->experts.x;
    }
    p.n_jobs = 2;
    p.stack[0] = &l->w_gate, p.y[0] = w->h;
    p.stack[1] = &l->w_up, p.y[1] = w->up;
    run_product(p);
    tasks_over_rows(w, pairs, 8.0 * l->w_gate.n_out, gate_pairs, &s);
    if (l->shared_gate.data) shared_in(&s, rows);
}

// x += norm(the sum of what a row's experts give)
static void add_experts(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    const Layer *l = s->l;
    const ExpertRows *e = &s->w->experts;
    size_t dim = (size_t)s->w->dim, n_used = (size_t)l->kind.n_used;
    for (size_t row = (size_t)first; row < (size_t)last; row++) {
        float *sum = e->out + row * dim, *x = s->w->x + row * dim;
        bool shared = l->shared_down.data;
        float part = shared && l->shared_route.data ? 1 / (1 + expf(-e->shared[row])) : 1;
        for (size_t i = 0; i < dim; i++) sum[i] = shared ? sum[i] * part : 0;
        for (size_t k = 0; k < n_used; k++) {
            const float *y = e->x + (size_t)e->place[row * n_used + k] * dim;
            float weight = e->weight[row * n_used + k];
            for (size_t i = 0; i < dim; i++) sum[i] += weight * y[i];
        }
        if (l->norm_ffn_out) s->k->rmsnorm(sum, sum, l->norm_ffn_out, (int)dim, l->kind.eps);
        for (size_t i = 0; i < dim; i++) x[i] += sum[i];
    }
}

void experts_out(Workspace *w, const Layer *l, const Batch *b) {
    ExpertStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l};
    ExpertProduct p = product_of(&s, b, w->h, l->w_down.n_in);
    p.n_jobs = 1;
    p.stack[0] = &l->w_down, p.y[0] = w->experts.x;
    run_product(p);
    if (l->shared_down.data) {
        MatmulJob job = {.w = &l->shared_down, .y = w->experts.out, .y_stride = (size_t)w->dim};
        MatmulRows rows = matmul_rows(w->h + expert_rows_shared(w, l), l->shared_down.n_in, b);
        matmul_run(s.k, w, &job, 1, rows);
    }
    tasks_over_rows(w, b->n_rows, (2.0 + l->kind.n_used) * w->dim, add_experts, &s);
}
