// base/stats.h: the time of a request (to its first token, between tokens) and percentiles of many numbers.
//
// TTFT: from the request's start (after load) to its first token. ITL: the gap between two tokens. TPOT: the mean gap,
// so that total = TTFT + TPOT x (tokens - 1) holds exactly in what is printed.
#ifndef QUILL_STATS_H
#define QUILL_STATS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double start;       // clock_now() when the request arrived
    double begun;       // when its first row was about to be computed; 0: not yet. From start to begun it was waiting
    double prefill_end; // when the last prompt row had been computed
    double first, last; // times of the first and the newest token; 0: none yet
    float *gaps;        // (n_gaps) seconds between tokens; tokens - 1 of them
    int n_gaps, cap_gaps;
    double prefill_flops, prefill_bytes, decode_flops, decode_bytes; // as defined in costs.h, summed over steps
} Timeline;

void timeline_token(Timeline *t, double now);                              // a token was produced
void timeline_cost(Timeline *t, bool prefill, double flops, double bytes); // adds the cost of a row
void timeline_free(Timeline *t);                                           // the gaps; the times stay

double timeline_ttft(const Timeline *t); // seconds; 0 before the first token
double timeline_tpot(const Timeline *t); // seconds; 0 before the second token

// A stream of numbers, sampled for percentiles: up to SAMPLE_MOST numbers all are kept, of more a uniform random
// sample, the same in each run. Start from (Sample){0}.
enum { SAMPLE_MOST = 1 << 16 };
typedef struct {
    float *values; // (n)
    int n, cap;
    int64_t n_seen;
} Sample;

void sample_add(Sample *s, double value);
void sample_free(Sample *s);

double stats_percentile(const float *values, int n, double p); // p in [0,100], linear between ranks; 0 for n == 0
double stats_median(const double *values, int n);              // 0 for n == 0

#endif
