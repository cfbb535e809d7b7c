// cpu/vector_attend.c: attention of many queries with vectors: K and V are tiles in f32, lanes are queries.
#include "cpu/vector_attend.h"

#if QUILL_SIMD == 512
#include "cpu/transpose16.h"
#endif

#include <limits.h>

// ---- tiles of keys --------------------------------------------------------------------------------------------------

// Finds the offsets of K or V of keys [first, first + n); keys of a block are consecutive.
static void keys_at(const AttendTask *t, bool value, int first, int n, size_t *at) {
    int left = 0;
    for (int k = 0; k < n; k++, left--) {
        if (left == 0) {
            at[k] = attend_at(t, value, first + k);
            left = t->kv->block - (first + k) % t->kv->block;
        } else at[k] = at[k - 1] + (size_t)kv_plane_dim(t->kv, value);
    }
}

// Whether any query of the task sees the key. Keys between the windows of distant rows are seen by no query, and their
// memory may never have been written.
static bool key_seen(const AttendTask *t, const QueryTile *s, int key) {
    if (!t->heads->window) return true;
    for (int i = 0; i < s->n_lanes * T; i++) {
        const QueryLanes *l = &s->lanes[i / T];
        if (key <= l->slot[i % T] && key >= l->oldest[i % T]) return true;
    }
    return false;
}

// Loads elements [i, i + VL) of a head from the cache; a head whose size is not a multiple of VL is padded with zeros.
INLINE vf load_kv(const uint8_t *plane, int type, size_t at, int i, int head_dim) {
    size_t size = type == TYPE_F32 ? 4 : 2;
    const uint8_t *p = plane + (at + (size_t)i) * size;
#if QUILL_SIMD == 512
    __mmask16 there = (__mmask16)(head_dim - i >= VL ? 0xffff : (1 << (head_dim - i)) - 1);
    if (type == TYPE_F32) return (vf)_mm512_maskz_loadu_ps(there, p);
    __m256i half = _mm256_maskz_loadu_epi16(there, p);
    if (type == TYPE_F16) return (vf)_mm512_cvtph_ps(half);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
#else
    uint8_t padded[VL * 4] = {0};
    if (i + VL > head_dim) {
        memcpy(padded, p, (size_t)(head_dim - i) * size);
        p = padded;
    }
    if (type == TYPE_F32) return vload((const float *)(const void *)p);
    if (type == TYPE_F16) return vload_half((const uint16_t *)(const void *)p);
    return vload_bf16((const uint16_t *)(const void *)p);
#endif
}

INLINE void load_type(const uint8_t *plane, int type, const size_t *at, int n, int hd, float *tile) {
    for (int k = 0; k < n; k++, tile += HEAD_PAD) {
        int i = 0;
        for (; i + VL <= hd; i += VL) vstore(tile + i, load_kv(plane, type, at[k], i, i + VL));
        if (i < hd) vstore(tile + i, load_kv(plane, type, at[k], i, hd));
    }
}

static void load_dense(const AttendTask *t, bool value, const size_t *at, int n, float *tile) {
    const uint8_t *plane = kv_plane(t->kv, value);
    int type = kv_plane_type(t->kv, value), hd = attend_dim(t, value);
    if (type == TYPE_F32) load_type(plane, TYPE_F32, at, n, hd, tile);
    else if (type == TYPE_F16) load_type(plane, TYPE_F16, at, n, hd, tile);
    else load_type(plane, TYPE_BF16, at, n, hd, tile);
}

// Loads n keys of one plane as f32; keys that no query sees, and those up to `padded`, are zero.
void vector_attend_load_tile(const AttendTask *t, QueryTile *s, bool value, int first, int n, int padded) {
    int type = kv_plane_type(t->kv, value);
    size_t at[KEYS], row = (size_t)attend_dim(t, value) * sizeof *s->tile;
    if (kv_is_sealed(type)) vector_unseal_tile(t, value, first, n, s->tile, s->room);
    else keys_at(t, value, first, n, at);
    for (int k = 0, run; k < n && !kv_is_sealed(type); k += run) {
        bool seen = key_seen(t, s, first + k);
        run = t->heads->window ? 1 : n;
        float *tile = s->tile + (size_t)k * HEAD_PAD;
        if (seen) load_dense(t, value, at + k, run, tile);
        else
            for (int i = 0; i < run; i++) memset(tile + (size_t)i * HEAD_PAD, 0, row);
    }
    for (int k = n; k < padded; k++) memset(s->tile + (size_t)k * HEAD_PAD, 0, row);
}

// ---- queries --------------------------------------------------------------------------------------------------------

// columns(i, lane) = rows[lane][i] * scale for n elements of T rows; columns have T floats. rows[lane] NULL: a lane of
// zeros.
static void rows_to_columns(const float *const rows[T], int n, float scale, float *columns) {
#if QUILL_SIMD == 512
    for (int half = 0; half < T; half += VL)
        for (int i = 0; i < n; i += VL) {
            __m512 v[VL];
            UNROLL(16)
            for (int k = 0; k < VL; k++)
                v[k] = rows[half + k] ? _mm512_maskz_loadu_ps(lanes(n - i), rows[half + k] + i) : _mm512_setzero_ps();
            transpose16(v);
            for (int k = 0; k < int_min(VL, n - i); k++) vstore(columns + (i + k) * T + half, (vf)v[k] * scale);
        }
#else
    for (int lane = 0; lane < T; lane++)
        for (int i = 0; i < n; i++) columns[i * T + lane] = rows[lane] ? rows[lane][i] * scale : 0;
#endif
}

