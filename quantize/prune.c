// quantize/prune.c: see quantize/prune.h.
#include "quantize/prune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUP = 64 };

Status prune_parse(const char *what, const char *by, PruneRule *out) {
    char rest;
    *out = (PruneRule){.wanda = by && strcmp(by, "wanda") == 0};
    if (sscanf(what, "%d:%d%c", &out->keep, &out->of, &rest) == 2 && out->keep > 0 && out->of > out->keep &&
        out->of <= MOST_GROUP)
        return OK;
    char *end;
    double share = strtod(what, &end);
    if (*what && !*end && share > 0 && share < 1) {
        *out = (PruneRule){.share = share, .wanda = out->wanda};
        return OK;
    }
    return status_error(QUILL_USAGE,
                        "--prune: weights to keep of each group (2:4), or the share to set to zero (0.5) expected, "
                        "found \"%.40s\"",
                        what);
}

// Zeroes the n_zero elements of a group that have the least scores.
static void prune_group(float *x, const float *score, int n, int n_zero) {
    bool zero[MOST_GROUP] = {0};
    for (; n_zero > 0; n_zero--) {
        int least = -1;
        for (int i = 0; i < n; i++)
            if (!zero[i] && (least < 0 || score[i] <= score[least])) least = i;
        zero[least] = true;
        x[least] = 0;
    }
}

// The k-th least of n numbers (k = 0: the least). Reorders the numbers.
static float select_kth(float *v, size_t n, size_t k) {
    for (size_t lo = 0, hi = n - 1; lo < hi;) {
        float pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i >= j) break;
            float t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (v[j] > pivot) j--; // now j is the last element of the lower part
        if (k <= j) hi = j;
        else lo = j + 1;
    }
    return v[k];
}

static void prune_share(float *x, const float *norms, size_t n, size_t n_zero, float *score) {
    if (n_zero == 0) return;
    for (size_t i = 0; i < n; i++) score[i] = fabsf(x[i]) * (norms ? norms[i] : 1);
    float edge = select_kth(score, n, n_zero - 1);
    size_t below = 0;
    for (size_t i = 0; i < n; i++) below += fabsf(x[i]) * (norms ? norms[i] : 1) < edge;
    for (size_t i = n; i-- > 0;) {
        float s = fabsf(x[i]) * (norms ? norms[i] : 1);
        bool tie = s == edge && below < n_zero;
        below += tie;
        if (s < edge || tie) x[i] = 0;
    }
}

void prune_row(const PruneRule *r, float *x, const float *norms, size_t n, float *scratch) {
    if (r->of == 0) {
        // 0.29 is slightly less than 29/100: the product may be just below a whole number
        prune_share(x, norms, n, (size_t)(r->share * (double)n + 1e-6), scratch);
        return;
    }
    for (size_t i = 0; i < n; i++) scratch[i] = fabsf(x[i]) * (norms ? norms[i] : 1);
    for (size_t i = 0; i + (size_t)r->of <= n; i += (size_t)r->of)
        prune_group(x + i, scratch + i, r->of, r->of - r->keep);
}
