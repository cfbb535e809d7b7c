// policy/speculate.h: speculation as a policy: drafts by n-grams and by a model, which is a draft model or the target's
// own prediction head.
//
//   Speculate *x = speculate_new(&(SpeculatePlan){.ngram = true, .most = 16, .costs = ...});
//   Policy p = speculate_policy(x, next);   // in front of the others
//
// Before a step each decoding sequence gets drafts, tokens that may come next. The step also computes the rows of the
// drafts. The next policy in the chain (plain decoding) then draws a token from one row after the other, as long as the
// drawn token equals the draft (Leviathan et al. 2023, with sample-and-match in place of rejection). So the text is the
// same as without speculation, whatever the drafters propose. The draft model draws its drafts with the target's
// sampling parameters and random numbers, so that equal logits of both models give equal tokens.
//
// A draft model and a prediction head are used alike, as a Drafter; "draft model" below means either.
// policy/draft_length.h decides the number of drafts. First every sequence of a step gets a guess from n-grams. For
// those sequences where the draft model is expected to gain more, it drafts in steps of its own, for all of them
// together. Guesses are judged by every emitted token, even if they were not proposed. If no gain is
// expected from the draft model, it is tried from time to time, for 2% of the time of all steps.
//
// Requests with several sequences get no drafts, nor do requests whose logits another policy accepts.
#ifndef QUILL_SPECULATE_H
#define QUILL_SPECULATE_H

#include "policy/draft_length.h"
#include "policy/drafter.h"
#include "policy/policy.h"
#include "tokenizer.h"

typedef struct Speculate Speculate;

typedef struct {
    bool ngram;
    Drafter drafter;       // zeros: none
    const Tokenizer *tok;  // knows which tokens end a text; NULL: none does
    int most;              // the most drafts of a sequence in a step, at most DRAFT_MOST
    int least;             // if fewer drafts would be best, none are proposed
    float least_p;         // drafts end before the first one with a lower probability
    bool fixed;            // propose as many drafts as possible, whatever they cost: for the tests
    StepCosts costs;       // of the target's steps
    double draft_cost;     // the time of a step of one row of the draft model, in steps of one row of the target
    StepCosts draft_costs; // of the draft model's steps
} SpeculatePlan;

// Copies the plan; its drafter and its vocabulary must outlive the result.
Speculate *speculate_new(const SpeculatePlan *plan);
void speculate_free(Speculate *x); // call it after scheduler_free
// The policy of x, in front of `next`; both must outlive it. Make one policy for each x.
Policy speculate_policy(Speculate *x, const Policy *next);
const SpeculatePlan *speculate_plan(const Speculate *x);

#endif
