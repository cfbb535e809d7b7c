// policy/draft_steps.c: see policy/draft_steps.h.
#include "policy/draft_steps.h"

#include <assert.h>

static KvShape shape_of(const Model *m, KvShape kv) {
    kvshape_set_layers(&kv, m->layers, m->c.n_layers);
    kv.type_k = kv.type_v = model_kv_type(m);
    kv.keep_partners = true; // kvcache_truncate often removes drafts
    return kv;
}

DraftMemory draft_steps_memory(const Model *m, int n_threads, int max_rows, int n_seqs, int n_back) {
    KvShape shape = shape_of(m, (KvShape){.n_ctx = 1, .n_seqs = n_seqs, .n_back = n_back});
    return (DraftMemory){model_weight_bytes(m), workspace_bytes(m, n_threads, max_rows, n_seqs),
                         kvshape_bytes_per_slot(&shape), kvshape_state_bytes(&shape)};
}

Status draft_steps_begin(DraftSteps *d, const Model *m, ThreadPool *pool, KvShape kv, int max_rows) {
    KvShape shape = shape_of(m, kv);
    d->m = m;
    TRY(kvcache_new(&d->kv, &shape));
    TRY(workspace_new(&d->work, m, pool, max_rows, kv.n_seqs, kv.n_ctx));
    step_new(&d->step, &d->kv, max_rows, kv.n_seqs);
    return OK;
}

void draft_steps_free(DraftSteps *d) {
    step_free(&d->step);
    workspace_free(&d->work);
    kvcache_free(&d->kv);
}

const float *draft_steps_run(DraftSteps *d) {
    Batch *b = &d->step.batch;
    for (int i = 0; i < b->n_seqs; i++) { // the slots are reserved already; this reserves the states of these rows
        const StepRows *rows = &d->step.rows[i];
        bool there = kvcache_reserve(&d->kv, rows->seq, rows->slot + rows->n_known);
        assert(there);
        (void)there;
    }
    step_fill(&d->step);
    const float *logits = model_forward(d->m, &d->work, d->kv.pool, b);
    d->kv.n_copies = 0;
    return logits;
}

void draft_steps_count(DraftSteps *d) {
    const Batch *b = &d->step.batch;
    for (int i = 0; i < b->n_seqs; i++) {
        Sequence *q = d->step.rows[i].seq;
        kvcache_advance(&d->kv, q, d->step.rows[i].n_known);
        kvcache_commit(&d->kv, q, q->n_cached);
    }
}
