// cpu/int16_attend.c: attention of many queries on AVX-512 with VNNI, in integers of 16 bits (vpdpwssd, two products
// per lane and instruction). Softmax and sums of tiles stay in f32, as in cpu/vector_attend.c.
//
// A sum of n products of two integers up to sqrt(2^31 / n) fits into 32 bits. Queries and keys have one scale for a
// whole head: 5792 steps up to its largest element with heads of 64, 4096 with 128. Values have a scale for each
// element of the head over the keys of a tile, and the weights of values count 4729 steps up to 1. bf16 has 256 steps
// between two powers of two: scores in bf16 moved the logits of a model with large scores by a sixth more than int8
// products do.
#define QUILL_SIMD 512
#include "cpu/vector_attend.h"

#include <math.h>

enum { V_ELEMENTS = 8 }; // elements of values at a time; most heads are a multiple of it

// ---- scores ---------------------------------------------------------------------------------------------------------

// The largest magnitude of the integers of a head: n products of two of them are below 2^31.
static float most_of(int n) { return fminf(32767, floorf(sqrtf(2147483000.0f / (float)n))); }

// Two registers of integers as pairs of 16 bits: `even` in the lower half of a lane.
INLINE __m512i pair_of_integers(__m512i even, __m512i odd) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16));
}

// Queries (head_dim, T) become pairs of integers (pairs of elements, T), with a scale for each lane.
static void begin(const AttendTask *t, QueryLanes *l) {
    const int hd = t->heads->head_dim;
    const __m512 most = _mm512_set1_ps(most_of(hd));
    if (hd % 2) memset(l->queries + hd * T, 0, T * sizeof *l->queries);
    for (int half = 0; half < T; half += VL) {
        __m512 top = _mm512_setzero_ps();
        for (int i = 0; i < hd; i++)
            top = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(l->queries + i * T + half)), top);
        __mmask16 some = _mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        __m512 inverse = _mm512_maskz_div_ps(some, most, top);
        _mm512_storeu_ps(l->scale + half, _mm512_div_ps(top, most));
        for (int i = 0; i < hd; i += 2) {
            const float *q = l->queries + i * T + half;
            __m512i even = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q), inverse));
            __m512i odd = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q + T), inverse));
            _mm512_storeu_si512(l->queries + i / 2 * T + half, pair_of_integers(even, odd));
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
        __m512 tops = _mm512_setzero_ps();
        for (int i = 0; i < hd; i += VL) tops = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(row + i)), tops);
        float top = _mm512_reduce_max_ps(tops);
        __m512 inverse = _mm512_set1_ps(top != 0 ? most / top : 0);
        s->scale[k] = top / most;
        for (int i = 0; i < hd; i += VL) {
            __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(row + i), inverse));
            _mm256_storeu_si256((__m256i *)(void *)(row + i / 2), _mm512_cvtepi32_epi16(q));
        }
    }
}

// sum += x times a pair of integers in the bits of a float
INLINE void add_products(__m512i sum[2], __m512i x0, __m512i x1, float bits) {
    __m512i pair = _mm512_castps_si512(_mm512_set1_ps(bits));
    sum[0] = _mm512_dpwssd_epi32(sum[0], x0, pair);
    sum[1] = _mm512_dpwssd_epi32(sum[1], x1, pair);
    __asm__("" : "+v"(sum[0]), "+v"(sum[1])); // otherwise gcc 12 copies the sums at every step
}

