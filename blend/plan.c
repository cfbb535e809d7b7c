// blend/plan.c: see blend/plan.h.
#include "blend/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static Status bad_plan(const char *text) {
    return status_error(QUILL_USAGE,
                        "--blend %.100s: cacheblend,ratio=0.15,k=0,gradual=0 or epic,k=16 or reuse or full expected, "
                        "with a ratio (or auto) "
                        "and a share gradual from 0 to 1 and a whole number k",
                        text);
}

// Parses "ratio=R", "gradual=R" or "k=N", `n` bytes long. False: wrong.
static bool read_number(const char *at, size_t n, BlendPlan *out) {
    char text[32], *end;
    const char *value = memchr(at, '=', n);
    size_t name = value ? (size_t)(value - at) : 0, digits = value ? n - name - 1 : 0;
    if (digits == 0 || digits >= sizeof text || strspn(value + 1, "0123456789.auto") < digits) return false;
    memcpy(text, value + 1, digits);
    text[digits] = 0;
    bool ratio = name == 5 && memcmp(at, "ratio", 5) == 0, gradual = name == 7 && memcmp(at, "gradual", 7) == 0;
    if (ratio && out->mode == BLEND_CACHEBLEND && strcmp(text, "auto") == 0) return out->by_loading = true;
    if ((ratio || gradual) && out->mode == BLEND_CACHEBLEND) {
        double *to = ratio ? &out->ratio : &out->gradual;
        *to = strtod(text, &end);
        return !*end && *to >= 0 && *to <= 1;
    }
    if (name != 1 || *at != 'k' || (out->mode != BLEND_EPIC && out->mode != BLEND_CACHEBLEND)) return false;
    long k = strtol(text, &end, 10);
    out->k = (int)k;
    return !*end && k >= 0 && k <= 1 << 20;
}

Status plan_parse(const char *text, BlendPlan *out) {
    static const struct {
        const char *word;
        BlendPlan plan;
    } modes[] = {{"cacheblend", {.mode = BLEND_CACHEBLEND, .ratio = 0.15}},
                 {"epic", {.mode = BLEND_EPIC, .k = 16}},
                 {"reuse", {.mode = BLEND_REUSE}},
                 {"full", {.mode = BLEND_FULL}}};
    const char *at = text ? text : BLEND_DEFAULT;
    size_t n = strcspn(at, ","), i = 0;
    while (i < ARRAY_LEN(modes) && (n != strlen(modes[i].word) || memcmp(at, modes[i].word, n) != 0)) i++;
    if (i == ARRAY_LEN(modes)) return bad_plan(text);
    *out = modes[i].plan;
    for (at += n; *at; at += n) {
        n = strcspn(++at, ",");
        if (!read_number(at, n, out)) return bad_plan(text);
    }
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
