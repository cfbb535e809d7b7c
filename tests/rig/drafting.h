// tests/rig/drafting.h: two policies for tests. Proposer proposes right and wrong tokens and drops some of its steps.
// Forker makes several sequences of a request, which share blocks and replace each other.
#ifndef QUILL_DRAFTING_H
#define QUILL_DRAFTING_H

#include "tests/rig/testing.h"

#include "policy/plain.h"
#include "scheduler.h"

#include <math.h>

// ---- drafts ---------------------------------------------------------------------------------------------------------

// Request.state: the whole text of the request without drafts, from which right drafts are taken. NULL: all drafts are
// random.
typedef struct {
    int *tokens, n;
} Foreseen;

typedef struct {
    uint64_t random;
    int n_vocab;
    bool jumps; // sometimes emits one more token than its rows give, as a grammar can
    // proposes as many drafts as there is room for, all right if possible, and lets plain decoding accept them
    bool whole;
    void (*look)(void *arg, Scheduler *s, const StepRows *rows); // NULL, or called with the rows and their logits
    void *arg;
    int n_drafts, n_kept, n_dropped; // number of drafts; of emitted drafts; of steps whose tokens were all dropped
} Proposer;

static inline int proposer_pick(Proposer *d, int n) { return (int)(test_random(&d->random) % (uint64_t)n); }

// Proposes some drafts, and asks for the logits of the rows from the last known one on, or of random rows.
static inline void proposer_propose(const Policy *p, Scheduler *s, StepRows *rows) {
    (void)s;
    Proposer *d = p->arg;
    const Foreseen *text = rows->request->state;
    if (rows->n_out == 0) return;
    rows->n_draft = d->whole ? rows->room : proposer_pick(d, rows->room + 1);
    for (int i = 0; i < rows->n_draft; i++) {
        int at = rows->first + rows->n_known + i;
        bool right = text && at < text->n && (d->whole || proposer_pick(d, 4) > 0);
        rows->draft[i] = right ? text->tokens[at] : proposer_pick(d, d->n_vocab);
    }
    rows->n_out = 1 + (d->whole ? rows->n_draft : proposer_pick(d, 1 + rows->n_draft));
    if (d->whole || proposer_pick(d, 8) > 0) return;
    int all = rows->n_known + rows->n_draft;
    rows->first_out = proposer_pick(d, all);
    rows->n_out = proposer_pick(d, 1 + int_min(all - rows->first_out, rows->room_out));
}

// Drops the whole step, including the row of the last token, which was not a draft.
static inline void drafter_drop(Scheduler *s, Sequence *q) {
    int last = q->tokens[q->n_tokens - 1];
    kvcache_truncate(scheduler_kv(s), q, q->n_tokens - 1);
    sequence_push(q, &last, 1);
}

// Like the accept of plain decoding, but stops at random places.
static inline void proposer_accept(const Policy *p, Scheduler *s, StepRows *rows, int n) {
    Proposer *d = p->arg;
    assert_int_equal(n, 1);
    if (d->look) d->look(d->arg, s, rows);
    bool from_last = rows->first_out == rows->n_known - 1 && rows->n_out > 0;
    d->n_drafts += rows->n_draft;
    if (!from_last || proposer_pick(d, 10) == 0) {
        d->n_dropped++;
        drafter_drop(s, rows->seq);
        return;
    }
    int most = 1 + proposer_pick(d, rows->n_out);
    for (int i = 0; i < most; i++) {
        const float *logits = rows->logits + (size_t)i * (size_t)scheduler_n_vocab(s);
        int token = scheduler_draw(s, rows->request, rows->seq, logits);
        d->n_kept += i > 0;
        if (!scheduler_emit(s, rows, token, logits)) return;
        if (i >= rows->n_draft || token != rows->draft[i]) break;
    }
    const Foreseen *text = rows->request->state;
    if (d->jumps && proposer_pick(d, 4) == 0) scheduler_emit(s, rows, text->tokens[rows->seq->n_tokens], NULL);
}

static inline Policy proposer_policy(Proposer *d, const Policy *next) {
    return (Policy){.propose = proposer_propose, .accept = d->whole ? NULL : proposer_accept, .arg = d, .next = next};
}

