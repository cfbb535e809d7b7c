// policy/beam.c: beam search. See policy/beam.h.
#include "policy/beam.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE = 16 }; // candidates of a row in addition to 2 n, since tokens that end a text continue no beam

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
} BeamCandidate;

struct BeamSearch {
    BeamConfig c;
    Policy policy;
    int n_row;              // the most candidates of a row
    LiveBeam *live;         // (n) beam i decodes in request_sequence(r, i)
    int n_live;             //
    TokenLogprob *row;      // (n_row)
    BeamCandidate *all;     // (n n_row) of a step
    BeamCandidate *chosen;  // (n) the next beams
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

// Writes all candidates of a step to b->all, best first; returns their number. A beam without candidates whose form is
// complete is kept as a text: what may still follow does not fit the limit, and its end tokens are forbidden.
static int find_candidates(BeamSearch *b, const Scheduler *s, const SeqRows *rows) {
    Request *r = rows->request;
    int n = 0;
    for (int i = 0; i < b->n_live; i++) {
        const Sequence *q = rows[i].seq;
        const float *logits = scheduler_allowed(s, r, q, rows[i].logits);
        int found = sampler_likeliest(b->c.sampler, &r->sampling, logits, q->tokens, q->n_tokens, b->row, b->n_row);
        if (found == 0 && scheduler_ends(s, r, q, rows[i].logits))
            keep_text(b, q->tokens + r->n_prompt, q->n_tokens - r->n_prompt, b->live[i].sum, b->live[i].node,
                      FINISH_EOG);
        for (int k = 0; k < found; k++)
            b->all[n++] = (BeamCandidate){
                .sum = b->live[i].sum + (double)b->row[k].logprob, .beam = i, .rank = k, .id = b->row[k].id};
    }
    qsort(b->all, (size_t)n, sizeof *b->all, compare);
    return n;
}

// Records the log-probabilities of a candidate's token; returns its node.
static int add_node(BeamSearch *b, const SeqRows *rows, const BeamCandidate *c) {
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

// Whether a candidate ends a text. The text is kept if the candidate's rank `place` is below n.
static bool is_text(BeamSearch *b, const SeqRows *rows, const BeamCandidate *c, int place) {
    const Request *r = rows->request;
    Sequence *q = rows[c->beam].seq;
    if (!b->c.ends && !r->constraint) return false;
    sequence_push(q, &c->id, 1);
    const int *tokens = q->tokens + r->n_prompt;
    int n = q->n_tokens - r->n_prompt;
    Finish finish = b->c.ends ? b->c.ends(b->c.arg, tokens, n) : RUNNING;
    if (finish == RUNNING && r->constraint && constraint_over(r->constraint, tokens, n)) finish = FINISH_EOG;
    if (finish != RUNNING && place < b->c.n) keep_text(b, tokens, n, c->sum, add_node(b, rows, c), finish);
    q->n_tokens--;
    return finish != RUNNING;
}

// Chooses the next beams among n_all candidates and writes them to b->chosen; returns their number.
static int choose(BeamSearch *b, const SeqRows *rows, int n_all) {
    int n = 0;
    for (int i = 0; i < n_all && n < b->c.n; i++) {
        if (is_text(b, rows, &b->all[i], i)) continue;
        b->chosen[n] = b->all[i];
        b->chosen[n++].node = add_node(b, rows, &b->all[i]);
    }
    return n;
}

// ---- the sequences of the next beams --------------------------------------------------------------------------------

static void free_sequence(KvCache *kv, Sequence *q) {
    kvcache_release(kv, q);
    sequence_free(q);
}

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
        if (child == n) free_sequence(kv, request_sequence(r, beam));
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
static int longest(const Scheduler *s, const Request *r) {
    int room = scheduler_kv((Scheduler *)s)->max_slots - r->n_prompt + 1;
    return r->max_new >= 0 ? int_min(room, r->max_new) : room;
}

static bool is_over(const BeamSearch *b, const Scheduler *s, const Request *r) {
    if (b->n_kept < b->c.n) return false;
    if (b->c.stop == BEAM_STOP_FULL || b->c.n == 1) return true;
    int n = r->seq->n_tokens - r->n_prompt;
    if (b->c.stop == BEAM_STOP_NEVER) {
        if (raises(&r->sampling)) return false;
        if (b->c.length_penalty > 0) n = longest(s, r);
    }
    return score_of(b, b->live[0].sum, n) <= b->kept[b->n_kept - 1].score;
}

static void accept(const Policy *p, Scheduler *s, SeqRows *rows, int n) {
    BeamSearch *b = p->arg;
    Request *r = rows->request;
    KvCache *kv = scheduler_kv(s);
    assert(n == b->n_live && rows->n_out == 1 && rows->n_draft == 0);
    b->stats.n_steps++;
    b->stats.most_blocks = int_max(b->stats.most_blocks, kv->pool->n_blocks - kv->n_free);
    int n_all = find_candidates(b, s, rows), n_next = choose(b, rows, n_all);
    advance(b, kv, r, n_next);
    Finish limit = n_all > 0 ? scheduler_count(s, rows) : RUNNING;
    b->over = n_next == 0 || is_over(b, s, r);
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
    for (int i = 0; i < r->n_more; i++) free_sequence(scheduler_kv(s), &r->more[i]);
    free(r->more);
    r->more = NULL;
    r->n_more = 0;
    leave_best(b, scheduler_kv(s), r);
}

// ---- a search -------------------------------------------------------------------------------------------------------

BeamSearch *beam_new(const BeamConfig *c) {
    BeamSearch *b = mem_alloc(sizeof *b);
    size_t n = (size_t)c->n, row = 2 * n + SPARE;
    assert(c->n >= 1);
    *b = (BeamSearch){.c = *c, .n_row = (int)row, .n_live = 1};
    b->policy = (Policy){.accept = accept, .end = end, .arg = b, .next = c->next};
    b->live = mem_alloc(n * sizeof *b->live);
    b->live[0] = (LiveBeam){.node = -1};
    b->row = mem_alloc(row * sizeof *b->row);
    b->all = mem_alloc(n * row * sizeof *b->all);
    b->chosen = mem_alloc(n * sizeof *b->chosen);
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
