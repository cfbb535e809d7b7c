// policy/beam.c: beam search. See policy/beam.h.
#include "policy/beam.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Candidates of a row in addition to 2 n, since tokens that end a text continue no beam. If a row's candidates do not
// suffice, the step is repeated with more.
enum { SPARE = 16, WIDER = 8 };

// A generated token in the tree of all beams; the path to the root has the tokens before it. Only used to record
// log-probabilities.
typedef struct {
    int parent; // -1: the first token
    float logprob;
} BeamNode;

typedef struct {
    double sum;
    int node; // of its last token; -1: none
} LiveBeam;

// A beam extended by one token.
typedef struct {
    double sum;
    int beam, rank; // the beam that it continues, and the token's rank among that beam's candidates
    int id, node;
    bool last;     // the last of a row that may have more candidates
    Finish finish; // RUNNING unless it ends a text
} BeamCandidate;

struct BeamSearch {
    BeamConfig c;
    Policy policy;
    int n_row, cap_row;     // the most candidates of a row in this step; allocated
    LiveBeam *live;         // (n) beam i decodes in request_sequence(r, i)
    int n_live;             //
    TokenLogprob *row;      // (cap_row)
    BeamCandidate *all;     // (n cap_row) of a step
    BeamCandidate *chosen;  // (n) the next beams
    BeamCandidate *ended;   // (n) candidates of a step that are texts to keep
    int n_ended;            //
    Sequence *next;         // (n) the sequences of the next beams, during `advance`
    BeamText *kept;         // (n_kept) texts, best first
    int n_kept;             //
    BeamNode *nodes;        // (n_nodes)
    TokenLogprob *node_top; // (n_nodes, n_top)
    int n_nodes, cap_nodes;
    bool over; // the search has ended: `kept` is final
    BeamStats stats;
};

// ---- texts ----------------------------------------------------------------------------------------------------------

static double score_of(const BeamSearch *b, double sum, int n) {
    return sum / pow(int_max(1, n), b->c.length_penalty); // an empty text counts as one token
}

static void free_text(BeamText *t) {
    free(t->tokens);
    free(t->logprobs);
    free(t->top);
}

// Sets the log-probabilities of a text from the path to its last node.
static void put_logprobs(const BeamSearch *b, int node, BeamText *t) {
    if (b->c.n_top < 0) return;
    size_t n_top = (size_t)b->c.n_top;
    t->logprobs = mem_alloc((size_t)t->n * sizeof *t->logprobs);
    t->top = mem_alloc((size_t)t->n * n_top * sizeof *t->top + 1);
    for (int i = t->n - 1; i >= 0; i--, node = b->nodes[node].parent) {
        t->logprobs[i] = b->nodes[node].logprob;
        if (n_top) memcpy(t->top + (size_t)i * n_top, b->node_top + (size_t)node * n_top, n_top * sizeof *t->top);
    }
}

// Keeps a text if it is among the n best; among equal scores the earlier text wins.
static void keep_text(BeamSearch *b, const int *tokens, int n, double sum, int node, Finish finish) {
    BeamText t = {.n = n, .sum = sum, .score = score_of(b, sum, n), .finish = finish};
    int at = b->n_kept;
    while (at > 0 && t.score > b->kept[at - 1].score) at--;
    if (at == b->c.n) return;
    if (b->n_kept == b->c.n) free_text(&b->kept[--b->n_kept]);
    t.tokens = mem_alloc((size_t)n * sizeof *t.tokens);
    if (n > 0) memcpy(t.tokens, tokens, (size_t)n * sizeof *t.tokens);
    put_logprobs(b, node, &t);
    memmove(&b->kept[at + 1], &b->kept[at], (size_t)(b->n_kept++ - at) * sizeof t);
    b->kept[at] = t;
}

// Keeps the live beams as texts.
static void keep_live(BeamSearch *b, const Request *r, Finish finish) {
    for (int i = 0; i < b->n_live; i++) {
        const Sequence *q = request_sequence(r, i);
        int n = q->n_tokens - r->n_prompt;
        if (n > 0) keep_text(b, q->tokens + r->n_prompt, n, b->live[i].sum, b->live[i].node, finish);
    }
}

