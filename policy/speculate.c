// policy/speculate.c: proposes drafts by n-grams and by a drafter. See policy/speculate.h.
#include "policy/speculate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log_sum_exp.h"
#include "policy/ngram.h"
#include "scheduler.h"

// One drafter's guess of a sequence's next tokens.
typedef struct {
    int tokens[DRAFT_MOST], n;
    int kind[DRAFT_MOST]; // for each token the index of its Chance
    double gain;          // expected gain of the best number of drafts (draft_length)
} Guess;

// The state of a request, Request.state.
typedef struct {
    int text; // number of its text in the n-gram index; -1: none
    Guess ngram, model;
    void *drafting; // what the drafter keeps of its text
    bool asks;      // the draft model drafts for it in this step
    bool by_model;  // the drafts of this step come from the draft model
    int64_t step;   // the step that the guesses are for
    int n_new;      // Request.n_new at that step
} Stream;

struct Speculate {
    SpeculatePlan plan;
    Ngram *ngram;
    Chance ngram_chance[NGRAM_CHANCES], model_chance[MODEL_CHANCES];
    Chance model_all;    // the draft model's drafts of all kinds
    bool tries;          // the draft model is tried in this step although no gain is expected
    double saved;        // the time that such a try may take, in steps of one row
    int64_t step;        // the step that is planned
    double rows;         // number of its rows without drafts
    double rows_planned; // with the drafts that were proposed so far
    StepPlan now;
    Stream **streams;         // (cap) the streams of this step
    const StepRows **rows_of; // (cap) their rows
    void **texts;             // (cap) what the drafter keeps of the texts of a step of its own
    int cap;
};

enum { TRIED_DRAFTS = 2 };
static const double SHARE_OF_TRIES = 0.02; // of the time of all steps

Speculate *speculate_new(const SpeculatePlan *plan) {
    Speculate *x = mem_alloc(sizeof *x);
    *x = (Speculate){.plan = *plan, .model_all = {8, 6}};
    x->plan.most = int_min(plan->most, DRAFT_MOST);
    if (plan->ngram) x->ngram = ngram_new();
    chance_init(x->ngram_chance, x->model_chance);
    return x;
}

void speculate_free(Speculate *x) {
    if (!x) return;
    ngram_free(x->ngram);
    free(x->streams);
    free(x->rows_of);
    free(x->texts);
    free(x);
}

const SpeculatePlan *speculate_plan(const Speculate *x) { return &x->plan; }

// ---- which requests -------------------------------------------------------------------------------------------------

// Whether drafts are proposed for a request. Otherwise its Request.state belongs to another policy.
static bool is_ours(const Speculate *x, const Scheduler *s, const Request *r) {
    return r && r->n_more == 0 && r->width <= 1 && scheduler_accepting(s, r)->arg == x;
}

static Stream *stream_of(Request *r) {
    if (!r->state) {
        Stream *t = r->state = mem_alloc(sizeof *t);
        *t = (Stream){.text = -1};
    }
    return r->state;
}

// ---- n-grams --------------------------------------------------------------------------------------------------------

static void guess_by_ngram(Speculate *x, Stream *t, const Sequence *q) {
    Guess *g = &t->ngram;
    g->n = 0;
    if (!x->ngram) return;
    if (t->text < 0) t->text = ngram_begin(x->ngram, q->tokens, q->n_tokens);
    int had = ngram_tokens(x->ngram, t->text);
    ngram_extend(x->ngram, t->text, q->tokens + had, q->n_tokens - had);
    NgramMatch m = ngram_find(x->ngram, t->text, g->tokens, x->plan.most);
    g->n = m.n;
    for (int i = 0; i < m.n; i++) g->kind[i] = chance_of_match(int_min(NGRAM_LONGEST, m.length + i));
}

// ---- how many -------------------------------------------------------------------------------------------------------

