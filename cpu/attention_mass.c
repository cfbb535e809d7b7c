// cpu/attention_mass.c: sums of the softmax weights that the queries of a batch give to each slot.
#include "cpu/attention.h"

#include "cpu/seq_rows.h"

#include <math.h>

typedef struct {
    Workspace *w;
    const Layer *l;
    const KvPool *kv;
    const Batch *b;
} MassTask;

static float dot(const float *a, const float *b, int n) { // eight separate sums, which the compiler makes vectors of
    float s[8] = {0}, rest = 0;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += a[i + k] * b[i + k];
    for (; i < n; i++) rest += a[i] * b[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])) + rest;
}

// Adds the softmax weights of one row and head to `mass`.
static void add_mass(const AttendTask *t, int pair, float *scores, float *mass) {
    const KvPool *kv = t->kv;
    int slot = t->slot[pair / (t->heads->n_heads / t->heads->n_kv_heads)], first = attend_first(t, slot);
    const float *q = t->q + attend_query(t, pair);
    float key[SEAL_HEAD], max = -INFINITY, sum = 0;
    for (int s = first; s <= slot; s++) {
        const uint8_t *at = kv->k + attend_at(t, false, s) * kv_type_bytes(kv->type_k);
        type_info(kv->type_k)->dequantize(at, key, (size_t)kv->head_dim);
        scores[s] = softcap(dot(q, key, kv->head_dim) * t->heads->scale, t->heads->softcap);
        max = fmaxf(max, scores[s]);
    }
    for (int s = first; s <= slot; s++) sum += scores[s] = expf(scores[s] - max);
    sum += attend_sink_weight(t, pair, max);
    for (int s = first; s <= slot; s++) mass[s] += scores[s] / sum;
}

static void mass_of_head(void *arg, int head, int thread) {
    (void)thread;
    MassTask *m = arg;
    SequenceRows r = seq_rows_at(m->b, m->kv, 0);
    AttendTask t = seq_rows_task(m->w, m->l, m->kv, m->b, &r);
    Probe *p = m->b->probe;
    int group = t.heads->n_heads / t.heads->n_kv_heads;
    size_t at = (size_t)m->l->index * (size_t)t.heads->n_kv_heads + (size_t)head;
    t.kv_head = head;
    for (int pair = p->first_row * group; pair < r.n * group; pair++)
        add_mass(&t, pair, p->scores + (size_t)head * (size_t)p->n_slots, p->mass + at * (size_t)p->n_slots);
}

void attention_mass_add(Workspace *w, const Layer *l, const KvPool *kv, const Batch *b) {
    MassTask m = {w, l, kv, b};
    threads_run(w->pool, mass_of_head, &m, l->heads.n_kv_heads);
}