// The scores of NF keys.
static __attribute__((noinline)) void score_keys(int n_pairs, const float *keys, const float *key_scale,
                                                 const QueryLanes *l, float *scores) {
    const float *x = l->queries;
    __m512i sum[NF][2] = {{{0}}};
    for (int i = 0; i < n_pairs; i++, keys++, x += T) {
        __m512i x0 = _mm512_loadu_si512(x), x1 = _mm512_loadu_si512(x + VL);
        UNROLL(12)
        for (int k = 0; k < NF; k++) add_products(sum[k], x0, x1, keys[(size_t)k * HEAD_PAD]);
    }
    UNROLL(12)
    for (int k = 0; k < NF; k++)
        for (int v = 0; v < 2; v++) {
            __m512 scale = _mm512_mul_ps(_mm512_set1_ps(key_scale[k]), _mm512_loadu_ps(l->scale + v * VL));
            _mm512_storeu_ps(scores + k * T + v * VL, _mm512_mul_ps(_mm512_cvtepi32_ps(sum[k][v]), scale));
        }
}

// 2^t for t <= 0 with a relative error of 2^-14.
INLINE __m512 power(__m512 t) {
    __m512 f = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(1.353416792e-2f), _mm512_set1_ps(5.201146061e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.414427569e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.930038345e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.000002593f));
    return _mm512_scalef_ps(p, t);
}

// The lanes whose query sees the key.
INLINE __mmask16 seen(const AttendTask *t, __m512i slot, int key) {
    __mmask16 early = _mm512_cmple_epi32_mask(_mm512_set1_epi32(key), slot);
    if (!t->heads->window) return early;
    __m512i oldest = _mm512_sub_epi32(slot, _mm512_set1_epi32(t->heads->window)); // the newest slot outside
    return early & _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(key), oldest);
}

// The softmax of n keys for 16 lanes from `half` on; scores become pairs of integers for two keys. `all`: every lane
// sees every key. all is a constant.
INLINE void softmax_half(const AttendTask *t, QueryLanes *l, int half, int first, int n, bool all) {
    const __m512 log2_e = _mm512_set1_ps(1.44269504f), masked = _mm512_set1_ps(MASKED);
    const __m512 most = _mm512_set1_ps(most_of(KEYS));
    __m512i slot = _mm512_loadu_si512(l->slot + half);
    __m512 before = _mm512_loadu_ps(l->max + half), top = before, total = _mm512_setzero_ps();
    float *scores = l->scores + half;
    for (int k = 0; k < n; k++) {
        __m512 score = _mm512_loadu_ps(scores + k * T);
        if (!all) {
            score = _mm512_mask_mov_ps(masked, seen(t, slot, first + k), score);
            _mm512_storeu_ps(scores + k * T, score);
        }
        top = _mm512_max_ps(top, score);
    }
    // A lane that has seen no key yet keeps MASKED as its maximum; its exponentials are set to 0.
    __m512 less = _mm512_mul_ps(top, log2_e);
    for (int k = 0; k < n; k += 2) {
        __m512 p[2];
        UNROLL(2)
        for (int i = 0; i < 2; i++) {
            __m512 score = k + i < n ? _mm512_loadu_ps(scores + (k + i) * T) : masked;
            p[i] = power(_mm512_fmsub_ps(score, log2_e, less));
            if (!all) p[i] = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(score, masked, _CMP_GT_OQ), p[i]);
        }
        total = _mm512_add_ps(total, _mm512_add_ps(p[0], p[1]));
        _mm512_storeu_si512(scores + k / 2 * T, pair_of_integers(_mm512_cvtps_epi32(_mm512_mul_ps(p[0], most)),
                                                                 _mm512_cvtps_epi32(_mm512_mul_ps(p[1], most))));
    }
    __mmask16 grew = _mm512_cmp_ps_mask(top, before, _CMP_GT_OQ);
    __m512 scale = power(_mm512_fmsub_ps(before, log2_e, less));
    scale = _mm512_mask_mov_ps(_mm512_set1_ps(1), grew, scale);
    _mm512_storeu_ps(l->max + half, top);
    _mm512_storeu_ps(l->sum + half, _mm512_fmadd_ps(_mm512_loadu_ps(l->sum + half), scale, total));
    for (int i = 0; i < attend_dim(t, true) && grew; i++) {
        float *o = l->out + i * T + half;
        _mm512_storeu_ps(o, _mm512_mul_ps(_mm512_loadu_ps(o), scale));
    }
}