// The best number of drafts of a guess, at most `most`; sets g->gain. `more`: how many further tokens the draft model
// could add; each is counted with the average chance.
static int best_length(const Speculate *x, Guess *g, const Chance *chance, int most, int more, double each) {
    double chances[DRAFT_MOST];
    int n = 0, known = int_min(g->n, most);
    for (; n < known; n++) {
        chances[n] = chance_of(&chance[g->kind[n]]);
        if (chances[n] < (double)x->plan.least_p) break;
    }
    if (n == known)
        for (; n < most && n < known + more; n++) chances[n] = chance_of(&x->model_all);
    g->gain = 1;
    if (x->plan.fixed) return n;
    int k = draft_length(&x->plan.costs, &x->now, chances, n, each, &g->gain);
    return k >= x->plan.least ? k : 0;
}

// The time for drafting one more token, if n sequences draft together.
static double draft_cost(const Speculate *x, int n) {
    return x->plan.draft_cost * step_costs_at(&x->plan.draft_costs, n) / int_max(1, n);
}

// ---- the draft model ------------------------------------------------------------------------------------------------

static double probability(const float *logits, int n, int token) {
    return exp((double)logits[token] - log_sum_exp(logits, n));
}

// Whether the draft model is expected to gain more than n-grams for a sequence with room for `room` drafts.
static bool worth_asking(Speculate *x, Stream *t, int room, int n_seqs) {
    Guess none = {0};
    if (x->plan.fixed) return t->ngram.n == 0;
    int k = best_length(x, &none, x->model_chance, room, room, draft_cost(x, n_seqs));
    return k > 0 && none.gain > t->ngram.gain;
}

// Adds one draft to a sequence, from the logits after its last token. Returns whether it should get another one.
static bool draft_one(Speculate *x, const Scheduler *s, const StepRows *rows, Stream *t, const float *logits, int most,
                      int n_seqs) {
    Guess *g = &t->model;
    int token = scheduler_draw(s, rows->request, x->plan.drafter.tokens(t->drafting), logits);
    if (token < 0) return false;
    double p = probability(logits, scheduler_n_vocab(s), token);
    if (p < (double)x->plan.least_p) return false;
    g->tokens[g->n] = token;
    g->kind[g->n++] = chance_of_p(p);
    if (g->n >= most || (x->plan.tok && tokenizer_is_eog(x->plan.tok, token))) return false;
    x->plan.drafter.push(t->drafting, token);
    return x->plan.fixed || best_length(x, g, x->model_chance, most, most, draft_cost(x, n_seqs)) > g->n;
}

// Drafts for the first n streams, for all of them together, one token per step of the draft model, which follows their
// texts already.
static void draft_together(Speculate *x, const Scheduler *s, int n, int most) {
    size_t n_vocab = (size_t)scheduler_n_vocab(s);
    int n_seqs = n;
    while (n > 0) {
        for (int i = 0; i < n; i++) x->texts[i] = x->streams[i]->drafting;
        const float *logits = x->plan.drafter.step(x->plan.drafter.arg, x->texts, n);
        x->now.extra += x->plan.draft_cost * step_costs_at(&x->plan.draft_costs, n);
        int left = 0;
        for (int i = 0; i < n; i++) {
            Stream *t = x->streams[i];
            const StepRows *rows = x->rows_of[i];
            int room = int_min(most, scheduler_draft_room(s, rows));
            if (!draft_one(x, s, rows, t, logits + (size_t)i * n_vocab, room, n_seqs)) continue;
            x->streams[left] = t;
            x->rows_of[left++] = rows;
        }
        n = left;
    }
}

// Whether the draft model can gain anything, if all of its drafts are accepted.
static bool can_pay(const Speculate *x, int n_seqs) {
    double chances[DRAFT_MOST];
    for (int i = 0; i < x->plan.most; i++) chances[i] = 1;
    return draft_length(&x->plan.costs, &x->now, chances, x->plan.most, draft_cost(x, n_seqs), NULL) > 0;
}

