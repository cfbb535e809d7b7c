// cpu/amx_attend.c: attention of many queries on the AMX unit, over a cache in 16 bits.
//
// The unit multiplies bf16. Queries and keys are split into two bf16 parts each (the products are high by high, and
// each high part by the other low part), since a rounding error of a score would be exponentiated. Softmax weights and
// values are only rounded to bf16. Scores, maxima, sums and outputs are f32.
//
//   scores (key, query) = K (key, i) queries (i, query);   out (i, query) += V^T (i, key) weights (key, query)
//
// In both products lanes are queries, so that maxima, masks and rescaling are plain vector operations, and the weights
// of two keys already have the layout of the unit's right operand. A task's queries (rows, and the heads of a group)
// are packed once. The keys that they see are packed in chunks that stay in L2: K as bf16 rows, V as bf16 columns. Each
// tile of QUERIES goes through all blocks of KEYS of the chunk before the next tile does: its state, scores and weights
// stay in L1, and K and V are loaded without filling L1. While the vector units compute the softmax of one block, the
// AMX unit multiplies the values of the block before and the scores of the block after, four tile products at a time.
// Online softmax: Milakov and Gimelshein, 2018; its tiling: Dao, FlashAttention-2, 2023.
#define QUILL_SIMD 512
#include "cpu/attention.h"

#include "cpu/amx.h"

#include <assert.h>
#include <limits.h>

enum {
    QUERIES = 32,          // two unit tiles
    TASK = 1024,           // queries of a task
    KEYS = 64,             // keys of a block
    DEEP = 128,            // the least keys of a row for which cpu/amx_row.c is faster
    FEWEST_HEADS = 2,      // and the least heads of its group
    HEAD_MOST = 512,       // largest head_dim for this kernel; the vector kernels take larger ones
    ROOM = 1 << 16,        // the most elements of queries, and of keys, that are packed at once
    SLACK = 8,             // a lane's floor is raised when its maximum is so many powers of two above it
    BLOCKS = KEYS / 32,    // number of 32-key groups in a block
    TILE = 2 * UNIT,       // bf16 elements of two unit tiles, and floats of one
    SCORES = QUERIES * 32, // scores of a tile of queries with 32 keys
};

static const float masked = -1e30f;

typedef struct {
    uint16_t queries[2 * ROOM];        // (QUERIES, step, part, 16 queries): pairs of elements, scaled
    uint16_t k[2 * ROOM];              // (32 keys, step, part, 16 keys): rows
    uint16_t v[ROOM];                  // (32 keys, step, 16 elements): rows of 32 keys
    float out[ROOM];                   // (QUERIES, step, 16 elements, 16 queries, element, query)
    float scores[2][BLOCKS][SCORES];   // (two blocks alternately, 32 keys, 16 of them, 16 queries, key, query)
    uint16_t weights[2][BLOCKS][TILE]; // (two blocks alternately, 32 keys, 16 queries): pairs of keys
    float floor[TASK], sum[TASK];      // a weight is 2^(score - floor)
    int slot[TASK], oldest[TASK];      // the newest and the oldest slot that a lane sees
    int steps;                         // number of 32-element steps of a head
} AttendTiles;

// ---- loading --------------------------------------------------------------------------------------------------------

// Splits 32 floats into bf16 and the bf16 of the remainder.
INLINE void store_parts(uint16_t *high, uint16_t *low, __m512 a, __m512 b) {
    store_bf16(high, a, b);
    __m512i bits;
    memcpy(&bits, high, sizeof bits);
    __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits));
    __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1));
    store_bf16(low, _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(first, 16))),
               _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_slli_epi32(second, 16))));
}

INLINE uint16_t *queries_at(AttendTiles *s, int tile, int step, int part) {
    return s->queries + ((size_t)(tile * s->steps + step) * 2 + (size_t)part) * TILE;
}
INLINE float *out_at(AttendTiles *s, int tile, int step) { return s->out + (size_t)(tile * s->steps + step) * TILE; }
INLINE uint16_t *k_at(AttendTiles *s, int block, int step, int part) {
    return s->k + ((size_t)(block * s->steps + step) * 2 + (size_t)part) * TILE;
}
INLINE uint16_t *v_at(AttendTiles *s, int block, int step) { return s->v + (size_t)(block * s->steps + step) * TILE; }

