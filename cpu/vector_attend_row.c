// cpu/vector_attend_row.c: attention of one row's heads with vectors: a few queries for each tile of keys.
//
// Up to GROUP heads of one row share each read of the keys. The lanes of a vector are G heads by E = VL / G elements:
// lane h*E + e belongs to head h. One load repeats E elements of a key for all heads. The E partial sums of a head are
// added up for E keys at once, so that lanes of the scores are keys, as softmax needs. Lanes of the sums of values are
// elements.
#include "cpu/vector_attend.h"

// Packs G queries, scaled: element j*E + e of head h is in lane h*E + e of vector j.
INLINE void pack_queries(const AttendTask *t, int pair, int count, int G, float *q) {
    const int hd = t->heads->head_dim, E = VL / G;
    memset(q, 0, round_up((size_t)hd, VL) * (size_t)G * sizeof *q);
    for (int h = 0; h < count; h++) {
        const float *from = t->q + attend_query(t, pair + h);
        for (int i = 0; i < hd; i++) q[i / E * VL + h * E + i % E] = from[i] * t->heads->scale;
    }
}

// Rows of a later tile, which are prefetched line by line while this tile is computed; prefetching all of them at once
// would stall. vector_unseal_tile prefetches sealed groups itself.
typedef struct {
    const uint8_t *at;
    size_t size; // bytes of an element; 0: nothing is prefetched
} PrefetchRows;

static PrefetchRows prefetch_rows(const AttendTask *t, bool value, int first, int last, const QueryTile *s) {
    int type = kv_plane_type(t->kv, value);
    if (first > last || (value && t->kv->v_in_k) || kv_is_sealed(type))
        return (PrefetchRows){(const uint8_t *)s->tile, 0};
    size_t size = kv_type_bytes(type);
    return (PrefetchRows){kv_plane(t->kv, value) + attend_at(t, value, first) * size, size};
}

// Computes the scores of n keys, a multiple of C; a vector holds E of them for each head.
INLINE void score_keys(const float *q, const float *tile, int n, int hd, int G, PrefetchRows next, float *scores) {
    const int E = VL / G, C = E > 8 ? E : 8;
    for (int k = 0; k < n; k += C, tile += (size_t)C * HEAD_PAD) {
        vf sum[VL > 8 ? VL : 8] = {0};
        for (int i = 0; i < hd; i += E) {
            vf query = vload(q + i * G);
            UNROLL(16)
            for (size_t line = 0; line < C * E * sizeof(uint16_t); line += 64) __builtin_prefetch(next.at + line);
            next.at += (size_t)(C * E) * next.size;
            UNROLL(16)
            for (int c = 0; c < C; c++) sum[c] += query * vrepeat(tile + (size_t)c * HEAD_PAD + i, E);
        }
        int left = C;
        UNROLL(4)
        for (int d = 1; d < E; d *= 2) {
            left /= 2;
            UNROLL(8)
            for (int c = 0; c < left; c++) sum[c] = vfold(sum[2 * c], sum[2 * c + 1], d);
        }
        for (int c = 0; c < C / E; c++) vstore(scores + k * G + c * VL, sum[c]);
    }
}

// Converts the scores of n keys to exponentials. *scale: the factor for earlier sums.
INLINE void soften(float *scores, int n, int G, vf *max, vf *sum, float *scale) {
    const int E = VL / G;
    vf top = *max, total = {0};
    if (n % E) {
        vi key;
        for (int i = 0; i < VL; i++) key[i] = i % E;
        float *last = scores + n / E * VL;
        vstore(last, vselect(key < n % E, vload(last), vset(MASKED)));
    }
    for (int k = 0; k < n; k += E) top = vmax(top, vload(scores + k * G));
    UNROLL(4)
    for (int d = 1; d < E; d *= 2) top = vmax(top, vswap(top, d));
    for (int k = 0; k < n; k += E) {
        vf p = vexp(vload(scores + k * G) - top);
        vstore(scores + k * G, p);
        total += p;
    }
    vf change = vexp(*max - top);
    vstore(scale, change);
    *sum = *sum * change + total;
    *max = top;
}

