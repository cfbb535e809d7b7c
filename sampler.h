// sampler.h: logits -> token.
//
// The chain, in this order: logit bias; repeat, frequency and presence penalties over the last repeat_last_n tokens;
// top-k; typical; top-p; min-p; XTC; temperature; one draw (base/race.h). The draw's random numbers are keyed by (seed,
// sequence, position) and the token, so that a sampled text does not depend on batching, preemption or speculation.
// With temp <= 0 or `greedy` the token with the largest logit after bias and penalties is taken, the lowest id on ties.
#ifndef QUILL_SAMPLER_H
#define QUILL_SAMPLER_H

#include "sampling.h"
#include "base/base.h"

// Default parameters, as literals that the option table turns into text. Typical sampling, XTC and penalties are off.
#define SAMPLER_TEMP 0.8
#define SAMPLER_TOP_K 40
#define SAMPLER_TOP_P 0.95
#define SAMPLER_MIN_P 0.05
#define SAMPLER_XTC_THRESHOLD 0.1
#define SAMPLER_REPEAT_LAST_N 64
enum {
    SAMPLER_MOST_TEMP = 1000,
    SAMPLER_MOST_PENALTY = 1000
}; // repeat penalties are at least 1 / SAMPLER_MOST_PENALTY
SamplerParams sampler_defaults(void);

typedef struct Sampler Sampler; // scratch memory for one vocabulary; requests share it, one thread at a time

Sampler *sampler_new(int n_vocab);
void sampler_free(Sampler *s);

// Returns the next token. logits: (n_vocab), not changed. history: the sequence's tokens so far, the newest last.
// position: the index that the drawn token will have in the sequence. NaN logits count as -inf; -1: all logits are
// -inf.
int sampler_sample(Sampler *s, const SamplerParams *p, const float *logits, const int *history, int n_history,
                   uint64_t sequence, uint64_t position);
// False: the model is broken. Biases and forms that forbid every token leave the model's own logits finite.
bool sampler_any_finite(const float *logits, int n);

// Log-probability of `id` and of the n most likely tokens under softmax(logits), before any step of the chain.
typedef struct {
    int id;
    float logprob;
} TokenLogprob;
float sampler_logprobs(Sampler *s, const float *logits, int id, TokenLogprob *top, int n_top);
// The n tokens with the largest logits after bias and penalties, in descending order. `logprob` is the log-probability
// under softmax(logits) plus what bias and penalties add to the logit. allowed: `logits` with -inf for tokens that a
// form forbids, or `logits`. A form does not change the log-probability of a token that it allows. Returns how many
// tokens were found: those whose logit is -inf are left out.
int sampler_likeliest(Sampler *s, const SamplerParams *p, const float *logits, const float *allowed, const int *history,
                      int n_history, TokenLogprob *top, int n);

#endif