// Whether to try the draft model for the n sequences of the step although it promises nothing: a part of each step's
// time is saved until it pays for a try.
static bool may_try(Speculate *x, int n) {
    const StepCosts *c = &x->plan.costs;
    double base = step_costs_at(c, x->now.rows), behind = 0; // tokens that the draft model has not computed
    for (int i = 0; i < n; i++) behind += x->plan.drafter.behind(x->streams[i]->drafting, x->rows_of[i]->seq);
    double steps = step_costs_at(&x->plan.draft_costs, behind) + TRIED_DRAFTS * step_costs_at(&x->plan.draft_costs, n);
    double cost = x->plan.draft_cost * steps + step_costs_at(c, x->now.rows + TRIED_DRAFTS * n) - base;
    x->saved += SHARE_OF_TRIES * base;
    if (x->saved < cost || !can_pay(x, n)) return false;
    x->saved = 0;
    return true;
}

// Drafts with the draft model for those sequences of the step where it is expected to gain more than n-grams.
static void guess_by_model(Speculate *x, const Scheduler *s, int n) {
    const Drafter *d = &x->plan.drafter;
    int asked = 0, most = x->plan.most;
    bool promises = false;
    for (int i = 0; i < n; i++) {
        int room = int_min(most, scheduler_draft_room(s, x->rows_of[i]));
        x->streams[i]->asks = room > 0 && worth_asking(x, x->streams[i], room, n);
        promises = promises || x->streams[i]->asks;
    }
    x->tries = !promises && may_try(x, n);
    if (x->tries) most = TRIED_DRAFTS;
    for (int i = 0; i < n; i++) {
        Stream *t = x->streams[i];
        const StepRows *rows = x->rows_of[i];
        int room = int_min(most, scheduler_draft_room(s, rows));
        if (!(t->asks || (x->tries && room > 0 && t->ngram.gain <= 1))) continue;
        if (!(t->asks = d->follow(d->arg, &t->drafting, rows->seq, room))) continue;
        x->streams[asked] = t;
        x->rows_of[asked++] = rows;
    }
    draft_together(x, s, asked, most);
}

// ---- propose --------------------------------------------------------------------------------------------------------

static void make_room(Speculate *x, int n) {
    if (n <= x->cap) return;
    x->cap = n;
    x->streams = mem_resize(x->streams, (size_t)n * sizeof *x->streams);
    x->rows_of = mem_resize(x->rows_of, (size_t)n * sizeof *x->rows_of);
    x->texts = mem_resize(x->texts, (size_t)n * sizeof *x->texts);
}

// Makes the guesses for all sequences of a step. Called when the first of them proposes.
static void begin_step(Speculate *x, const Scheduler *s) {
    const Batch *b = scheduler_batch(s);
    int n = 0;
    x->step = scheduler_steps(s);
    x->rows = x->rows_planned = b->n_rows;
    x->now = (StepPlan){0};
    for (int i = 0; i < b->n_seqs; i++) x->now.tokens += scheduler_rows(s, i)->n_out > 0;
    x->now.rows = x->now.tokens; // rows of prompts are computed anyway, and make no draft cheaper
    make_room(x, b->n_seqs);
    for (int i = 0; i < b->n_seqs; i++) {
        const StepRows *rows = scheduler_rows(s, i);
        if (rows->n_out == 0 || !is_ours(x, s, rows->request)) continue;
        Stream *t = stream_of(rows->request);
        t->step = x->step;
        t->n_new = rows->request->n_new;
        t->asks = t->by_model = false;
        t->model.n = 0;
        guess_by_ngram(x, t, rows->seq);
        best_length(x, &t->ngram, x->ngram_chance, scheduler_draft_room(s, rows), 0, 0);
        x->streams[n] = t;
        x->rows_of[n++] = rows;
    }
    if (x->plan.drafter.step && n > 0) guess_by_model(x, s, n);
}

