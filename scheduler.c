// scheduler.c: plans the rows of each step and distributes its results. See scheduler.h.
#include "scheduler.h"

#include "step.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FETCHED_A_ROW = 4 }; // fetched slots per row of a step: fetching so many takes far less time than one row

struct Scheduler {
    KvCache *kv;
    Sampler *sampler;
    SchedulerShape shape;
    const Policy *policy;
    Request *first; // running and waiting, oldest first
    Step steps[2];  // the current step, and the next one (scheduler_ahead)
    Step *step;     // the step that scheduler_next returned
    bool has_ahead; // the other step is planned already
    int64_t n_preempted, n_steps;
    float *allowed;   // (n_vocab) logits of a constrained row
    double now;       // the time when the step's results arrived
    bool interrupted; // scheduler_next finishes all requests
};

Scheduler *scheduler_new(KvCache *kv, Sampler *sampler, SchedulerShape shape, const Policy *policy) {
    Scheduler *s = mem_alloc(sizeof *s);
    shape.max_seqs = int_min(shape.max_seqs, shape.max_rows); // each has a row in every step
    assert(shape.max_out >= shape.max_seqs);
    *s = (Scheduler){.kv = kv, .sampler = sampler, .shape = shape, .policy = policy};
    s->step = s->steps;
    s->allowed = mem_alloc((size_t)shape.n_vocab * sizeof *s->allowed);
    for (int i = 0; i < 2; i++) step_new(&s->steps[i], kv, shape.max_rows, shape.max_seqs);
    return s;
}

void scheduler_free(Scheduler *s) {
    if (!s) return;
    for (int i = 0; i < 2; i++) step_free(&s->steps[i]);
    free(s->allowed);
    free(s);
}

int scheduler_max_rows(const Scheduler *s) { return s->shape.max_rows; }
int scheduler_max_seqs(const Scheduler *s) { return s->shape.max_seqs; }
int scheduler_n_vocab(const Scheduler *s) { return s->shape.n_vocab; }
KvCache *scheduler_kv(Scheduler *s) { return s->kv; }
const StepRows *scheduler_rows(const Scheduler *s, int seq) { return &s->step->rows[seq]; }
void scheduler_interrupt(Scheduler *s) { s->interrupted = true; }
int64_t scheduler_preemptions(const Scheduler *s) { return s->n_preempted; }
const Batch *scheduler_batch(const Scheduler *s) { return &s->step->batch; }
int64_t scheduler_steps(const Scheduler *s) { return s->n_steps; }

static Step *step_ahead(Scheduler *s) { return &s->steps[s->step == s->steps]; }

// The first policy of a request's chain.
static const Policy *policy_of(const Scheduler *s, const Request *r) { return r->policy ? r->policy : s->policy; }

const Policy *scheduler_accepting(const Scheduler *s, const Request *r) { return policy_with_accept(policy_of(s, r)); }

// ---- the end of a request -------------------------------------------------------------------------------------------

void scheduler_finish(Scheduler *s, Request *r, Finish why) {
    r->finish = why;
    for (Request *b = r->branches; b; b = b->next) b->finish = why;
    r->branches = NULL;
    Request **at = &s->first;
    while (*at && *at != r) at = &(*at)->next;
    if (*at) *at = r->next;
    r->next = NULL;
    Step *ahead = step_ahead(s);
    for (int i = 0; s->has_ahead && i < ahead->batch.n_seqs; i++)
        if (ahead->rows[i].request == r) ahead->rows[i].request = NULL;
    const Policy *p = policy_with_end(policy_of(s, r));
    if (p) p->end(p, s, r);
}

void scheduler_cancel(Scheduler *s, Request *r) {
    if (r->finish == RUNNING) scheduler_finish(s, r, FINISH_INTERRUPT);
}

// ---- which requests may begin ---------------------------------------------------------------------------------------

