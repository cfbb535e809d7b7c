// encode/vector_fit.c: the search of encode/fit.h. Compiled once per instruction set (QUILL_SIMD, see cpu/simd.h),
// without contraction to fused multiply-adds.
#include "encode/lanes.h"

#if QUILL_SIMD == 512
#define FIT_NAME fit_avx512
#elif QUILL_SIMD == 256
#define FIT_NAME fit_avx2
#else
#define FIT_NAME fit_portable
#endif

// The levels of a type, and the parameters of the search.
typedef struct {
    int type;
    int n;                  // weights of a sub-block
    float lo, hi;           // the least and the largest level; lo 0: the type has a minimum
    bool iq4;               // the levels are IQ4_VALUES; otherwise the integers
    float step;             // distance of trial scales, in levels that the largest weight moves by
    int tries;              // trials on each side of the scale that gives the largest weight the last level
    float s_lo, s_hi, m_hi; // ranges of the integers s and m; s_hi 0: every sub-block has a d and dmin of its own
    int per;                // sub-blocks of a super-block
} FitGrid;

enum { POLISH = 2, ROUNDS = 3 }; // repetitions in step 1 and in step 3 of encode/fit.h

typedef struct {
    Lanes x[FIT_MOST], w[FIT_MOST]; // element i of each sub-block, and its importance
} SubBlocks;

static void load_lanes(const float *from, int n, int count, Lanes *to) {
    for (int i = 0; i < n; i++) to[i] = (Lanes){0};
    for (int l = 0; l < count; l++)
        for (int i = 0; i < n; i++) to[i][l] = from[l * n + i];
}

LANES_INLINE Lanes nearest_level(const FitGrid *g, Lanes v) {
    static const float levels[16] = {IQ4_VALUES};
    v = lanes_clamp(v, g->lo, g->hi);
    if (!g->iq4) return lanes_round(v);
    Lanes q = lanes_set(levels[0]);
    for (int i = 1; i < 16; i++)
        q += lanes_where(v > (levels[i - 1] + levels[i]) / 2, lanes_set(levels[i] - levels[i - 1]));
    return q;
}

// ---- x = scale q ----------------------------------------------------------------------------------------------------

typedef struct {
    Lanes scale, gain; // gain: the squared error of q = 0, less that of this trial
} ScaleTrial;

// Computes q for a trial scale, given as its inverse, and the best scale for this q; keeps it if its gain is larger.
LANES_INLINE void try_scale(const SubBlocks *b, const FitGrid *g, Lanes inverse, ScaleTrial *best) {
    Lanes xq = {0}, qq = {0};
    for (int i = 0; i < g->n; i++) {
        Lanes q = nearest_level(g, b->x[i] * inverse), wq = b->w[i] * q;
        xq += wq * b->x[i];
        qq += wq * q;
    }
    Lanes scale = xq * lanes_inverse(qq), gain = scale * xq;
    LaneMask better = gain > best->gain;
    best->scale = lanes_select(better, scale, best->scale);
    best->gain = lanes_select(better, gain, best->gain);
}

static Lanes search_scale(const SubBlocks *b, const FitGrid *g) {
    Lanes most = {0}, far = {0};
    for (int i = 0; i < g->n; i++) {
        far = lanes_select(lanes_abs(b->x[i]) > most, b->x[i], far);
        most = lanes_max(most, lanes_abs(b->x[i]));
    }
    ScaleTrial best = {0};
    Lanes unit = lanes_inverse(far);
    for (int end = 0; end < 2; end++) // the weight of the largest magnitude gets the least level, or the largest one
        for (int t = -g->tries; t <= g->tries; t++)
            try_scale(b, g, ((end ? g->hi : g->lo) + (float)t * g->step) * unit, &best);
    for (int i = 0; i < POLISH; i++) try_scale(b, g, lanes_inverse(best.scale), &best);
    return best.scale;
}

static Lanes scale_error(const SubBlocks *b, const FitGrid *g, Lanes scale) {
    Lanes inverse = lanes_inverse(scale), error = {0};
    for (int i = 0; i < g->n; i++) {
        Lanes miss = scale * nearest_level(g, b->x[i] * inverse) - b->x[i];
        error += b->w[i] * miss * miss;
    }
    return error;
}

