// policy/beam.h: beam search as a policy: finds the n most likely continuations of a prompt.
//
//   BeamSearch *b = beam_new(&(BeamConfig){.n = 4, .length_penalty = 1, .sampler = sampler, .next = policy});
//   beam_request(b, &r);                   // r.seq, r.max_new and r.sampling are set as for any request
//   scheduler_add(s, &r);
//   ... until r.finish is not RUNNING ...
//   const BeamText *texts;
//   int n = beam_texts(b, &texts);         // best first
//   beam_free(b);
//
// The request has up to n sequences, the live beams. They share the blocks of their common prefix; a shared block is
// copied before a beam writes into it. In each step every beam has one row. The candidates are all beams extended by
// one token; the best candidates become the next beams.
//
// Scores are those of Hugging Face transformers: a candidate's sum adds the log-probabilities of its tokens under
// softmax of the model's unmodified logits. A form forbids candidates and changes no log-probability. Logit bias and
// penalties are added to a token's log-probability without normalising again; temperature and truncation (top-k, top-p,
// ...) do not apply. A text of n tokens, its end token included, scores sum / n^length_penalty.
//
// A candidate that ends (BeamConfig.ends) is a text. It is kept if it is among the n best candidates of its step, and
// dropped otherwise. The result is the n best kept texts. One beam gives the text of greedy decoding. Ties are broken
// by the beam's index, then by the token's rank in its row, then by the lower id: the result depends on the logits
// only.
//
// The beams of one request always decode in the same steps. When memory runs out, the request is preempted, and its
// sequences compute their tokens again, like those of any request.
#ifndef QUILL_BEAM_H
#define QUILL_BEAM_H

#include "scheduler.h"

// When a search ends. It continues until n texts are kept, and then until the condition below holds. A search with one
// beam ends with its first text. Every search ends when no beam is left, and at the limits of the request, where the
// live beams count as texts.
typedef enum {
    BEAM_STOP_PRESENT, // the best live beam, scored at its present length, is no better than the worst text
    BEAM_STOP_FULL,    // as soon as n texts are kept
    // No live beam can become better than the worst text. A sum never grows. So with a positive length penalty a beam's
    // score is at most sum / longest_length^length_penalty; with a penalty of 0 or below it is at most its present
    // score. If an option can raise a log-probability (a bias above 0), there is no bound, and only the limits of the
    // request end the search.
    BEAM_STOP_NEVER,
} BeamStop;

typedef struct {
    int n; // number of beams, and of texts in the end; at least 1
    double length_penalty;
    BeamStop stop;
    int n_top; // number of most likely tokens to record for each token of a text; -1: no log-probabilities of tokens
    Sampler *sampler; // used as scratch; the caller owns it
    // Whether the text ends with the last of the n generated tokens: FINISH_EOG, FINISH_STOP; RUNNING: it continues.
    Finish (*ends)(void *arg, const int *tokens, int n);
    void *arg;
    const Policy *next; // the scheduler's policy; provides fetch (--kv-dir)
} BeamConfig;

typedef struct {
    int *tokens, n;    // the generated tokens, including the end token
    double sum, score; // of their log-probabilities; sum / n^length_penalty
    Finish finish;
    float *logprobs;   // (n) under softmax of the model's logits; NULL: n_top is -1
    TokenLogprob *top; // (n, n_top) the same of the most likely tokens
} BeamText;

typedef struct {
    int n_steps;
    int n_forks;     // beams that share a parent with another one: each of them may copy a block
    int most_blocks; // the most blocks of the cache that were in use after a step
} BeamStats;

typedef struct BeamSearch BeamSearch; // the search of one request

BeamSearch *beam_new(const BeamConfig *c);
void beam_free(BeamSearch *b); // frees its texts too; the request must have finished
// Sets the policy and the width of a request. Its emit is never called. At the end r->finish is that of the best text,
// or the reason why the search was cut short (FINISH_INTERRUPT, FINISH_CONTEXT); r->n_new counts steps; r->seq holds
// the prompt and the best text, some tokens of which may be uncomputed.
void beam_request(BeamSearch *b, Request *r);
int beam_texts(const BeamSearch *b, const BeamText **out); // (n) after the request has finished; 0: cut before a token
BeamStats beam_stats(const BeamSearch *b);

#endif
