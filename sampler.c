// sampler.c: see sampler.h.
#include "sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/falling.h"
#include "base/log_sum_exp.h"
#include "base/race.h"

typedef struct {
    int id;
    float logit;
    float p;     // probability, after softmax()
    float score; // keep_typical: distance of the surprise from the entropy
} Candidate;

struct Sampler {
    int n_vocab;
    float *logits;    // (n_vocab) with bias or penalties
    Candidate *cands; // (n_vocab)
    Candidate *other; // (n_vocab) the other buffer of sort_many
    int *counts;      // (n_vocab) occurrences in the penalty window; zero between calls
};

SamplerParams sampler_defaults(void) {
    return (SamplerParams){.temp = (float)SAMPLER_TEMP,
                           .top_k = SAMPLER_TOP_K,
                           .top_p = (float)SAMPLER_TOP_P,
                           .min_p = (float)SAMPLER_MIN_P,
                           .typical = 1,
                           .xtc_threshold = (float)SAMPLER_XTC_THRESHOLD,
                           .repeat_penalty = 1,
                           .repeat_last_n = SAMPLER_REPEAT_LAST_N};
}

Sampler *sampler_new(int n_vocab) {
    Sampler *s = mem_alloc(sizeof *s);
    s->n_vocab = n_vocab;
    s->logits = mem_alloc((size_t)n_vocab * sizeof *s->logits);
    s->cands = mem_alloc((size_t)n_vocab * sizeof *s->cands);
    s->other = mem_alloc((size_t)n_vocab * sizeof *s->other);
    s->counts = mem_alloc((size_t)n_vocab * sizeof *s->counts);
    return s;
}

void sampler_free(Sampler *s) {
    if (!s) return;
    free(s->logits);
    free(s->cands);
    free(s->other);
    free(s->counts);
    free(s);
}

// ---- before the candidates ------------------------------------------------------------------------------------------

static void apply_bias(Sampler *s, const SamplerParams *p) {
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= 0 && p->bias[i].id < s->n_vocab) s->logits[p->bias[i].id] += p->bias[i].bias;
}

static bool penalises(const SamplerParams *p) {
    return p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

static void apply_penalties(Sampler *s, const SamplerParams *p, const int *history, int n_history) {
    int n = p->repeat_last_n < 0 ? n_history : int_min(p->repeat_last_n, n_history);
    if (n == 0 || !penalises(p)) return;
    const int *recent = history + n_history - n;
    for (int i = 0; i < n; i++)
        if (recent[i] >= 0 && recent[i] < s->n_vocab) s->counts[recent[i]]++;
    for (int i = 0; i < n; i++) {
        int id = recent[i];
        if (id < 0 || id >= s->n_vocab || s->counts[id] == 0) continue;
        float *l = &s->logits[id];
        *l = sample_penalise(*l, s->counts[id], p->repeat_penalty, p->presence_penalty, p->frequency_penalty);
        s->counts[id] = 0; // counts each token once
    }
}

// Returns the row with bias and penalties: the row itself, or s->logits.
static const float *change_logits(Sampler *s, const SamplerParams *p, const float *logits, const int *history,
                                  int n_history) {
    if (p->n_bias == 0 && !penalises(p)) return logits;
    memcpy(s->logits, logits, (size_t)s->n_vocab * sizeof *logits);
    apply_bias(s, p);
    apply_penalties(s, p, history, n_history);
    return s->logits;
}

// ---- scanning the vocabulary ----------------------------------------------------------------------------------------

enum { SCAN = 64 }; // logits that are compared with one limit by vectors: almost all blocks have none above it

static bool any_above(const float *logits, float limit) {
    int above = 0;
    for (int i = 0; i < SCAN; i++) above |= logits[i] > limit;
    return above;
}

// The first index from i on whose logit is above the limit; n: there is none. NaN is never above.
static int next_above(const float *logits, int i, int n, float limit) {
    for (; i < n && i % SCAN; i++)
        if (logits[i] > limit) return i;
    while (i + SCAN <= n && !any_above(logits + i, limit)) i += SCAN;
    while (i < n && !(logits[i] > limit)) i++;
    return i;
}

static int argmax(const float *logits, int n) {
    int best = -1;
    float most = -INFINITY;
    for (int i = next_above(logits, 0, n, most); i < n; i = next_above(logits, i + 1, n, most)) {
        best = i;
        most = logits[i];
    }
    return best;
}

// ---- candidates, sorted by logit ------------------------------------------------------------------------------------

static bool before(const Candidate *a, const Candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static int compare_logit(const void *a, const void *b) { return before(b, a) - before(a, b); }

static int compare_score(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    return x->score != y->score ? (x->score > y->score) - (x->score < y->score) : (x->id > y->id) - (x->id < y->id);
}

// Restores the heap below element i. The root is the candidate that comes last in the order of before().
static void heap_sink(Candidate *heap, int n, int i) {
    Candidate sinks = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&heap[child], &heap[child + 1])) child++;
        if (!before(&sinks, &heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = sinks;
}

// Sorts s->cands, which are in the order of their ids, as compare_logit does: by radix, as a vocabulary is large.
static void sort_many(Sampler *s, int n) {
    enum { BITS = 11, BUCKETS = 1 << BITS, PASSES = 3 };
    int at[PASSES][BUCKETS] = {{0}};
    for (int i = 0; i < n; i++)
        for (int pass = 0; pass < PASSES; pass++)
            at[pass][falling_bits(s->cands[i].logit) >> pass * BITS & (BUCKETS - 1)]++;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int bucket = 0, sum = 0; bucket < BUCKETS; bucket++) {
            int count = at[pass][bucket];
            at[pass][bucket] = sum;
            sum += count;
        }
        for (int i = 0; i < n; i++) {
            int bucket = falling_bits(s->cands[i].logit) >> pass * BITS & (BUCKETS - 1);
            s->other[at[pass][bucket]++] = s->cands[i];
        }
        Candidate *sorted = s->other;
        s->other = s->cands;
        s->cands = sorted;
    }
}