// ---- candidates -----------------------------------------------------------------------------------------------------

static int compare(const void *a, const void *b) {
    const BeamCandidate *x = a, *y = b;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    return x->beam != y->beam ? x->beam - y->beam : x->rank - y->rank;
}

static void set_row(BeamSearch *b, int n_row) {
    b->n_row = n_row;
    if (n_row <= b->cap_row) return;
    b->cap_row = n_row;
    b->row = mem_resize(b->row, (size_t)n_row * sizeof *b->row);
    b->all = mem_resize(b->all, (size_t)b->c.n * (size_t)n_row * sizeof *b->all);
}

// Writes the candidates of a step to b->all, best first, at most n_row of each beam; returns their number.
static int find_candidates(BeamSearch *b, const Scheduler *s, const StepRows *rows) {
    Request *r = rows->request;
    int n = 0;
    for (int i = 0; i < b->n_live; i++) {
        const Sequence *q = rows[i].seq;
        const float *logits = rows[i].logits, *allowed = scheduler_allowed(s, r, q, logits);
        int found =
            sampler_likeliest(b->c.sampler, &r->sampling, logits, allowed, q->tokens, q->n_tokens, b->row, b->n_row);
        for (int k = 0; k < found; k++)
            b->all[n++] = (BeamCandidate){.sum = b->live[i].sum + (double)b->row[k].logprob,
                                          .beam = i,
                                          .rank = k,
                                          .id = b->row[k].id,
                                          .last = k == b->n_row - 1 && b->n_row < scheduler_n_vocab(s)};
    }
    qsort(b->all, (size_t)n, sizeof *b->all, compare);
    return n;
}

// Keeps each beam that no token may follow and whose form is complete as a text: what could still follow does not fit
// the limit, and its end tokens are forbidden.
static void keep_complete(BeamSearch *b, const Scheduler *s, const StepRows *rows, int n_all) {
    Request *r = rows->request;
    for (int i = 0; i < b->n_live; i++) {
        const Sequence *q = rows[i].seq;
        int k = 0;
        while (k < n_all && b->all[k].beam != i) k++;
        if (k == n_all && scheduler_ends(s, r, q, rows[i].logits))
            keep_text(b, q->tokens + r->n_prompt, q->n_tokens - r->n_prompt, b->live[i].sum, b->live[i].node,
                      FINISH_EOG);
    }
}

// Records the log-probabilities of a candidate's token; returns its node.
static int add_node(BeamSearch *b, const StepRows *rows, const BeamCandidate *c) {
    if (b->c.n_top < 0) return -1;
    size_t n_top = (size_t)b->c.n_top;
    if (b->n_nodes == b->cap_nodes) {
        b->cap_nodes = int_max(64, 2 * b->cap_nodes);
        b->nodes = mem_resize(b->nodes, (size_t)b->cap_nodes * sizeof *b->nodes);
        b->node_top = mem_resize(b->node_top, (size_t)b->cap_nodes * n_top * sizeof *b->node_top + 1);
    }
    TokenLogprob *top = b->node_top + (size_t)b->n_nodes * n_top;
    float own = sampler_logprobs(b->c.sampler, rows[c->beam].logits, c->id, top, b->c.n_top);
    b->nodes[b->n_nodes] = (BeamNode){b->live[c->beam].node, own};
    return b->n_nodes++;
}

// Whether a candidate ends a text; RUNNING: it continues its beam.
static Finish finish_of(const BeamSearch *b, const StepRows *rows, const BeamCandidate *c) {
    const Request *r = rows->request;
    Sequence *q = rows[c->beam].seq;
    if (!b->c.ends && !r->constraint) return RUNNING;
    sequence_push(q, &c->id, 1);
    const int *tokens = q->tokens + r->n_prompt;
    int n = q->n_tokens - r->n_prompt;
    Finish finish = b->c.ends ? b->c.ends(b->c.arg, tokens, n) : RUNNING;
    if (finish == RUNNING && r->constraint && constraint_over(r->constraint, tokens, n)) finish = FINISH_EOG;
    q->n_tokens--;
    return finish;
}