// Whether an older request is about to compute blocks that r begins with: r waits and shares them afterwards.
static bool prefix_is_coming(const Scheduler *s, const Request *r) {
    if (!kvcache_shares(s->kv)) return false; // nothing is shared
    for (Request *q = s->first; q != r; q = q->next)
        if (request_is_computing_for(q, r, s->kv)) return true;
    return false;
}

// What a pass over the requests, oldest first, has found so far about rows of prompts.
typedef struct {
    bool waits;   // a request may not begin
    int n_seqs;   // sequences of requests that may begin, or wait for stored K and V, and have no blocks yet
    int n_blocks; // blocks that such requests with prompt rows still need
} PrefillPass;

// Whether a request without blocks may begin. If no other request runs it always may. Sequences that do not exist yet
// count as running, each with a block of its own. But its own branches need no place among the sequences of a step:
// they take places as older requests end, and newer ones wait for them. If older requests are about to begin in the
// same step, r leaves them places for all of its sequences, and blocks for the next slots of these.
static bool may_begin(Scheduler *s, Request *r, const PrefillPass *pass) {
    int others = pass->n_seqs, all = request_n_sequences(r) + request_n_coming(r);
    int own = others > 0 ? all : int_max(request_n_sequences(r), r->width);
    int spare = request_n_coming(r) + pass->n_blocks + (others > 0 ? request_n_sequences(r) : 0);
    for (Request *q = s->first; q; q = q->next) {
        if (!request_has_blocks(q)) continue;
        others += request_n_sequences(q) + request_n_coming(q);
        spare += request_n_coming(q) + request_n_growing(q, s->kv);
    }
    if (others == 0) return true;
    int most = kvcache_most_sequences(s->kv, s->shape.max_rows);
    if (others + own > s->shape.max_seqs || others + all > most || s->kv->n_free <= spare) return false;
    kvcache_match_prefix(s->kv, r->seq);
    if (s->kv->n_free >= request_blocks_to_begin(r, s->kv) + spare) return true;
    kvcache_release(s->kv, r->seq);
    return false;
}

static bool in_batch(const Scheduler *s, const Request *r) {
    for (int i = 0; i < s->step->batch.n_seqs; i++)
        if (s->step->rows[i].request == r) return true;
    return false;
}

// Preempts the newest request after r: frees its blocks; it computes its tokens again later. False: there is none.
static bool preempt_for(Scheduler *s, const Request *r) {
    Request *newest = NULL;
    for (Request *q = r->next; q; q = q->next)
        if (request_has_blocks(q) && !in_batch(s, q)) newest = q;
    if (!newest) return false;
    const Policy *p = policy_with_preempted(policy_of(s, newest));
    if (p) p->preempted(p, newest);
    request_release(newest, s->kv);
    newest->fetched = false;
    s->n_preempted++;
    return true;
}

// ---- the rows of a step ---------------------------------------------------------------------------------------------

static bool has_room(const Scheduler *s, int n_seqs) {
    const Batch *b = &s->step->batch;
    return b->n_rows + n_seqs <= s->shape.max_rows && b->n_seqs + n_seqs <= s->shape.max_seqs;
}

// Makes the next n slots of a sequence writable, or fewer if its policy allows fewer (Policy.room). Returns how many;
// 0: there is no free block.
static int reserve(Scheduler *s, Request *r, Sequence *q, int n) {
    const Policy *p = policy_with_room(policy_of(s, r));
    if (p) n = int_min(n, p->room(p, r));
    int n_slots = sequence_slots(q) + n;
    if (n < 1 || n_slots > s->kv->max_slots) return 0;
    while (!kvcache_reserve(s->kv, q, n_slots))
        if (!preempt_for(s, r)) return 0;
    return n;
}

// Adds a row of each sequence of a decoding request, or of none.
static void add_decode_rows(Scheduler *s, Request *r) {
    int n = request_n_sequences(r);
    if (!has_room(s, n)) return;
    for (int i = 0; i < n; i++)
        if (!reserve(s, r, request_sequence(r, i), 1)) return;
    for (int i = 0; i < n; i++) step_add(s->step, r, request_sequence(r, i), 1, true);
}

