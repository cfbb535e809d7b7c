// cpu_amx_attend.c: attention of many queries on the AMX unit, over a cache in 16 bits.
//
// The unit multiplies bf16. Queries and keys go in as two parts each (high by high, and each high by the other low),
// since their rounding would reach the exponents; softmax weights and values are rounded once. Scores, maxima, sums and
// outputs are f32. A task's queries (rows, and the heads of a group) are packed once. Keys pass in tiles of KEYS: K
// becomes bf16 rows and V bf16 columns, once for all queries of the task, which see them QUERIES at a time:
//
//   scores (key, query) = K (key, i) queries (i, query);   out (i, query) += V^T (i, key) weights (key, query)
//
// Both have the queries in the lanes, so that maxima, masks and rescaling are plain vector operations, and the weights
// of two keys lie as the unit wants its right operand. Online softmax: Milakov and Gimelshein, 2018; tiles of it:
// Dao, FlashAttention-2, 2023.
#define QUILL_SIMD 512
#include "cpu.h"

#include "amx.h"

#include <assert.h>
#include <limits.h>

enum {
    QUERIES = 32,                // two unit tiles
    TASK = 256,                  // queries of a task
    TILES = TASK / QUERIES,      // of them
    KEYS = 128,                  // keys of a tile
    FEWEST_HEADS = 2,            // of a group that gain where rows are too few for this, and keys more than a tile
    HEAD_MOST = 512,             // largest head_dim (model.c refuses more)
    STEPS_MOST = HEAD_MOST / 32, // of 32 elements of a head
};

static const float masked = -1e30f;

typedef struct {
    uint16_t queries[TILES][STEPS_MOST][2][2][UNIT]; // (part, 16 queries): pairs of elements, scaled
    uint16_t k[KEYS / 32][STEPS_MOST][2][2][UNIT];   // (part, 16 keys): rows
    uint16_t v[STEPS_MOST][KEYS / 32][2][UNIT];      // rows of 16 elements, 32 keys each
    uint16_t weights[2][KEYS / 32][2][UNIT];         // (tiles by turns) pairs of keys
    float scores[2][KEYS / 32][2][2][16][16];        // (tiles by turns, 32 keys, 16 of them, 16 queries, key, query)
    float out[TILES][STEPS_MOST][2][2][16][16];      // (32 elements, 16 of them, 16 queries, element, query)
    float max[TASK], sum[TASK];
    int slot[TASK];
} State;

// ---- loading --------------------------------------------------------------------------------------------------------

// 32 floats as bf16, and what that leaves of them.
INLINE void store_parts(uint16_t *high, uint16_t *low, __m512 a, __m512 b) {
    store_bf16(high, a, b);
    __m512i bits;
    memcpy(&bits, high, sizeof bits);
    __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits));
    __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1));
    store_bf16(low, _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(first, 16))),
               _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_slli_epi32(second, 16))));
}

