// scheduler.c: see scheduler.h.
#include "scheduler.h"

#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FETCHED_A_ROW = 4 }; // slots that are read in less time than a row takes, by far

typedef struct {
    Batch batch;
    Request **request; // (max_seqs) of each sequence of the batch; NULL: it has ended since
    int *n_rows;       // (max_seqs) that it has there
    Draw *draw;        // (max_seqs)
} Step;

struct Scheduler {
    KvCache *kv;
    Sampler *sampler;
    int n_vocab, max_rows, max_seqs;
    Request *first; // running and waiting, oldest first
    Step steps[2];  // this one, and the one after it
    Step *step;     // that scheduler_next gave
    bool has_ahead; // the other follows it
    bool draws, may_ahead;
    int64_t n_preempted;
    Eviction eviction; // room NULL: none
    bool (*fetch)(void *arg, Request *r, int most);
    void *fetch_arg;
    int fetch_room; // slots that may still be fetched in this step
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

static void step_new(Step *t, const KvCache *kv, int max_rows, int max_seqs) {
    t->request = mem_alloc((size_t)max_seqs * sizeof *t->request);
    t->n_rows = mem_alloc((size_t)max_seqs * sizeof *t->n_rows);
    t->draw = mem_alloc((size_t)max_seqs * sizeof *t->draw);
    Batch *b = &t->batch;
    size_t row_ints = (size_t)max_rows * sizeof(int);
    b->token = mem_alloc(row_ints);
    b->pos = mem_alloc(row_ints);
    b->slot = mem_alloc(row_ints);
    b->seq = mem_alloc(row_ints);
    b->out_row = mem_alloc(row_ints);
    b->max_blocks = (kv->max_slots + kv->pool->block - 1) / kv->pool->block;
    b->block_table = mem_alloc((size_t)max_seqs * (size_t)b->max_blocks * sizeof(int));
    if (kv->partner) b->window_table = mem_alloc((size_t)max_seqs * (size_t)b->max_blocks * sizeof(int));
}

static void step_free(Step *t) {
    free(t->request);
    free(t->n_rows);
    free(t->draw);
    free(t->batch.token);
    free(t->batch.pos);
    free(t->batch.slot);
    free(t->batch.seq);
    free(t->batch.out_row);
    free(t->batch.block_table);
    free(t->batch.window_table);
}

Scheduler *scheduler_new(KvCache *kv, Sampler *sampler, int n_vocab, int max_rows, int max_seqs) {
    Scheduler *s = mem_alloc(sizeof *s);
    max_seqs = int_min(max_seqs, max_rows); // each has a row in every step
    *s = (Scheduler){.kv = kv, .sampler = sampler, .n_vocab = n_vocab, .max_rows = max_rows, .max_seqs = max_seqs};
    s->step = s->steps;
    for (int i = 0; i < 2; i++) step_new(&s->steps[i], kv, max_rows, max_seqs);
    return s;
}

void scheduler_free(Scheduler *s) {
    if (!s) return;
    for (int i = 0; i < 2; i++) step_free(&s->steps[i]);
    free(s);
}

void scheduler_draws(Scheduler *s, bool ahead) {
    s->draws = true;
    s->may_ahead = ahead;
}

void scheduler_evict(Scheduler *s, Eviction eviction) { s->eviction = eviction; }

void scheduler_fetch(Scheduler *s, bool (*fetch)(void *arg, Request *r, int most), void *arg) {
    s->fetch = fetch;
    s->fetch_arg = arg;
}

int scheduler_max_rows(const Scheduler *s) { return s->max_rows; }

Request *scheduler_request(const Scheduler *s, int seq) { return s->step->request[seq]; }

void scheduler_interrupt(Scheduler *s) { atomic_store(&s->interrupted, true); }

int64_t scheduler_preemptions(const Scheduler *s) { return s->n_preempted; }

static Step *step_ahead(Scheduler *s) { return &s->steps[s->step == s->steps]; }

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
    Step *ahead = step_ahead(s);
    for (int i = 0; s->has_ahead && i < ahead->batch.n_seqs; i++)
        if (ahead->request[i] == r) ahead->request[i] = NULL;
}