// rows[lane][i] = columns(i, lane) * scale[lane]; rows[lane] NULL: nothing is written.
static void columns_to_rows(const float *columns, int n, const float scale[T], float *const rows[T]) {
#if QUILL_SIMD == 512
    for (int half = 0; half < T; half += VL)
        for (int i = 0; i < n; i += VL) {
            __m512 v[VL];
            UNROLL(16)
            for (int k = 0; k < VL; k++)
                v[k] = k < n - i ? (__m512)(vload(columns + (i + k) * T + half) * vload(scale + half))
                                 : _mm512_setzero_ps();
            transpose16(v);
            UNROLL(16)
            for (int k = 0; k < VL; k++)
                if (rows[half + k]) _mm512_mask_storeu_ps(rows[half + k] + i, lanes(n - i), v[k]);
        }
#else
    for (int lane = 0; lane < T; lane++)
        for (int i = 0; i < n && rows[lane]; i++) rows[lane][i] = columns[i * T + lane] * scale[lane];
#endif
}

// Loads the queries of the pairs from `first` on. Lanes without a query are zero and not used.
static void load_queries(const AttendTask *t, QueryLanes *l, int first) {
    const int group = t->heads->n_heads / t->heads->n_kv_heads;
    const float *rows[T];
    memset(l->out, 0, round_up((size_t)attend_dim(t, true), NF) * T * sizeof *l->out);
    l->first = INT_MAX;
    l->last = 0;
    for (int lane = 0; lane < T; lane++) {
        int pair = int_min(first + lane, t->last - 1);
        l->slot[lane] = t->slot[pair / group];
        l->oldest[lane] = heads_oldest(t->heads, l->slot[lane]);
        l->max[lane] = MASKED;
        l->sum[lane] = 0;
        l->first = int_min(l->first, attend_first(t, l->slot[lane]));
        l->last = int_max(l->last, attend_last(t, l->slot[lane]));
        rows[lane] = first + lane < t->last ? t->q + attend_query(t, pair) : NULL;
    }
    rows_to_columns(rows, t->heads->head_dim, t->heads->scale, l->queries);
}

// Masks scores, updates the maxima and converts scores to exponentials; rescales the output of lanes whose maximum
// grew.
static void softmax_tile(const AttendTask *t, QueryLanes *s, int first, int n) {
    int hd = attend_dim(t, true);
    for (int half = 0; half < T; half += VL) {
        vi slot, oldest;
        memcpy(&slot, s->slot + half, sizeof slot);
        memcpy(&oldest, s->oldest + half, sizeof oldest);
        vf before = vload(s->max + half), top = before, total = {0};
        for (int k = 0; k < n; k++) {
            float *row = s->scores + k * T + half;
            vi key = (vi){0} + (first + k);
            vf score = vselect((key <= slot) & (key >= oldest), vload(row), vset(MASKED));
            vstore(row, score);
            top = vmax(top, score);
        }
        for (int k = 0; k < n; k++) {
            float *row = s->scores + k * T + half;
            vf score = vload(row);
            vf p = vselect(score <= MASKED, vset(0), vexp(score - top));
            vstore(row, p);
            total += p;
        }
        vf scale = vexp(before - top);
        vstore(s->max + half, top);
        vstore(s->sum + half, vload(s->sum + half) * scale + total);
        for (int i = 0; i < hd; i++) {
            float *o = s->out + i * T + half;
            vstore(o, vload(o) * scale);
        }
    }
}

// scores(key, lane) of n keys.
static void score_tile(const AttendTask *t, const QueryTile *s, QueryLanes *l, int n) {
    memset(l->scores, 0, sizeof l->scores);
    for (int k = 0; k < n; k += NF)
        multiply_tile(t->heads->head_dim, s->tile + (size_t)k * HEAD_PAD, HEAD_PAD, 1, l->queries, l->scores + k * T,
                      NULL);
    if (t->heads->softcap != 0) vector_softcap(l->scores, n * T, t->heads->softcap);
}

static void add_scores(const AttendTask *t, QueryTile *s, int first, int n) {
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++) {
        if (!lanes_see(l, first, n)) continue;
        score_tile(t, s, l, n);
        softmax_tile(t, l, first, n);
    }
}

static void write_queries(const AttendTask *t, const QueryLanes *l, int first) {
    float *rows[T] = {NULL}, inverse[T] = {0};
    for (int lane = 0; lane < T && first + lane < t->last; lane++) {
        rows[lane] = t->out + attend_out(t, first + lane);
        inverse[lane] = 1 / (l->sum[lane] + attend_sink_weight(t, first + lane, l->max[lane]));
        attend_put_lse(t, first + lane, l->max[lane], l->sum[lane]);
    }
    columns_to_rows(l->out, attend_dim(t, true), inverse, rows);
}