// The best d of each super-block by least squares, for these s and the q that follow from d and s.
static Lanes best_d(const SubBlocks *b, const FitGrid *g, Lanes d, Lanes s) {
    Lanes inverse = lanes_inverse(d * s), xq = {0}, qq = {0};
    for (int i = 0; i < g->n; i++) {
        Lanes q = nearest_level(g, b->x[i] * inverse), wq = b->w[i] * q;
        xq += wq * b->x[i];
        qq += wq * q;
    }
    Lanes best = lanes_group_sum(s * xq, g->per) * lanes_inverse(lanes_group_sum(s * s * qq, g->per));
    return lanes_half(lanes_select(best != 0, best, d));
}

static void round_scales(const SubBlocks *b, const FitGrid *g, Lanes *d_out, Lanes *s_out) {
    Lanes scale = search_scale(b, g), least = lanes_set(__builtin_inff());
    *d_out = lanes_half(scale);
    *s_out = lanes_set(1);
    if (g->s_hi == 0) return;
    Lanes d = lanes_half_some(lanes_group_far(scale, g->per) / g->s_lo);
    Lanes s = lanes_round(lanes_clamp(scale * lanes_inverse(d), g->s_lo, g->s_hi));
    for (int round = 0;; round++) {
        Lanes found = s, error = scale_error(b, g, d * s);
        for (int by = -1; by <= 1; by += 2) {
            Lanes other = lanes_clamp(s + (float)by, g->s_lo, g->s_hi), e = scale_error(b, g, d * other);
            found = lanes_select(e < error, other, found);
            error = lanes_min(e, error);
        }
        s = found;
        error = lanes_group_sum(error, g->per);
        LaneMask better = error < least;
        *d_out = lanes_select(better, d, *d_out);
        *s_out = lanes_select(better, s, *s_out);
        least = lanes_min(error, least);
        if (round == ROUNDS) return;
        d = best_d(b, g, d, s);
    }
}

// ---- x = scale q - min ----------------------------------------------------------------------------------------------

typedef struct {
    Lanes w, x;               // sums of w and of w x over the sub-block
    Lanes scale, least, gain; // `least` is -min
} AffineTrial;

typedef struct {
    Lanes q, qq, xq; // sums of w q, w q^2, w x q
} AffineSums;

LANES_INLINE AffineSums affine_sums(const SubBlocks *b, const FitGrid *g, Lanes inverse, Lanes least) {
    AffineSums s = {0};
    for (int i = 0; i < g->n; i++) {
        Lanes q = lanes_round(lanes_clamp((b->x[i] - least) * inverse, 0, g->hi)), wq = b->w[i] * q;
        s.q += wq;
        s.qq += wq * q;
        s.xq += wq * b->x[i];
    }
    return s;
}

LANES_INLINE void try_affine(const SubBlocks *b, const FitGrid *g, Lanes inverse, Lanes from, AffineTrial *best) {
    AffineSums t = affine_sums(b, g, inverse, from);
    Lanes det = best->w * t.qq - t.q * t.q, by = lanes_inverse(det);
    Lanes scale = (best->w * t.xq - best->x * t.q) * by, least = (t.qq * best->x - t.q * t.xq) * by;
    LaneMask solved = det > 0; // not if all q are equal
    if (g->s_hi != 0) {        // K types subtract the minimum, which cannot be negative; 0 is one always
        LaneMask none = (least > 0) | ~solved;
        scale = lanes_select(none, t.xq * lanes_inverse(t.qq), scale);
        least = lanes_select(none, (Lanes){0}, least);
        solved |= none;
    }
    Lanes gain = scale * t.xq + least * best->x;
    LaneMask better = solved & (scale > 0) & (gain > best->gain);
    best->scale = lanes_select(better, scale, best->scale);
    best->least = lanes_select(better, least, best->least);
    best->gain = lanes_select(better, gain, best->gain);
}

