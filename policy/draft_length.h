// policy/draft_length.h: how many drafts pay: from counts of what was accepted and a table of what steps cost.
//
// A draft that comes out as the target's token saves a step; all of them make the step a little longer. With chances
// c1, c2, ... that the first, the second, ... draft is accepted where those before it were, a step of k drafts gives
//
//   1 + c1 + c1 c2 + ... + c1 c2 .. ck   tokens in the time   cost(rows + k) / cost(rows)
//
// and the k with the most tokens in its time is taken; 0 is one of them. Chances are shares of accepted drafts among
// those that were judged, counted for each kind of draft: by the length of the match for n-grams, by the probability
// that the draft model gave. No clock is read: the same run decides the same.
#ifndef QUILL_DRAFT_LENGTH_H
#define QUILL_DRAFT_LENGTH_H

#include <stdbool.h>

enum { DRAFT_MOST = 64 }; // drafts of a sequence in a step

// ---- costs ----------------------------------------------------------------------------------------------------------

enum { STEP_COSTS = 8 };
extern const int step_cost_rows[STEP_COSTS]; // 1, 2, 3, 4, 5, 8, 16, 32

// What a step of so many rows takes, in steps of one row: at step_cost_rows, in between on straight lines, beyond on
// the last one.
typedef struct {
    double at[STEP_COSTS];
} StepCosts;

// Those built in: of the CPU's unit that multiplies many rows (bench/roofline.h), or of a GPU; for weights of so many
// bits.
StepCosts step_costs_of(const char *unit, double bits, bool gpu);
double step_costs_at(const StepCosts *c, double rows);

// ---- chances --------------------------------------------------------------------------------------------------------

// Drafts of one kind: how many were judged and accepted; older ones count for less and less.
typedef struct {
    double judged, accepted;
} Chance;

void chance_count(Chance *c, bool accepted);
double chance_of(const Chance *c);

enum { NGRAM_CHANCES = 16, MODEL_CHANCES = 12 };
int chance_of_match(int match_length); // of a match of so many tokens: an index below NGRAM_CHANCES
int chance_of_p(double p);             // of a token that the draft model gave this probability: below MODEL_CHANCES
// As nothing is counted yet: what new text by a model usually gives.
void chance_init(Chance ngram[NGRAM_CHANCES], Chance model[MODEL_CHANCES]);

// ---- the length -----------------------------------------------------------------------------------------------------

// A step as it is planned so far.
typedef struct {
    double rows, tokens; // rows, and the tokens that are expected of them
    double extra;        // what drafting costs besides, in steps of one row
} StepPlan;

// The best number of drafts, up to n, with these chances, each where those before it are accepted. `each`: what
// drafting one more costs, in steps of one row. *gain: tokens in the time, over those of the step without them.
int draft_length(const StepCosts *c, const StepPlan *plan, const double *chances, int n, double each, double *gain);

#endif