void scheduler_cancel(Scheduler *s, Request *r) {
    if (r->finish == RUNNING) finish(s, r, FINISH_INTERRUPT);
}

// ---- the rows of a step ---------------------------------------------------------------------------------------------

static bool decoding(const Request *r) { return r->n_new > 0 && r->seq.n_tokens - r->seq.n_cached == 1; }
static bool running(const Request *r) { return r->seq.n_blocks > 0; }

static bool in_batch(const Scheduler *s, const Request *r) {
    for (int i = 0; i < s->step->batch.n_seqs; i++)
        if (s->step->request[i] == r) return true;
    return false;
}

// Takes the blocks of the newest request after r, which computes its tokens again later; false when there is none.
static bool preempt_for(Scheduler *s, const Request *r) {
    Request *newest = NULL;
    for (Request *q = r->next; q; q = q->next)
        if (running(q) && !in_batch(s, q)) newest = q;
    if (!newest) return false;
    kv_release(s->kv, &newest->seq);
    newest->fetched = false;
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
    return n / kv->pool->block * kv->pool->block;
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

// Whether a request that has no blocks may take them. Alone it may always: then it has all there are. Branches that are
// still to begin count as running, each with a block of its own.
static bool may_begin(Scheduler *s, Request *r) {
    int others = 0, spare = n_branches(r), size = s->kv->pool->block;
    for (const Request *q = s->first; q; q = q->next) {
        if (!running(q)) continue;
        others += 1 + n_branches(q);
        spare += n_branches(q) + (q->seq.n_blocks * size < most_slots(s, q));
    }
    if (others == 0) return true;
    int most = int_min(s->max_seqs, kv_most_sequences(s->kv, s->max_rows));
    if (others + 1 + n_branches(r) > most || s->kv->n_free <= spare) return false;
    kv_match_prefix(s->kv, &r->seq);
    int slots = int_min(r->seq.n_tokens + 1, most_slots(s, r)), need = (slots + size - 1) / size - r->seq.n_blocks;
    if (s->kv->n_free >= need + spare) return true;
    kv_release(s->kv, &r->seq);
    return false;
}

static void put_tables(const KvCache *kv, Batch *b, int seq, const Sequence *q) {
    size_t at = (size_t)seq * (size_t)b->max_blocks;
    kv_table(kv, q, KV_FULL, b->block_table + at);
    if (b->window_table) kv_table(kv, q, KV_WINDOW, b->window_table + at);
}

// n rows of r from a slot and a token on; those of tokens that are not known yet have -1.
static void put_rows(const Scheduler *s, Step *t, Request *r, int slot, int first, int n, bool wants_logits) {
    Batch *b = &t->batch;
    const Sequence *q = &r->seq;
    int seq = b->n_seqs++;
    t->request[seq] = r;
    t->n_rows[seq] = n;
    put_tables(s->kv, b, seq, q);
    for (int i = 0; i < n; i++) {
        int row = b->n_rows++;
        b->token[row] = first + i < q->n_tokens ? q->tokens[first + i] : -1;
        b->pos[row] = first + i;
        b->slot[row] = slot + i;
        b->seq[row] = seq;
    }
    if (wants_logits) b->out_row[b->n_out++] = b->n_rows - 1;
}

// Puts up to `limit` uncomputed tokens of r into the batch; false when no block is to be had for them.
static bool add_rows(Scheduler *s, Request *r, int limit) {
    Sequence *q = &r->seq;
    int n = int_min(limit, q->n_tokens - q->n_cached);
    if (s->eviction.room) n = int_min(n, s->eviction.room(s->eviction.arg, r));
    int slot = sequence_slots(q);
    while (n < 1 || !kv_reserve(s->kv, q, slot + n))
        if (n < 1 || slot + n > s->kv->max_slots || !preempt_for(s, r)) return false;
    if (s->eviction.room) s->step->batch.probe = s->eviction.probe(s->eviction.arg, r, n);
    bool wants_logits = q->n_cached + n == q->n_tokens && r->max_new != 0;
    put_rows(s, s->step, r, slot, q->n_cached, n, wants_logits);
    return true;
}

static bool has_room(const Scheduler *s) {
    return s->step->batch.n_rows < s->max_rows && s->step->batch.n_seqs < s->max_seqs;
}

static void add_decode_rows(Scheduler *s) {
    for (Request *r = s->first; r && has_room(s); r = r->next)
        if (decoding(r)) add_rows(s, r, 1);
}

static void begin(Request *r) {
    if (r->time.begun != 0) return; // it was preempted
    r->n_reused = r->seq.n_cached;
    r->time.begun = clock_now();
}

// What is computed elsewhere of r comes before its rows. False: it has to wait for a later step. A step that has a row
// may have copies to make, which could overwrite what comes.
static bool fetch(Scheduler *s, Request *r) {
    if (r->fetched || !s->fetch) return true;
    bool alone = s->step->batch.n_rows == 0;
    assert(!alone || s->kv->n_copies == 0);
    int room = alone ? INT_MAX : s->fetch_room, had = r->seq.n_cached;
    if (room < 1 || s->kv->n_copies > 0) return false;
    r->fetched = s->fetch(s->fetch_arg, r, room);
    s->fetch_room -= r->seq.n_cached - had;
    return r->fetched;
}

// Oldest first. Once one may not begin, none behind it does: it must not take the blocks that the first waits for. But
// one that has begun goes on, older or newer (a prefix may have held the first back): it is what frees them.
static void add_prefill_rows(Scheduler *s) {
    bool waits = false;
    for (Request *r = s->first; r && has_room(s); r = r->next) {
        if (decoding(r)) continue;
        if (!running(r) && prefix_is_coming(s, r)) continue;
        if (!running(r) && (waits || !may_begin(s, r))) {
            waits = true;
            continue;
        }
        kv_match_prefix(s->kv, &r->seq);
        if (!fetch(s, r)) continue;
        if (!add_rows(s, r, s->max_rows - s->step->batch.n_rows)) return;
        begin(r);
    }
}

// A step's tokens are drawn by the device, unless somebody wants to see a row of logits or to draw from it twice.
// `pending`: the token before is not known yet.
static void plan_draws(const Scheduler *s, Step *t, bool pending) {
    Batch *b = &t->batch;
    b->draw = NULL;
    if (!s->draws || b->n_out == 0) return;
    for (int i = 0; i < b->n_out; i++) {
        const Request *r = t->request[b->seq[b->out_row[i]]];
        if ((r->emit && !r->blind) || r->branches || !draw_anywhere(&r->sampling)) return;
        t->draw[i] = (Draw){&r->sampling, r->sequence_key, r->seq.tokens, r->seq.n_tokens, pending};
    }
    b->draw = t->draw;
}

// Of a step without a row: whoever ran has given its blocks to the oldest that runs, and these are not enough for it.
// Where none runs, the oldest of all was let in and found too few.
static Request *too_large(const Scheduler *s) {
    for (Request *r = s->first; r; r = r->next)
        if (running(r)) return r;
    return s->first;
}

static void clear(Step *t) { t->batch.n_rows = t->batch.n_out = t->batch.n_seqs = 0; }

bool scheduler_next(Scheduler *s, Batch **out) {
    if (atomic_exchange(&s->interrupted, false))
        while (s->first) finish(s, s->first, FINISH_INTERRUPT);
    if (s->has_ahead) {
        s->step = step_ahead(s);
        s->has_ahead = false;
        *out = &s->step->batch;
        return true;
    }
    Batch *b = &s->step->batch;
    while (s->first) {
        clear(s->step);
        s->fetch_room = FETCHED_A_ROW * s->max_rows;
        add_decode_rows(s);
        add_prefill_rows(s);
        if (b->n_rows > 0) {
            b->copy = s->kv->copies;
            b->window_copy = s->kv->partner_copies;
            b->n_copies = s->kv->n_copies;
            plan_draws(s, s->step, false);
            *out = b;
            return true;
        }
        Request *r = too_large(s);
        finish(s, r, FINISH_CONTEXT);             // its next slot does not exist: the cache is full
        if (s->first) kv_release(s->kv, &r->seq); // of it alone
    }
    return false;
}

// Whether the step that runs is followed by one with a row of each of its requests, and of no other.
static bool goes_on(Scheduler *s) {
    const Batch *b = &s->step->batch;
    int n = 0;
    if (!s->may_ahead || !b->draw || b->n_out < b->n_seqs || s->eviction.room || atomic_load(&s->interrupted))
        return false;
    for (const Request *r = s->first; r; r = r->next, n++)
        if (r->max_new >= 0 && r->n_new + 1 >= r->max_new) return false;
    if (n > b->n_seqs) return false; // one waits to begin
    for (int i = 0; i < b->n_seqs; i++) {
        Request *r = s->step->request[i];
        if (!r || !kv_reserve(s->kv, &r->seq, sequence_slots(&r->seq) + s->step->n_rows[i] + 1)) return false;
    }
    assert(s->kv->n_copies == b->n_copies); // what these rows write into is a sequence's own since this step
    return true;
}

bool scheduler_ahead(Scheduler *s, Batch **out) {
    const Step *now = s->step;
    Step *then = step_ahead(s);
    if (!goes_on(s)) return false;
    clear(then);
    for (int i = 0; i < now->batch.n_seqs; i++) {
        Request *r = now->request[i];
        put_rows(s, then, r, sequence_slots(&r->seq) + now->n_rows[i], r->seq.n_tokens, 1, true);
    }
    then->batch.n_copies = 0;
    plan_draws(s, then, true);
    s->has_ahead = true;
    *out = &then->batch;
    return true;
}

// ---- what came of it ------------------------------------------------------------------------------------------------

static int draw(const Scheduler *s, const Request *r, const float *logits) {
    const Sequence *q = &r->seq;
    return sampler_sample(s->sampler, &r->sampling, logits, q->tokens, q->n_tokens, r->sequence_key,
                          (uint64_t)q->n_tokens);
}

// logits NULL: they are where the token was drawn.
static void take_token(Scheduler *s, Request *r, int token, const float *logits, double now) {
    Sequence *q = &r->seq;
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
        take_token(s, b, draw(s, b, logits), logits, now);
    }
}

