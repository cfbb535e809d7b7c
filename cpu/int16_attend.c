// cpu/int16_attend.c: attention of many queries in integers of 16 bits, two products per lane and instruction: vpdpwssd
// (AVX-512 with VNNI, AVX-VNNI) or vpmaddwd (AVX2). Compiled once for each of the three. Softmax and the sums of tiles
// stay in f32, as in cpu/vector_attend.c.
//
// A sum of n products of two integers up to sqrt(2^31 / n) fits into 32 bits. Queries and keys have one scale for a
// whole head: 5792 steps up to its largest element with heads of 64, 4096 with 128. Values have a scale for each
// element of the head over the keys of a tile, and the weights of values count 4729 steps up to 1. bf16 has 128 steps
// between two powers of two: scores in bf16 moved the logits of a model with large scores by a sixth more than int8
// products do.
//
// A query must not depend on keys that it does not see, not even by the scale of their values. So values of a tile are
// multiplied in integers only for lanes that see all of its keys, and in f32 for the others.
#include "cpu/vector_attend.h"

#include <limits.h>
#include <math.h>

enum {
    V_ELEMENTS = VL / 2
}; // elements of values at a time; their sums stay in registers, and most heads are a multiple

// ---- vectors of integers --------------------------------------------------------------------------------------------

// The largest magnitude of integers of which n products are added.
static float most_of(int n) { return fminf(32767, floorf(sqrtf(2147483000.0f / (float)n))); }

// Two vectors of integers as pairs of 16 bits: `even` in the lower half of a lane.
INLINE vi pair_of(vi even, vi odd) { return (even & 0xffff) | (odd << 16); }

#if QUILL_SIMD == 512
INLINE vi to_integers(vf v) { return (vi)_mm512_cvtps_epi32((__m512)v); } // to nearest
INLINE vf to_floats(vi v) { return (vf)_mm512_cvtepi32_ps((__m512i)v); }
INLINE bool any(vi mask) { return _mm512_movepi32_mask((__m512i)mask) != 0; }
INLINE void store_16bit(float *to, vi v) {
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16((__m512i)v));
}
INLINE vi dot(vi sum, vi a, vi b) { return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b); }
#else
INLINE vi to_integers(vf v) { return (vi)_mm256_cvtps_epi32((__m256)v); }
INLINE vf to_floats(vi v) { return (vf)_mm256_cvtepi32_ps((__m256i)v); }
INLINE bool any(vi mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
INLINE void store_16bit(float *to, vi v) {
    __m128i low = _mm256_castsi256_si128((__m256i)v), high = _mm256_extracti128_si256((__m256i)v, 1);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_packs_epi32(low, high));
}
INLINE vi dot(vi sum, vi a, vi b) {
#if defined(__AVXVNNI__)
    return (vi)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#else
    // a NaN key becomes the smallest integers, whose sums may wrap; its scale is NaN
    return (vi)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16((__m256i)a, (__m256i)b));
#endif
}
#endif

INLINE vi load_integers(const float *p) { return (vi)vload(p); }
INLINE void store_integers(float *p, vi v) { vstore(p, (vf)v); }
// most / top, or 0
INLINE vf inverse_of(float most, vf top) { return vselect(top == 0, vset(0), most / top); }

// e^(score - top) for score <= top
INLINE vf exp_below(vf score, vf top) {
#if QUILL_SIMD == 512
    // 2^t with a relative error of 2^-14
    __m512 t = (__m512)(score * 1.44269504f - top * 1.44269504f);
    vf f = (vf)_mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vf p = f * 1.353416792e-2f + 5.201146061e-2f;
    p = p * f + 2.414427569e-1f;
    p = p * f + 6.930038345e-1f;
    p = p * f + 1.000002593f;
    return (vf)_mm512_scalef_ps((__m512)p, t);
#else
    return vexp(score - top);
#endif
}

// sum += x times a pair of integers in the bits of a float
INLINE void add_products(vi sum[2], vi x0, vi x1, float bits) {
    vi pair = (vi)vset(bits);
    sum[0] = dot(sum[0], x0, pair);
    sum[1] = dot(sum[1], x1, pair);
    __asm__("" : "+v"(sum[0]), "+v"(sum[1])); // otherwise gcc 12 copies the sums at every step
}

// ---- scores ---------------------------------------------------------------------------------------------------------

