// cpu/amx_row.c: attention of one row on the AMX unit, over a cache in 16 bits: decoding, where heads share their keys.
//
// A vector unit has to multiply each key by each head of its group, and is slower than memory at that. Here the heads
// are columns of one product. Every input is split into two bf16 parts, which hold an f16 exactly and 16 bits of a
// query or a softmax weight: eight heads with two parts fill the unit's columns. All sums are f32.
//
//   scores (key, head) = K (key, i) queries (i, head and part);   out (head and part, i) += weights V (key, i)
//
// A product pairs neighbouring elements of the depth, in any order that both operands share: for keys elements i and
// i + 16, which need no shuffle after their conversion; for values those of keys 2p and 2p + 1.
#define QUILL_SIMD 512
#include "cpu/cpu.h"

#include "cpu/amx.h"

#include <math.h>

enum {
    HEADS = 8,                   // heads of a pass over the keys
    KEYS = 128,                  // keys of a tile
    STREAMS = 4,                 // memory streams from which a tile takes its keys
    AHEAD = 768,                 // prefetch distance in bytes in each stream
    WIDE = 64,                   // elements of a head that are split at a time
    HEAD_MOST = 512,             // largest head_dim (cpu/amx_attend.c asks for no more)
    STEPS_MOST = HEAD_MOST / 32, // number of 32-element steps of the largest head
};

// Numbers of the unit's tiles: sums of 16 keys, a left operand of 16 keys, a right operand, the weights; tiles 4 to 7
// are 64 elements of the output.
#define SUMS 0
#define LEFT 1
#define RIGHT 2
#define WEIGHTS 3

typedef struct {
    uint16_t queries[STEPS_MOST][UNIT]; // (pair of elements, head and part), scaled
    // (two alternately, 16 keys of them, 32 elements, part): a buffer is read one turn after it was stored
    uint16_t keys[2][2][2][2][UNIT];
    uint16_t values[2][4][2][UNIT];            // (two alternately, 16 elements, part): pairs of keys
    uint16_t weights[KEYS / 32][16][32];       // (head and part, key)
    float sums[KEYS][16];                      // (key, head and part)
    float scores[KEYS / 2][16];                // (pair of keys, key and head)
    float out[HEAD_MOST / 16][16][16];         // (16 elements, head and part, element)
    const uint16_t *k[2 * KEYS], *v[2 * KEYS]; // addresses of this tile and the next, alternately
} AttendRowTiles;

static const float masked = -1e30f;

// The remainder after truncation to bf16.
INLINE __m512 rest(__m512 a) {
    const __m512i top = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), top)));
}

// ---- loading --------------------------------------------------------------------------------------------------------

// Loads heads [pair, pair + count) of the group; the others are zero.
static void load_queries(const AttendTask *t, int pair, int count, AttendRowTiles *s) {
    int hd = t->heads->head_dim;
    __m512 scale = _mm512_set1_ps(t->heads->scale * LOG2_E); // the softmax uses powers of two
    for (int i = 0; i < (int)round_up((size_t)hd, WIDE); i += STEP) {
        __m512 parts[2 * HEADS];
        memset(parts, 0, sizeof parts);
        for (int h = 0; h < count; h++) {
            const float *q = t->q + attend_query(t, pair + h) + i;
            __m512 a = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes(hd - i), q), scale);
            __m512 b = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes(hd - i - 16), q + 16), scale);
            parts[h] = _mm512_castsi512_ps(cut_pairs(_mm512_castps_si512(a), _mm512_castps_si512(b)));
            parts[HEADS + h] = _mm512_castsi512_ps(round_pairs(rest(a), rest(b)));
        }
        transpose16(parts);
        memcpy(s->queries[i / STEP], parts, sizeof parts);
    }
}

// Stores the addresses of n keys from slot `first` on in k[0], k[step], ... and those of their values in v.
static void find_keys(const AttendTask *t, int first, int n, int step, const uint16_t **k, const uint16_t **v) {
    for (int i = 0, run; i < n; i += run) {
        size_t at = attend_at(t, false, first + i); // V is at the same place
        run = int_min(n - i, t->kv->block - (first + i) % t->kv->block);
        for (int j = i; j < i + run; j++, at += (size_t)t->kv->head_dim) {
            k[j * step] = (const uint16_t *)(const void *)t->kv->k + at;
            v[j * step] = (const uint16_t *)(const void *)t->kv->v + at;
        }
    }
}

