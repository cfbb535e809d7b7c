// bench/steps.c: see bench/steps.h.
#include "bench/steps.h"

#include "base/rng.h"

void steps_push(const Engine *e, Sequence *q, int n, uint64_t *drawn) {
    for (int i = 0; i < n; i++) {
        int token = (int)(rng_bits(1, 0, (*drawn)++) % (uint64_t)e->model.c.n_vocab);
        sequence_push(q, &token, 1);
    }
}

const float *steps_forward(Engine *e, Step *t) {
    step_fill(t);
    const float *logits = model_forward(&e->model, &e->work, e->kv.pool, &t->batch);
    if (t->batch.draw) model_drawn(&e->model, &e->work);
    return logits;
}

Status steps_compute(Engine *e, Step *t, Sequence *q, int n) {
    if (!kvcache_reserve(&e->kv, q, q->n_tokens))
        return status_error(QUILL_CONTEXT, "bench: %d slots expected for each sequence, the KV cache is full",
                            q->n_tokens);
    while (q->n_cached < n) {
        int rows = int_min(n - q->n_cached, scheduler_max_rows(e->sched));
        if (!kvcache_reserve(&e->kv, q, q->n_cached + rows)) break; // prepares the recurrent states of this step
        step_clear(t);
        step_add(t, NULL, q, rows, false);
        steps_forward(e, t);
        kvcache_advance(&e->kv, q, rows);
    }
    kvcache_reserve(&e->kv, q, q->n_tokens);
    return OK;
}
