// look/all_logits.c: see look/all_logits.h.
#include "look/all_logits.h"

#include <stdlib.h>

#include "base/signals.h"

static Batch new_batch(int max_rows) {
    int *rows = mem_alloc(((size_t)max_rows * 5 + 1) * sizeof *rows);
    return (Batch){.n_seqs = 1,
                   .token = rows,
                   .pos = rows + max_rows,
                   .slot = rows + 2 * max_rows,
                   .seq = rows + 3 * max_rows, // stays 0
                   .state_in = rows + 4 * max_rows,
                   .state_out = rows + 4 * max_rows + 1};
}

// Puts the next tokens of seq into the batch, as many as a step takes and the cache has room for. For --evict policies
// that treat the prompt separately, the first half of the tokens counts as the prompt.
static bool next_rows(Engine *e, Sequence *seq, Batch *b) {
    int n_prompt = seq->n_tokens / 2, border = seq->n_cached < n_prompt && e->evict ? n_prompt : seq->n_tokens;
    b->n_rows = int_min(scheduler_max_rows(e->sched), border - seq->n_cached);
    if (e->evict) b->n_rows = int_min(b->n_rows, evict_room(e->evict, seq, n_prompt));
    int slot = sequence_slots(seq);
    if (b->n_rows < 1 || !kvcache_reserve(&e->kv, seq, slot + b->n_rows)) return false;
    if (e->evict) b->probe = evict_probe(e->evict, seq, n_prompt, b->n_rows);
    b->max_blocks = seq->n_blocks;
    b->block_table = mem_resize(b->block_table, (size_t)b->max_blocks * sizeof *b->block_table);
    b->window_table = mem_resize(b->window_table, (size_t)b->max_blocks * sizeof *b->window_table);
    for (int kind = 0; kind < KV_KINDS; kind++)
        kvcache_table(&e->kv, seq, kind, kind == KV_WINDOW ? b->window_table : b->block_table);
    kvcache_put_states(&e->kv, seq, seq->n_cached, 0, 0, b);
    for (int i = 0; i < b->n_rows; i++) {
        b->pos[i] = seq->n_cached + i;
        b->token[i] = seq->tokens[b->pos[i]];
        b->slot[i] = slot + i;
    }
    return true;
}

void look_all_logits(Engine *e, const int *ids, int n, const Watch *watch, LookSlice *take, void *arg) {
    Batch b = new_batch(scheduler_max_rows(e->sched));
    b.watch = watch;
    Sequence seq = {0};
    int rows[LOOK_SLICE];
    bool more = true;
    sequence_push(&seq, ids, n);
    // The cache cannot be full: n is within the context or --evict frees slots, and there is no other sequence.
    for (; seq.n_cached < n && more && !signals_caught() && next_rows(e, &seq, &b);) {
        model_hidden(&e->model, &e->work, e->kv.pool, &b);
        for (int done = 0, n_slice; done < b.n_rows && more; done += n_slice) {
            n_slice = int_min(int_min(LOOK_SLICE, e->work.max_out), b.n_rows - done);
            for (int i = 0; i < n_slice; i++) rows[i] = done + i;
            more = take(arg, model_logits(&e->model, &e->work, &b, rows, n_slice), seq.n_cached + done, n_slice);
        }
        kvcache_advance(&e->kv, &seq, b.n_rows);
    }
    kvcache_release(&e->kv, &seq);
    sequence_free(&seq);
    free(b.token);
    free(b.block_table);
    free(b.window_table);
}