// Finds the keys of tile i of [first, end), and returns how many there are. The keys of all whole tiles are divided
// into STREAMS parts, and each tile takes keys from every part: these are separate memory streams, and the hardware's
// prefetchers follow several streams at once. The last tile has the remaining keys, and zeros.
static int find_tile(const AttendTask *t, AttendRowTiles *s, int first, int end, int i) {
    static const uint16_t none[HEAD_MOST];
    int whole = (end - first) / KEYS, each = KEYS / STREAMS, n = end - first - whole * KEYS;
    const uint16_t **k = s->k + i % 2 * KEYS, **v = s->v + i % 2 * KEYS;
    if (i < whole) {
        n = KEYS;
        for (int part = 0; part < STREAMS; part++)
            find_keys(t, first + (part * whole + i) * each, each, STREAMS, k + part, v + part);
    } else if (i == whole) find_keys(t, first + whole * KEYS, n, 1, k, v);
    else n = 0;
    for (int j = n; j < KEYS; j++) k[j] = v[j] = none;
    return n;
}

// Loads elements [i, i + 16) of a head; `whole`: none of them is past head_dim.
INLINE __m512 load(const uint16_t *head, int type, int i, int head_dim, bool whole) {
    if (!whole) return load_half(head, type, i, head_dim);
    return type == TYPE_F16 ? (__m512)vload_half(head + i) : (__m512)vload_bf16(head + i);
}

// Prefetches 64 elements.
INLINE void fetch(const uint16_t *head) {
    __builtin_prefetch(head, 0, 2);
    __builtin_prefetch(head + 32, 0, 2);
}

// Stores both parts of pairs. The remainder of a truncated f16 is exactly a bf16, and that of a bf16 is zero.
INLINE void store_parts(int type, __m512 a, __m512 b, uint16_t (*to)[UNIT], int at) {
    _mm512_store_si512(to[0] + at, cut_pairs(_mm512_castps_si512(a), _mm512_castps_si512(b)));
    if (type == TYPE_F16)
        _mm512_store_si512(to[1] + at, cut_pairs(_mm512_castps_si512(rest(a)), _mm512_castps_si512(rest(b))));
}

// Splits elements [i, i + 64) of K for the 16 keys from ring[at] on.
INLINE void split_keys(int type, const uint16_t *const *ring, int at, int ahead, int i, int hd, bool whole,
                       uint16_t (*to)[2][UNIT]) {
    for (int j = 0; j < 16; j++) {
        fetch(ring[(at + j + ahead) % (2 * KEYS)] + i);
        UNROLL(2)
        for (int step = 0; step < 2; step++)
            store_parts(type, load(ring[at + j], type, i + 32 * step, hd, whole),
                        load(ring[at + j], type, i + 32 * step + 16, hd, whole), to[step], 32 * j);
    }
}