static AffineTrial search_affine(const SubBlocks *b, const FitGrid *g) {
    AffineTrial best = {.gain = lanes_set(-__builtin_inff())};
    Lanes lo = lanes_set(__builtin_inff()), top = -lo;
    for (int i = 0; i < g->n; i++) {
        lo = lanes_min(lo, b->x[i]);
        top = lanes_max(top, b->x[i]);
        best.w += b->w[i];
        best.x += b->w[i] * b->x[i];
    }
    if (g->s_hi != 0) lo = lanes_min(lo, (Lanes){0});
    best.least = lo;
    Lanes unit = lanes_inverse(top - lo);
    for (int t = -g->tries; t <= g->tries; t++) try_affine(b, g, (g->hi + (float)t * g->step) * unit, lo, &best);
    for (int i = 0; i < POLISH; i++) try_affine(b, g, lanes_inverse(best.scale), best.least, &best);
    return best;
}

static Lanes affine_error(const SubBlocks *b, const FitGrid *g, Lanes scale, Lanes min) {
    Lanes inverse = lanes_inverse(scale), error = {0};
    for (int i = 0; i < g->n; i++) {
        Lanes q = lanes_round(lanes_clamp((b->x[i] + min) * inverse, 0, g->hi));
        Lanes miss = scale * q - min - b->x[i];
        error += b->w[i] * miss * miss;
    }
    return error;
}

typedef struct {
    Lanes d, dmin, s, m;
} AffineState;

// The best d and dmin of each super-block by least squares, for these s and m and the q that follow.
static void best_pair(const SubBlocks *b, const FitGrid *g, const AffineTrial *of, AffineState *a) {
    AffineSums t = affine_sums(b, g, lanes_inverse(a->d * a->s), -(a->dmin * a->m));
    Lanes ss = lanes_group_sum(a->s * a->s * t.qq, g->per), sm = lanes_group_sum(a->s * a->m * t.q, g->per);
    Lanes mm = lanes_group_sum(a->m * a->m * of->w, g->per), xs = lanes_group_sum(a->s * t.xq, g->per);
    Lanes xm = lanes_group_sum(a->m * of->x, g->per);
    Lanes by = lanes_inverse(sm * sm - ss * mm);
    Lanes d = (sm * xm - mm * xs) * by, dmin = (ss * xm - sm * xs) * by;
    LaneMask alone = mm == 0; // all m of the super-block are 0
    d = lanes_select(alone, xs * lanes_inverse(ss), d);
    dmin = lanes_select(alone, a->dmin, dmin);
    LaneMask sane = (d > 0) & (dmin >= 0);
    a->d = lanes_half(lanes_select(sane, d, a->d));
    a->dmin = lanes_half(lanes_select(sane, dmin, a->dmin));
}

// Replaces s and m by the best pair among them and their neighbours, for the current d and dmin; returns the error.
static Lanes best_neighbours(const SubBlocks *b, const FitGrid *g, AffineState *a) {
    Lanes s = a->s, m = a->m, error = affine_error(b, g, a->d * s, a->dmin * m);
    for (int i = 0; i < 9; i++) {
        if (i == 4) continue; // s and m unchanged
        Lanes s1 = lanes_clamp(s + (float)(i / 3 - 1), 0, g->s_hi),
              m1 = lanes_clamp(m + (float)(i % 3 - 1), 0, g->m_hi);
        Lanes e = affine_error(b, g, a->d * s1, a->dmin * m1);
        a->s = lanes_select(e < error, s1, a->s);
        a->m = lanes_select(e < error, m1, a->m);
        error = lanes_min(e, error);
    }
    return error;
}

