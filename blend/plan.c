// blend/plan.c: see blend/plan.h.
#include "blend/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/pairs.h"

static Status bad_plan(const char *text) {
    return status_error(QUILL_USAGE,
                        "--blend %.100s: cacheblend,ratio=0.15,k=0,gradual=0 or epic,k=16 or reuse or full expected, "
                        "with a ratio (or auto) "
                        "and a share gradual from 0 to 1 and a whole number k",
                        text);
}

Status plan_parse(const char *text, BlendPlan *out) {
    static const char *const words[] = {"cacheblend", "epic", "reuse", "full"}; // by BlendMode
    const char *at = text ? text : BLEND_DEFAULT;
    int mode = pairs_word(&at, words, ARRAY_LEN(words));
    if (mode < 0) return bad_plan(text);
    *out = (BlendPlan){.mode = (BlendMode)mode, .ratio = mode == BLEND_CACHEBLEND ? 0.15 : 0};
    double k = mode == BLEND_EPIC ? 16 : 0;
    const PairsNumber numbers[] = {{"k", &k, 0, 1 << 20, .whole = true},
                                   {"ratio", &out->ratio, 0, 1, .by_auto = &out->by_loading},
                                   {"gradual", &out->gradual, 0, 1, .whole = false}};
    if (!pairs_read(at, numbers, mode == BLEND_CACHEBLEND ? 3 : mode == BLEND_EPIC ? 1 : 0)) return bad_plan(text);
    out->k = (int)k;
    return OK;
}

double plan_ratio_by_loading(const BlendPlan *p, double load, double compute) {
    return compute > 0 ? fmin(1, fmax(p->ratio, load / compute)) : p->ratio;
}

double plan_share(const BlendPlan *p, int i, int n) {
    double most = fmin(1, p->ratio * (1 + p->gradual)), least = 2 * p->ratio - most;
    return n > 1 ? most + (least - most) * i / (n - 1) : p->ratio;
}

double plan_deviation(const float *fresh, const float *kept, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double by = (double)fresh[i] - (double)kept[i];
        sum += by * by;
    }
    return sum;
}

typedef struct {
    double deviation;
    int token;
} RankedToken;

static int most_first(const void *a, const void *b) {
    const RankedToken *x = a, *y = b;
    if (x->deviation != y->deviation) return x->deviation < y->deviation ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

int plan_choose(double ratio, const uint8_t *kept, const double *deviation, int first, int n, int *out) {
    int n_kept = 0, n_out = 0;
    RankedToken *ranked = mem_alloc((size_t)int_max(1, n - first) * sizeof *ranked);
    uint8_t *again = mem_alloc((size_t)int_max(1, n - first));
    for (int i = first; i < n; i++) {
        again[i - first] = !kept[i];
        if (kept[i]) ranked[n_kept++] = (RankedToken){ratio > 0 ? deviation[i] : 0, i};
    }
    int most = (int)floor(ratio * n_kept + 1e-9); // rounding must not make 0.15 * 20 less than 3
    if (most > 0) qsort(ranked, (size_t)n_kept, sizeof *ranked, most_first);
    for (int i = 0; i < most; i++) again[ranked[i].token - first] = 1;
    for (int i = first; i < n; i++)
        if (again[i - first]) out[n_out++] = i;
    free(ranked);
    free(again);
    return n_out;
}