// Loads lanes [lane, lane + 16) of step `step`. Lanes past the task's last query are zero and are not used.
static void load_lanes(const AttendTask *t, AttendTiles *s, int lane, int step) {
    int hd = t->heads->head_dim, n = t->last - t->first;
    __m512 scale = _mm512_set1_ps(t->heads->scale * LOG2_E); // the softmax uses powers of two
    __m512 parts[2][16];
    for (int i = 0; i < 16; i++) {
        const float *q = t->q + attend_query(t, int_min(t->first + lane + i, t->last - 1));
        int left = lane + i < n ? hd - step * STEP : 0;
        __m512 a = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes(left), q + step * STEP), scale);
        __m512 b = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes(left - 16), q + step * STEP + 16), scale);
        store_parts((uint16_t *)(void *)&parts[0][i], (uint16_t *)(void *)&parts[1][i], a, b);
    }
    for (int part = 0; part < 2; part++) {
        transpose16(parts[part]);
        memcpy(queries_at(s, lane / QUERIES, step, part) + lane / 16 % 2 * UNIT, parts[part], sizeof parts[part]);
    }
}

static void load_queries(const AttendTask *t, AttendTiles *s) {
    int group = t->heads->n_heads / t->heads->n_kv_heads, n = (int)round_up((size_t)(t->last - t->first), QUERIES);
    for (int lane = 0; lane < n; lane += 16)
        for (int step = 0; step < s->steps; step++) load_lanes(t, s, lane, step);
    for (int lane = 0; lane < n; lane++) {
        s->slot[lane] = t->slot[int_min(t->first + lane, t->last - 1) / group];
        s->oldest[lane] = heads_oldest(t->heads, s->slot[lane]);
        s->floor[lane] = masked;
        s->sum[lane] = 0;
    }
    memset(s->out, 0, (size_t)(n / QUERIES * s->steps) * TILE * sizeof *s->out);
}