// Writes all logits that are above -inf, in the order of their ids, to s->cands. Returns how many there are.
static int all_candidates(Sampler *s, const float *logits) {
    int m = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (logits[i] > -INFINITY) s->cands[m++] = (Candidate){.id = i, .logit = logits[i]};
    return m;
}

// Writes the k largest logits (all if k <= 0) in descending order to s->cands and returns how many there are, without
// -inf and NaN.
static int top_candidates(Sampler *s, const float *logits, int k) {
    enum { HEAP_MOST = 512 }; // candidates that a heap finds faster than sort_many
    Candidate *out = s->cands;
    int m = 0, n = s->n_vocab;
    float limit = -INFINITY; // the least logit of k candidates
    if (k <= 0 || k > HEAP_MOST) {
        m = all_candidates(s, logits);
        sort_many(s, m);
        return k > 0 ? int_min(k, m) : m;
    }
    for (int i = next_above(logits, 0, n, limit); i < n; i = next_above(logits, i + 1, n, limit)) {
        Candidate c = {.id = i, .logit = logits[i]};
        if (m < k) {
            out[m++] = c;
            for (int j = m == k ? k / 2 - 1 : -1; j >= 0; j--) heap_sink(out, k, j);
        } else {
            out[0] = c;
            heap_sink(out, k, 0);
        }
        if (m == k) limit = out[0].logit;
    }
    qsort(out, (size_t)m, sizeof *out, compare_logit);
    return m;
}

// The sum of the probabilities up to some candidate, added in the order that sampling.h states.
typedef struct {
    double before, run; // sums of the complete runs and of the current run
    int n;              // candidates in the current run
} Cumulative;

static double cumulate(Cumulative *c, double value) {
    if (c->n == SAMPLE_RUN) *c = (Cumulative){.before = c->before + c->run};
    c->run += value;
    c->n++;
    return c->before + c->run;
}

static void softmax(Candidate *c, int n, float temp) {
    double sum = 0;
    float max = c[0].logit;
    for (int i = 1; i < n; i++)
        if (c[i].logit > max) max = c[i].logit;
    Cumulative total = {0};
    for (int i = 0; i < n; i++) {
        c[i].p = sample_weight(c[i].logit, max, temp);
        sum = cumulate(&total, c[i].p);
    }
    for (int i = 0; i < n; i++) c[i].p = sample_share(c[i].p, sum);
}

// Locally typical sampling (Meister et al. 2022): keeps the tokens whose surprise is nearest to the entropy.
static int keep_typical(Candidate *c, int n, float mass) {
    softmax(c, n, 1);
    double entropy = 0;
    for (int i = 0; i < n; i++)
        if (c[i].p > 0) entropy -= c[i].p * log(c[i].p);
    for (int i = 0; i < n; i++) c[i].score = c[i].p > 0 ? (float)fabs(-log(c[i].p) - entropy) : INFINITY;
    qsort(c, (size_t)n, sizeof *c, compare_score);
    double sum = 0;
    int kept = 0;
    while (kept < n) {
        sum += c[kept++].p;
        if (sum > mass) break;
    }
    qsort(c, (size_t)kept, sizeof *c, compare_logit);
    return kept;
}