// Chooses the next beams among n_all candidates and writes them to b->chosen, and to b->ended the texts among the n
// best candidates; returns the number of beams. -1: a row may have better candidates than those in b->all.
static int choose_among(BeamSearch *b, const StepRows *rows, int n_all) {
    int n = 0;
    b->n_ended = 0;
    for (int i = 0; i < n_all && n < b->c.n; i++) {
        BeamCandidate *c = &b->all[i];
        c->finish = finish_of(b, rows, c);
        if (c->finish == RUNNING) b->chosen[n++] = *c;
        else if (i < b->c.n) b->ended[b->n_ended++] = *c;
        if (c->last && n < b->c.n) return -1;
    }
    return n;
}

static void keep_ended(BeamSearch *b, const StepRows *rows, const BeamCandidate *c) {
    Sequence *q = rows[c->beam].seq;
    int n_prompt = rows->request->n_prompt;
    sequence_push(q, &c->id, 1);
    keep_text(b, q->tokens + n_prompt, q->n_tokens - n_prompt, c->sum, add_node(b, rows, c), c->finish);
    q->n_tokens--;
}

// Chooses the next beams among all candidates and keeps the texts; returns the number of beams. *n_all: the number of
// candidates that were considered.
static int choose(BeamSearch *b, const Scheduler *s, const StepRows *rows, int *n_all) {
    int n = -1, n_vocab = scheduler_n_vocab(s);
    for (int n_row = 2 * b->c.n + SPARE; n < 0; n_row *= WIDER) {
        set_row(b, int_min(n_row, n_vocab));
        *n_all = find_candidates(b, s, rows);
        n = choose_among(b, rows, *n_all);
    }
    keep_complete(b, s, rows, *n_all);
    for (int i = 0; i < b->n_ended; i++) keep_ended(b, rows, &b->ended[i]);
    for (int i = 0; i < n; i++) b->chosen[i].node = add_node(b, rows, &b->chosen[i]);
    return n;
}

// ---- the sequences of the next beams --------------------------------------------------------------------------------

// Writes the sequences of the n chosen candidates to b->next: the first child of a beam takes over its sequence, the
// others fork it. Afterwards the sequences of beams without children are freed.
static void inherit(BeamSearch *b, KvCache *kv, Request *r, int n) {
    for (int i = 0; i < n; i++) {
        int first = 0;
        while (b->chosen[first].beam != b->chosen[i].beam) first++;
        b->next[i] = (Sequence){0};
        if (first == i) b->next[i] = *request_sequence(r, b->chosen[i].beam);
        else kvcache_fork(kv, &b->next[first], &b->next[i]);
        b->stats.n_forks += first < i;
    }
    for (int beam = 0; beam < b->n_live; beam++) {
        int child = 0;
        while (child < n && b->chosen[child].beam != beam) child++;
        if (child == n) sequence_end(kv, request_sequence(r, beam));
    }
}

// Makes the n chosen candidates the live beams.
static void advance(BeamSearch *b, KvCache *kv, Request *r, int n) {
    if (n == 0) return;
    inherit(b, kv, r, n);
    if (!r->more) r->more = mem_alloc((size_t)b->c.n * sizeof *r->more);
    r->n_more = n - 1;
    b->n_live = n;
    for (int i = 0; i < n; i++) {
        *request_sequence(r, i) = b->next[i];
        sequence_push(request_sequence(r, i), &b->chosen[i].id, 1);
        b->live[i] = (LiveBeam){b->chosen[i].sum, b->chosen[i].node};
    }
}

// ---- the end --------------------------------------------------------------------------------------------------------

// Whether an option can make a log-probability positive.
static bool raises(const SamplerParams *p) {
    bool raised = p->repeat_penalty < 1 || p->presence_penalty < 0 || p->frequency_penalty < 0;
    for (int i = 0; i < p->n_bias; i++) raised = raised || p->bias[i].bias > 0;
    return raised;
}

// The most tokens that a text of r can have.
static int longest(const KvCache *kv, const Request *r) {
    int room = kv->max_slots - r->n_prompt + 1;
    return r->max_new >= 0 ? int_min(room, r->max_new) : room;
}

