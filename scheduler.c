// scheduler.c: see scheduler.h.
#include "scheduler.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct Scheduler {
    KvCache *kv;
    Sampler *sampler;
    int n_vocab, max_rows, max_seqs;
    Request *first;     // running and waiting, oldest first
    Request **in_batch; // (max_seqs) the request of each sequence of the batch
    int *rows_of;       // (max_seqs) how many rows it has there
    Batch batch;
    int64_t n_preempted;
    Eviction eviction; // room NULL: none
    atomic_bool interrupted;
};

const char *finish_name(Finish f) {
    switch (f) {
    case RUNNING: return "running";
    case FINISH_EOG: return "eog";
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH:
    case FINISH_CONTEXT: return "length";
    case FINISH_INTERRUPT: return "interrupt";
    case FINISH_BROKEN: return "error";
    }
    return "?";
}

Scheduler *scheduler_new(KvCache *kv, Sampler *sampler, int n_vocab, int max_rows, int max_seqs) {
    Scheduler *s = mem_alloc(sizeof *s);
    *s = (Scheduler){.kv = kv, .sampler = sampler, .n_vocab = n_vocab, .max_rows = max_rows, .max_seqs = max_seqs};
    s->in_batch = mem_alloc((size_t)max_seqs * sizeof *s->in_batch);
    s->rows_of = mem_alloc((size_t)max_seqs * sizeof *s->rows_of);
    Batch *b = &s->batch;
    size_t row_ints = (size_t)max_rows * sizeof(int);
    b->token = mem_alloc(row_ints);
    b->pos = mem_alloc(row_ints);
    b->slot = mem_alloc(row_ints);
    b->seq = mem_alloc(row_ints);
    b->out_row = mem_alloc(row_ints);
    b->max_blocks = (kv->max_slots + kv->pool.block - 1) / kv->pool.block;
    b->block_table = mem_alloc((size_t)max_seqs * (size_t)b->max_blocks * sizeof(int));
    return s;
}

void scheduler_free(Scheduler *s) {
    if (!s) return;
    free(s->in_batch);
    free(s->rows_of);
    free(s->batch.token);
    free(s->batch.pos);
    free(s->batch.slot);
    free(s->batch.seq);
    free(s->batch.out_row);
    free(s->batch.block_table);
    free(s);
}

void scheduler_evict(Scheduler *s, Eviction eviction) { s->eviction = eviction; }

int scheduler_max_rows(const Scheduler *s) { return s->max_rows; }

Request *scheduler_request(const Scheduler *s, int seq) { return s->in_batch[seq]; }

void scheduler_interrupt(Scheduler *s) { atomic_store(&s->interrupted, true); }

int64_t scheduler_preemptions(const Scheduler *s) { return s->n_preempted; }