// The same for V and 32 keys.
INLINE void split_values(int type, const uint16_t *const *ring, int at, int ahead, int i, int hd, bool whole,
                         uint16_t (*to)[2][UNIT]) {
    for (int j = 0; j < 32; j += 2) {
        fetch(ring[(at + j + ahead) % (2 * KEYS)] + i);
        fetch(ring[(at + j + 1 + ahead) % (2 * KEYS)] + i);
        UNROLL(4)
        for (int tile = 0; tile < 4; tile++)
            store_parts(type, load(ring[at + j], type, i + 16 * tile, hd, whole),
                        load(ring[at + j + 1], type, i + 16 * tile, hd, whole), to[tile], 16 * j);
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// Sums of 16 keys += products over 64 elements.
INLINE void multiply_keys(int type, const uint16_t (*queries)[UNIT], const uint16_t (*keys)[2][UNIT]) {
    tiles_filled();
    UNROLL(2)
    for (int step = 0; step < 2; step++) {
        _tile_loadd(RIGHT, queries[step], 64);
        _tile_loadd(LEFT, keys[step][0], 64);
        _tile_dpbf16ps(SUMS, LEFT, RIGHT);
        if (type == TYPE_BF16) continue;
        _tile_loadd(LEFT, keys[step][1], 64);
        _tile_dpbf16ps(SUMS, LEFT, RIGHT);
    }
}

#define EACH_OUT(DO) DO(4, 0) DO(5, 1) DO(6, 2) DO(7, 3) // the tile of each 16 elements
#define LOAD_OUT(TILE, I) _tile_loadd(TILE, out[I], 64);
#define STORE_OUT(TILE, I) _tile_stored(TILE, out[I], 64);
#define ADD_OUT(TILE, I)                                                                                               \
    _tile_loadd(RIGHT, values[I][0], 64);                                                                              \
    _tile_dpbf16ps(TILE, WEIGHTS, RIGHT);
#define ADD_REST(TILE, I)                                                                                              \
    _tile_loadd(RIGHT, values[I][1], 64);                                                                              \
    _tile_dpbf16ps(TILE, WEIGHTS, RIGHT);

// 64 elements of the output += values of 32 keys times their weights.
INLINE void multiply_values(int type, const uint16_t (*weights)[32], const uint16_t (*values)[2][UNIT]) {
    tiles_filled();
    _tile_loadd(WEIGHTS, weights, 64);
    EACH_OUT(ADD_OUT)
    if (type == TYPE_F16) {
        EACH_OUT(ADD_REST)
    }
}

// Computes the sums of a tile's n keys, a multiple of 16. Each pass of the loop splits keys that the next one
// multiplies.
INLINE void score_tile(int type, AttendRowTiles *s, int turn, int n, int hd, int ahead) {
    int wides = (hd + WIDE - 1) / WIDE, units = n / 16 * wides;
    for (int u = 0; u <= units; u++) {
        int before = u - 1, wide = before % wides, at = turn * KEYS + u / wides * 16, i = u % wides * WIDE;
        if (u < units && i + WIDE <= hd) split_keys(type, s->k, at, ahead, i, hd, true, s->keys[u % 2][0]);
        else if (u < units) split_keys(type, s->k, at, ahead, i, hd, false, s->keys[u % 2][0]);
        if (before < 0) continue;
        if (wide == 0) _tile_zero(SUMS);
        multiply_keys(type, (const uint16_t(*)[UNIT])s->queries + 2 * wide,
                      (const uint16_t(*)[2][UNIT])s->keys[before % 2][0]);
        if (wide == wides - 1) _tile_stored(SUMS, s->sums[before / wides * 16], 64);
    }
}

// The output of 64 elements from i on += the values of a tile's n keys, a multiple of 32, by their weights.
INLINE void sum_columns(int type, AttendRowTiles *s, int turn, int n, int i, int hd, int ahead) {
    float(*out)[16][16] = s->out + i / 16;
    EACH_OUT(LOAD_OUT)
    for (int u = 0; u <= n / 32; u++) {
        int at = turn * KEYS + u * 32;
        if (u < n / 32 && i + WIDE <= hd) split_values(type, s->v, at, ahead, i, hd, true, s->values[u % 2]);
        else if (u < n / 32) split_values(type, s->v, at, ahead, i, hd, false, s->values[u % 2]);
        if (u > 0)
            multiply_values(type, (const uint16_t(*)[32])s->weights[u - 1],
                            (const uint16_t(*)[2][UNIT])s->values[(u - 1) % 2]);
    }
    EACH_OUT(STORE_OUT)
}

// ---- softmax --------------------------------------------------------------------------------------------------------

// Adds the sums of both parts, for two keys.
INLINE vf score_pair(const float (*sums)[16]) {
    __m512 high = _mm512_castps256_ps512(_mm256_load_ps(sums[0]));
    __m512 low = _mm512_castps256_ps512(_mm256_load_ps(sums[0] + HEADS));
    high = _mm512_mask_broadcast_f32x8(high, 0xff00, _mm256_load_ps(sums[1]));
    return (vf)_mm512_add_ps(high, _mm512_mask_broadcast_f32x8(low, 0xff00, _mm256_load_ps(sums[1] + HEADS)));
}

// Stores one bf16 part of 32 keys' weights as the unit's left operand: (pair of keys, key and head) becomes (head,
// key).
INLINE void store_weights(const vf weights[16], bool high, uint16_t (*to)[32]) {
    __m512 pairs[8], fours[8]; // by head: the weights of pair i, and of pair i + 4
    UNROLL(8)
    for (int i = 0; i < 8; i++) {
        __m512 a = (__m512)weights[i / 4 * 8 + i % 4], b = (__m512)weights[i / 4 * 8 + i % 4 + 4];
        __m512 first = _mm512_shuffle_f32x4(a, b, 0x44), second = _mm512_shuffle_f32x4(a, b, 0xee);
        pairs[i] = _mm512_castsi512_ps(high ? cut_pairs(_mm512_castps_si512(first), _mm512_castps_si512(second))
                                            : round_pairs(first, second));
    }
    UNROLL(2)
    for (int i = 0; i < 8; i += 4) transpose_fours(pairs + i, fours + i);
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        _mm512_store_ps(to[i], _mm512_shuffle_f32x4(fours[i], fours[4 + i], 0x88));
        _mm512_store_ps(to[4 + i], _mm512_shuffle_f32x4(fours[i], fours[4 + i], 0xdd));
    }
}

// Converts the sums of n keys (padded to `padded`: keys from n on get a weight of 0) to weights. Scores are capped
// unless `cap` is 0. Earlier sums are rescaled if a maximum has grown.
static void soften(AttendRowTiles *s, int n, int padded, int hd, float cap, vf *max, vf *sum) {
    vf tops[2] = {*max, *max}, totals[2] = {{0}, {0}};
    for (int k = 0; k < padded; k += 4) UNROLL(2)
    for (int i = 0; i < 2; i++) {
        int left = n - (k + 2 * i); // of the pair's keys, those before n
        vf score = score_pair((const float(*)[16])s->sums[k + 2 * i]);
        if (cap != 0) score = vcap(score, cap);
        if (left < 2) score = (vf)_mm512_mask_blend_ps(lanes(left * HEADS), (__m512)vset(masked), (__m512)score);
        vstore(s->scores[k / 2 + i], score);
        tops[i] = vmax(tops[i], score);
    }
    vf top = vmax(tops[0], tops[1]);
    top = vmax(top, vswap(top, HEADS));
    for (int k = 0; k < padded; k += 32) {
        vf weights[16];
        UNROLL(16)
        for (int i = 0; i < 16; i++) totals[i % 2] += weights[i] = exp2_of(vload(s->scores[k / 2 + i]) - top);
        store_weights(weights, true, s->weights[k / 32]);
        UNROLL(16)
        for (int i = 0; i < 16; i++) weights[i] = (vf)rest((__m512)weights[i]);
        store_weights(weights, false, s->weights[k / 32] + HEADS);
    }
    vf change = exp2_of(*max - top);
    *sum = *sum * change + (totals[0] + totals[1]);
    if (_mm512_cmpneq_ps_mask((__m512)*max, (__m512)top) != 0)
        for (int i = 0; i < (hd + 15) / 16; i++)
            for (int h = 0; h < 16; h++) vstore(s->out[i][h], vload(s->out[i][h]) * change[h]);
    *max = top;
}

// ---- the task -------------------------------------------------------------------------------------------------------

static void write_out(const AttendTask *t, int pair, int count, const AttendRowTiles *s, vf max, vf sum) {
    int hd = t->heads->head_dim;
    sum += vswap(sum, HEADS);
    for (int h = 0; h < count; h++) {
        size_t at = attend_out(t, pair + h);
        float all = sum[h] + attend_sink_weight(t, pair + h, max[h] / LOG2_E);
        for (int i = 0; i < hd; i += 16) {
            vf both = vload(s->out[i / 16][h]) + vload(s->out[i / 16][HEADS + h]);
            _mm512_mask_storeu_ps(t->out + at + i, lanes(hd - i), (__m512)(both / all));
        }
        if (t->lse) t->lse[attend_head(t, pair + h)] = max[h] / LOG2_E + logf(sum[h]);
    }
}

// Computes up to HEADS heads of one row.
static void attend_heads(const AttendTask *t, int pair, int count) {
    AttendRowTiles *s = t->scratch;
    int hd = t->heads->head_dim, slot = t->slot[pair / (t->heads->n_heads / t->heads->n_kv_heads)];
    int first = attend_first(t, slot), end = attend_last(t, slot) + 1, n = find_tile(t, s, first, end, 0);
    int ahead = int_min(KEYS, AHEAD * STREAMS / (int)(hd * (int)sizeof(uint16_t)));
    vf max = vset(masked), sum = {0};
    load_queries(t, pair, count, s);
    memset(s->out, 0, round_up((size_t)hd, WIDE) / 16 * sizeof s->out[0]);
    for (int i = 0, next; n > 0; i++, n = next) {
        int turn = i % 2, padded = (int)round_up((size_t)n, 32);
        next = find_tile(t, s, first, end, i + 1);
        if (t->kv->type_k == TYPE_F16) score_tile(TYPE_F16, s, turn, padded, hd, ahead);
        else score_tile(TYPE_BF16, s, turn, padded, hd, ahead);
        soften(s, n, padded, hd, t->heads->softcap * LOG2_E, &max, &sum);
        for (int e = 0; e < hd; e += WIDE)
            if (t->kv->type_v == TYPE_F16) sum_columns(TYPE_F16, s, turn, padded, e, hd, ahead);
            else sum_columns(TYPE_BF16, s, turn, padded, e, hd, ahead);
    }
    write_out(t, pair, count, s, max, sum);
}

static void attend(const AttendTask *t) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    tiles_configure(2 * STEP);
    for (int pair = t->first, n; pair < t->last; pair += n) {
        n = int_min(int_min(t->last - pair, group - pair % group), HEADS);
        attend_heads(t, pair, n);
    }
    _tile_release();
}

const AttendKernel cpu_amx_row = {.run = attend, .scratch = sizeof(AttendRowTiles), .pairs = 32, .in_parts = true};
