// policy/draft_length.c: built-in step costs, acceptance counts, and the best number of drafts. See
// policy/draft_length.h.
#include "policy/draft_length.h"

#include "base/base.h"

#include <string.h>

// ---- costs ----------------------------------------------------------------------------------------------------------

const int step_cost_rows[STEP_COSTS] = {1, 2, 3, 4, 5, 8, 16, 32};

// Measured with 1.1B weights on two cores. VNNI: in Q8_0 and Q4_K (docs/speculation.md). AMX: several sequences
// decoding together in Q8_0 (docs/performance.md), of which 3 and 5 rows are interpolated; rows of Q4_K on another
// machine (docs/speculation.md). GPU: an estimate, not measured.
static const struct {
    const char *unit;
    bool few_bits; // fewer than 7 bits per weight
    StepCosts costs;
} built_in[] = {
    {"amx", false, {{1, 1.15, 1.19, 1.22, 1.25, 1.34, 1.55, 2.56}}},
    {"amx", true, {{1, 1.3, 1.8, 2.3, 3.7, 4.7, 5.4, 7.3}}},
    {"vnni", false, {{1, 1.27, 1.58, 1.99, 2.23, 2.28, 3.30, 4.90}}},
    {"vnni", true, {{1, 1.05, 1.43, 1.75, 2.78, 2.79, 3.93, 6.52}}},
};
static const StepCosts on_gpu = {{1, 1.02, 1.04, 1.06, 1.08, 1.14, 1.25, 1.5}};
static const StepCosts other = {{1, 1.23, 1.57, 1.94, 2.94, 3.18, 5.24, 12.2}}; // measured with AVX2
// Measured with 6 MB of weights in Q8_0 under VNNI. Such a step waits for arithmetic, so that each row adds its own.
static const StepCosts in_caches = {{1, 1.52, 2.10, 2.70, 2.87, 3.36, 4.43, 8.71}};

StepCosts step_costs_of(const char *unit, double bits, WeightsPlace place) {
    if (place == WEIGHTS_ON_GPU) return on_gpu;
    if (place == WEIGHTS_IN_CACHES) return in_caches;
    const StepCosts *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(built_in); i++) {
        if (strcmp(built_in[i].unit, unit) != 0) continue;
        if (!found || built_in[i].few_bits == (bits < 7)) found = &built_in[i].costs;
    }
    return found ? *found : other;
}

double step_costs_at(const StepCosts *c, double rows) {
    int i = 1;
    while (i < STEP_COSTS - 1 && rows > step_cost_rows[i]) i++;
    double from = step_cost_rows[i - 1], to = step_cost_rows[i];
    return c->at[i - 1] + (c->at[i] - c->at[i - 1]) * (rows - from) / (to - from);
}

// ---- chances --------------------------------------------------------------------------------------------------------

// Both counts are halved when `judged` reaches this.
static const double MEMORY = 128;

void chance_count(Chance *c, bool accepted) {
    if (c->judged >= MEMORY) {
        c->judged /= 2;
        c->accepted /= 2;
    }
    c->judged++;
    c->accepted += accepted;
}

double chance_of(const Chance *c) { return c->accepted / c->judged; }

int chance_of_match(int match_length) {
    static const int from[NGRAM_CHANCES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 26, 31};
    int i = NGRAM_CHANCES - 1;
    while (i > 0 && match_length < from[i]) i--;
    return i;
}

int chance_of_p(double p) {
    static const double from[MODEL_CHANCES] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96, 0.99};
    int i = MODEL_CHANCES - 1;
    while (i > 0 && p < from[i]) i--;
    return i;
}

void chance_init(Chance ngram[NGRAM_CHANCES], Chance model[MODEL_CHANCES]) {
    static const double likely[NGRAM_CHANCES] = {0.1, 0.1,  0.15, 0.25, 0.3, 0.4, 0.5,  0.6,
                                                 0.7, 0.75, 0.8,  0.85, 0.9, 0.9, 0.95, 0.95};
    enum { NGRAM_WEIGHT = 8, MODEL_WEIGHT = 4 };
    for (int i = 0; i < NGRAM_CHANCES; i++) ngram[i] = (Chance){NGRAM_WEIGHT, NGRAM_WEIGHT * likely[i]};
    for (int i = 0; i < MODEL_CHANCES; i++)
        model[i] = (Chance){MODEL_WEIGHT, MODEL_WEIGHT * (0.3 + 0.6 * i / (MODEL_CHANCES - 1))};
}

// ---- the length -----------------------------------------------------------------------------------------------------

int draft_length(const StepCosts *c, const StepPlan *plan, const double *chances, int n, double each, double *gain) {
    double base = step_costs_at(c, plan->rows) + plan->extra, least = plan->tokens / base;
    double tokens = plan->tokens, chance = 1, most = least;
    int best = 0;
    for (int k = 1; k <= n; k++) {
        chance *= chances[k - 1];
        tokens += chance;
        double rate = tokens / (step_costs_at(c, plan->rows + k) + plan->extra + k * each);
        if (rate <= most) continue;
        most = rate;
        best = k;
    }
    if (gain) *gain = most / least;
    return best;
}
