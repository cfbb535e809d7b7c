// base/log_sum_exp.c: see base/log_sum_exp.h. The loops over LANES have no call and no branch, so that the compiler
// uses vectors.
#include "base/log_sum_exp.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 4 };

// exp(x), relative error below 2e-7; below -87 and for NaN: exp(-87), which is nothing beside exp(0). x <= 0.
// x = k ln 2 + r, and the Taylor series of r.
static inline float exp_below_0(float x) {
    const float rounds = 0x1.8p23f; // adding it leaves an integer in the low bits
    x = x > -87 ? x : -87;
    float shifted = x * 0x1.715476p0f + rounds, k = shifted - rounds;
    float r = x - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f; // ln 2 in two parts; k times the first is exact
    float sum = 0x1.6c16c2p-10f;                          // 1 / 6!
    sum = sum * r + 0x1.111112p-7f;
    sum = sum * r + 0x1.555556p-5f;
    sum = sum * r + 0x1.555556p-3f;
    sum = sum * r + 0.5f;
    sum = sum * r + 1;
    sum = sum * r + 1;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)bits << 23) + 0x3f800000; // 2^k
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

static float largest(const float *x, int n) {
    float lane[LANES], most = -INFINITY;
    int i = 0;
    for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (int k = 0; k < LANES; k++) most = lane[k] > most ? lane[k] : most;
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

double log_sum_exp(const float *x, int n) {
    float most = largest(x, n);
    double lane[LANES] = {0}, sum = 0;
    int i = 0;
    if (!isfinite(most)) return (double)most;
    for (; i + LANES <= n; i += LANES) {
        float e[LANES];
        for (int k = 0; k < LANES; k++) e[k] = exp_below_0(x[i + k] - most);
        for (int k = 0; k < LANES; k++) lane[k] += (double)e[k];
    }
    for (; i < n; i++) sum += (double)exp_below_0(x[i] - most);
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return (double)most + log(sum);
}
