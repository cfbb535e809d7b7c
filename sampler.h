// sampler.h: logits -> token.
//
// The chain, in this order: logit bias; repeat, frequency and presence penalties over the last repeat_last_n tokens;
// top-k; typical; top-p; min-p; temperature; one draw (base/race.h). Its random numbers are keyed by (seed, sequence,
// position) and the token alone: a sampled text does not depend on batching, preemption or speculation. temp <= 0 or greedy takes the largest
// logit, the lowest id on ties, after bias and penalties.
#ifndef QUILL_SAMPLER_H
#define QUILL_SAMPLER_H

#include "sampling.h"
#include "base/base.h"

// What a request samples with unless it is told otherwise, as literals that the option table turns into text; typical
// and the penalties are off.
#define SAMPLER_TEMP 0.8
#define SAMPLER_TOP_K 40
#define SAMPLER_TOP_P 0.95
#define SAMPLER_MIN_P 0.05
#define SAMPLER_REPEAT_LAST_N 64
SamplerParams sampler_defaults(void);

typedef struct Sampler Sampler; // scratch for one vocabulary; shared by requests, one thread at a time

Sampler *sampler_new(int n_vocab);
void sampler_free(Sampler *s);

// logits: (n_vocab), left as they are. history: the sequence's tokens so far, the newest last. position: the slot that
// the drawn token will have. NaN logits count as -inf; if nothing is left, the result is -1.
int sampler_sample(Sampler *s, const SamplerParams *p, const float *logits, const int *history, int n_history,
                   uint64_t sequence, uint64_t position);

// Log-probability of `id` and of the n most likely tokens under softmax(logits), before any of the chain.
typedef struct {
    int id;
    float logprob;
} TokenLogprob;
float sampler_logprobs(Sampler *s, const float *logits, int id, TokenLogprob *top, int n_top);
// The n tokens that greedy decoding ranks first, after bias and penalties: each with its log-probability under
// softmax(logits), plus what bias and penalties add to its logit. Returns how many there are: only tokens with a finite
// logit.
int sampler_likeliest(Sampler *s, const SamplerParams *p, const float *logits, const int *history, int n_history,
                      TokenLogprob *top, int n);

#endif