// Queries (head_dim, T) become pairs of integers (pairs of elements, T), with a scale for each lane.
static void begin(const AttendTask *t, QueryLanes *l) {
    const int hd = t->heads->head_dim;
    const float most = most_of(hd);
    if (hd % 2) memset(l->queries + hd * T, 0, T * sizeof *l->queries);
    for (int half = 0; half < T; half += VL) {
        float *q = l->queries + half;
        vf top = {0};
        for (int i = 0; i < hd; i++) top = vlargest(top, vload(q + i * T));
        vf inverse = inverse_of(most, top);
        vstore(l->scale + half, top / most);
        for (int i = 0; i < hd; i += 2) {
            vi even = to_integers(vload(q + i * T) * inverse), odd = to_integers(vload(q + (i + 1) * T) * inverse);
            store_integers(q + i / 2 * T, pair_of(even, odd));
        }
    }
}

// n keys, rows of floats, become rows of 16-bit integers, with a scale for each key. A row is zero from head_dim on, up
// to a whole vector.
static void begin_keys(const AttendTask *t, QueryTile *s, int n) {
    const int hd = t->heads->head_dim;
    const float most = most_of(hd);
    for (int k = 0; k < n; k++) {
        float *row = s->tile + (size_t)k * HEAD_PAD;
        vf tops = {0};
        for (int i = 0; i < hd; i += VL) tops = vlargest(tops, vload(row + i));
        float top = vlargest_of(tops), inverse = top != 0 ? most / top : 0;
        s->scale[k] = top / most;
        for (int i = 0; i < hd; i += VL) store_16bit(row + i / 2, to_integers(vload(row + i) * inverse));
    }
}

// The scores of NF keys.
static __attribute__((noinline)) void score_keys(int n_pairs, const float *keys, const float *key_scale,
                                                 const QueryLanes *l, float *scores) {
    const float *x = l->queries;
    vi sum[NF][2] = {{{0}}};
    for (int i = 0; i < n_pairs; i++, keys++, x += T) {
        vi x0 = load_integers(x), x1 = load_integers(x + VL);
        UNROLL(12)
        for (int k = 0; k < NF; k++) add_products(sum[k], x0, x1, keys[(size_t)k * HEAD_PAD]);
    }
    UNROLL(12)
    for (int k = 0; k < NF; k++)
        for (int v = 0; v < 2; v++)
            vstore(scores + k * T + v * VL, to_floats(sum[k][v]) * (key_scale[k] * vload(l->scale + v * VL)));
}

// Whether all lanes see all of n slots from `first` on.
INLINE bool see_all(const AttendTask *t, const QueryLanes *l, int first, int n) {
    return first + n - 1 <= l->slot[0] && first >= heads_oldest(t->heads, l->last);
}

// The softmax of n keys for VL lanes from `half` on. `all`, a constant: every lane sees every key, and the exponentials
// become pairs of integers for two keys; otherwise floats.
INLINE void softmax_half(const AttendTask *t, QueryLanes *l, int half, int first, int n, bool all) {
    const float most = most_of(KEYS);
    vi slot, oldest;
    memcpy(&slot, l->slot + half, sizeof slot);
    memcpy(&oldest, l->oldest + half, sizeof oldest);
    vf before = vload(l->max + half), top = before, total = {0};
    float *scores = l->scores + half;
    for (int k = 0; k < n; k++) {
        vf score = vload(scores + k * T);
        if (!all) {
            vi key = (vi){0} + (first + k);
            score = vselect((key <= slot) & (key >= oldest), score, vset(MASKED));
            vstore(scores + k * T, score);
        }
        top = vmax(top, score);
    }
    // A lane that has seen no key yet keeps MASKED as its maximum; its exponentials are set to 0.
    for (int k = 0; k < n; k += 2) {
        vf p[2];
        UNROLL(2)
        for (int i = 0; i < 2; i++) {
            vf score = k + i < n ? vload(scores + (k + i) * T) : vset(MASKED);
            p[i] = exp_below(score, top);
            if (!all) p[i] = vselect(score <= MASKED, vset(0), p[i]);
        }
        total += p[0] + p[1];
        if (all) store_integers(scores + k / 2 * T, pair_of(to_integers(p[0] * most), to_integers(p[1] * most)));
        for (int i = 0; i < 2 && k + i < n && !all; i++) vstore(scores + (k + i) * T, p[i]);
    }
    vf scale = vselect(top > before, exp_below(before, top), vset(1)); // MASKED - MASKED need not be 0: it is an FMA
    vstore(l->max + half, top);
    vstore(l->sum + half, vload(l->sum + half) * scale + total);
    if (any(top > before))
        for (int i = 0; i < attend_dim(t, true); i++) {
            float *o = l->out + i * T + half;
            vstore(o, vload(o) * scale);
        }
}