// Compares two greedy texts of n tokens and the logits (n, n_vocab) that they were drawn from. While the texts agree,
// their logits must agree within a relative `distance`. The texts may differ from a token on whose logit is hardly
// larger than that of the other text's token: by at most six times the root mean square error, which is more than the
// errors of both logits.
static inline void check_margin(const int *want, const float *a, const int *got, const float *b, int n, int n_vocab,
                                double distance) {
    for (int i = 0; i < n; i++, a += n_vocab, b += n_vocab) {
        double length = 0, off = 0;
        for (int k = 0; k < n_vocab; k++) {
            length += (double)a[k] * (double)a[k];
            off += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
        }
        double found = sqrt(off / length), margin = 6 * distance * sqrt(length / n_vocab);
        if (!(found <= distance)) fail_msg("token %d: distance up to %g expected, %g found", i, distance, found);
        if (want[i] == got[i]) continue;
        double apart = (double)a[want[i]] - (double)a[got[i]];
        if (!(apart <= margin)) fail_msg("token %d: a margin up to %g expected, %g found", i, margin, apart);
        return;
    }
}

// ---- forks ----------------------------------------------------------------------------------------------------------

enum { MOST_FORKS = 5 };

// A request becomes n sequences. In each step each of them draws a token as sequence i of the RNG, and sometimes one is
// replaced by a fork of another. When they have max_new tokens each, the tokens of one sequence are emitted.
typedef struct {
    int n;
    uint64_t random;
    Sampler *sampler;
    void (*look)(void *arg, Scheduler *s, Request *r); // NULL, or called before each token that the sequences draw
    void (*last)(void *arg, Scheduler *s, Request *r); // NULL, or called at the end
    void *arg;
    int n_parents;
} Forker;

static inline void forker_begin(Forker *f, Scheduler *s, Request *r) {
    r->more = mem_alloc((size_t)(f->n - 1) * sizeof *r->more + 1);
    r->n_more = f->n - 1;
    for (int i = 1; i < f->n; i++) kvcache_fork(scheduler_kv(s), r->seq, request_sequence(r, i));
}

static inline void forker_change_parent(Forker *f, Scheduler *s, Request *r) {
    if (f->n < 2 || test_random(&f->random) % 3 > 0) return;
    int child = (int)(test_random(&f->random) % (uint64_t)f->n);
    int parent = (child + 1 + (int)(test_random(&f->random) % (uint64_t)(f->n - 1))) % f->n;
    Sequence *q = request_sequence(r, child);
    kvcache_release(scheduler_kv(s), q);
    q->n_tokens = 0;
    kvcache_fork(scheduler_kv(s), request_sequence(r, parent), q);
    f->n_parents++;
}

static inline void forker_end_text(Forker *f, Scheduler *s, StepRows *rows) {
    Request *r = rows->request;
    int n = r->max_new, *text = mem_alloc((size_t)n * sizeof *text);
    if (f->last) f->last(f->arg, s, r);
    memcpy(text, request_sequence(r, f->n - 1)->tokens + r->n_prompt, (size_t)n * sizeof *text);
    kvcache_truncate(scheduler_kv(s), r->seq, r->n_prompt);
    for (int i = 0; i < n && scheduler_emit(s, rows, text[i], NULL); i++) {
    }
    free(text);
}

static inline void forker_accept(const Policy *p, Scheduler *s, StepRows *rows, int n) {
    Forker *f = p->arg;
    Request *r = rows->request;
    bool first = r->n_more == 0 && r->seq->n_tokens == r->n_prompt;
    assert_int_equal(n, first ? 1 : f->n);
    for (int i = 0; i < n; i++)
        assert_true(rows[i].seq == request_sequence(r, i) && rows[i].n_out == 1 && rows[i].n_known > 0);
    if (first) forker_begin(f, s, r);
    if (f->look) f->look(f->arg, s, r);
    for (int i = 0; i < f->n; i++) {
        Sequence *q = request_sequence(r, i);
        int token = sampler_sample(f->sampler, &r->sampling, rows[first ? 0 : i].logits, q->tokens, q->n_tokens,
                                   (uint64_t)i, (uint64_t)q->n_tokens);
        sequence_push(q, &token, 1);
    }
    if (r->seq->n_tokens == r->n_prompt + r->max_new) forker_end_text(f, s, rows);
    else forker_change_parent(f, s, r);
}

static inline void forker_end(const Policy *p, Scheduler *s, Request *r) {
    (void)p;
    for (int i = 0; i < r->n_more; i++) {
        kvcache_release(scheduler_kv(s), &r->more[i]);
        sequence_free(&r->more[i]);
    }
    free(r->more);
    r->more = NULL;
    r->n_more = 0;
}

static inline Policy forker_policy(Forker *f, const Policy *next) {
    return (Policy){.accept = forker_accept, .end = forker_end, .arg = f, .next = next};
}

#endif