static void add_all_decode_rows(Scheduler *s) {
    for (Request *r = s->first; r && has_room(s, 1); r = r->next)
        if (request_is_decoding(r)) add_decode_rows(s, r);
}

static void begin(Request *r) {
    if (r->time.begun != 0) return; // the request was preempted and begins again
    r->n_reused = r->seq->n_cached;
    r->time.begun = clock_now();
}

// Whether r may get rows of its prompt in this step. If an older request may not begin, no newer one may begin either:
// it would take the blocks that the older one waits for. Requests that have begun always continue: when they end, they
// free blocks.
static bool may_prefill(Scheduler *s, Request *r, PrefillPass *pass) {
    if (request_is_decoding(r)) return false;
    if (!request_has_blocks(r)) {
        if (pass->waits || prefix_is_coming(s, r)) return false;
        pass->waits = !may_begin(s, r, pass);
        if (pass->waits) return false;
    }
    kvcache_match_prefix(s->kv, r->seq);
    return true;
}

// Counts a request that may have rows of its prompt and has not got them yet.
static void count_in_pass(const Scheduler *s, const Request *r, PrefillPass *pass) {
    pass->n_blocks += int_max(0, request_blocks_to_begin(r, s->kv));
    if (request_has_blocks(r)) return;
    pass->n_seqs += request_n_sequences(r) + request_n_coming(r);
    pass->n_blocks += request_n_coming(r);
}

// Loads saved K and V (Policy.fetch) of the requests that are about to get rows. This is done before the first row of a
// step reserves its slots, since the block copies of a step could overwrite loaded slots.
static void fetch_all(Scheduler *s) {
    PrefillPass pass = {0};
    bool alone = true, any = false; // alone: the load delays no other request
    int room = FETCHED_A_ROW * s->shape.max_rows;
    for (const Request *r = s->first; r; r = r->next) {
        alone = alone && !request_is_decoding(r);
        any = any || (!r->fetched && policy_with_fetch(policy_of(s, r)));
    }
    for (Request *r = s->first; r && any && room > 0; r = r->next) {
        const Policy *p = policy_with_fetch(policy_of(s, r));
        if (!may_prefill(s, r, &pass)) continue;
        int had = r->seq->n_cached;
        if (p && !r->fetched && s->kv->n_copies == 0) r->fetched = p->fetch(p, r, alone ? INT_MAX : room);
        room -= r->seq->n_cached - had;
        alone = false;
        count_in_pass(s, r, &pass);
    }
}

// The next sequence of r that has prompt tokens to compute, *n of them. Sequences are computed one after the other, so
// that each shares the blocks of those before it. If r has several, the last token of each is left for the step in
// which they first decode together. NULL: they can decode now.
static Sequence *to_prefill(Scheduler *s, Request *r, int *n) {
    for (int i = 0; i < request_n_sequences(r); i++) {
        Sequence *q = request_sequence(r, i);
        if (i > 0) kvcache_match_prefix(s->kv, q);
        *n = sequence_uncomputed(q) - (r->n_more > 0);
        if (*n > 0) return q;
    }
    return NULL;
}

// Adds the rows that a policy picks of the prompt; false: it picks none.
static bool add_picked_rows(Scheduler *s, Request *r) {
    const Policy *p = policy_with_pick(policy_of(s, r));
    if (!p || r->seq->n_tokens > r->n_prompt) return false;
    Batch *b = &s->step->batch;
    StepRows rows = {.request = r, .seq = r->seq};
    int n = p->pick(p, s, &rows, s->shape.max_rows - b->n_rows);
    if (n == 0) return false;
    bool last = rows.picked[n - 1] == r->seq->n_tokens - 1 && !rows.ending;
    StepRows *added = step_add(s->step, r, r->seq, n, last && r->max_new != 0);
    added->picked = rows.picked;
    added->ends = rows.ends;
    added->arrival = rows.arrival;
    return true;
}

