// policy/draft_length.h: decides how many drafts to propose, from counts of accepted drafts and a table of step costs.
//
// An accepted draft saves a step, but every draft makes the step a little longer. Let c1, c2, ... be the probability
// that the first, the second, ... draft is accepted if all drafts before it are. Then a step with k drafts yields
//
//   1 + c1 + c1 c2 + ... + c1 c2 .. ck   tokens in the time   cost(rows + k) / cost(rows)
//
// and the k with the most tokens per time is chosen; it may be 0. The probabilities are the shares of accepted drafts
// among those judged so far, counted for each kind of draft: n-grams by the length of the match, a draft model's tokens
// by the probability that it gave them. No clock is read, so that equal runs decide equally.
#ifndef QUILL_DRAFT_LENGTH_H
#define QUILL_DRAFT_LENGTH_H

#include <stdbool.h>

enum { DRAFT_MOST = 64 }; // drafts of a sequence in a step

// ---- costs ----------------------------------------------------------------------------------------------------------

enum { STEP_COSTS = 8 };
extern const int step_cost_rows[STEP_COSTS]; // 1, 2, 3, 4, 5, 8, 16, 32

// The time of a step by its number of rows, relative to a step of one row. at[i] is for step_cost_rows[i] rows; other
// numbers are interpolated linearly, larger ones extrapolated along the last segment.
typedef struct {
    double at[STEP_COSTS];
} StepCosts;

// Where a step reads its weights from.
typedef enum { WEIGHTS_IN_MEMORY, WEIGHTS_IN_CACHES, WEIGHTS_ON_GPU } WeightsPlace;

// The built-in costs of the CPU's matrix unit (a name of bench/roofline.h), or of a GPU. bits: of one weight.
StepCosts step_costs_of(const char *unit, double bits, WeightsPlace place);
double step_costs_at(const StepCosts *c, double rows);

// ---- chances --------------------------------------------------------------------------------------------------------

// The numbers of judged and of accepted drafts of one kind. Older drafts count less.
typedef struct {
    double judged, accepted;
} Chance;

void chance_count(Chance *c, bool accepted);
double chance_of(const Chance *c);

enum { NGRAM_CHANCES = 16, MODEL_CHANCES = 12 };
int chance_of_match(int match_length); // the index (below NGRAM_CHANCES) for a match of match_length tokens
int chance_of_p(double p);             // the index (below MODEL_CHANCES) for a token with probability p
// Sets typical values for text that a model writes, with small counts.
void chance_init(Chance ngram[NGRAM_CHANCES], Chance model[MODEL_CHANCES]);

// ---- the length -----------------------------------------------------------------------------------------------------

// The step as planned so far.
typedef struct {
    double rows, tokens; // rows of the step, and the number of tokens expected from them
    double extra;        // the time spent on drafting, in steps of one row
} StepPlan;

// The best number of drafts, up to n. chances[i]: the probability that draft i is accepted if all before it are. each:
// the time for drafting one more token, in steps of one row. *gain: tokens per time, relative to a step without drafts.
int draft_length(const StepCosts *c, const StepPlan *plan, const double *chances, int n, double each, double *gain);

#endif
