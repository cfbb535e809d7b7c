// cpu/bf16_attend.c: attention of many queries on AVX-512 with BF16 (vdpbf16ps): values and their weights are rounded
// to bf16, two keys in a product. Scores, softmax and sums stay in f32, as in cpu/vector_attend.c.
//
// An f16 key has three bits more than bf16: scores would need three products of parts, which cost more than one in f32.
// The rounding errors of values and weights average out over the keys.
#define QUILL_SIMD 512
#include "cpu/vector_attend.h"

// Combines rows 2k and 2k + 1 of floats, `stride` apart, to pairs in row k: element i of both, rounded to bf16, in 32
// bits.
static void pair_rows(float *rows, size_t stride, int n_rows, int n) {
    const __m512i by_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                              6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int k = 0; k < n_rows; k += 2) {
        const float *even = rows + (size_t)k * stride, *odd = even + stride;
        float *to = rows + (size_t)(k / 2) * stride;
        for (int i = 0; i < n; i += VL) {
            __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(odd + i), _mm512_loadu_ps(even + i));
            __m512i pairs;
            memcpy(&pairs, &both, sizeof pairs);
            _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(by_turns, pairs));
        }
    }
}

INLINE __m512bh as_pairs(const float *at) {
    __m512bh pairs;
    memcpy(&pairs, at, sizeof pairs);
    return pairs;
}

// out(i, lane) += sum over n pairs of keys of value(pair, i) weight(pair, lane), for NF elements i.
static void multiply_pairs(int n, const float *values, const float *weights, float *out) {
    __m512 sum[NF][2];
    UNROLL(12)
    for (int i = 0; i < NF; i++)
        for (int v = 0; v < 2; v++) sum[i][v] = _mm512_loadu_ps(out + i * T + v * VL);
    for (int k = 0; k < n; k++, values += HEAD_PAD, weights += T) {
        __m512bh w0 = as_pairs(weights), w1 = as_pairs(weights + VL);
        UNROLL(12)
        for (int i = 0; i < NF; i++) {
            __m512 repeated = _mm512_set1_ps(values[i]);
            __m512bh value;
            memcpy(&value, &repeated, sizeof value);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], w0, value);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], w1, value);
        }
    }
    UNROLL(12)
    for (int i = 0; i < NF; i++)
        for (int v = 0; v < 2; v++) _mm512_storeu_ps(out + i * T + v * VL, sum[i][v]);
}

static void add_values(QueryTile *s, int v_dim, int first, int n) {
    const int padded = n + n % 2;
    pair_rows(s->tile, HEAD_PAD, padded, (int)round_up((size_t)v_dim, VL));
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++) {
        if (!lanes_see(l, first, n)) continue;
        pair_rows(l->scores, T, padded, T);
        for (int i = 0; i < v_dim; i += NF) multiply_pairs(padded / 2, s->tile + i, l->scores, l->out + i * T);
    }
}

static void attend(const AttendTask *t) { vector_attend_with(t, add_values); }

const AttendKernel cpu_bf16_attend = {
    .run = attend, .scratch = sizeof(QueryTile), .pairs = LANE_TILES * T, .in_parts = true, .gives_lse = true};