// Whether any query of the task sees the key. Keys between the windows of distant rows are seen by no query, and their
// memory may never have been written.
static bool key_seen(const AttendTask *t, const AttendTiles *s, int key) {
    int low = 0, high = t->last - t->first; // the first lane whose slot is not before the key
    if (!t->heads->window) return true;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->slot[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low < t->last - t->first && key >= s->oldest[low];
}

// Finds the K or V of keys [first, first + n), n <= 32; keys that no query sees are zeros.
static void find_keys(const AttendTask *t, const AttendTiles *s, const void *plane, int first, int n,
                      const uint16_t **at) {
    static const uint16_t none[HEAD_MOST];
    const uint16_t *values = plane;
    for (int k = 0; k < 32; k++)
        at[k] = k < n && key_seen(t, s, first + k) ? values + attend_at(t, false, first + k) : none;
}

// Loads keys [first, first + n), n <= 32, as block number `block` of the chunk.
static void load_k(const AttendTask *t, AttendTiles *s, int block, int first, int n) {
    const uint16_t *at[32];
    int hd = t->kv->head_dim, type = t->kv->type_k;
    find_keys(t, s, t->kv->k, first, n, at);
    for (int k = 0; k < 32; k++)
        for (int i = 0; i < hd; i += STEP) {
            size_t to = (size_t)k * STEP; // two unit tiles are 32 rows of 32
            store_parts(k_at(s, block, i / STEP, 0) + to, k_at(s, block, i / STEP, 1) + to,
                        load_half(at[k], type, i, hd), load_half(at[k], type, i + 16, hd));
        }
}

static void load_v(const AttendTask *t, AttendTiles *s, int block, int first, int n) {
    const uint16_t *at[32];
    int hd = t->kv->head_dim, type = t->kv->type_v;
    find_keys(t, s, t->kv->v, first, n, at);
    for (int i = 0; i < s->steps * STEP; i += 16) {
        __m512 pairs[16]; // (pair of keys, element)
        UNROLL(16)
        for (int p = 0; p < 16; p++)
            pairs[p] =
                _mm512_castsi512_ps(pair_of(load_half(at[2 * p], type, i, hd), load_half(at[2 * p + 1], type, i, hd)));
        transpose16(pairs);
        memcpy(v_at(s, block, i / STEP) + i / 16 % 2 * UNIT, pairs, sizeof pairs);
    }
}

// ---- softmax --------------------------------------------------------------------------------------------------------

// A tile of queries and the keys that it meets at once.
typedef struct {
    int tile, block; // indices in the chunk; a block has KEYS keys
    int n;           // number of keys that the tile sees; 0: there is no further item
} Item;

INLINE int blocks_of(const Item *item) { return (item->n + 31) / 32; }

// The conversion of an item's scores to weights, 8 keys of 16 queries at a time.
typedef struct {
    Item item;
    int turn; // which of the two buffers has its scores and weights
    vf floor[2], scale[2],
        total[2];    // for 16 queries each: a weight is 2^(score - floor); scale: factor of older weights
    bool grew;       // a floor was raised: older sums must be rescaled
    int parts, left; // number of parts (8 keys and 16 queries each); number of parts to do
    int due;
} Softmax;

INLINE float *score_row(AttendTiles *s, int turn, int key, int half) {
    return s->scores[turn][key / 32] + (key / 16 % 2 * 2 + half) * 256 + key % 16 * 16;
}

// Caps the scores of an item's keys. They have been multiplied by log2(e), and so is the cap.
static void cap_scores(const AttendTask *t, AttendTiles *s, int turn, int keys) {
    if (t->heads->softcap == 0) return;
    for (int block = 0; block < keys / 32; block++)
        for (int i = 0; i < SCORES; i += 16) {
            float *scores = s->scores[turn][block] + i;
            vstore(scores, vcap(vload(scores), t->heads->softcap * LOG2_E));
        }
}

// Masks the scores of 16 queries with n keys from slot `first` on, and those that make them a multiple of 32.
static void mask_scores(AttendTiles *s, int turn, int lane, int first, int n) {
    vi slot, oldest;
    memcpy(&slot, s->slot + lane, sizeof slot);
    memcpy(&oldest, s->oldest + lane, sizeof oldest);
    for (int k = 0; k < (int)round_up((size_t)n, 32); k++) {
        vi key = (vi){0} + (first + k);
        float *row = score_row(s, turn, k, lane / 16 % 2);
        vstore(row, k < n ? vselect((key <= slot) & (key >= oldest), vload(row), vset(masked)) : vset(masked));
    }
}

// 2^x to 8e-5, a small part of what bf16 rounds.
INLINE vf exp2_rough(vf x) {
    vf f = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); // x - floor(x)
    vf p = f * 7.8024524e-2f + 2.2606716e-1f;
    p = p * f + 6.9583354e-1f;
    return (vf)_mm512_scalef_ps((__m512)(p * f + 0.9999252f), (__m512)x); // by 2^floor(x)
}

// Computes the weights of 8 keys and 16 queries from their scores, stores them in pairs of keys and adds them to the
// total. Rounds to bf16 by integer instructions: those for bf16 would wait for the unit, which leaves one vector port.
INLINE void weigh(const float *scores, vf floor, uint16_t *weights, vf *total) {
    UNROLL(4)
    for (int i = 0; i < 8; i += 2) {
        vf a = exp2_rough(vload(scores + 16 * i) - floor), b = exp2_rough(vload(scores + 16 * i + 16) - floor);
        *total += a + b;
        __m512i pairs = round_pairs((__m512)a, (__m512)b);
        memcpy(weights + 16 * i, &pairs, sizeof pairs);
    }
}

// The largest scores of 16 queries.
INLINE vf top_scores(AttendTiles *s, int turn, int keys, int half) {
    vf tops[2] = {vset(masked), vset(masked)};
    for (int k = 0; k < keys; k += 16) {
        const float *scores = score_row(s, turn, k, half);
        UNROLL(16)
        for (int i = 0; i < 16; i++) tops[i % 2] = vmax(tops[i % 2], vload(scores + 16 * i));
    }
    return vmax(tops[0], tops[1]);
}