// out(head, element) = out scale + sum of the values of n keys times their weights, for B vectors of elements.
INLINE void sum_values(const float *weights, const float *tile, int n, int G, int B, const float *scale,
                       PrefetchRows next, size_t next_row, float *out) {
    const int E = VL / G;
    vf sum[GROUP][8];
    UNROLL(8)
    for (int h = 0; h < G; h++) UNROLL(8)
    for (int b = 0; b < B; b++) sum[h][b] = vload(out + h * HEAD_PAD + b * VL) * scale[h * E];
    for (int k = 0; k < n; k++, tile += HEAD_PAD) {
        const float *weight = weights + k / E * VL + k % E;
        vf value[8];
        UNROLL(4)
        for (size_t line = 0; line < (size_t)(B * VL) * sizeof(uint16_t); line += 64)
            __builtin_prefetch(next.at + (size_t)k * next_row + line);
        UNROLL(8)
        for (int b = 0; b < B; b++) value[b] = vload(tile + b * VL);
        UNROLL(8)
        for (int h = 0; h < G; h++) UNROLL(8)
        for (int b = 0; b < B; b++) sum[h][b] += value[b] * weight[h * E];
    }
    UNROLL(8)
    for (int h = 0; h < G; h++) UNROLL(8)
    for (int b = 0; b < B; b++) vstore(out + h * HEAD_PAD + b * VL, sum[h][b]);
}

// The same for whole heads, with as many elements at a time as there are registers for their sums.
INLINE void sum_heads(const float *weights, const float *tile, int n, int hd, int G, const float *scale,
                      PrefetchRows next, float *out) {
    const int B = VL / G < 8 ? VL / G : 8;
    int end = (hd + VL - 1) / VL * VL;
    size_t row = (size_t)hd * next.size;
    for (int i = 0, b; i < end; i += b * VL, next.at += (size_t)(b * VL) * next.size) {
        int left = (end - i) / VL;
        b = left >= B ? B : left >= 4 && B > 4 ? 4 : left >= 2 && B > 2 ? 2 : 1;
        if (b == B) sum_values(weights, tile + i, n, G, B, scale, next, row, out + i);
        else if (b == 4) sum_values(weights, tile + i, n, G, 4, scale, next, row, out + i);
        else if (b == 2) sum_values(weights, tile + i, n, G, 2, scale, next, row, out + i);
        else sum_values(weights, tile + i, n, G, 1, scale, next, row, out + i);
    }
}

INLINE void attend_heads(const AttendTask *t, int pair, int count, int G) {
    QueryTile *s = t->scratch;
    QueryLanes *l = s->lanes;
    int hd = t->heads->head_dim, vd = attend_dim(t, true),
        slot = t->slot[pair / (t->heads->n_heads / t->heads->n_kv_heads)], n;
    int last = attend_last(t, slot);
    const int E = VL / G;
    float scale[VL];
    vf max = vset(MASKED), sum = {0};
    for (int lane = 0; lane < T; lane++) l->slot[lane] = slot, l->oldest[lane] = heads_oldest(t->heads, slot);
    s->n_lanes = 1;
    pack_queries(t, pair, count, G, l->queries);
    memset(l->out, 0, (size_t)G * HEAD_PAD * sizeof *l->out);
    for (int k0 = attend_first(t, slot); k0 <= last; k0 += n) {
        n = int_min(KEYS_ROW - k0 % KEYS_ROW, last + 1 - k0);
        int padded = (int)round_up((size_t)n, 16);
        vector_attend_load_tile(t, s, false, k0, n, padded);
        score_keys(l->queries, s->tile, padded, hd, G, prefetch_rows(t, false, k0 + n, last, s), l->scores);
        if (t->heads->softcap != 0) vector_softcap(l->scores, padded * G, t->heads->softcap);
        soften(l->scores, n, G, &max, &sum, scale);
        vector_attend_load_tile(t, s, true, k0, n, n);
        sum_heads(l->scores, s->tile, n, vd, G, scale, prefetch_rows(t, true, k0 + n, last, s), l->out);
    }
    UNROLL(4)
    for (int d = 1; d < E; d *= 2) sum += vswap(sum, d);
    vstore(scale, sum);
    for (int h = 0; h < count; h++) {
        size_t at = attend_out(t, pair + h);
        float all = scale[h * E] + attend_sink_weight(t, pair + h, max[h * E]);
        for (int i = 0; i < vd; i++) t->out[at + (size_t)i] = l->out[h * HEAD_PAD + i] / all;
        attend_put_lse(t, pair + h, max[h * E], scale[h * E]);
    }
}

void vector_attend_row(const AttendTask *t) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    for (int pair = t->first, n; pair < t->last; pair += n) {
        n = int_min(int_min(t->last - pair, group - pair % group), GROUP); // of one row
#if QUILL_SIMD == 512
        if (n > 4) {
            attend_heads(t, pair, n, 8);
            continue;
        }
#endif
#if QUILL_SIMD
        if (n > 2) {
            attend_heads(t, pair, n, 4);
            continue;
        }
#endif
        if (n > 1) attend_heads(t, pair, n, 2);
        else attend_heads(t, pair, n, 1);
    }
}