static void load_queries(const AttendTask *t, State *s) {
    int hd = t->heads->head_dim, steps = (hd + STEP - 1) / STEP;
    int group = t->heads->n_heads / t->heads->n_kv_heads, n = t->last - t->first;
    __m512 scale = _mm512_set1_ps(t->heads->scale * LOG2_E); // the softmax is one of powers of two
    for (int lane = 0; lane < (int)round_up((size_t)n, QUERIES); lane += 16)
        for (int step = 0; step < steps; step++) {
            __m512 parts[2][16];
            for (int i = 0; i < 16; i++) { // an empty lane is zeros that nobody reads
                const float *q = t->q + attend_query(t, int_min(t->first + lane + i, t->last - 1));
                int left = lane + i < n ? hd - step * STEP : 0;
                __mmask16 first = (__mmask16)(left >= 16 ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
                __mmask16 second = (__mmask16)(left >= 32 ? 0xffff : left > 16 ? (1 << (left - 16)) - 1 : 0);
                __m512 a = _mm512_mul_ps(_mm512_maskz_loadu_ps(first, q + step * STEP), scale);
                __m512 b = _mm512_mul_ps(_mm512_maskz_loadu_ps(second, q + step * STEP + 16), scale);
                store_parts((uint16_t *)(void *)&parts[0][i], (uint16_t *)(void *)&parts[1][i], a, b);
            }
            for (int part = 0; part < 2; part++) {
                transpose16(parts[part]);
                memcpy(s->queries[lane / QUERIES][step][part][lane / 16 % 2], parts[part], sizeof parts[part]);
            }
        }
    for (int lane = 0; lane < TASK; lane++) {
        s->slot[lane] = t->slot[int_min(t->first + lane, t->last - 1) / group];
        s->max[lane] = masked;
        s->sum[lane] = 0;
    }
    for (int tile = 0; tile * QUERIES < n; tile++) memset(s->out[tile], 0, (size_t)steps * sizeof s->out[tile][0]);
}

// Whether some query of the task sees the key. Between the windows of rows far apart lie keys that none does, and whose
// memory nobody may have written.
static bool key_seen(const AttendTask *t, const State *s, int key) {
    if (!t->heads->window) return true;
    for (int lane = 0; lane < t->last - t->first; lane++)
        if (key <= s->slot[lane] && key > s->slot[lane] - t->heads->window) return true;
    return false;
}

// The K or V of keys [first, first + n), one after another; NULL: zeros.
static void find_keys(const AttendTask *t, const State *s, const void *plane, int first, int n, const uint16_t **at) {
    static const uint16_t none[HEAD_MOST];
    const uint16_t *values = plane;
    for (int k = 0; k < (int)round_up((size_t)n, 32); k++)
        at[k] = k < n && key_seen(t, s, first + k) ? values + attend_key(t, first + k) : none;
}

static void load_k(const AttendTask *t, State *s, int first, int n) {
    const uint16_t *at[KEYS];
    int hd = t->kv->head_dim, type = t->kv->type_k;
    find_keys(t, s, t->kv->k, first, n, at);
    for (int k = 0; k < (int)round_up((size_t)n, 32); k++)
        for (int i = 0; i < hd; i += STEP) {
            uint16_t(*to)[2][UNIT] = s->k[k / 32][i / STEP];
            store_parts(to[0][k / 16 % 2] + k % 16 * 32, to[1][k / 16 % 2] + k % 16 * 32, load_half(at[k], type, i, hd),
                        load_half(at[k], type, i + 16, hd));
        }
}

static void load_v(const AttendTask *t, State *s, int first, int n) {
    const uint16_t *at[KEYS];
    int hd = t->kv->head_dim, type = t->kv->type_v;
    find_keys(t, s, t->kv->v, first, n, at);
    for (int k = 0; k < n; k += 32)
        for (int i = 0; i < (int)round_up((size_t)hd, 32); i += 16) {
            __m512 pairs[16]; // (pair of keys, element)
#pragma GCC unroll 16
            for (int p = 0; p < 16; p++)
                pairs[p] = pairs_bf16(load_half(at[k + 2 * p], type, i, hd), load_half(at[k + 2 * p + 1], type, i, hd));
            transpose16(pairs);
            memcpy(s->v[i / 32][k / 32][i / 16 % 2], pairs, sizeof pairs);
        }
}

// ---- products -------------------------------------------------------------------------------------------------------

// A task's keys and values are met again by its next queries and stay in L1; queries and weights stream past it.

// Step i of the scores of a tile of queries and the k-th 32 keys.
INLINE void score(State *s, int tile, int k, int i, int steps) {
    uint16_t(*keys)[2][UNIT] = s->k[k][i], (*queries)[2][UNIT] = s->queries[tile][i];
    if (i == 0) zero_sums();
    load_left(keys[0][0]);
    load_right(queries[1][0]);
    multiply_loaded(2);
    load_right(queries[0][0]);
    multiply_loaded(2);
    load_left(keys[1][0]);
    multiply_loaded(2);
    if (i == steps - 1) store_sums(s->scores[tile % 2][k][0][0][0]);
}

// The k-th 32 keys' part of the i-th 32 elements of a tile's output.
INLINE void add_values(State *s, int tile, int i, int k, int n_blocks) {
    float *out = s->out[tile][i][0][0][0];
    if (k == 0) load_sums(out);
    multiply_units(s->v[i][k][0], false, s->weights[tile % 2][k][0], true, 2);
    if (k == n_blocks - 1) store_sums(out);
}

// What the unit does while the vector units are at a tile's softmax, a little at a time: scores of the tile after it,
// then values of the one before. Nothing that one of the two has just stored is met by the other at once.
typedef struct {
    int next, next_blocks; // tile, and the keys it sees in 32s
    int before, before_blocks;
    int steps; // of a head
    int done;
} Products;

static int products_left(const Products *p) { return (p->next_blocks + p->before_blocks) * p->steps - p->done; }

INLINE void do_products(State *s, Products *p, int n) {
    for (; n > 0 && products_left(p) > 0; n--, p->done++) {
        int i = p->done - p->next_blocks * p->steps;
        if (i < 0) score(s, p->next, p->done / p->steps, p->done % p->steps, p->steps);
        else add_values(s, p->before, i / p->before_blocks, i % p->before_blocks, p->before_blocks);
    }
}

// ---- softmax --------------------------------------------------------------------------------------------------------

INLINE float *score_row(State *s, int tile, int key, int half) {
    return s->scores[tile % 2][key / 32][key / 16 % 2][half][key % 16];
}

// Masks the scores of 16 queries; keys from n on, up to a multiple of 32, are masked too.
static void mask_scores(const AttendTask *t, State *s, int tile, int half, int first, int n) {
    int window = t->heads->window ? t->heads->window : INT_MAX;
    vi slot;
    memcpy(&slot, s->slot + tile * QUERIES + half * 16, sizeof slot);
    vi oldest = slot - window; // the newest slot that is too old
    for (int k = 0; k < (int)round_up((size_t)n, 32); k++) {
        vi key = (vi){0} + (first + k);
        float *row = score_row(s, tile, k, half);
        vstore(row, k < n ? vselect((key <= slot) & (key > oldest), vload(row), vset(masked)) : vset(masked));
    }
}

// Weights of 16 keys and queries from their scores, in pairs of keys. Adds them to totals.
INLINE void weigh(const float *scores, vf floor, uint16_t *weights, vf totals[2]) {
#pragma GCC unroll 2
    for (int i = 0; i < 16; i += 2) {
        vf a = exp2_of(vload(scores + 16 * i) - floor), b = exp2_of(vload(scores + 16 * i + 16) - floor);
        totals[0] += a;
        totals[1] += b;
        __m512 pairs = pairs_bf16((__m512)a, (__m512)b);
        memcpy(weights + 16 * i, &pairs, sizeof pairs);
    }
}

// Takes the new maxima, turns scores into weights, and rescales the output where a maximum grew; products go beside.
static void softmax(const AttendTask *t, State *s, int tile, int first, int n, Products *beside) {
    int steps = (t->heads->head_dim + STEP - 1) / STEP, keys = (int)round_up((size_t)n, 32);
    int each = (products_left(beside) * 8 + keys - 1) / keys; // products a 16 keys of one half
    for (int half = 0; half < 2; half++) {
        int lane = tile * QUERIES + half * 16;
        bool all = keys == n && !t->heads->window && first + n - 1 <= s->slot[lane]; // slots ascend
        if (!all) mask_scores(t, s, tile, half, first, n);
        vf before = vload(s->max + lane), tops[2] = {before, before}, totals[2] = {{0}, {0}};
        for (int k = 0; k < keys; k += 16) {
            const float *scores = score_row(s, tile, k, half);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++) tops[i % 2] = vmax(tops[i % 2], vload(scores + 16 * i));
        }
        vf top = vmax(tops[0], tops[1]), floor = vmax(top, vset(masked / 2)); // a lane that sees nothing yet: all 0
        for (int k = 0; k < keys; k += 16) {
            do_products(s, beside, each);
            weigh(score_row(s, tile, k, half), floor, s->weights[tile % 2][k / 32][half] + k % 32 * 16, totals);
        }
        vf scale = exp2_of(before - top);
        vstore(s->max + lane, top);
        vstore(s->sum + lane, vload(s->sum + lane) * scale + totals[0] + totals[1]);
        if (_mm512_cmpneq_ps_mask((__m512)before, (__m512)top) == 0) continue;
        for (int i = 0; i < steps * 32; i++) {
            float *out = s->out[tile][i / 32][i / 16 % 2][half][i % 16];
            vstore(out, vload(out) * scale);
        }
    }
    do_products(s, beside, products_left(beside));
}