// Adds rows of the next known tokens, as many as the step has room for; false: there is no block for them.
static bool add_next_rows(Scheduler *s, Request *r) {
    int n;
    Sequence *q = to_prefill(s, r, &n);
    if (!q) {
        add_decode_rows(s, r);
        return true;
    }
    n = reserve(s, r, q, int_min(n, s->shape.max_rows - s->step->batch.n_rows));
    if (n > 0) step_add(s->step, r, q, n, n == sequence_uncomputed(q) && r->max_new != 0);
    return n > 0;
}

// Adds rows of known tokens; false: there is no block for them.
static bool add_prefill_rows(Scheduler *s, Request *r) {
    request_want_checkpoints(r, s->kv);
    if (!add_picked_rows(s, r) && !add_next_rows(s, r)) return false;
    begin(r);
    return true;
}

// Adds prompt rows, oldest request first. A request whose K and V are not all loaded waits, unless the step would be
// empty.
static void add_all_prefill_rows(Scheduler *s) {
    PrefillPass pass = {0}; // requests that get rows count by their blocks
    for (Request *r = s->first; r && has_room(s, 1); r = r->next) {
        if (!may_prefill(s, r, &pass)) continue;
        bool fetched = r->fetched || !policy_with_fetch(policy_of(s, r)) || s->step->batch.n_rows == 0;
        if (!fetched) count_in_pass(s, r, &pass);
        else if (!add_prefill_rows(s, r)) return;
    }
}

// ---- proposals ------------------------------------------------------------------------------------------------------

// How many drafts a sequence may have: an equal share of the rows that are left for it and the n - 1 sequences after
// it. With sealed KV, drafts end before the last slot of their group, since a sealed group cannot be undone.
static int draft_room(const Scheduler *s, const StepRows *rows, int n) {
    const Batch *b = &s->step->batch;
    const Request *r = rows->request;
    if (rows->picked || rows->first + rows->n_known < rows->seq->n_tokens || r->max_new == 0) return 0;
    if (policy_with_room(policy_of(s, r))) return 0;
    int slot = rows->slot + rows->n_known;
    int room = int_min(s->shape.max_rows - b->n_rows, s->shape.max_out - b->n_out) / n;
    if (r->max_new > 0) room = int_min(room, r->max_new - r->n_new - 1);
    if (s->kv->pool->tail_of) room = int_min(room, SEAL - 1 - slot % SEAL);
    return int_max(0, int_min(room, s->kv->max_slots - slot));
}

int scheduler_draft_room(const Scheduler *s, const StepRows *rows) {
    return draft_room(s, rows, s->step->batch.n_seqs);
}

// Called after the rows of all known tokens were added: policies propose drafts for the remaining rows and blocks.
static void add_proposals(Scheduler *s) {
    Batch *b = &s->step->batch;
    int n_drafts = 0;
    for (int i = 0; i < b->n_seqs; i++) {
        StepRows *rows = &s->step->rows[i];
        const Policy *p = policy_with_propose(policy_of(s, rows->request));
        if (!p) continue;
        int had_out = rows->n_out, slots = rows->slot + rows->n_known;
        rows->draft = s->step->draft + n_drafts;
        rows->room = draft_room(s, rows, b->n_seqs - i);
        rows->room_out = s->shape.max_out - b->n_out + had_out;
        p->propose(p, s, rows);
        assert(rows->n_draft <= rows->room && rows->n_out <= rows->room_out);
        while (rows->n_draft > 0 && !kvcache_reserve_drafts(s->kv, rows->seq, slots + rows->n_draft, rows->n_draft))
            rows->n_draft--;
        rows->n_out = int_max(0, int_min(rows->n_out, rows->n_known + rows->n_draft - rows->first_out));
        n_drafts += rows->n_draft;
        b->n_rows += rows->n_draft;
        b->n_out += rows->n_out - had_out;
    }
}

