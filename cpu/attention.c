// cpu/attention.c: see cpu/attention.h.
#include "cpu/attention.h"

#include "cpu/seq_rows.h"
#include "cpu/tasks.h"

#include <limits.h>
#include <math.h>

// Rows that are divided into tasks together: all rows of a sequence; with sealed planes the rows of one group, since
// all rows of a task must see the same slots sealed.
typedef struct {
    SequenceRows rows;
    int row, n_rows; // the span is rows [row, row + n_rows) of `rows`
    int first_task, n_chunks;
} AttendSpan;

enum { MARKS = 32 }; // of the tasks of a step

typedef struct {
    AttendKernel attend;
    Workspace *w;
    const Layer *l;
    const KvPool *kv;
    const Batch *b;
    int n_tasks;
    int n_parts;            // parts of a single row's keys; 1: not divided
    AttendSpan mark[MARKS]; // mark[i] has task i * n_tasks / MARKS: where the search for a task's span begins
} Attention;

// Chooses attention in 16 bits if the layer's products round more anyway: they are in bf16 or in int8.
const AttendKernel *attention_kernel(const Layer *l) {
    const CpuKernels *k = cpu_kernels_of(l->be);
    bool rounds = (k->bf16_panels && k->bf16_panels(l->wo.type)) || (k->int8_panels && k->int8_panels(l->wo.type)) ||
                  (k->bf16_lanes && k->bf16_lanes(l->wo.type));
    return k->attend_16bit && rounds ? k->attend_16bit : &k->attend;
}

// The span that begins at row `row` of the sequence.
static AttendSpan span_at(const Attention *a, SequenceRows rows, int row, int first_task) {
    AttendSpan s = {.rows = rows, .row = row, .n_rows = rows.n - row, .first_task = first_task};
    int group = a->l->heads.n_heads / a->l->heads.n_kv_heads;
    if (a->kv->tail_of) s.n_rows = int_min(s.n_rows, SEAL - (rows.slot + row) % SEAL);
    s.n_chunks = (s.n_rows * group + a->attend.pairs - 1) / a->attend.pairs;
    return s;
}

static int span_tasks(const Attention *a, const AttendSpan *s) { return s->n_chunks * a->l->heads.n_kv_heads; }

// Advances to the next span of the batch; false: this was the last.
static bool next_span(const Attention *a, AttendSpan *s) {
    int first_task = s->first_task + span_tasks(a, s), row = s->row + s->n_rows, next_seq = s->rows.first + s->rows.n;
    if (row < s->rows.n) *s = span_at(a, s->rows, row, first_task);
    else if (next_seq < a->b->n_rows) *s = span_at(a, seq_rows_at(a->b, a->kv, next_seq), 0, first_task);
    else return false;
    return true;
}

// Advances *s to the span that has the task. The task must not belong to an earlier span.
static void seek_span(const Attention *a, AttendSpan *s, int task) {
    while (task >= s->first_task + span_tasks(a, s)) next_span(a, s);
}

// ---- one row's keys in parts ----------------------------------------------------------------------------------------
//
// If there are fewer KV heads than threads, the keys of a single row are divided into parts, each a task. Outputs and
// lse of the parts are stored in w->h, which attention does not use otherwise.

enum { PART_KEYS = 256 }; // the least keys of a part

static size_t part_floats(const Workspace *w, const Heads *h) { return (size_t)w->q_dim + (size_t)h->n_heads; }

// The number of parts: the smallest that gives all threads equally many tasks, within the limits of keys and memory.
static int count_parts(const Attention *a) {
    const Heads *h = &a->l->heads;
    const Workspace *w = a->w;
    int threads = threads_count(w->pool), common = threads, rest = h->n_kv_heads;
    if (a->b->n_rows != 1 || !a->attend.in_parts || cpu_kernels_of(a->l->be)->in_order) return 1;
    while (rest) {
        int next = common % rest;
        common = rest;
        rest = next;
    }
    int keys = a->b->slot[0] + 1 - heads_oldest(h, a->b->slot[0]);
    size_t room = (size_t)w->max_rows * (size_t)w->ffn / part_floats(w, h);
    return int_max(1, int_min(int_min(threads / common, keys / PART_KEYS), room < INT_MAX ? (int)room : INT_MAX));
}

