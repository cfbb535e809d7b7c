// cpu/attention_mass.c: sums of the softmax weights that the queries of a batch give to each slot.
#include "cpu/attention.h"

#include "cpu/seq_rows.h"
#include "cpu/tasks.h"

typedef struct {
    Workspace *w;
    const Layer *l;
    const KvPool *kv;
    const Batch *b;
} MassTask;

static void mass_of_head(void *arg, int head, int thread) {
    MassTask *m = arg;
    SequenceRows r = seq_rows_at(m->b, m->kv, 0);
    AttendTask t = seq_rows_task(m->w, m->l, m->kv, m->b, &r);
    Probe *p = m->b->probe;
    int group = t.heads->n_heads / t.heads->n_kv_heads;
    size_t at = (size_t)m->l->index * (size_t)t.heads->n_kv_heads + (size_t)head;
    t.kv_head = head;
    t.first = p->first_row * group;
    t.last = r.n * group;
    t.lse = NULL;
    t.scratch = tasks_scratch(m->w, thread);
    cpu_kernels_of(m->l->be)->attend_mass(&t, p->mass + at * (size_t)p->n_slots);
}

void attention_mass_add(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    MassTask m = {w, l, kv, b};
    threads_run(w->pool, mass_of_head, &m, l->heads.n_kv_heads);
}