static AffineState round_affine(const SubBlocks *b, const FitGrid *g) {
    AffineTrial found = search_affine(b, g);
    AffineState a = {
        .d = lanes_half(found.scale), .dmin = lanes_half(-found.least), .s = lanes_set(1), .m = lanes_set(1)};
    if (g->s_hi == 0) return a;
    a.d = lanes_half_some(lanes_group_far(found.scale, g->per) / g->s_hi);
    a.dmin = lanes_half_some(lanes_group_far(-found.least, g->per) / g->m_hi);
    a.s = lanes_round(lanes_clamp(found.scale * lanes_inverse(a.d), 0, g->s_hi));
    a.m = lanes_round(lanes_clamp(-found.least * lanes_inverse(a.dmin), 0, g->m_hi));
    AffineState best = a;
    Lanes least = lanes_set(__builtin_inff());
    for (int round = 0;; round++) {
        Lanes error = lanes_group_sum(best_neighbours(b, g, &a), g->per);
        LaneMask better = error < least;
        best.d = lanes_select(better, a.d, best.d);
        best.dmin = lanes_select(better, a.dmin, best.dmin);
        best.s = lanes_select(better, a.s, best.s);
        best.m = lanes_select(better, a.m, best.m);
        least = lanes_min(error, least);
        if (round == ROUNDS) return best;
        best_pair(b, g, &found, &a);
    }
}

// ---- the types ------------------------------------------------------------------------------------------------------

static void fit_scale(const SubBlocks *b, const FitGrid *g, FitResult *out) {
    Lanes d, s;
    round_scales(b, g, &d, &s);
    Lanes inverse = lanes_inverse(d * s);
    for (int i = 0; i < g->n; i++) {
        Lanes q = nearest_level(g, b->x[i] * inverse);
        for (int l = 0; l < FIT_LANES; l++) out->q[l][i] = (int8_t)q[l];
    }
    for (int l = 0; l < FIT_LANES; l++) out->d[l] = d[l], out->dmin[l] = 0, out->s[l] = (int8_t)s[l], out->m[l] = 0;
}

static void fit_affine(const SubBlocks *b, const FitGrid *g, FitResult *out) {
    AffineState a = round_affine(b, g);
    Lanes inverse = lanes_inverse(a.d * a.s), min = a.dmin * a.m;
    for (int i = 0; i < g->n; i++) {
        Lanes q = lanes_round(lanes_clamp((b->x[i] + min) * inverse, 0, g->hi));
        for (int l = 0; l < FIT_LANES; l++) out->q[l][i] = (int8_t)q[l];
    }
    for (int l = 0; l < FIT_LANES; l++) {
        out->d[l] = a.d[l], out->dmin[l] = a.dmin[l];
        out->s[l] = (int8_t)a.s[l], out->m[l] = (int8_t)a.m[l];
    }
}

static const FitGrid grids[] = {
    // type, weights, levels, iq4, step, tries, s, m, sub-blocks of a super-block
    {TYPE_Q4_0, 32, -8, 7, false, 0.1f, 9, 0, 0, 0, 1},         {TYPE_Q4_1, 32, 0, 15, false, 0.1f, 10, 0, 0, 0, 1},
    {TYPE_Q5_0, 32, -16, 15, false, 0.1f, 9, 0, 0, 0, 1},       {TYPE_Q5_1, 32, 0, 31, false, 0.1f, 10, 0, 0, 0, 1},
    {TYPE_Q2_K, 16, 0, 3, false, 0.1f, 8, 0, 15, 15, 16},       {TYPE_Q3_K, 16, -4, 3, false, 0.1f, 9, -32, 31, 0, 16},
    {TYPE_Q4_K, 32, 0, 15, false, 0.1f, 10, 0, 63, 63, 8},      {TYPE_Q5_K, 32, 0, 31, false, 0.1f, 10, 0, 63, 63, 8},
    {TYPE_Q6_K, 16, -32, 31, false, 0.1f, 9, -128, 127, 0, 16}, {TYPE_IQ4_NL, 32, -127, 113, true, 3, 7, 0, 0, 0, 1},
    {TYPE_IQ4_XS, 32, -127, 113, true, 3, 7, -32, 31, 0, 8},
};

void FIT_NAME(int type, const float *x, const float *importance, int count, FitResult *out) {
    const FitGrid *g = grids;
    while (g->type != type) g++;
    SubBlocks b;
    load_lanes(x, g->n, count, b.x);
    for (int i = 0; i < g->n && !importance; i++) b.w[i] = lanes_set(1);
    if (importance) load_lanes(importance, g->n, count, b.w);
    if (g->lo < 0) fit_scale(&b, g, out);
    else fit_affine(&b, g, out);
}