static bool is_over(const BeamSearch *b, const KvCache *kv, const Request *r) {
    if (b->n_kept < b->c.n) return false;
    if (b->c.stop == BEAM_STOP_FULL || b->c.n == 1) return true;
    int n = r->seq->n_tokens - r->n_prompt;
    if (b->c.stop == BEAM_STOP_NEVER) {
        if (raises(&r->sampling)) return false;
        if (b->c.length_penalty > 0) n = longest(kv, r);
    }
    return score_of(b, b->live[0].sum, n) <= b->kept[b->n_kept - 1].score;
}

static void accept(const Policy *p, Scheduler *s, StepRows *rows, int n) {
    BeamSearch *b = p->arg;
    Request *r = rows->request;
    KvCache *kv = scheduler_kv(s);
    assert(n == b->n_live && rows->n_out == 1 && rows->n_draft == 0);
    b->stats.n_steps++;
    b->stats.most_blocks = int_max(b->stats.most_blocks, kv->pool->n_blocks - kv->n_free);
    int n_all, n_next = choose(b, s, rows, &n_all);
    advance(b, kv, r, n_next);
    Finish limit = n_all > 0 ? scheduler_count(s, rows) : RUNNING;
    b->over = n_next == 0 || is_over(b, kv, r);
    if (!b->over && limit == RUNNING) return;
    if (!b->over) keep_live(b, r, limit);
    b->over = true;
    scheduler_finish(s, r, b->n_kept ? b->kept[0].finish : FINISH_BROKEN);
}

// Sets r->seq to the prompt and the best text, and keeps the K and V of their common prefix.
static void leave_best(const BeamSearch *b, KvCache *kv, Request *r) {
    Sequence *q = r->seq;
    int n = b->n_kept ? b->kept[0].n : 0, same = 0, made = q->n_tokens - r->n_prompt;
    while (same < int_min(n, made) && q->tokens[r->n_prompt + same] == b->kept[0].tokens[same]) same++;
    kvcache_truncate(kv, q, r->n_prompt + same);
    if (n > same) sequence_push(q, b->kept[0].tokens + same, n - same);
}

static void end(const Policy *p, Scheduler *s, Request *r) {
    BeamSearch *b = p->arg;
    if (!b->over) keep_live(b, r, r->finish); // the search was cut short by a signal or a full cache
    b->over = true;
    for (int i = 0; i < r->n_more; i++) sequence_end(scheduler_kv(s), &r->more[i]);
    free(r->more);
    r->more = NULL;
    r->n_more = 0;
    leave_best(b, scheduler_kv(s), r);
    const Policy *next = policy_with_end(p->next);
    if (next) next->end(next, s, r);
}

// ---- a search -------------------------------------------------------------------------------------------------------

BeamSearch *beam_new(const BeamConfig *c) {
    BeamSearch *b = mem_alloc(sizeof *b);
    size_t n = (size_t)c->n;
    assert(c->n >= 1);
    *b = (BeamSearch){.c = *c, .n_live = 1};
    b->policy = (Policy){.accept = accept, .end = end, .arg = b, .next = c->next};
    b->live = mem_alloc(n * sizeof *b->live);
    b->live[0] = (LiveBeam){.node = -1};
    b->chosen = mem_alloc(n * sizeof *b->chosen);
    b->ended = mem_alloc(n * sizeof *b->ended);
    b->next = mem_alloc(n * sizeof *b->next);
    b->kept = mem_alloc((n + 1) * sizeof *b->kept);
    return b;
}

void beam_free(BeamSearch *b) {
    if (!b) return;
    for (int i = 0; i < b->n_kept; i++) free_text(&b->kept[i]);
    free(b->live);
    free(b->row);
    free(b->all);
    free(b->chosen);
    free(b->ended);
    free(b->next);
    free(b->kept);
    free(b->nodes);
    free(b->node_top);
    free(b);
}

void beam_request(BeamSearch *b, Request *r) {
    r->policy = &b->policy;
    r->width = b->c.n;
}

int beam_texts(const BeamSearch *b, const BeamText **out) {
    *out = b->kept;
    return b->n_kept;
}

BeamStats beam_stats(const BeamSearch *b) { return b->stats; }