static int keep_top_p(Candidate *c, int n, float top_p) {
    softmax(c, n, 1);
    Cumulative sum = {0};
    for (int i = 0; i < n; i++)
        if (cumulate(&sum, c[i].p) >= top_p) return i + 1;
    return n;
}

static int keep_min_p(const Candidate *c, int n, float min_p) {
    int kept = 1;
    float least = c[0].logit + logf(min_p); // p_i >= min_p * p_max
    while (kept < n && c[kept].logit >= least) kept++;
    return kept;
}

// XTC, "exclude top choices" (Weidmann 2024): of the candidates with at least this probability, all but the least
// likely are left out. Returns how many these are; they are the first ones.
static int top_choices(Candidate *c, int n, float threshold) {
    int likely = 0;
    softmax(c, n, 1);
    for (int i = 0; i < n; i++) likely += c[i].p >= threshold;
    return int_max(0, likely - 1);
}

// Draws one of the candidates, which are in any order; `top`: the largest of their logits. Of equal times the candidate
// that comes first in the order of before() wins.
static int draw_token(const Candidate *c, int n, float top, float temp, uint64_t key) {
    int best = 0;
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        double time = race_time(key, c[i].id, sample_weight(c[i].logit, top, temp));
        if (time < least || (time == least && before(&c[i], &c[best]))) {
            least = time;
            best = i;
        }
    }
    return c[best].id;
}

// Draws without sorting the vocabulary: for parameters that need no order. -1: all logits are -inf.
static int draw_unsorted(Sampler *s, const SamplerParams *p, const float *logits, uint64_t key) {
    int best = argmax(logits, s->n_vocab), n = all_candidates(s, logits), kept = 0;
    if (best < 0) return -1;
    float least = p->min_p > 0 ? logits[best] + logf(p->min_p) : -INFINITY;
    for (int i = 0; i < n; i++)
        if (s->cands[i].logit >= least) s->cands[kept++] = s->cands[i];
    return draw_token(s->cands, kept, logits[best], p->temp, key);
}

int sampler_sample(Sampler *s, const SamplerParams *p, const float *logits, const int *history, int n_history,
                   uint64_t sequence, uint64_t position) {
    const float *changed = change_logits(s, p, logits, history, n_history);
    if (p->greedy || p->temp <= 0) return argmax(changed, s->n_vocab);

    uint64_t key = rng_bits(p->seed, sequence, position);
    bool excludes = sample_excludes(key, p->xtc_probability);
    if (p->top_k <= 0 && p->typical >= 1 && p->top_p >= 1 && !excludes) return draw_unsorted(s, p, changed, key);
    int n = top_candidates(s, changed, p->top_k);
    Candidate *c = s->cands;
    if (n == 0) return -1;
    if (p->typical < 1) n = keep_typical(c, n, p->typical);
    if (p->top_p < 1) n = keep_top_p(c, n, p->top_p);
    if (p->min_p > 0) n = keep_min_p(c, n, p->min_p);
    int first = excludes ? top_choices(c, n, p->xtc_threshold) : 0;
    return draw_token(c + first, n - first, c[first].logit, p->temp, key);
}

bool sampler_any_finite(const float *logits, int n) {
    int i = 0;
    while (i < n && !isfinite(logits[i])) i++;
    return i < n;
}

float sampler_logprobs(Sampler *s, const float *logits, int id, TokenLogprob *top, int n_top) {
    double log_sum = log_sum_exp(logits, s->n_vocab);
    int n = n_top > 0 ? top_candidates(s, logits, n_top) : 0;
    for (int i = 0; i < n_top; i++)
        top[i] = i < n ? (TokenLogprob){s->cands[i].id, (float)(s->cands[i].logit - log_sum)}
                       : (TokenLogprob){-1, -INFINITY};
    return (float)(logits[id] - log_sum);
}

int sampler_likeliest(Sampler *s, const SamplerParams *p, const float *logits, const float *allowed, const int *history,
                      int n_history, TokenLogprob *top, int n) {
    double log_sum = log_sum_exp(logits, s->n_vocab);
    if (!isfinite(log_sum)) return 0;
    const float *changed = change_logits(s, p, allowed, history, n_history);
    int found = top_candidates(s, changed, int_max(1, n));
    for (int i = 0; i < found; i++) top[i] = (TokenLogprob){s->cands[i].id, (float)(s->cands[i].logit - log_sum)};
    return found;
}
