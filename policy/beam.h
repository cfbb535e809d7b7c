// policy/beam.h: beam search as a policy: of all continuations of a prompt, the few that the model finds likeliest.
//
//   BeamSearch *b = beam_new(&(BeamConfig){.n = 4, .length_penalty = 1, .sampler = sampler, .next = policy});
//   beam_request(b, &r);                   // r.seq, r.max_new and r.sampling are set as for any request
//   scheduler_add(s, &r);
//   ... until r.finish is not RUNNING ...
//   const BeamText *texts;
//   int n = beam_texts(b, &texts);         // best first
//   beam_free(b);
//
// The request has up to n sequences, the live beams. They share the blocks that they have in common, and a block is
// copied when a beam writes into one that others use too. In each step every beam has one row. The candidates are all
// beams with one token more; the best of them become the next beams.
//
// Scores are those of Hugging Face transformers: a candidate's sum is that of the log-probabilities of its tokens under
// softmax of the model's own logits. Logit bias and penalties are added to a token's log-probability; nothing is
// normalised again, and temperature and the cuts of sampling do not apply. A text of n tokens, its end token among
// them, scores sum / n^length_penalty.
//
// A candidate that ends (BeamConfig.ends) is kept aside if it is among the n best candidates of its step, and forgotten
// otherwise. The n best of what was kept are the result. With one beam the text is that of greedy decoding. Equal sums
// are decided by the beam's place, then by the token's rank in its row, then by the lower id: the result depends on the
// logits alone.
//
// Steps without a token for every beam do not exist: beams of one request decode together or not at all. When memory
// runs out, the request gives its blocks back, and its sequences compute their tokens again, as any request's.
#ifndef QUILL_BEAM_H
#define QUILL_BEAM_H

#include "scheduler.h"

// When a search ends. It goes on at least until n texts are kept, and then until the condition below holds. A search
// with one beam ends with its first text. Every search ends when no beam is left, and at the limits of the request,
// where the live beams count as texts.
typedef enum {
    BEAM_STOP_PRESENT, // the best live beam, scored at its present length, is no better than the worst text
    BEAM_STOP_FULL,    // at once
    // No live beam can become better than the worst text. A sum never grows, so that a beam's score is at most its sum
    // over the longest length to the power of a positive length penalty; with one of 0 or below, at most its present
    // score. Where an option raises a log-probability (a bias above 0), no bound holds, and the limits alone end it.
    BEAM_STOP_NEVER,
} BeamStop;

typedef struct {
    int n; // beams, and texts in the end; at least 1
    double length_penalty;
    BeamStop stop;
    int n_top; // likeliest tokens to be kept beside each token of a text; -1: no log-probabilities of single tokens
    Sampler *sampler; // scratch; the caller's
    // Whether the text ends with the last of the n tokens generated: FINISH_EOG, FINISH_STOP; RUNNING: it goes on.
    Finish (*ends)(void *arg, const int *tokens, int n);
    void *arg;
    const Policy *next; // the scheduler's policy, for K and V from elsewhere
} BeamConfig;

typedef struct {
    int *tokens, n;    // generated, what ended it included
    double sum, score; // of their log-probabilities; sum / n^length_penalty
    Finish finish;
    float *logprobs;   // (n) under softmax of the model's logits; NULL: n_top is -1
    TokenLogprob *top; // (n, n_top) the same of the likeliest tokens
} BeamText;

typedef struct {
    int n_steps;
    int n_forks;     // beams that share a parent with another one: each of them may copy a block
    int most_blocks; // in use in the whole cache, after a step
} BeamStats;

typedef struct BeamSearch BeamSearch; // of one request

BeamSearch *beam_new(const BeamConfig *c);
void beam_free(BeamSearch *b); // its texts too; the request must have finished
// Sets the policy and the width of a request, whose emit is never called. In the end r->finish is that of the best
// text, or what has cut the search (FINISH_INTERRUPT, FINISH_CONTEXT); r->n_new counts steps; r->seq holds the prompt
// and the best text, of which some tokens may have to be computed again.
void beam_request(BeamSearch *b, Request *r);
int beam_texts(const BeamSearch *b, const BeamText **out); // (n) once the request has finished; 0: it was cut at once
BeamStats beam_stats(const BeamSearch *b);

#endif