static void add_scores(const AttendTask *t, QueryTile *s, int first, int n) {
    const int n_pairs = (t->heads->head_dim + 1) / 2;
    begin_keys(t, s, (int)round_up((size_t)n, NF));
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++) {
        if (!lanes_see(l, first, n)) continue;
        for (int k = 0; k < n; k += NF)
            score_keys(n_pairs, s->tile + (size_t)k * HEAD_PAD, s->scale + k, l, l->scores + k * T);
        if (t->heads->softcap != 0) vector_softcap(l->scores, n * T, t->heads->softcap);
        bool all = see_all(t, l, first, n);
        for (int half = 0; half < T; half += VL) {
            if (all) softmax_half(t, l, half, first, n, true);
            else softmax_half(t, l, half, first, n, false);
        }
    }
}

// ---- values ---------------------------------------------------------------------------------------------------------

// Values of n keys become pairs of integers for two keys, in row k those of keys 2k and 2k + 1. Key n is zero.
static void begin_values(QueryTile *s, int v_dim, int n) {
    const float most = most_of(KEYS);
    for (int i = 0; i < v_dim; i += VL) {
        float *column = s->tile + i;
        vf top = {0};
        for (int k = 0; k < n; k++) top = vlargest(top, vload(column + (size_t)k * HEAD_PAD));
        vf inverse = inverse_of(most, top);
        vstore(s->value_scale + i, top / (most * most)); // both integers are multiplied by `most`
        for (int k = 0; k < n; k += 2) {
            const float *even = column + (size_t)k * HEAD_PAD;
            vi low = to_integers(vload(even) * inverse), high = to_integers(vload(even + HEAD_PAD) * inverse);
            store_integers(column + (size_t)(k / 2) * HEAD_PAD, pair_of(low, high));
        }
    }
}

// out(i, lane) += scale(i) times the sum over n pairs of keys of value(pair, i) weight(pair, lane), for V_ELEMENTS
// elements i.
static __attribute__((noinline)) void weigh_values(int n_pairs, const float *values, const float *scale,
                                                   const float *weights, float *out) {
    vi sum[V_ELEMENTS][2] = {{{0}}};
    for (int k = 0; k < n_pairs; k++, values += HEAD_PAD, weights += T) {
        vi w0 = load_integers(weights), w1 = load_integers(weights + VL);
        UNROLL(8)
        for (int i = 0; i < V_ELEMENTS; i++) add_products(sum[i], w0, w1, values[i]);
    }
    UNROLL(8)
    for (int i = 0; i < V_ELEMENTS; i++)
        for (int v = 0; v < 2; v++) {
            float *to = out + i * T + v * VL;
            vstore(to, vload(to) + to_floats(sum[i][v]) * scale[i]);
        }
}

static void add_values(const AttendTask *t, QueryTile *s, int first, int n) {
    const int v_dim = attend_dim(t, true);
    bool integers = false;
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++) {
        integers = integers || see_all(t, l, first, n);
        for (int i = 0; i < v_dim && lanes_see(l, first, n) && !see_all(t, l, first, n); i += NF)
            multiply_tile(n, s->tile + i, 1, HEAD_PAD, l->scores, l->out + i * T, NULL);
    }
    if (integers) begin_values(s, v_dim, n);
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++)
        for (int i = 0; i < v_dim && see_all(t, l, first, n); i += V_ELEMENTS)
            weigh_values((n + 1) / 2, s->tile + i, s->value_scale + i, l->scores, l->out + i * T);
}

static void attend(const AttendTask *t) {
    static const AttendProducts products = {begin, add_scores, add_values};
    vector_attend_with(t, &products);
}

#if QUILL_SIMD == 512
#define INT16_ATTEND cpu_vnni_attend
#elif defined(__AVXVNNI__)
#define INT16_ATTEND cpu_avxvnni_attend
#else
#define INT16_ATTEND cpu_madd_attend
#endif
const AttendKernel INT16_ATTEND = {
    .run = attend, .scratch = sizeof(QueryTile), .pairs = LANE_TILES * T, .in_parts = true, .gives_lse = true};