// ---- steps ----------------------------------------------------------------------------------------------------------

// Whether a device may draw the token of these rows: only one token is drawn, and the host needs no logits.
static bool may_draw(const Scheduler *s, const StepRows *rows) {
    const Request *r = rows->request;
    return rows->n_out == 1 && rows->n_draft == 0 && r->n_more == 0 && !r->constraint && !r->branches &&
           (!r->emit || r->blind) && scheduler_accepting(s, r)->takes_drawn && draw_anywhere(&r->sampling);
}

// Lets the device draw the step's tokens if it may do so for all rows with logits. `pending`: the step before still
// computes the last token of each sequence.
static void plan_draws(const Scheduler *s, Step *t, bool pending) {
    Batch *b = &t->batch;
    b->draw = NULL;
    if (!s->shape.draws || b->n_out == 0) return;
    for (int seq = 0, out = 0; seq < b->n_seqs; seq++) {
        const Request *r = t->rows[seq].request;
        if (t->rows[seq].n_out == 0) continue;
        if (!may_draw(s, &t->rows[seq])) return;
        t->draw[out++] = (Draw){&r->sampling, r->sequence_key, r->seq->tokens, r->seq->n_tokens, pending};
    }
    b->draw = t->draw;
}

// The request that cannot continue when no request got a row: the oldest running one, which has been given the blocks
// of all others; if none runs, the oldest one.
static Request *too_large(const Scheduler *s) {
    for (Request *r = s->first; r; r = r->next)
        if (request_has_blocks(r)) return r;
    return s->first;
}

static bool plan_step(Scheduler *s) {
    Batch *b = &s->step->batch;
    step_clear(s->step);
    s->n_steps++;
    fetch_all(s);
    add_all_decode_rows(s);
    add_all_prefill_rows(s);
    if (b->n_rows == 0) return false;
    add_proposals(s);
    step_fill(s->step);
    plan_draws(s, s->step, false);
    return true;
}

bool scheduler_next(Scheduler *s, Batch **out) {
    if (s->interrupted)
        while (s->first) scheduler_finish(s, s->first, FINISH_INTERRUPT);
    s->interrupted = false;
    if (s->has_ahead) {
        s->step = step_ahead(s);
        s->has_ahead = false;
        *out = &s->step->batch;
        return true;
    }
    *out = &s->step->batch;
    while (s->first) {
        if (plan_step(s)) return true;
        Request *r = too_large(s);
        scheduler_finish(s, r, FINISH_CONTEXT);  // its next slot does not exist: the cache is full
        if (s->first) request_release(r, s->kv); // other requests need its blocks
        s->kv->n_copies = 0;                     // those of its beams that did get a block; no step executes them
    }
    return false;
}

// Whether the next step is certain to have one row of each request of this step, and no other row.
static bool goes_on(Scheduler *s) {
    const Batch *b = &s->step->batch;
    int n = 0;
    if (!s->shape.draws_ahead || !b->draw || b->n_out < b->n_seqs || s->interrupted) return false;
    for (const Request *r = s->first; r; r = r->next, n++)
        if (r->max_new >= 0 && r->n_new + 1 >= r->max_new) return false;
    if (n > b->n_seqs) return false; // a request waits to begin
    for (int i = 0; i < b->n_seqs; i++) {
        const StepRows *rows = &s->step->rows[i];
        Request *r = rows->request;
        if (!r || rows->picked) return false;
        if (policy_with_propose(policy_of(s, r)) || policy_with_room(policy_of(s, r))) return false;
        if (!kvcache_reserve_ahead(s->kv, r->seq, rows->slot + rows->n_known + 1)) return false;
    }
    assert(s->kv->n_copies == b->n_copies); // this step has made the blocks that the next rows write into unshared
    return true;
}

