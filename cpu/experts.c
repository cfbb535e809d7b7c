// cpu/experts.c: see cpu/experts.h.
#include "cpu/experts.h"

#include "base/file.h"
#include "cpu/stack_product.h"
#include "cpu/tasks.h"

#include <math.h>

size_t experts_packed_bytes(const Backend *be, const Workspace *w, int max_n_in) {
    return stack_product_packed_bytes(cpu_kernels_of(be), w->max_rows * w->n_used, w->n_experts, max_n_in);
}

typedef struct {
    const CpuKernels *k;
    Workspace *w;
    const Layer *l;
    const float *x;              // (n_rows, dim) normalised
    const StackProduct *product; // of gate and up
    StackGlu glu;
} ExpertStep;

// ---- the router -----------------------------------------------------------------------------------------------------

// Finds the n_used largest of n numbers by falling value; of equal numbers the first comes first. With NaN among them,
// which load/experts.c and route_rows keep out, the choice is arbitrary, but an index of the n.
static void choose(const float *logits, int n, int n_used, int *chosen) {
    for (int k = 0; k < n_used; k++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            // among those that follow the last chosen one in this order
            bool left = k == 0 || logits[i] < logits[chosen[k - 1]] ||
                        (logits[i] == logits[chosen[k - 1]] && i > chosen[k - 1]);
            if (left && (best < 0 || logits[i] > logits[best])) best = i;
        }
        chosen[k] = int_max(best, 0);
    }
}

static float sigmoid(float v) { return 1 / (1 + expf(-v)); }

// Keeps the groups of experts with the largest sums of their two best scores, or with n_best 1 those with the best
// score. Other groups' scores become -INFINITY.
static void keep_groups(const LayerKind *kind, int n_best, float *p) {
    int size = kind->n_experts / kind->n_groups, kept[MOST_EXPERT_GROUPS];
    float best[MOST_EXPERT_GROUPS];
    bool both = n_best > 1 && size > 1;
    bool stays[MOST_EXPERT_GROUPS] = {false};
    for (int g = 0; g < kind->n_groups; g++) {
        int top[2];
        choose(p + g * size, size, both ? 2 : 1, top);
        best[g] = p[g * size + top[0]] + (both ? p[g * size + top[1]] : 0);
    }
    choose(best, kind->n_groups, kind->n_groups_used, kept);
    for (int k = 0; k < kind->n_groups_used; k++) stays[kept[k]] = true;
    for (int i = 0; i < kind->n_experts; i++)
        if (!stays[i / size]) p[i] = -INFINITY;
}

// Chooses a row's experts and their weights by sigmoids.
static void route_sigmoid(const Layer *l, const float *logits, int *chosen, float *weight) {
    const LayerKind *kind = &l->kind;
    bool by_logits = route_weighs_inputs(kind->routing);
    float by[MOST_EXPERTS], sum = kind->routing == ROUTE_SIGMOID_CHOSEN ? 1e-20f : 1;
    for (int i = 0; i < kind->n_experts; i++)
        by[i] = by_logits ? logits[i] : sigmoid(logits[i]) + (l->expert_bias ? l->expert_bias[i] : 0);
    if (kind->n_groups > 0) keep_groups(kind, 2, by);
    choose(by, kind->n_experts, kind->n_used, chosen);
    for (int k = 0; k < kind->n_used; k++) {
        weight[k] = sigmoid(logits[chosen[k]]);
        if (kind->routing == ROUTE_SIGMOID_CHOSEN) sum += weight[k];
    }
    for (int k = 0; k < kind->n_used; k++) weight[k] = weight[k] / sum * kind->route_scale;
}

