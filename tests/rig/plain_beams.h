// tests/rig/plain_beams.h: beam search that computes every beam from its first token, without blocks, forks or a
// scheduler, over any source of logits.
//
// A file that includes this one first defines the length of the context: enum { FAKE_CTX = 64 };
#ifndef QUILL_PLAIN_BEAMS_H
#define QUILL_PLAIN_BEAMS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy/beam.h"

enum { MOST_BEAMS = 81, MOST_VOCAB = 320 };

// A source of logits: those after n tokens, (n_vocab).
typedef struct {
    void (*logits)(void *arg, const int *tokens, int n, float *out);
    void *arg;
    int n_vocab;
} PlainModel;

typedef struct {
    int tokens[FAKE_CTX + 1], n; // includes the prompt
    double sum, score;
    Finish finish;
} PlainText;

typedef struct {
    PlainText live[MOST_BEAMS], kept[MOST_BEAMS + 1];
    int n_live, n_kept, n_steps;
} PlainSearch;

typedef struct {
    int beam, id;
    double sum;
} PlainCandidate;

static inline void plain_keep(PlainSearch *p, const BeamConfig *c, const PlainText *t, int n_prompt, Finish finish) {
    PlainText new = *t;
    new.finish = finish;
    new.score = t->sum / pow(t->n - n_prompt, c->length_penalty);
    int at = p->n_kept++;
    for (; at > 0 && new.score > p->kept[at - 1].score; at--) p->kept[at] = p->kept[at - 1];
    p->kept[at] = new;
    p->n_kept = int_min(p->n_kept, c->n);
}

static inline int compare_plain(const void *a, const void *b) {
    const PlainCandidate *x = a, *y = b;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    return x->beam != y->beam ? x->beam - y->beam : x->id - y->id;
}

// Extends every beam by every token, sorts by score, and returns the number of results.
static inline int plain_candidates(const PlainSearch *p, const PlainModel *m, const SamplerParams *how,
                                   PlainCandidate *out) {
    float logits[MOST_VOCAB];
    int n = 0;
    for (int i = 0; i < p->n_live; i++) {
        m->logits(m->arg, p->live[i].tokens, p->live[i].n, logits);
        double most = -INFINITY, sum = 0;
        for (int k = 0; k < m->n_vocab; k++) most = fmax(most, (double)logits[k]);
        for (int k = 0; k < m->n_vocab; k++) sum += exp((double)logits[k] - most);
        for (int b = 0; b < how->n_bias; b++) logits[how->bias[b].id] += how->bias[b].bias;
        for (int k = 0; k < m->n_vocab; k++) {
            double logprob = (float)((double)logits[k] - most - log(sum));
            if (logits[k] > -INFINITY) out[n++] = (PlainCandidate){i, k, p->live[i].sum + logprob};
        }
    }
    qsort(out, (size_t)n, sizeof *out, compare_plain);
    return n;
}

// It ends by the same rules as policy/beam.c, but for BEAM_STOP_NEVER it has no rule: only the limit ends it.
static inline void plain_search(PlainSearch *p, const PlainModel *m, const BeamConfig *c, const SamplerParams *how,
                                const int *prompt, int n_prompt, int max_new) {
    static PlainCandidate all[MOST_BEAMS * MOST_VOCAB];
    static PlainText next[MOST_BEAMS];
    *p = (PlainSearch){.n_live = 1};
    p->live[0].n = n_prompt;
    memcpy(p->live[0].tokens, prompt, (size_t)n_prompt * sizeof *prompt);
    while (p->n_live > 0 && p->n_steps < max_new) {
        int n_all = plain_candidates(p, m, how, all), n = 0;
        p->n_steps++;
        for (int i = 0; i < n_all && n < c->n; i++) {
            PlainText t = p->live[all[i].beam];
            t.tokens[t.n++] = all[i].id;
            t.sum = all[i].sum;
            Finish finish = c->ends ? c->ends(c->arg, t.tokens + n_prompt, t.n - n_prompt) : RUNNING;
            if (finish == RUNNING) next[n++] = t;
            else if (i < c->n) plain_keep(p, c, &t, n_prompt, finish);
        }
        memcpy(p->live, next, sizeof next);
        p->n_live = n;
        if (n == 0 || p->n_kept < c->n) continue;
        double present = next[0].sum / pow(next[0].n - n_prompt, c->length_penalty);
        if (c->stop == BEAM_STOP_FULL || c->n == 1) return;
        if (c->stop == BEAM_STOP_PRESENT && present <= p->kept[c->n - 1].score) return;
    }
    for (int i = 0; i < p->n_live; i++) plain_keep(p, c, &p->live[i], n_prompt, FINISH_LENGTH);
}

#endif