bool scheduler_ahead(Scheduler *s, Batch **out) {
    const Step *now = s->step;
    Step *then = step_ahead(s);
    if (!goes_on(s)) return false;
    step_clear(then);
    for (int i = 0; i < now->batch.n_seqs; i++) {
        const StepRows *before = &now->rows[i];
        StepRows *rows = step_add(then, before->request, before->seq, 1, true);
        rows->slot = before->slot + before->n_known;
        rows->first = before->first + before->n_known;
    }
    step_fill(then);
    then->batch.n_copies = 0; // the step before it makes them
    plan_draws(s, then, true);
    s->has_ahead = true;
    *out = &then->batch;
    return true;
}

// ---- results of a step ----------------------------------------------------------------------------------------------

// Tokens that may still be appended to a sequence; -1: no limit.
static int tokens_left(const Scheduler *s, const Request *r, const Sequence *q) {
    const Policy *p = policy_with_room(policy_of(s, r));
    int left = p && p->endless ? -1 : s->kv->max_slots + 1 - (q->n_tokens - q->n_gone);
    if (r->max_new < 0) return left;
    int most = r->max_new - (q->n_tokens - r->n_prompt);
    return left < 0 ? most : int_min(left, most);
}

const float *scheduler_allowed(const Scheduler *s, const Request *r, const Sequence *q, const float *logits) {
    if (!r->constraint) return logits;
    constraint_apply(r->constraint, q->tokens + r->n_prompt, q->n_tokens - r->n_prompt, tokens_left(s, r, q), logits,
                     s->shape.n_vocab, s->allowed);
    return s->allowed;
}

int scheduler_draw(const Scheduler *s, const Request *r, const Sequence *q, const float *logits) {
    logits = scheduler_allowed(s, r, q, logits);
    return sampler_sample(s->sampler, &r->sampling, logits, q->tokens, q->n_tokens, r->sequence_key,
                          (uint64_t)q->n_tokens);
}

// If a draft row computed the last emitted token, counts its slot as computed. Called when the next token is emitted,
// so that the last token of a text stays uncomputed, as it does without drafts.
static void keep_draft(Scheduler *s, const StepRows *rows, Sequence *q) {
    int i = rows->n_emitted - 1;
    if (i < 0 || i >= rows->n_draft || sequence_uncomputed(q) != 1) return;
    if (rows->draft[i] == q->tokens[q->n_tokens - 1]) kvcache_advance(s->kv, q, 1);
}

Finish scheduler_count(Scheduler *s, StepRows *rows) {
    Request *r = rows->request;
    rows->n_emitted++;
    r->n_new++;
    timeline_token(&r->time, s->now);
    if (r->max_new >= 0 && r->n_new >= r->max_new) return FINISH_LENGTH;
    const Policy *p = policy_with_room(policy_of(s, r));
    bool full = r->seq->n_tokens - r->seq->n_gone > s->kv->max_slots;
    return full && !(p && p->endless) ? FINISH_CONTEXT : RUNNING;
}

static bool is_over(const Request *r) {
    const Sequence *q = r->seq;
    return r->constraint && constraint_over(r->constraint, q->tokens + r->n_prompt, q->n_tokens - r->n_prompt);
}

bool scheduler_ends(const Scheduler *s, Request *r, const Sequence *q, const float *logits) {
    r->no_logit = !logits || !sampler_any_finite(logits, s->shape.n_vocab);
    int n = q->n_tokens - r->n_prompt;
    return !r->no_logit && r->constraint && constraint_complete(r->constraint, q->tokens + r->n_prompt, n, 0);
}

bool scheduler_emit(Scheduler *s, StepRows *rows, int token, const float *logits) {
    Request *r = rows->request;
    if (token < 0) {
        scheduler_finish(s, r, scheduler_ends(s, r, r->seq, logits) ? FINISH_EOG : FINISH_BROKEN);
        return false;
    }
    keep_draft(s, rows, r->seq);
    sequence_push(r->seq, &token, 1);
    Finish limit = scheduler_count(s, rows);
    Finish verdict = r->emit ? r->emit(r, token, logits) : RUNNING;
    if (verdict == RUNNING) verdict = is_over(r) ? FINISH_EOG : limit;
    if (verdict != RUNNING) scheduler_finish(s, r, verdict);
    return verdict == RUNNING;
}

