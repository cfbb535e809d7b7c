// base/stats.c: see base/stats.h.
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/sizes.h"

void timeline_cost(Timeline *t, bool prefill, double flops, double bytes) {
    *(prefill ? &t->prefill_flops : &t->decode_flops) += flops;
    *(prefill ? &t->prefill_bytes : &t->decode_bytes) += bytes;
}

void timeline_token(Timeline *t, double now) {
    if (t->first == 0) {
        t->first = t->last = now;
        return;
    }
    if (t->n_gaps == t->cap_gaps) {
        t->cap_gaps = t->cap_gaps ? 2 * t->cap_gaps : 64;
        t->gaps = mem_resize(t->gaps, (size_t)t->cap_gaps * sizeof *t->gaps);
    }
    t->gaps[t->n_gaps++] = (float)(now - t->last);
    t->last = now;
}

void timeline_free(Timeline *t) {
    free(t->gaps);
    t->gaps = NULL;
    t->n_gaps = t->cap_gaps = 0;
}

double timeline_ttft(const Timeline *t) { return t->first == 0 ? 0 : t->first - t->start; }

// Computed from the times and not from the gaps, which are rounded to floats: TTFT + TPOT x (tokens - 1) must be the
// total.
double timeline_tpot(const Timeline *t) { return t->n_gaps == 0 ? 0 : (t->last - t->first) / t->n_gaps; }

// Vitter's algorithm R (1985): the i-th number replaces a random one with probability SAMPLE_MOST / i.
void sample_add(Sample *s, double value) {
    uint64_t place = (uint64_t)s->n_seen++;
    if (place >= SAMPLE_MOST) {
        place = rng_bits(0, 0, place) % (place + 1);
        if (place < SAMPLE_MOST) s->values[place] = (float)value;
        return;
    }
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->values = mem_resize(s->values, (size_t)s->cap * sizeof *s->values);
    }
    s->values[s->n++] = (float)value;
}

void sample_free(Sample *s) {
    free(s->values);
    *s = (Sample){0};
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_percentile(const float *values, int n, double p) {
    if (n <= 0) return 0;
    float *sorted = mem_alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_floats);
    double rank = fmin(fmax(p, 0), 100) / 100 * (n - 1);
    int low = (int)rank, high = int_min(low + 1, n - 1);
    double result = (double)sorted[low] + (rank - low) * ((double)sorted[high] - (double)sorted[low]);
    free(sorted);
    return result;
}

double stats_median(const double *values, int n) {
    if (n <= 0) return 0;
    double *sorted = mem_alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    double result = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return result;
}