static void add_scores(const AttendTask *t, QueryTile *s, int first, int n) {
    begin_keys(t, s, (int)round_up((size_t)n, NF));
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++) {
        if (!lanes_see(l, first, n)) continue;
        for (int k = 0; k < n; k += NF)
            score_keys((t->heads->head_dim + 1) / 2, s->tile + (size_t)k * HEAD_PAD, s->scale + k, l,
                       l->scores + k * T);
        if (t->heads->softcap != 0) vector_softcap(l->scores, n * T, t->heads->softcap);
        bool all = first + n - 1 <= l->slot[0] && !t->heads->window;
        for (int half = 0; half < T; half += VL) {
            if (all) softmax_half(t, l, half, first, n, true);
            else softmax_half(t, l, half, first, n, false);
        }
    }
}

// ---- values ---------------------------------------------------------------------------------------------------------

// Values of n keys become pairs of integers for two keys, in row k those of keys 2k and 2k + 1. Key n is zero.
static void begin_values(QueryTile *s, int v_dim, int n) {
    const __m512 most = _mm512_set1_ps(most_of(KEYS));
    for (int i = 0; i < v_dim; i += VL) {
        __m512 top = _mm512_setzero_ps();
        for (int k = 0; k < n; k++)
            top = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(s->tile + (size_t)k * HEAD_PAD + i)), top);
        __m512 inverse = _mm512_maskz_div_ps(_mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_NEQ_UQ), most, top);
        // both integers are divided by `most`
        _mm512_storeu_ps(s->value_scale + i, _mm512_div_ps(top, _mm512_mul_ps(most, most)));
        for (int k = 0; k < n; k += 2) {
            const float *even = s->tile + (size_t)k * HEAD_PAD + i;
            __m512i q[2];
            UNROLL(2)
            for (int j = 0; j < 2; j++)
                q[j] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(even + j * HEAD_PAD), inverse));
            _mm512_storeu_si512(s->tile + (size_t)(k / 2) * HEAD_PAD + i, pair_of_integers(q[0], q[1]));
        }
    }
}

// out(i, lane) += scale(i) times the sum over n pairs of keys of value(pair, i) weight(pair, lane), for V_ELEMENTS
// elements i.
static __attribute__((noinline)) void weigh_values(int n_pairs, const float *values, const float *scale,
                                                   const float *weights, float *out) {
    __m512i sum[V_ELEMENTS][2] = {{{0}}};
    for (int k = 0; k < n_pairs; k++, values += HEAD_PAD, weights += T) {
        __m512i w0 = _mm512_loadu_si512(weights), w1 = _mm512_loadu_si512(weights + VL);
        UNROLL(8)
        for (int i = 0; i < V_ELEMENTS; i++) add_products(sum[i], w0, w1, values[i]);
    }
    UNROLL(8)
    for (int i = 0; i < V_ELEMENTS; i++)
        for (int v = 0; v < 2; v++) {
            float *to = out + i * T + v * VL;
            _mm512_storeu_ps(
                to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][v]), _mm512_set1_ps(scale[i]), _mm512_loadu_ps(to)));
        }
}

static void add_values(const AttendTask *t, QueryTile *s, int first, int n) {
    const int v_dim = attend_dim(t, true);
    begin_values(s, v_dim, n);
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++)
        for (int i = 0; i < v_dim && lanes_see(l, first, n); i += V_ELEMENTS)
            weigh_values((n + 1) / 2, s->tile + i, s->value_scale + i, l->scores, l->out + i * T);
}

static void attend(const AttendTask *t) {
    static const AttendProducts products = {begin, add_scores, add_values};
    vector_attend_with(t, &products);
}

const AttendKernel cpu_int16_attend = {
    .run = attend, .scratch = sizeof(QueryTile), .pairs = LANE_TILES * T, .in_parts = true, .gives_lse = true};