// Softmax weights of the chosen experts.
static void weigh(const LayerKind *kind, const float *logits, const int *chosen, float *weight) {
    float max = logits[chosen[0]], sum = 0;
    for (int k = 1; k < kind->n_used; k++) max = fmaxf(max, logits[chosen[k]]);
    for (int k = 0; k < kind->n_used; k++) weight[k] = expf(logits[chosen[k]] - max);
    if (kind->routing == ROUTE_CHOSEN)
        for (int k = 0; k < kind->n_used; k++) sum += weight[k];
    else
        for (int i = 0; i < kind->n_experts; i++) sum += expf(logits[i] - max);
    for (int k = 0; k < kind->n_used; k++) weight[k] = weight[k] / sum * kind->route_scale;
}

// Chooses a row's experts by their logits, which are in the order of a softmax, or by the softmax plus expert_bias.
// Their weights are a softmax.
static void route_softmax(const Layer *l, const float *logits, int *chosen, float *weight) {
    const LayerKind *kind = &l->kind;
    float by[MOST_EXPERTS], max = -INFINITY, sum = 0;
    memcpy(by, logits, (size_t)kind->n_experts * sizeof *by);
    if (l->expert_bias) {
        for (int i = 0; i < kind->n_experts; i++) max = fmaxf(max, logits[i]);
        for (int i = 0; i < kind->n_experts; i++) sum += expf(logits[i] - max);
        for (int i = 0; i < kind->n_experts; i++) by[i] = expf(logits[i] - max) / sum + l->expert_bias[i];
    }
    if (kind->n_groups > 0) keep_groups(kind, 1, by);
    choose(by, kind->n_experts, kind->n_used, chosen);
    weigh(kind, logits, chosen, weight);
}

