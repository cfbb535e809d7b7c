// sampling.h: sampling parameters, and the arithmetic of sampling that the host (sampler.c) and the GPU
// (gpu/sample.cuh) share: both compute the same bits.
//
// Only operations whose result IEEE 754 fixes, in one order, and none that a compiler may contract. Sums over
// candidates (sorted by logit, descending) are added in runs of SAMPLE_RUN candidates: first each run in order, then
// the sums of the runs in order. A GPU can therefore add the runs in parallel. The cumulative sum at a candidate is the
// sum of the runs before its own, plus its own run so far.
#ifndef QUILL_SAMPLING_H
#define QUILL_SAMPLING_H

#include "base/device.h"
#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SAMPLE_RUN = 64 };

typedef struct {
    int id;
    float bias;
} LogitBias;

typedef struct {
    float temp;             // 0: greedy
    int top_k;              // 0: all
    float top_p;            // 1: off
    float min_p;            // 0: off
    float typical;          // 1: off
    float xtc_probability;  // 0: off
    float xtc_threshold;    // above 0.5: off
    float repeat_penalty;   // 1: off
    int repeat_last_n;      // 0: off, -1: the whole context
    float presence_penalty; // 0: off
    float frequency_penalty;
    bool greedy;
    uint64_t seed;
    const LogitBias *bias; // (n_bias), owned by the caller
    int n_bias;
} SamplerParams;

// A token to be drawn from a row of logits: the arguments of sampler_sample (sampler.h) other than the logits.
typedef struct {
    const SamplerParams *how;
    uint64_t sequence; // key of the RNG
    const int *tokens; // (n_tokens) of the sequence, the newest last
    int n_tokens;
    bool pending; // one more token follows `tokens`: the result of the previous step's draw at this index
} Draw;

// Whether the GPU can draw with these parameters. It cannot with typical sampling, whose logarithms IEEE 754 does not
// fix, or with more than 1000 biases, which a single thread adds.
static inline bool draw_anywhere(const SamplerParams *p) {
    return (!(p->typical < 1) || p->greedy || p->temp <= 0) && p->n_bias <= 1000;
}

#ifdef __CUDA_ARCH__ // products that are never fused with an addition; the host is compiled without contraction
#define SAMPLE_MUL(a, b) __dmul_rn(a, b)
#define SAMPLE_MULF(a, b) __fmul_rn(a, b)
#else
#define SAMPLE_MUL(a, b) ((a) * (b))
#define SAMPLE_MULF(a, b) ((a) * (b))
#endif

// exp(x) for x <= 0, within 2 ulp; 0 below -708. x = k ln 2 + r, and the Taylor series of r.
HOST_DEVICE static inline double sample_exp(double x) {
    if (!(x > -708)) return 0;
    double k = floor(SAMPLE_MUL(x, 1.4426950408889634) + 0.5);
    double r = x - SAMPLE_MUL(k, 0x1.62e42feep-1) - SAMPLE_MUL(k, 0x1.a39ef35793c76p-33); // ln 2 in two parts
    double sum = 0x1.6124613a86d09p-33;                                                   // 1 / 13!
    sum = SAMPLE_MUL(sum, r) + 0x1.1eed8eff8d898p-29;                                     // 1 / 12!
    sum = SAMPLE_MUL(sum, r) + 0x1.ae64567f544e4p-26;                                     // 1 / 11!
    sum = SAMPLE_MUL(sum, r) + 0x1.27e4fb7789f5cp-22;                                     // 1 / 10!
    sum = SAMPLE_MUL(sum, r) + 0x1.71de3a556c734p-19;                                     // 1 / 9!
    sum = SAMPLE_MUL(sum, r) + 0x1.a01a01a01a01ap-16;                                     // 1 / 8!
    sum = SAMPLE_MUL(sum, r) + 0x1.a01a01a01a01ap-13;                                     // 1 / 7!
    sum = SAMPLE_MUL(sum, r) + 0x1.6c16c16c16c17p-10;                                     // 1 / 6!
    sum = SAMPLE_MUL(sum, r) + 0x1.1111111111111p-7;                                      // 1 / 5!
    sum = SAMPLE_MUL(sum, r) + 0x1.5555555555555p-5;                                      // 1 / 4!
    sum = SAMPLE_MUL(sum, r) + 0x1.5555555555555p-3;                                      // 1 / 3!
    sum = SAMPLE_MUL(sum, r) + 0x1p-1;                                                    // 1 / 2!
    sum = SAMPLE_MUL(sum, r) + 0x1p+0;                                                    // 1 / 1!
    sum = SAMPLE_MUL(sum, r) + 0x1p+0;                                                    // 1 / 0!
    int64_t bits = ((int64_t)k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return SAMPLE_MUL(sum, scale);
}

// A candidate's unnormalised softmax weight at a temperature; the largest logit has weight 1. If a bias made the
// largest logit +inf, all others have weight 0.
HOST_DEVICE static inline float sample_weight(float logit, float most, float temp) {
    return logit == most ? 1 : (float)sample_exp(((double)logit - most) / temp);
}

// The candidate's probability, from its weight and the sum of all weights.
HOST_DEVICE static inline float sample_share(float weight, double sum) { return (float)(weight / sum); }

// Whether XTC excludes tokens in a draw, which it does with this probability. draw: the draw's key, rng_bits' result,
// which also keys the race (base/race.h). The race mixes token ids into it; -1 is no token's id.
HOST_DEVICE static inline bool sample_excludes(uint64_t draw, float probability) {
    return (double)(rng_mix(draw ^ UINT32_MAX) >> 11) * 0x1p-53 < (double)probability;
}

// A logit after the penalties of a token that occurs `count` > 0 times in the window.
HOST_DEVICE static inline float sample_penalise(float logit, int count, float repeat, float presence, float frequency) {
    float l = logit > 0 ? logit / repeat : SAMPLE_MULF(logit, repeat);
    return l - (SAMPLE_MULF((float)count, frequency) + presence);
}

#endif