void scheduler_add(Scheduler *s, Request *r) {
    bool known = r->logits && r->seq.n_cached == r->seq.n_tokens;
    assert(known || r->seq.n_cached < r->seq.n_tokens);
    r->n_prompt = r->seq.n_tokens;
    r->n_reused = r->seq.n_cached;
    r->n_new = 0;
    r->finish = RUNNING;
    r->fetched = false;
    r->next = NULL;
    if (r->time.start == 0) r->time.start = clock_now();
    Request **at = &s->first;
    while (*at) at = &(*at)->next;
    *at = r;
    if (!known) return;
    r->time.prefill_end = r->time.start;
    if (r->max_new == 0) finish(s, r, FINISH_LENGTH);
    else take_token(s, r, draw(s, r, r->logits), r->logits, clock_now());
}

// What a step's rows gave to one of its requests: slots that are computed, and if `out` >= 0 a row of logits or a
// token.
static void take_rows(Scheduler *s, Request *r, int n_rows, int out, const float *logits, const int *tokens,
                      double now) {
    r->seq.n_cached += n_rows;
    kv_commit(s->kv, &r->seq, r->seq.n_cached);
    bool whole = r->seq.n_cached == r->seq.n_tokens;
    if (r->n_new == 0 && whole) r->time.prefill_end = now;
    if (out >= 0 && tokens) take_token(s, r, tokens[out], NULL, now);
    else if (out >= 0) {
        const float *own = logits + (size_t)out * (size_t)s->n_vocab;
        branch_off(s, r, own, now);
        take_token(s, r, draw(s, r, own), own, now);
    } else if (whole) finish(s, r, FINISH_LENGTH);
}

static void take(Scheduler *s, const float *logits, const int *tokens) {
    const Step *t = s->step;
    const Batch *b = &t->batch;
    double now = clock_now();
    s->kv->n_copies = 0;
    for (int seq = 0, out = 0, row = 0; seq < b->n_seqs; seq++) {
        row += t->n_rows[seq];
        bool is_out = out < b->n_out && b->out_row[out] == row - 1;
        if (t->request[seq]) take_rows(s, t->request[seq], t->n_rows[seq], is_out ? out : -1, logits, tokens, now);
        out += is_out;
    }
}

void scheduler_take(Scheduler *s, const float *logits) { take(s, logits, NULL); }

void scheduler_take_tokens(Scheduler *s, const int *tokens) { take(s, NULL, tokens); }