// Begins an item: computes its floors. Its keys begin with slot `first`.
static Softmax begin_softmax(const AttendTask *t, AttendTiles *s, Item item, int turn, int first) {
    int keys = blocks_of(&item) * 32;
    Softmax x = {.item = item, .turn = turn, .parts = keys / 4, .left = keys / 4};
    cap_scores(t, s, turn, keys);
    for (int half = 0; half < 2; half++) {
        int lane = item.tile * QUERIES + half * 16;
        // slots ascend, and so do the oldest ones
        bool all = keys == item.n && first + keys - 1 <= s->slot[lane] && first >= s->oldest[lane + 15];
        if (!all) mask_scores(s, turn, lane, first, item.n);
        vf before = vload(s->floor + lane), top = top_scores(s, turn, keys, half), floor = before;
        if (_mm512_cmp_ps_mask((__m512)top, (__m512)(before + (float)SLACK), _CMP_GT_OQ) != 0) {
            floor = vmax(before, top);
            vstore(s->floor + lane, floor);
            x.grew = true;
        }
        x.scale[half] = exp2_of(before - floor);
        x.floor[half] = vmax(floor, vset(masked / 2)); // lanes without any key so far get weights of 0
    }
    return x;
}

INLINE void weigh_part(AttendTiles *s, Softmax *x) {
    int part = x->parts - x->left--, half = part & 1, key = part / 2 * 8;
    weigh(score_row(s, x->turn, key, half), x->floor[half], s->weights[x->turn][key / 32] + half * UNIT + key % 32 * 16,
          &x->total[half]);
}

// Called after each of `products` products. Converts so many parts each time that all x->parts are spread evenly.
INLINE void weigh_due(AttendTiles *s, Softmax *x, int products) {
    for (x->due += x->parts; x->due >= products; x->due -= products) weigh_part(s, x);
}