static void propose(const Policy *p, Scheduler *s, StepRows *rows) {
    Speculate *x = p->arg;
    if (x->step != scheduler_steps(s)) begin_step(x, s);
    rows->wants_hidden = x->plan.drafter.observe && is_ours(x, s, rows->request) && !rows->picked;
    Stream *t = is_ours(x, s, rows->request) ? rows->request->state : NULL;
    if (!t || t->step != x->step || rows->room == 0) return;
    x->now.rows += scheduler_batch(s)->n_rows - x->rows_planned;
    x->rows_planned = scheduler_batch(s)->n_rows;
    t->by_model = t->model.n > 0;
    Guess *g = t->by_model ? &t->model : &t->ngram;
    const Chance *chance = t->by_model ? x->model_chance : x->ngram_chance;
    int n = best_length(x, g, chance, int_min(x->plan.most, rows->room), 0, 0);
    if (t->by_model && x->tries) n = int_min(g->n, rows->room);
    memcpy(rows->draft, g->tokens, (size_t)n * sizeof *g->tokens);
    rows->n_draft = n;
    rows->n_out += n;
    double likely = 1;
    for (int i = 0; i < n; i++) x->now.tokens += likely *= chance_of(&chance[g->kind[i]]);
}

// ---- observe --------------------------------------------------------------------------------------------------------

static void observe(const Policy *p, Scheduler *s, StepRows *rows) {
    Speculate *x = p->arg;
    (void)s;
    x->plan.drafter.observe(x->plan.drafter.arg, &stream_of(rows->request)->drafting, rows);
}

// ---- accept ---------------------------------------------------------------------------------------------------------

// Compares guesses with the n emitted tokens, up to the first wrong one, and counts them in `chance`, and in `all`
// unless that is NULL.
static void judge(const Guess *g, int n_guesses, const int *tokens, int n, Chance *chance, Chance *all) {
    for (int i = 0; i < n && i < n_guesses; i++) {
        bool right = g->tokens[i] == tokens[i];
        chance_count(&chance[g->kind[i]], right);
        if (all) chance_count(all, right);
        if (!right) return;
    }
}

static void accept(const Policy *p, Scheduler *s, StepRows *rows, int n) {
    Speculate *x = p->arg;
    const Policy *next = policy_with_accept(p->next);
    const Sequence *q = rows->seq;
    const Stream *t = is_ours(x, s, rows->request) ? rows->request->state : NULL;
    bool judges = t && t->step == scheduler_steps(s) && t->n_new == rows->request->n_new;
    static const Stream none;
    Stream was = judges ? *t : none; // a copy: the request may end below, which frees its state
    next->accept(next, s, rows, n);
    if (!judges) return;
    double rows_now = scheduler_batch(s)->n_rows;
    rows->cost = (step_costs_at(&x->plan.costs, rows_now) + x->now.extra) / step_costs_at(&x->plan.costs, x->rows);
    const int *tokens = q->tokens + rows->first + rows->n_known;
    judge(&was.ngram, was.ngram.n, tokens, rows->n_emitted, x->ngram_chance, NULL);
    if (was.by_model) judge(&was.model, was.model.n, tokens, rows->n_emitted, x->model_chance, &x->model_all);
}

// ---- end ------------------------------------------------------------------------------------------------------------

static void end(const Policy *p, Scheduler *s, Request *r) {
    Speculate *x = p->arg;
    Stream *t = is_ours(x, s, r) ? r->state : NULL;
    if (t) {
        if (t->text >= 0) ngram_end(x->ngram, t->text);
        if (x->plan.drafter.leave) x->plan.drafter.leave(x->plan.drafter.arg, t->drafting, r->seq);
        free(t);
        r->state = NULL;
    }
    const Policy *next = policy_with_end(p->next);
    if (next) next->end(next, s, r);
}

Policy speculate_policy(Speculate *x, const Policy *next) {
    return (Policy){.propose = propose,
                    .observe = observe,
                    .accept = accept,
                    .takes_drawn = true,
                    .end = end,
                    .arg = x,
                    .next = next};
}