static void count_drafts(StepRows *rows) {
    const Sequence *q = rows->seq;
    DraftCounts *c = &rows->request->drafts;
    c->n_steps++;
    c->n_tokens += rows->n_emitted;
    c->n_drafted += rows->n_draft;
    c->cost += rows->cost > 0 ? rows->cost : 1;
    for (int i = 0, at = rows->first + rows->n_known; i < rows->n_draft && i < rows->n_emitted; i++)
        c->n_accepted += rows->draft[i] == q->tokens[at + i];
}

static void accept(Scheduler *s, StepRows *rows, int n) {
    const Policy *p = scheduler_accepting(s, rows->request);
    bool decodes = n == 1 && rows->n_out > 0 && rows->seq->n_tokens > rows->request->n_prompt;
    p->accept(p, s, rows, n);
    if (decodes || rows->n_draft > 0) count_drafts(rows);
}

// Accepts logits for a request without a row in the step: Request.logits, or those of the request that it branches
// from.
static void accept_known(Scheduler *s, Request *r, const float *logits) {
    Sequence *q = r->seq;
    StepRows rows = {.request = r, .seq = q, .n_known = 1, .n_out = 1, .logits = logits};
    rows.slot = sequence_slots(q) - 1;
    rows.first = q->n_cached - 1;
    accept(s, &rows, 1);
}

// Begins the branches of a request whose prompt has just been computed: they share its blocks and accept its logits.
static void branch_off(Scheduler *s, Request *r, const float *logits) {
    Request *first = r->branches, *last = r, *after = r->next;
    if (!first || !logits) return;
    r->branches = NULL;
    for (Request *b = first; b; b = b->next) {
        b->n_prompt = b->n_reused = r->n_prompt;
        b->n_new = 0;
        b->finish = RUNNING;
        b->time.start = r->time.start;
        b->time.begun = r->time.begun;
        b->time.prefill_end = r->time.prefill_end;
        kvcache_fork(s->kv, r->seq, b->seq);
        last = b;
    }
    last->next = after;
    r->next = first;
    for (Request *b = first, *next; b != after; b = next) {
        next = b->next;
        accept_known(s, b, logits);
    }
}

void scheduler_add(Scheduler *s, Request *r) {
    bool known = r->logits && r->seq->n_cached == r->seq->n_tokens;
    assert((known || r->seq->n_cached < r->seq->n_tokens) && r->width <= s->shape.max_seqs);
    r->n_prompt = r->seq->n_tokens;
    r->n_reused = r->seq->n_cached;
    r->n_new = r->n_loaded = r->n_kept = 0;
    r->finish = RUNNING;
    r->fetched = false;
    r->next = NULL;
    if (r->time.start == 0) r->time.start = clock_now();
    Request **at = &s->first;
    while (*at) at = &(*at)->next;
    *at = r;
    if (!known) return;
    s->now = clock_now();
    r->time.prefill_end = r->time.start;
    if (r->max_new == 0) scheduler_finish(s, r, FINISH_LENGTH);
    else {
        branch_off(s, r, r->logits);
        accept_known(s, r, r->logits);
    }
}

// Drops the drafts that were not kept, and the blocks that hold nothing else.
static void forget_drafts(Scheduler *s, Request *r) {
    for (int i = 0; i < request_n_sequences(r); i++) {
        Sequence *q = request_sequence(r, i);
        kvcache_commit(s->kv, q, q->n_cached);
        kvcache_truncate(s->kv, q, q->n_tokens);
    }
}

// The logits of the last known row; NULL: they were not wanted, or a device has drawn from them.
static const float *last_known_logits(const Scheduler *s, const StepRows *rows) {
    int out = rows->n_known - 1 - rows->first_out;
    if (!rows->logits || out < 0 || out >= rows->n_out) return NULL;
    return rows->logits + (size_t)out * (size_t)s->shape.n_vocab;
}