static void finish(Scheduler *s, Request *r, Finish why) {
    r->finish = why;
    for (Request *b = r->branches; b; b = b->next) b->finish = why;
    r->branches = NULL;
    for (Request **at = &s->first; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    r->next = NULL;
}

void scheduler_cancel(Scheduler *s, Request *r) {
    if (r->finish == RUNNING) finish(s, r, FINISH_INTERRUPT);
}

// ---- the rows of a step ---------------------------------------------------------------------------------------------

static bool decoding(const Request *r) { return r->n_new > 0 && r->seq.n_tokens - r->seq.n_cached == 1; }
static bool running(const Request *r) { return r->seq.n_blocks > 0; }

static bool in_batch(const Scheduler *s, const Request *r) {
    for (int i = 0; i < s->batch.n_seqs; i++)
        if (s->in_batch[i] == r) return true;
    return false;
}

// Takes the blocks of the newest request after r, which computes its tokens again later; false when there is none.
static bool preempt_for(Scheduler *s, const Request *r) {
    Request *newest = NULL;
    for (Request *q = r->next; q; q = q->next)
        if (running(q) && !in_batch(s, q)) newest = q;
    if (!newest) return false;
    kv_release(s->kv, &newest->seq);
    s->n_preempted++;
    return true;
}

static int n_branches(const Request *r) {
    int n = 0;
    for (const Request *b = r->branches; b; b = b->next) n++;
    return n;
}

// Tokens at the beginning of both that fill whole blocks, those of b's last token left out: that one has to be
// computed.
static int common_slots(const KvCache *kv, const Sequence *a, const Sequence *b) {
    int n = 0, most = int_min(a->n_tokens, b->n_tokens - 1);
    while (n < most && a->tokens[n] == b->tokens[n]) n++;
    return n / kv->pool.block * kv->pool.block;
}

// Whether an older request is about to compute what r begins with: r waits and takes its blocks.
static bool prefix_is_coming(const Scheduler *s, const Request *r) {
    if (!s->kv->ids) return false; // nothing is shared
    for (const Request *q = s->first; q != r; q = q->next)
        if (running(q) && !decoding(q) && common_slots(s->kv, &q->seq, &r->seq) > q->seq.n_cached) return true;
    return false;
}

// The most slots that r can come to use.
static int most_slots(const Scheduler *s, const Request *r) {
    int64_t wish = (int64_t)r->n_prompt + r->max_new;
    return r->max_new < 0 || wish > s->kv->max_slots ? s->kv->max_slots : (int)wish;
}

// Whether a request that has no blocks may take them. Alone it may always: then it has all there are.
static bool may_begin(Scheduler *s, Request *r) {
    int others = 0, spare = n_branches(r), size = s->kv->pool.block;
    for (const Request *q = s->first; q; q = q->next) {
        others += running(q);
        spare += running(q) && q->seq.n_blocks * size < most_slots(s, q);
    }
    if (others == 0) return true;
    if (others + 1 + n_branches(r) > s->max_seqs || s->kv->n_free <= spare) return false;
    kv_match_prefix(s->kv, &r->seq);
    int slots = int_min(r->seq.n_tokens + 1, most_slots(s, r)), need = (slots + size - 1) / size - r->seq.n_blocks;
    if (s->kv->n_free >= need + spare) return true;
    kv_release(s->kv, &r->seq);
    return false;
}

// Puts up to `limit` uncomputed tokens of r into the batch; false when no block is to be had for them.
static bool add_rows(Scheduler *s, Request *r, int limit) {
    Batch *b = &s->batch;
    Sequence *q = &r->seq;
    int n = int_min(limit, q->n_tokens - q->n_cached);
    if (s->eviction.room) n = int_min(n, s->eviction.room(s->eviction.arg, r));
    int slot = sequence_slots(q);
    while (n < 1 || !kv_reserve(s->kv, q, slot + n))
        if (n < 1 || slot + n > s->kv->max_slots || !preempt_for(s, r)) return false;
    if (s->eviction.room) b->probe = s->eviction.probe(s->eviction.arg, r, n);
    int seq = b->n_seqs++;
    s->in_batch[seq] = r;
    s->rows_of[seq] = n;
    memcpy(b->block_table + (size_t)seq * (size_t)b->max_blocks, q->blocks, (size_t)q->n_blocks * sizeof(int));
    for (int i = 0; i < n; i++) {
        int row = b->n_rows++;
        b->token[row] = q->tokens[q->n_cached + i];
        b->pos[row] = q->n_cached + i;
        b->slot[row] = slot + i;
        b->seq[row] = seq;
    }
    bool wants_logits = q->n_cached + n == q->n_tokens && r->max_new != 0;
    if (wants_logits) b->out_row[b->n_out++] = b->n_rows - 1;
    return true;
}

static bool has_room(const Scheduler *s) { return s->batch.n_rows < s->max_rows && s->batch.n_seqs < s->max_seqs; }

static void add_decode_rows(Scheduler *s) {
    for (Request *r = s->first; r && has_room(s); r = r->next)
        if (decoding(r)) add_rows(s, r, 1);
}

static void begin(Request *r) {
    if (r->time.begun != 0) return; // it was preempted
    r->n_reused = r->seq.n_cached;
    r->time.begun = clock_now();
}

// Oldest first. The first that gets no blocks ends it: who comes later must not take those that it waits for.
static void add_prefill_rows(Scheduler *s) {
    for (Request *r = s->first; r && has_room(s); r = r->next) {
        if (decoding(r)) continue;
        if (!running(r) && prefix_is_coming(s, r)) continue;
        if (!running(r) && !may_begin(s, r)) return;
        kv_match_prefix(s->kv, &r->seq);
        if (!add_rows(s, r, s->max_rows - s->batch.n_rows)) return;
        begin(r);
    }
}

bool scheduler_next(Scheduler *s, Batch **out) {
    Batch *b = &s->batch;
    if (atomic_exchange(&s->interrupted, false))
        while (s->first) finish(s, s->first, FINISH_INTERRUPT);
    while (s->first) {
        b->n_rows = b->n_out = b->n_seqs = 0;
        add_decode_rows(s);
        add_prefill_rows(s);
        if (b->n_rows > 0) {
            b->copy = s->kv->copies;
            b->n_copies = s->kv->n_copies;
            *out = b;
            return true;
        }
        finish(s, s->first, FINISH_CONTEXT); // its next slot does not exist: the cache is full
    }
    return false;
}

// ---- what came of it ------------------------------------------------------------------------------------------------

static void take_token(Scheduler *s, Request *r, const float *logits, double now) {
    Sequence *q = &r->seq;
    int token = sampler_sample(s->sampler, &r->sampling, logits, q->tokens, q->n_tokens, r->sequence_key,
                               (uint64_t)q->n_tokens);
    if (token < 0) {
        finish(s, r, FINISH_BROKEN);
        return;
    }
    sequence_push(q, &token, 1);
    r->n_new++;
    timeline_token(&r->time, now);
    Finish verdict = r->emit ? r->emit(r, token, logits) : RUNNING;
    if (verdict == RUNNING && r->max_new >= 0 && r->n_new >= r->max_new) verdict = FINISH_LENGTH;
    bool full = q->n_tokens - q->n_gone > s->kv->max_slots && !s->eviction.endless;
    if (verdict == RUNNING && full) verdict = FINISH_CONTEXT;
    if (verdict != RUNNING) finish(s, r, verdict);
}

// The branches begin where r stands now: its prompt is computed, its first token not yet drawn.
static void branch_off(Scheduler *s, Request *r, const float *logits, double now) {
    Request *first = r->branches, *last = r, *after = r->next;
    if (!first) return;
    r->branches = NULL;
    for (Request *b = first; b; b = b->next) {
        b->n_prompt = b->n_reused = r->n_prompt;
        b->n_new = 0;
        b->finish = RUNNING;
        b->time.start = r->time.start;
        b->time.begun = r->time.begun;
        b->time.prefill_end = now;
        kv_fork(s->kv, &r->seq, &b->seq);
        last = b;
    }
    last->next = after;
    r->next = first;
    for (Request *b = first, *next; b != after; b = next) {
        next = b->next;
        take_token(s, b, logits, now);
    }
}

void scheduler_add(Scheduler *s, Request *r) {
    bool known = r->logits && r->seq.n_cached == r->seq.n_tokens;
    assert(known || r->seq.n_cached < r->seq.n_tokens);
    r->n_prompt = r->seq.n_tokens;
    r->n_reused = r->seq.n_cached;
    r->n_new = 0;
    r->finish = RUNNING;
    r->next = NULL;
    if (r->time.start == 0) r->time.start = clock_now();
    Request **at = &s->first;
    while (*at) at = &(*at)->next;
    *at = r;
    if (!known) return;
    r->time.prefill_end = r->time.start;
    if (r->max_new == 0) finish(s, r, FINISH_LENGTH);
    else take_token(s, r, r->logits, clock_now());
}

void scheduler_take(Scheduler *s, const float *logits) {
    Batch *b = &s->batch;
    double now = clock_now();
    s->kv->n_copies = 0;
    for (int seq = 0, out = 0, row = 0; seq < b->n_seqs; seq++) {
        Request *r = s->in_batch[seq];
        r->seq.n_cached += s->rows_of[seq];
        kv_commit(s->kv, &r->seq, r->seq.n_cached);
        row += s->rows_of[seq];
        if (r->n_new == 0 && r->seq.n_cached == r->seq.n_tokens) r->time.prefill_end = now;
        bool has_logits = out < b->n_out && b->out_row[out] == row - 1;
        if (has_logits) {
            const float *own = logits + (size_t)out++ * (size_t)s->n_vocab;
            branch_off(s, r, own, now);
            take_token(s, r, own, now);
        } else if (r->seq.n_cached == r->seq.n_tokens) finish(s, r, FINISH_LENGTH);
    }
}