static void part_task(void *arg, int task, int thread) {
    Attention *a = arg;
    const Heads *h = &a->l->heads;
    SequenceRows rows = seq_rows_at(a->b, a->kv, 0);
    AttendTask t = seq_rows_task(a->w, a->l, a->kv, a->b, &rows);
    int part = task / h->n_kv_heads, first = attend_first(&t, rows.slot);
    int64_t keys = rows.slot + 1 - first;
    t.kv_head = task % h->n_kv_heads;
    t.from = first + (int)(keys * part / a->n_parts);
    t.end = first + (int)(keys * (part + 1) / a->n_parts);
    t.out = a->w->h + (size_t)part * part_floats(a->w, h);
    t.lse = t.out + a->w->q_dim;
    t.sinks = NULL; // merge_parts adds them
    t.scratch = tasks_scratch(a->w, thread);
    t.last = h->n_heads / h->n_kv_heads;
    attention_by_pairs(&t, a->attend.pairs, a->attend.run);
}

// w->a = the parts' outputs, weighted by their lse.
static void merge_parts(const Attention *a) {
    const Heads *h = &a->l->heads;
    const Workspace *w = a->w;
    size_t stride = part_floats(w, h), hd = (size_t)heads_v_dim(h);
    memset(w->a, 0, (size_t)w->q_dim * sizeof *w->a);
    for (int head = 0; head < h->n_heads; head++) {
        const float *lse = w->h + w->q_dim + head, *from = w->h + (size_t)head * hd;
        float *to = w->a + (size_t)head * hd, max = -INFINITY, sum = 0;
        for (int part = 0; part < a->n_parts; part++) max = fmaxf(max, lse[(size_t)part * stride]);
        if (a->l->sinks) max = fmaxf(max, a->l->sinks[head]);
        for (int part = 0; part < a->n_parts; part++) sum += expf(lse[(size_t)part * stride] - max);
        if (a->l->sinks) sum += expf(a->l->sinks[head] - max);
        for (int part = 0; part < a->n_parts; part++) {
            float weight = expf(lse[(size_t)part * stride] - max) / sum;
            for (size_t i = 0; i < hd; i++) to[i] += weight * from[(size_t)part * stride + i];
        }
    }
}

// ---- rows and heads -------------------------------------------------------------------------------------------------

static void attend_task(void *arg, int task, int thread) {
    Attention *a = arg;
    const Heads *h = &a->l->heads;
    int group = h->n_heads / h->n_kv_heads;
    task = a->n_tasks - 1 - task; // the longest rows come last; hand them out first
    AttendSpan s = a->mark[(int64_t)task * MARKS / a->n_tasks];
    seek_span(a, &s, task);
    int chunk = (task - s.first_task) / h->n_kv_heads, first = s.row * group, last = first + s.n_rows * group;
    AttendTask t = seq_rows_task(a->w, a->l, a->kv, a->b, &s.rows);
    t.kv_head = (task - s.first_task) % h->n_kv_heads;
    t.first = first + chunk * a->attend.pairs;
    t.last = int_min(t.first + a->attend.pairs, last);
    t.scratch = tasks_scratch(a->w, thread);
    a->attend.run(&t);
}

// Counts the tasks; returns the multiply-adds of all of them.
static double count_tasks(Attention *a) {
    double work = 0;
    AttendSpan s = span_at(a, seq_rows_at(a->b, a->kv, 0), 0, 0);
    a->n_tasks = 0;
    do {
        a->n_tasks += span_tasks(a, &s);
        work += 2.0 * s.n_rows * a->w->q_dim * (a->b->slot[s.rows.first + s.row + s.n_rows - 1] + 1);
    } while (next_span(a, &s));
    return work;
}

static void set_marks(Attention *a) {
    AttendSpan s = span_at(a, seq_rows_at(a->b, a->kv, 0), 0, 0);
    for (int i = 0; i < MARKS; i++) {
        seek_span(a, &s, (int)((int64_t)i * a->n_tasks / MARKS));
        a->mark[i] = s;
    }
}

void attention_run(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    enum { FEWEST_PAIRS = 32 };
    Attention a = {.attend = *attention_kernel(l), .w = w, .l = l, .kv = kv, .b = b};
    double work = count_tasks(&a);
    a.n_parts = count_parts(&a);
    while (a.n_parts == 1 && a.n_tasks < threads_count(w->pool) && a.attend.pairs > FEWEST_PAIRS) {
        a.attend.pairs /= 2; // a task for every thread
        count_tasks(&a);
    }
    set_marks(&a);
    if (a.n_parts > 1) {
        threads_run(w->pool, part_task, &a, a.n_parts * l->heads.n_kv_heads);
        merge_parts(&a);
    } else if (work < 2 * TASK_WORK)
        for (int i = 0; i < a.n_tasks; i++) attend_task(&a, i, 0);
    else threads_run(w->pool, attend_task, &a, a.n_tasks);
    if (b->probe) attention_mass_add(w, l, kv, b);
    for (int row = 0; kv->tail_of && !l->kv_used_later && row < b->n_rows;) {
        SequenceRows r = seq_rows_at(b, kv, row);
        seq_rows_keep_tail(w, l, kv, &r);
        row += r.n;
    }
}