static void route_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    const LayerKind *kind = &s->l->kind;
    ExpertRows *e = &s->w->experts;
    const float *scale = s->l->expert_scale;
    for (int row = first; row < last; row++) {
        const float *logits = e->logits + (size_t)row * (size_t)kind->n_experts;
        int *chosen = e->chosen + (size_t)row * (size_t)kind->n_used;
        float *weight = e->weight + (size_t)row * (size_t)kind->n_used;
        bool finite = !s->l->shared_route.data || isfinite(e->shared[row]);
        for (int i = 0; i < kind->n_experts; i++) finite = finite && isfinite(logits[i]);
        if (finite && route_by_sigmoid(kind->routing)) route_sigmoid(s->l, logits, chosen, weight);
        else if (finite) route_softmax(s->l, logits, chosen, weight);
        for (int k = 0; finite && scale && k < kind->n_used; k++) weight[k] *= scale[chosen[k]];
        if (finite) continue;
        for (int k = 0; k < kind->n_used; k++) chosen[k] = k, weight[k] = NAN;
        int none = 0;
        __atomic_compare_exchange_n(&e->broken, &none, s->l->index + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

// Orders the pairs by expert.
static void group_pairs(ExpertRows *e, const LayerKind *kind, int n_rows) {
    int pairs = n_rows * kind->n_used, *first = e->first;
    memset(first, 0, (size_t)(kind->n_experts + 1) * sizeof *first);
    for (int i = 0; i < pairs; i++) first[e->chosen[i] + 1]++;
    for (int i = 0; i < kind->n_experts; i++) first[i + 1] += first[i];
    for (int i = 0; i < pairs; i++) {
        e->place[i] = first[e->chosen[i]]++; // first[] is the place of the expert's next pair here
        e->row[e->place[i]] = i / kind->n_used;
    }
    for (int i = kind->n_experts; i > 0; i--) first[i] = first[i - 1];
    first[0] = 0;
}

// Asks for the weights of the experts that have rows for the first time. If the file is not in memory yet, each is read
// in large parts, and nothing of the experts beside it.
static void want_weights(const ExpertStep *s) {
    const Layer *l = s->l;
    const Tensor *const stacks[] = {&l->w_gate, &l->w_up, &l->w_down};
    const ExpertRows *e = &s->w->experts;
    bool *asked = e->asked + (size_t)l->index * (size_t)s->w->n_experts;
    for (int i = 0; i < l->kind.n_experts; i++) {
        if (asked[i] || e->first[i + 1] == e->first[i]) continue;
        asked[i] = true;
        for (size_t k = 0; k < ARRAY_LEN(stacks); k++) {
            if (!stacks[k]->data) continue;
            Tensor one = tensor_of_stack(stacks[k], i);
            file_want(one.data, (size_t)one.n_out * one.row_bytes);
        }
    }
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
    want_weights(s);
}

static StackProduct product_of(ExpertStep *s, const Batch *b, const float *x, int n_in) {
    const Layer *l = s->l;
    bool watched = b->watch && b->watch->feeds; // the callback reads the activations, so they are not packed
    s->glu = (StackGlu){&l->w_gate, &l->w_up, &l->w_down, l->kind.act};
    return (StackProduct){.k = s->k,
                          .w = s->w,
                          .x = x,
                          .stride = (size_t)n_in,
                          .decodes = batch_decodes(b),
                          .n_stack = l->kind.n_experts,
                          .n_in = n_in,
                          .glu = watched ? NULL : &s->glu};
}

// ---- the layer ------------------------------------------------------------------------------------------------------

// Copies a row to each of its pairs.
static void gather_rows(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    const ExpertRows *e = &s->w->experts;
    size_t dim = (size_t)s->w->dim, n_used = (size_t)s->l->kind.n_used;
    for (size_t row = (size_t)first; row < (size_t)last; row++)
        for (size_t k = row * n_used; k < (row + 1) * n_used; k++) {
            const float *from = s->x + row * dim;
            float *to = e->x + (size_t)e->place[k] * dim;
            if (route_weighs_inputs(s->l->kind.routing))
                for (size_t i = 0; i < dim; i++) to[i] = e->weight[k] * from[i];
            else memcpy(to, from, dim * sizeof *to);
        }
}

// Skips the pairs of experts whose activations are packed already.
static void gate_pairs(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    size_t n = (size_t)s->l->w_gate.n_out;
    const int *begin = s->w->experts.first; // the first pair of each expert
    const float *up = s->l->w_up.data ? s->w->up : s->w->h;
    for (int expert = 0; expert < s->l->kind.n_experts; expert++) {
        int pair = int_max(first, begin[expert]), end = int_min(last, begin[expert + 1]);
        if (pair >= end || stack_glu_packs(s->product, expert)) continue;
        for (; pair < end; pair++)
            s->k->gate(s->l->kind.act, s->w->h + (size_t)pair * n, up + (size_t)pair * n, (int)n);
    }
}

static void gate_shared(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    size_t n = (size_t)s->l->shared_gate.n_out, at = expert_rows_shared(s->w, s->l);
    const float *up = s->l->shared_up.data ? s->w->up : s->w->h;
    for (size_t row = (size_t)first; row < (size_t)last; row++)
        s->k->gate(s->l->kind.act, s->w->h + at + row * n, up + at + row * n, (int)n);
}

static void shared_in(ExpertStep *s, MatmulRows rows) {
    size_t n = (size_t)s->l->shared_gate.n_out, at = expert_rows_shared(s->w, s->l);
    MatmulJob jobs[] = {{.w = &s->l->shared_gate, .y = s->w->h + at, .y_stride = n},
                        {.w = &s->l->shared_up, .y = s->w->up + at, .y_stride = n}};
    matmul_run(s->k, s->w, jobs, s->l->shared_up.data ? 2 : 1, rows);
    tasks_over_rows(s->w, rows.n, 8.0 * (double)n, gate_shared, s);
}

// w->xn = norm(w->x)
static MatmulRows normed(ExpertStep *s, const float *norm, const Batch *b) {
    matmul_norm(s->k, s->w, norm, s->l->kind.eps, NULL, b->n_rows);
    s->x = s->w->xn;
    return matmul_rows(s->x, s->w->dim, b);
}

void experts_in(Workspace *w, const Layer *l, const Batch *b) {
    ExpertStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l, .x = w->x};
    int pairs = b->n_rows * l->kind.n_used;
    if (l->norm_router) route(&s, normed(&s, l->norm_router, b));
    MatmulRows rows = l->norm_ffn ? normed(&s, l->norm_ffn, b) : matmul_rows(w->x, w->dim, b);
    if (!l->norm_router) route(&s, rows);
    if (l->shared_gate.data) shared_in(&s, rows);
    if (l->norm_experts) normed(&s, l->norm_experts, b);
    StackProduct p = product_of(&s, b, s.x, w->dim);
    p.one_row = b->n_rows == 1 && !route_weighs_inputs(l->kind.routing);
    if (p.one_row) p.stride = 0;
    else {
        tasks_over_rows(w, b->n_rows, (double)l->kind.n_used * w->dim, gather_rows, &s);
        p.x = w->experts.x;
    }
    p.n_jobs = l->w_up.data ? 2 : 1;
    p.stack[0] = &l->w_gate, p.y[0] = w->h;
    p.stack[1] = &l->w_up, p.y[1] = w->up;
    stack_product_run(p);
    s.product = &p;
    tasks_over_rows(w, pairs, 8.0 * l->w_gate.n_out, gate_pairs, &s);
}

// x += norm(the sum of the outputs of a row's experts)
static void add_experts(void *arg, int first, int last, int thread) {
    (void)thread;
    ExpertStep *s = arg;
    const Layer *l = s->l;
    const ExpertRows *e = &s->w->experts;
    size_t dim = (size_t)s->w->dim, n_used = (size_t)l->kind.n_used;
    for (size_t row = (size_t)first; row < (size_t)last; row++) {
        float *out = e->out + row * dim, *sum = out, *x = s->w->x + row * dim;
        bool shared = l->shared_down.data;
        float part = shared && l->shared_route.data ? sigmoid(e->shared[row]) : 1;
        if (l->norm_shared_out) s->k->rmsnorm(out, out, l->norm_shared_out, (int)dim, l->kind.eps);
        if (l->norm_experts_out) sum = s->w->xn + row * dim, shared = false; // the shared one is added later
        for (size_t i = 0; i < dim; i++) sum[i] = shared ? sum[i] * part : 0;
        for (size_t k = 0; k < n_used; k++) {
            const float *y = e->x + (size_t)e->place[row * n_used + k] * dim;
            float weight = route_weighs_inputs(l->kind.routing) ? 1 : e->weight[row * n_used + k];
            for (size_t i = 0; i < dim; i++) sum[i] += weight * y[i];
        }
        if (sum != out) s->k->rmsnorm(sum, sum, l->norm_experts_out, (int)dim, l->kind.eps);
        for (size_t i = 0; i < dim && sum != out; i++) out[i] += sum[i];
        if (l->norm_ffn_out) s->k->rmsnorm(out, out, l->norm_ffn_out, (int)dim, kind_eps_out(&l->kind));
        for (size_t i = 0; i < dim; i++) x[i] += out[i];
    }
}

void experts_out(Workspace *w, const Layer *l, const Batch *b) {
    ExpertStep s = {.k = cpu_kernels_of(l->be), .w = w, .l = l};
    StackProduct p = product_of(&s, b, w->h, l->w_down.n_in);
    p.n_jobs = 1;
    p.stack[0] = &l->w_down, p.y[0] = w->experts.x;
    stack_product_run(p);
    if (l->shared_down.data) {
        MatmulJob job = {.w = &l->shared_down, .y = w->experts.out, .y_stride = (size_t)w->dim};
        MatmulRows rows = matmul_rows(w->h + expert_rows_shared(w, l), l->shared_down.n_in, b);
        matmul_run(s.k, w, &job, 1, rows);
    }
    tasks_over_rows(w, b->n_rows, (2.0 + l->kind.n_used) * w->dim, add_experts, &s);
}
