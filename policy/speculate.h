// policy/speculate.h: speculation: drafts by n-grams, by a draft model, or by both, as a policy.
//
//   Speculate *x = speculate_new(&(SpeculatePlan){.ngram = true, .most = 16, .costs = ...});
//   Policy p = speculate_policy(x, next);   // in front of the others
//
// Before a step each decoding sequence gets drafts of what may come next; the step computes their rows too, and the
// policy behind (plain decoding) draws from one row after the other for as long as what it draws was drafted
// (Leviathan et al. 2023, with sample-and-match in place of rejection). So the text is that without speculation: it
// does not depend on the drafters. A draft model draws its drafts as the target will, with the same parameters and the
// same random number: where both say the same, the draft is right.
//
// How many drafts there are is decided by policy/draft_length.h, for all sequences of a step together: first one after
// the other by n-grams; where a draft model promises more, it drafts for all of those in steps of its own. N-grams are
// judged by every token that comes out, also where nothing was drafted. A draft model that promises nothing is asked
// again after a while, less and less often.
//
// Requests with several sequences, and those that another policy accepts for, get no drafts.
#ifndef QUILL_SPECULATE_H
#define QUILL_SPECULATE_H

#include "policy/draft_length.h"
#include "policy/draft_model.h"
#include "policy/policy.h"

typedef struct Speculate Speculate;

typedef struct {
    bool ngram;
    DraftModel *model;    // NULL: none; the caller's
    const Tokenizer *tok; // tells which tokens end a text; NULL: none does
    int most;             // drafts of a sequence in a step, at most DRAFT_MOST
    int least;            // fewer are none
    float least_p;        // a draft less likely than that is left out, with all behind it
    bool fixed;           // as many as can be had, whatever they cost: for measuring
    StepCosts costs;      // of the target's steps
    double draft_cost;    // of a step of one row of the draft model, in those of the target
} SpeculatePlan;

Speculate *speculate_new(const SpeculatePlan *plan);
void speculate_free(Speculate *x); // after the scheduler
Policy speculate_policy(Speculate *x, const Policy *next);
const SpeculatePlan *speculate_plan(const Speculate *x);

#endif