// Counts the slots that rows have computed; false: Policy.picked has rejected them.
static bool count_computed(Scheduler *s, StepRows *rows) {
    if (!rows->picked) kvcache_advance(s->kv, rows->seq, rows->n_known);
    else {
        const Policy *p = policy_with_pick(policy_of(s, rows->request));
        if (!p->picked(p, s, rows)) return false;
    }
    kvcache_commit(s->kv, rows->seq, rows->seq->n_cached);
    return true;
}

// Takes the results of one request, whose n sequences have adjacent rows.
static void take_rows(Scheduler *s, StepRows *rows, int n) {
    Request *r = rows->request;
    bool wanted = false, drafted = false;
    for (int i = 0; i < n; i++) {
        Sequence *q = rows[i].seq;
        if (!count_computed(s, &rows[i])) return;
        wanted = wanted || rows[i].n_out > 0 || (sequence_uncomputed(q) == 0 && r->max_new != 0);
        drafted = drafted || rows[i].n_draft > 0;
    }
    bool prompt_ends = r->seq->n_cached == r->n_prompt && r->seq->n_tokens == r->n_prompt;
    if (prompt_ends) r->time.prefill_end = s->now;
    if (prompt_ends) branch_off(s, r, last_known_logits(s, rows));
    if (wanted) accept(s, rows, n);
    if (drafted) forget_drafts(s, r);
    if (prompt_ends && r->max_new == 0) scheduler_finish(s, r, FINISH_LENGTH);
    assert(r->finish != RUNNING || sequence_uncomputed(r->seq) > 0);
}

void scheduler_observe(Scheduler *s, const float *hidden, int dim) {
    for (int i = 0; i < s->step->batch.n_seqs; i++) {
        StepRows *rows = &s->step->rows[i];
        const Policy *p = rows->wants_hidden && rows->request ? policy_with_observe(policy_of(s, rows->request)) : NULL;
        rows->hidden = hidden;
        if (p) p->observe(p, s, rows);
        hidden += (size_t)(rows->n_known + rows->n_draft) * (size_t)dim;
    }
}

static void take(Scheduler *s, const float *logits, const int *tokens) {
    const Batch *b = &s->step->batch;
    StepRows *rows = s->step->rows;
    s->now = clock_now();
    s->kv->n_copies = 0;
    for (int i = 0, out = 0; i < b->n_seqs; out += rows[i++].n_out) {
        rows[i].logits = logits ? logits + (size_t)out * (size_t)s->shape.n_vocab : NULL;
        rows[i].tokens = tokens ? tokens + out : NULL;
    }
    for (int i = 0, n; i < b->n_seqs; i += n) {
        Request *r = rows[i].request;
        for (n = 1; r && i + n < b->n_seqs && rows[i + n].request == r;) n++;
        if (r) take_rows(s, &rows[i], n);
    }
}

bool scheduler_may_abandon(const Scheduler *s) {
    const Batch *b = &s->step->batch;
    if (s->kv->states.pool.n_layers > 0 || s->kv->pool->tail_of || b->probe || s->has_ahead) return false;
    for (int i = 0; i < b->n_seqs; i++) {
        const Request *r = s->step->rows[i].request;
        if (!r || policy_with_pick(policy_of(s, r))) return false;
    }
    return true;
}

void scheduler_abandon(Scheduler *s) {
    s->kv->n_copies = 0; // the forward has made them
    for (int i = 0; i < s->step->batch.n_seqs; i++) {
        Sequence *q = s->step->rows[i].seq;
        kvcache_truncate(s->kv, q, q->n_tokens);
    }
}

void scheduler_take(Scheduler *s, const float *logits) { take(s, logits, NULL); }

void scheduler_take_tokens(Scheduler *s, const int *tokens) { take(s, NULL, tokens); }