// ---- the task -------------------------------------------------------------------------------------------------------

static void write_out(const AttendTask *t, const State *s) {
    int hd = t->heads->head_dim;
    for (int lane = 0; lane < t->last - t->first; lane += 16)
        for (int i = 0; i < hd; i += 16) {
            __m512 rows[16];
            memcpy(rows, s->out[lane / QUERIES][i / 32][i / 16 % 2][lane / 16 % 2], sizeof rows);
            transpose16(rows); // (query, element)
            __mmask16 there = (__mmask16)(hd - i >= 16 ? 0xffff : (1 << (hd - i)) - 1);
            for (int q = 0; q < 16 && t->first + lane + q < t->last; q++)
                _mm512_mask_storeu_ps(t->out + attend_query(t, t->first + lane + q) + i, there,
                                      _mm512_div_ps(rows[q], _mm512_set1_ps(s->sum[lane + q])));
        }
}

// All tiles of queries with the n keys that are loaded.
static void attend_keys(const AttendTask *t, State *s, int first, int n) {
    int tiles = (t->last - t->first + QUERIES - 1) / QUERIES, seen[TILES + 1] = {0}, tile = 0;
    for (int i = 0; i < tiles; i++) seen[i] = int_max(0, int_min(n, s->slot[i * QUERIES + QUERIES - 1] + 1 - first));
    while (seen[tile] == 0) tile++; // slots ascend: the last tile sees them
    Products p = {.steps = (t->heads->head_dim + STEP - 1) / STEP};
    p.next = tile, p.next_blocks = (seen[tile] + 31) / 32;
    do_products(s, &p, products_left(&p));
    for (; tile < tiles; tile++) {
        p.next = tile + 1, p.next_blocks = (seen[tile + 1] + 31) / 32, p.done = 0;
        softmax(t, s, tile, first, seen[tile], &p);
        p.before = tile, p.before_blocks = (seen[tile] + 31) / 32;
    }
    p.next_blocks = p.done = 0;
    do_products(s, &p, products_left(&p));
}