static void end_softmax(AttendTiles *s, Softmax *x) {
    while (x->left > 0) weigh_part(s, x);
    for (int half = 0; half < 2; half++) {
        float *sum = s->sum + x->item.tile * QUERIES + half * 16;
        vstore(sum, vload(sum) * x->scale[half] + x->total[half]);
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

static void scale_out(AttendTiles *s, const Softmax *x) {
    for (int step = 0; step < s->steps; step++)
        for (int unit = 0; unit < 4; unit++) {
            float *out = out_at(s, x->item.tile, step) + unit * 256;
            for (int i = 0; i < 256; i += 16) vstore(out + i, vload(out + i) * x->scale[unit % 2]);
        }
}

// Runs the softmax x of an item interleaved with tile products, four at a time: the scores of the next item, then the
// values of the previous item by its weights. Data is not loaded right after it was stored.
static void multiply(AttendTiles *s, const Item *next, const Softmax *before, Softmax *x) {
    int n_next = blocks_of(next), n_before = blocks_of(&before->item), products = (3 * n_next + n_before) * s->steps;
    tiles_filled();
    for (int block = 0; block < n_next; block++) {
        zero_sums();
        for (int step = 0; step < s->steps; step++) {
            const uint16_t *k = k_at(s, next->block * BLOCKS + block, step, 0), *q = queries_at(s, next->tile, step, 0);
            load_left(k, true);
            load_right(q + TILE, false);
            multiply_loaded(2);
            weigh_due(s, x, products);
            load_right(q, false);
            multiply_loaded(2);
            weigh_due(s, x, products);
            load_left(k + TILE, true);
            multiply_loaded(2);
            weigh_due(s, x, products);
        }
        store_sums(s->scores[!x->turn][block]);
    }
    if (n_before > 0 && before->grew) scale_out(s, before);
    for (int step = 0; step < s->steps && n_before > 0; step++) {
        float *out = out_at(s, before->item.tile, step);
        load_sums(out, false);
        for (int block = 0; block < n_before; block++) {
            multiply_units(v_at(s, before->item.block * BLOCKS + block, step), true, s->weights[before->turn][block],
                           false, 2);
            weigh_due(s, x, products);
        }
        store_sums(out);
    }
}

// ---- the task -------------------------------------------------------------------------------------------------------

static void write_out(const AttendTask *t, AttendTiles *s) {
    int hd = t->heads->head_dim;
    for (int lane = 0; t->sinks && lane < t->last - t->first; lane++)
        s->sum[lane] += attend_sink_weight(t, t->first + lane, s->floor[lane] / LOG2_E);
    for (int lane = 0; lane < t->last - t->first; lane += 16)
        for (int i = 0; i < hd; i += 16) {
            __m512 rows[16];
            memcpy(rows, out_at(s, lane / QUERIES, i / STEP) + (i / 16 % 2 * 2 + lane / 16 % 2) * 256, sizeof rows);
            transpose16(rows); // (query, element)
            __mmask16 there = lanes(hd - i);
            for (int q = 0; q < 16 && t->first + lane + q < t->last; q++)
                _mm512_mask_storeu_ps(t->out + attend_out(t, t->first + lane + q) + i, there,
                                      _mm512_div_ps(rows[q], _mm512_set1_ps(s->sum[lane + q])));
        }
}

// The next item of a chunk of n keys from slot `first` on; after an empty item: the first one.
static Item item_after(const AttendTask *t, const AttendTiles *s, Item item, int first, int n) {
    int tiles = (t->last - t->first + QUERIES - 1) / QUERIES;
    if (item.n > 0) item.block++;
    for (; item.tile < tiles; item.tile++, item.block = 0) {
        const int *slots = s->slot + item.tile * QUERIES;
        int seen = int_min(n, slots[QUERIES - 1] + 1 - first), unseen = attend_first(t, slots[0]) - first;
        item.block = int_max(item.block, unseen / KEYS);
        item.n = int_min(KEYS, seen - item.block * KEYS);
        if (item.n > 0) return item;
    }
    item.n = 0;
    return item;
}

// Attends from all tiles of queries to the n loaded keys from slot `first` on.
static void attend_chunk(const AttendTask *t, AttendTiles *s, int first, int n) {
    Item item = item_after(t, s, (Item){0}, first, n);
    Softmax before = {.item = {0}}, x = {.turn = 1};
    for (multiply(s, &item, &before, &x); item.n > 0; before = x) {
        Item next = item_after(t, s, item, first, n);
        x = begin_softmax(t, s, item, !x.turn, first + item.block * KEYS);
        multiply(s, &next, &before, &x);
        end_softmax(s, &x);
        item = next;
    }
    multiply(s, &item, &before, &(Softmax){.turn = 0});
}

static void attend_tiles(const AttendTask *t) {
    AttendTiles *s = t->scratch;
    int group = t->heads->n_heads / t->heads->n_kv_heads, last = t->slot[(t->last - 1) / group];
    int chunk = ROOM / (s->steps * STEP) / KEYS * KEYS;
    load_queries(t, s);
    for (int first = attend_first(t, s->slot[0]); first <= last; first += chunk) {
        int n = int_min(chunk, last + 1 - first);
        for (int k = 0; k < n; k += 32) {
            load_k(t, s, k / 32, first + k, int_min(32, n - k));
            load_v(t, s, k / 32, first + k, int_min(32, n - k));
        }
        attend_chunk(t, s, first, n);
    }
    write_out(t, s);
}

// Whether the unit takes heads of this kind: K and V alike, each with a plane.
static bool in_tiles(const AttendTask *t) {
    return t->heads->head_dim <= HEAD_MOST && heads_v_dim(t->heads) == t->heads->head_dim && !t->kv->v_in_k;
}

static bool in_16_bits(int type) { return type == TYPE_F16 || type == TYPE_BF16; }

// Whether cpu/amx_row.c is faster for this row.
static bool row_is_deep(const AttendTask *t) {
    int slot = t->slot[(t->last - 1) / (t->heads->n_heads / t->heads->n_kv_heads)];
    return attend_last(t, slot) - attend_first(t, slot) >= DEEP &&
           t->heads->n_heads >= FEWEST_HEADS * t->heads->n_kv_heads;
}

static void attend(const AttendTask *t) {
    bool halves = in_tiles(t) && in_16_bits(t->kv->type_k) && in_16_bits(t->kv->type_v);
    if (halves && t->last - t->first >= QUERIES && !t->lse) {
        AttendTiles *s = t->scratch;
        s->steps = (t->heads->head_dim + STEP - 1) / STEP;
        tiles_configure(2 * STEP);
        attention_by_pairs(t, int_min(TASK, ROOM / (s->steps * STEP) / QUERIES * QUERIES), attend_tiles);
        _tile_release();
    } else if (halves && row_is_deep(t)) {
        assert(cpu_amx_row.scratch <= sizeof(AttendTiles));
        cpu_amx_row.run(t);
    } else attention_by_pairs(t, cpu_avx512.attend.pairs, cpu_avx512.attend.run);
}

const AttendKernel cpu_amx_attend = {.run = attend, .scratch = sizeof(AttendTiles), .pairs = TASK, .in_parts = true};