static void add_values(const AttendTask *t, QueryTile *s, int first, int n) {
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++)
        for (int i = 0; i < attend_dim(t, true) && lanes_see(l, first, n); i += NF)
            multiply_tile(n, s->tile + i, 1, HEAD_PAD, l->scores, l->out + i * T, NULL);
}

// Loads the task's queries. *first, *last: the oldest and the newest slot that one of them sees.
static void load_lanes(const AttendTask *t, QueryTile *s, int *first, int *last) {
    *first = INT_MAX;
    *last = 0;
    s->n_lanes = (t->last - t->first + T - 1) / T;
    for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes; l++) {
        load_queries(t, l, t->first + (int)(l - s->lanes) * T);
        *first = int_min(*first, l->first);
        *last = int_max(*last, l->last);
    }
}

// Tiles end at multiples of KEYS, wherever the first one begins, so that the order of sums does not depend on which
// queries share the pass over the keys.
static void attend_many(const AttendTask *t, const AttendProducts *products) {
    QueryTile *s = t->scratch;
    int first, last, n;
    load_lanes(t, s, &first, &last);
    QueryLanes *l = s->lanes, *end = l + s->n_lanes;
    for (l = s->lanes; l < end && products->begin; l++) products->begin(t, l);
    for (int k0 = first; k0 <= last; k0 += n) {
        n = int_min(KEYS - k0 % KEYS, last + 1 - k0);
        vector_attend_load_tile(t, s, false, k0, n, (int)round_up((size_t)n, NF));
        products->add_scores(t, s, k0, n);
        vector_attend_load_tile(t, s, true, k0, n, n + n % 2);
        products->add_values(t, s, k0, n);
    }
    for (l = s->lanes; l < end; l++) write_queries(t, l, t->first + (int)(l - s->lanes) * T);
}

// ---- sums of weights ------------------------------------------------------------------------------------------------

// Replaces the lanes' sums by the factors of their exponentials, 0 for a lane without a query.
static void finish_sums(const AttendTask *t, QueryTile *s) {
    for (int lane = 0; lane < s->n_lanes * T; lane++) {
        QueryLanes *l = &s->lanes[lane / T];
        int pair = t->first + lane;
        float *sum = &l->sum[lane % T], sink = pair < t->last ? attend_sink_weight(t, pair, l->max[lane % T]) : 0;
        *sum = pair < t->last ? 1 / (*sum + sink) : 0;
    }
}

// Adds the weights of a lane's queries for n slots from `first` on to mass[slot], query by query, so that the sums do
// not depend on which queries share a tile.
static void add_mass(const AttendTask *t, const QueryTile *s, QueryLanes *l, int first, int n, float *mass) {
    score_tile(t, s, l, n);
    for (int k = 0; k < n; k++) {
        float each[T];
        for (int half = 0; half < T; half += VL) {
            vi slot, oldest, key = (vi){0} + (first + k);
            memcpy(&slot, l->slot + half, sizeof slot);
            memcpy(&oldest, l->oldest + half, sizeof oldest);
            vf p = vexp(vload(l->scores + k * T + half) - vload(l->max + half)) * vload(l->sum + half);
            vstore(each + half, vselect((key <= slot) & (key >= oldest), p, vset(0)));
        }
        for (int lane = 0; lane < T; lane++) mass[first + k] += each[lane];
    }
}

static void add_masses(const AttendTask *t, float *mass) {
    QueryTile *s = t->scratch;
    int first, last, n;
    load_lanes(t, s, &first, &last);
    for (int again = 0; again < 2; again++) {
        for (int k0 = first; k0 <= last; k0 += n) {
            n = int_min(KEYS - k0 % KEYS, last + 1 - k0);
            vector_attend_load_tile(t, s, false, k0, n, (int)round_up((size_t)n, NF));
            if (!again) add_scores(t, s, k0, n);
            for (QueryLanes *l = s->lanes; l < s->lanes + s->n_lanes && again; l++)
                if (lanes_see(l, k0, n)) add_mass(t, s, l, k0, n, mass);
        }
        if (!again) finish_sums(t, s);
    }
}

void vector_attend_mass(const AttendTask *t, float *mass) {
    AttendTask part = *t;
    for (; part.first < t->last; part.first = part.last) {
        part.last = int_min(part.first + LANE_TILES * T, t->last);
        add_masses(&part, mass);
    }
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

static const AttendProducts f32_products = {.add_scores = add_scores, .add_values = add_values};

void vector_attend_many(const AttendTask *t) { attend_many(t, &f32_products); }

void vector_attend_with(const AttendTask *t, const AttendProducts *products) {
    int n = t->last - t->first, rest = n % T;
    AttendTask many = *t, few = *t;
    many.last = few.first = rest >= T / 2 ? t->last : t->last - rest;
    if (many.last > many.first) attend_many(&many, products);
    if (few.last > few.first) vector_attend_row(&few);
}

void vector_attend(const AttendTask *t) { vector_attend_with(t, &f32_products); }
