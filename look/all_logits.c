// look/all_logits.c: see look/all_logits.h.
#include "look/all_logits.h"

#include "base/signals.h"
#include "step.h"

// Makes a step of the next tokens of seq, as many as it takes and the cache has room for. For --evict policies that
// treat the prompt separately, the first half of the tokens counts as the prompt.
static bool next_rows(Engine *e, Sequence *seq, Step *t) {
    int n_prompt = seq->n_tokens / 2, border = seq->n_cached < n_prompt && e->evict ? n_prompt : seq->n_tokens;
    int n = int_min(scheduler_max_rows(e->sched), border - seq->n_cached);
    if (e->evict) n = int_min(n, evict_room(e->evict, seq, n_prompt));
    if (n < 1 || !kvcache_reserve(&e->kv, seq, sequence_slots(seq) + n)) return false;
    step_clear(t);
    StepRows *rows = step_add(t, NULL, seq, n, false);
    if (e->evict) rows->probe = evict_probe(e->evict, seq, n_prompt, n);
    step_fill(t);
    return true;
}

static bool signal_came(void *arg, int n_layers) {
    (void)arg, (void)n_layers;
    return signals_came();
}

void look_all_logits(Engine *e, const int *ids, int n, const Watch *watch, LookSlice *take, void *arg) {
    Step t = {0};
    const Batch *b = &t.batch;
    Sequence seq = {0};
    int rows[LOOK_SLICE];
    bool more = true;
    step_new(&t, &e->kv, scheduler_max_rows(e->sched), 1);
    t.batch.watch = watch;
    sequence_push(&seq, ids, n);
    // The cache cannot be full: n is within the context or --evict frees slots, and there is no other sequence.
    for (; seq.n_cached < n && more && !signals_came() && next_rows(e, &seq, &t);) {
        if (!model_hidden(&e->model, &e->work, e->kv.pool, b, &(ModelStop){signal_came, NULL}))
            break; // the sequence ends here
        for (int done = 0, n_slice; done < b->n_rows && more; done += n_slice) {
            n_slice = int_min(int_min(LOOK_SLICE, e->work.max_out), b->n_rows - done);
            for (int i = 0; i < n_slice; i++) rows[i] = done + i;
            more = take(arg, model_logits(&e->model, &e->work, b, rows, n_slice), seq.n_cached + done, n_slice);
        }
        kvcache_advance(&e->kv, &seq, b->n_rows);
    }
    sequence_end(&e->kv, &seq);
    step_free(&t);
}
