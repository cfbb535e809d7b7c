// step.c: builds the batch of a step. See step.h.
#include "step.h"

#include <assert.h>
#include <stdlib.h>

void step_new(Step *t, const KvCache *kv, int max_rows, int max_seqs) {
    size_t seqs = (size_t)max_seqs, row_ints = (size_t)max_rows * sizeof(int);
    *t = (Step){.kv = kv};
    t->rows = mem_alloc(seqs * sizeof *t->rows);
    t->draft = mem_alloc(row_ints);
    t->draw = mem_alloc(seqs * sizeof *t->draw);
    Batch *b = &t->batch;
    b->token = mem_alloc(row_ints);
    b->pos = mem_alloc(row_ints);
    b->slot = mem_alloc(row_ints);
    b->seq = mem_alloc(row_ints);
    b->out_row = mem_alloc(row_ints);
    b->ended = mem_alloc(row_ints);
    b->max_blocks = (kv->max_slots + kv->pool->block - 1) / kv->pool->block;
    b->block_table = mem_alloc(seqs * (size_t)b->max_blocks * sizeof(int));
    if (kv->states.pool.n_layers > 0) {
        b->state_in = mem_alloc(seqs * sizeof *b->state_in);
        b->state_out = mem_alloc(row_ints);
    }
    if (kv->partner) b->window_table = mem_alloc(seqs * (size_t)b->max_blocks * sizeof(int));
}

void step_free(Step *t) {
    free(t->rows);
    free(t->draft);
    free(t->draw);
    free(t->batch.token);
    free(t->batch.pos);
    free(t->batch.slot);
    free(t->batch.seq);
    free(t->batch.out_row);
    free(t->batch.ended);
    free(t->batch.block_table);
    free(t->batch.window_table);
    free(t->batch.state_in);
    free(t->batch.state_out);
}

void step_clear(Step *t) { t->batch.n_rows = t->batch.n_out = t->batch.n_seqs = 0; }

StepRows *step_add(Step *t, Request *r, Sequence *q, int n, bool wants_logits) {
    Batch *b = &t->batch;
    StepRows *rows = &t->rows[b->n_seqs++];
    *rows = (StepRows){.request = r,
                       .seq = q,
                       .slot = sequence_slots(q),
                       .first = q->n_cached,
                       .n_known = n,
                       .first_out = n - 1,
                       .n_out = wants_logits};
    b->n_rows += n;
    b->n_out += rows->n_out;
    return rows;
}

static void put_tables(Step *t, int seq, const Sequence *q) {
    Batch *b = &t->batch;
    size_t at = (size_t)seq * (size_t)b->max_blocks;
    kvcache_table(t->kv, q, KV_FULL, b->block_table + at);
    if (b->window_table) kvcache_table(t->kv, q, KV_WINDOW, b->window_table + at);
}

// ---- rows that policies pick ----------------------------------------------------------------------------------------

// Narrow.choose: calls the RowsEnd.choose of each sequence. Sequences without one keep all their rows.
static int choose_rows(void *arg, const Layer *l, const KvPool *kv, const Batch *b, int *rows) {
    const Step *t = arg;
    int n = 0;
    for (int first = 0, end; first < b->n_rows; first = end) {
        const RowsEnd *ends = t->rows[b->seq[first]].ends;
        for (end = first; end < b->n_rows && b->seq[end] == b->seq[first];) end++;
        if (ends && (ends->layer < 0 || ends->layer == l->index))
            n += ends->choose(ends->arg, l, kv, b, first, end - first, rows + n);
        else
            for (int i = first; i < end; i++) rows[n++] = i;
    }
    return n;
}

// KvArrival.wait: calls that of each sequence.
static void wait_for_rows(void *arg, const Layer *l) {
    const Step *t = arg;
    for (int seq = 0; seq < t->batch.n_seqs; seq++)
        if (t->rows[seq].arrival) t->rows[seq].arrival->wait(t->rows[seq].arrival->arg, l);
}

static void put_narrow(Step *t, const StepRows *rows) {
    Batch *b = &t->batch;
    if (rows->arrival) b->arrival = &t->arrival;
    if (!rows->ends) return;
    bool same = !b->narrow || t->narrow.layer == rows->ends->layer;
    t->narrow = (Narrow){same ? rows->ends->layer : -1, choose_rows, t};
    b->narrow = &t->narrow;
}

// The index of the token of row i of a sequence's rows.
static int index_of(const StepRows *rows, int i) { return rows->picked ? rows->picked[i] : rows->first + i; }

// The token of row i of a sequence's rows; -1: the device has drawn it, and the host does not know it yet.
static int token_of(const StepRows *rows, int i) {
    if (i >= rows->n_known) return rows->draft[i - rows->n_known];
    int at = index_of(rows, i);
    return at < rows->seq->n_tokens ? rows->seq->tokens[at] : -1;
}

void step_fill(Step *t) {
    Batch *b = &t->batch;
    int row = 0, out = 0;
    b->probe = NULL;
    b->narrow = NULL;
    b->arrival = NULL;
    b->whole = false;
    b->copy = t->kv->copies;
    b->window_copy = t->kv->partner_copies;
    b->n_copies = t->kv->n_copies;
    t->arrival = (KvArrival){wait_for_rows, t};
    for (int seq = 0; seq < b->n_seqs; seq++) {
        const StepRows *rows = &t->rows[seq];
        put_tables(t, seq, rows->seq);
        kvcache_put_states(t->kv, rows->seq, rows->first, seq, row, b);
        for (int i = 0; i < rows->n_out; i++) b->out_row[out++] = row + rows->first_out + i;
        for (int i = 0; i < rows->n_known + rows->n_draft; i++, row++) {
            b->token[row] = token_of(rows, i);
            b->pos[row] = index_of(rows, i);
            b->slot[row] = rows->picked ? rows->picked[i] : rows->slot + i;
            b->seq[row] = seq;
        }
        put_narrow(t, rows);
        if (rows->probe) b->probe = rows->probe;
        b->whole = b->whole || rows->wants_hidden;
    }
    if (b->narrow) b->whole = false;
    assert(row == b->n_rows && out == b->n_out && (!b->probe || b->n_seqs == 1));
}