static void attend_tiles(const AttendTask *t) {
    State *s = t->scratch;
    int group = t->heads->n_heads / t->heads->n_kv_heads, last = t->slot[(t->last - 1) / group];
    tiles_configure(2 * STEP);
    load_queries(t, s);
    for (int first = attend_first(t, s->slot[0]); first <= last; first += KEYS) {
        int keys = int_min(KEYS, last + 1 - first);
        load_k(t, s, first, keys);
        load_v(t, s, first, keys);
        attend_keys(t, s, first, keys);
    }
    _tile_release();
    write_out(t, s);
}

static bool in_16_bits(int type) { return type == TYPE_F16 || type == TYPE_BF16; }

static void attend(const AttendTask *t) {
    bool halves = in_16_bits(t->kv->type_k) && in_16_bits(t->kv->type_v);
    if (halves && t->last - t->first >= QUERIES && !t->lse) {
        attend_tiles(t);
        return;
    }
    int slot = t->slot[(t->last - 1) / (t->heads->n_heads / t->heads->n_kv_heads)];
    bool deep = attend_last(t, slot) - attend_first(t, slot) >= KEYS;
    if (halves && deep && t->heads->n_heads >= FEWEST_HEADS * t->heads->n_kv_heads) {
        assert(cpu_amx_row.scratch <= sizeof(State));
        cpu_amx_row.run(t);
        return;
    }
    AttendTask part = *t;
    for (; part.first < t->last; part.first = part.last) {
        part.last = int_min(part.first + cpu_avx512.attend.pairs, t->last);
        cpu_avx512.attend.run(&part);
    }
}

const AttendKernel cpu_amx_attend = {.run = attend, .scratch = sizeof(State), .pairs = TASK, .in_parts = true};
