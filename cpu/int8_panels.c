// cpu/int8_panels.c: products of many rows in integers (AVX-512 with VNNI): quantised weights, unpacked to panels of
// bytes, times activations in int8.
//
// A lane is a row of activations: sixteen rows are packed side by side, four elements in a lane, and four bytes of a
// weight row are broadcast to all lanes, so that no sum over lanes is needed. The arithmetic is that of
// cpu/int8_vnni.c: sums of 32 (or 16) products are exact integers, and scales are applied once a block, in f32, in the
// order of the blocks; a sum has the same bits whatever rows and features are computed with it. Weights are unsigned
// bytes. The sums of a block start at -offset times the sum of the activations, which subtracts the type's offset. Q2_K
// and Q3_K have scales of 16 elements that are small enough to be multiplied into the bytes.
//
// Up to eight rows would leave half of the lanes empty. So each row has two neighbouring lanes, and the lanes take the
// bytes of two features, which lie side by side: a pair. `P` is the number of features side by side, one or two. The
// sums have the same bits.
#define QUILL_SIMD 512
#include "cpu/cpu.h"

#include "cpu/cpuid.h"
#include "cpu/int8_columns.h"
#include "cpu/vector.h"

enum {
    DEPTH = 512,               // elements of a panel's row: two tiles of rows of this depth stay in L1
    SUPERBLOCKS = DEPTH / 256, // superblocks of a panel's row
};

// DEPTH elements of a weight row, or a superblock of a pair. Its bytes are the weights' integers plus block_offset.
typedef struct {
    uint8_t q[DEPTH + 64];
    float scale[DEPTH / 16], minimum[DEPTH / 16]; // for each block of 32, or of 16 if the type has such scales
} PanelRow;

typedef struct {
    PanelRow rows[PANEL_FEATURES];
    // (matrix, tile of rows, feature, row); the second matrix is up, beside gate
    float sums[2][ROW_BLOCK / LANES * TILE_SUMS];
} PanelScratch;

// ---- weights --------------------------------------------------------------------------------------------------------

// Types with scales of 16 elements that are not multiplied into the bytes.
INLINE bool scales_apart(int type) { return type == TYPE_Q6_K || book_scales_16(type); }

enum { Q3_OFFSET = 124 }; // -4 * 31: the least product of weight and scale

// The offset that is added to the bytes of a panel.
INLINE int block_offset(int type) {
    if (type == TYPE_Q3_K) return Q3_OFFSET;
    return byte_offset(type);
}

// Replaces bytes q < 8 by (q - less) * s + offset, with the scale s of their 16 elements, by table look-up.
INLINE void scale_bytes(__m512i u[4], __m256i s, int less, int offset) {
    const __m512i q = _mm512_sub_epi16(_mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7)),
                                       _mm512_set1_epi16((short)less));
    const __m512i part = _mm512_setr_epi64(0, 0, 0x0001000100010001, 0x0001000100010001, 0x0002000200020002,
                                           0x0002000200020002, 0x0003000300030003, 0x0003000300030003);
    __m512i scales = _mm512_castsi256_si512(s);
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        __m512i of = _mm512_permutexvar_epi16(_mm512_add_epi16(part, _mm512_set1_epi16((short)(4 * i))), scales);
        __m512i table = _mm512_add_epi16(_mm512_mullo_epi16(q, of), _mm512_set1_epi16((short)offset));
        u[i] = _mm512_shuffle_epi8(_mm512_packus_epi16(table, table), u[i]);
    }
}

// A superblock of a weight row as a panel has it.
typedef struct {
    __m512i u[4];
    __m512 scale, minimum; // for each block, eight or sixteen
} PanelWeights;

INLINE int scales_of(int type) { return scales_apart(type) ? 16 : 8; }
INLINE int minima_of(int type) { return type == TYPE_Q2_K ? 16 : type_has_minimum(type) ? 8 : 0; }

INLINE PanelWeights unpacked(int type, const uint8_t *from) {
    Int8Weights w;
    load_weights(type, from, &w);
    __m512 scale = w.scale, minimum = _mm512_setzero_ps();
    if (type == TYPE_Q2_K) {
        const BlockQ2_K *k = (const BlockQ2_K *)(const void *)from;
        __m128i both = _mm_loadu_si128((const __m128i *)(const void *)k->scales);
        scale_bytes(w.u, _mm256_cvtepu8_epi16(_mm_and_si128(both, _mm_set1_epi8(15))), 0, 0);
        scale = _mm512_set1_ps(half_scale(k->d));
        minimum = w.by_sum16;
    } else if (type == TYPE_Q3_K) {
        const BlockQ3_K *k = (const BlockQ3_K *)(const void *)from;
        scale_bytes(w.u, _mm256_cvtepi8_epi16(scales_k3(k)), 4, Q3_OFFSET);
        scale = _mm512_set1_ps(half_scale(k->d));
    } else if (type_has_minimum(type)) minimum = _mm512_shuffle_f32x4(scale, scale, 0xee); // the upper half
    return (PanelWeights){{w.u[0], w.u[1], w.u[2], w.u[3]}, scale, minimum};
}

// Stores the first n floats, eight or sixteen.
INLINE void store_floats(float *to, __m512 v, int n) {
    if (n == 16) _mm512_storeu_ps(to, v);
    else if (n == 8) _mm256_storeu_ps(to, _mm512_castps512_ps256(v));
}

// Unpacks a superblock of a weight row, at `from`, to superblock s of the panel's row.
INLINE void unpack_superblock(int type, const uint8_t *from, PanelRow *to, int s) {
    PanelWeights w = unpacked(type, from);
    store_floats(to->scale + s * scales_of(type), w.scale, scales_of(type));
    store_floats(to->minimum + s * minima_of(type), w.minimum, minima_of(type));
    UNROLL(4)
    for (int i = 0; i < 4; i++) _mm512_storeu_si512(to->q + SUPERBLOCK * s + 64 * i, w.u[i]);
}

// ---- pairs ----------------------------------------------------------------------------------------------------------

// Takes eight elements of a and of b in turn, from element `from` on: a[from] b[from] a[from + 1] b[from + 1] ...
INLINE __m512 alternate(__m512 a, __m512 b, int from) {
    const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, _mm512_add_epi32(at, _mm512_set1_epi32(from)), b);
}

// Unpacks superblocks of two rows side by side: every four bytes of the first are followed by those of the second.
INLINE void unpack_pair(int type, const uint8_t *const from[2], PanelRow *to) {
    PanelWeights a = unpacked(type, from[0]), b = unpacked(type, from[1]);
    for (int i = 0; i < scales_of(type); i += 8) _mm512_storeu_ps(to->scale + 2 * i, alternate(a.scale, b.scale, i));
    for (int i = 0; i < minima_of(type); i += 8)
        _mm512_storeu_ps(to->minimum + 2 * i, alternate(a.minimum, b.minimum, i));
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(to->q + 128 * i, _mm512_unpacklo_epi32(a.u[i], b.u[i]));
        _mm512_storeu_si512(to->q + 128 * i + 64, _mm512_unpackhi_epi32(a.u[i], b.u[i]));
    }
}

// Where the bytes of elements 4 k to 4 k + 3 of block b begin in a PanelRow.
INLINE int byte_of(int P, int b, int k) {
    if (P == 1) return 32 * b + 4 * k;
    return b / 2 * 128 + b % 2 * 32 + k / 4 * 16 + k % 4 / 2 * 64 + k % 2 * 8;
}

// Four bytes, or a float, of each of P features, repeated in all lanes.
INLINE __m512i bytes_in_lanes(int P, const uint8_t *q) {
    int32_t one;
    int64_t two;
    if (P == 1) return _mm512_set1_epi32(*(int32_t *)memcpy(&one, q, sizeof one));
    return _mm512_set1_epi64(*(int64_t *)memcpy(&two, q, sizeof two));
}
INLINE __m512 floats_in_lanes(int P, const float *p) {
    double two;
    if (P == 1) return _mm512_set1_ps(*p);
    return _mm512_castpd_ps(_mm512_set1_pd(*(double *)memcpy(&two, p, sizeof two)));
}

// ---- panels ---------------------------------------------------------------------------------------------------------

// Unpacks superblocks [s0, s0 + n) of n_features rows from `first` on.
INLINE void unpack_panel(int type, const Tensor *w, int first, int n_features, int s0, int n, PanelRow *to) {
    size_t size = superblock_bytes(type);
    for (int f = 0; f < n_features; f++, to++) {
        const uint8_t *row = (const uint8_t *)w->data + (size_t)(first + f) * w->row_bytes + (size_t)s0 * size;
        size_t left = w->row_bytes - (size_t)s0 * size;
        for (int s = 0; s < n; s++, row += size, left -= size) {
            SuperblockRoom room;
            unpack_superblock(type, superblock_whole(type, row, left, room), to, s);
        }
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

// Operations on the lanes of a whole tile, or of one with at most eight rows (`half`): on the lower halves of
// registers, which take half the time if the CPU's units are half as wide.
INLINE __m512i lower(__m256i v) { return _mm512_castsi256_si512(v); }
INLINE __m512 lower_ps(__m256 v) { return _mm512_castps256_ps512(v); }
INLINE __m256i low(__m512i v) { return _mm512_castsi512_si256(v); }
INLINE __m256 low_ps(__m512 v) { return _mm512_castps512_ps256(v); }
INLINE __m512i dot_bytes(bool half, __m512i dot, __m512i u, __m512i four) {
    return half ? lower(_mm256_dpbusd_epi32(low(dot), low(u), low(four))) : _mm512_dpbusd_epi32(dot, u, four);
}
INLINE __m512 scaled(bool half, __m512i dot, __m512 scale) {
    return half ? lower_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(low(dot)), low_ps(scale)))
                : _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale);
}
INLINE __m512 fma_lanes(bool half, __m512 a, __m512 b, __m512 c) {
    return half ? lower_ps(_mm256_fmadd_ps(low_ps(a), low_ps(b), low_ps(c))) : _mm512_fmadd_ps(a, b, c);
}
INLINE __m512 fnma_lanes(bool half, __m512 a, __m512 b, __m512 c) {
    return half ? lower_ps(_mm256_fnmadd_ps(low_ps(a), low_ps(b), low_ps(c))) : _mm512_fnmadd_ps(a, b, c);
}

// Where the sums of 16 elements start: the sum of the activations times -block_offset.
INLINE __m512i start_of(int type, __m512i less) {
    switch (block_offset(type)) {
    case 0: return _mm512_setzero_si512();
    case 1: return less;
    case 4: return _mm512_slli_epi32(less, 2);
    case 8: return _mm512_slli_epi32(less, 3);
    case 16: return _mm512_slli_epi32(less, 4);
    case 32: return _mm512_slli_epi32(less, 5);
    case 64: return _mm512_slli_epi32(less, 6);
    case 128: return _mm512_slli_epi32(less, 7);
    default: return _mm512_sub_epi32(_mm512_slli_epi32(less, 7), _mm512_slli_epi32(less, 2)); // 124
    }
}

// Adds the contribution of block b's minimum: the activations' sums times the minimum.
INLINE void add_minimum(int type, int F, int V, int P, bool half, const PanelRow *w, int s, int b,
                        const ActivationColumns *x, size_t apart, __m512 sum[12]) {
    const int parts = type == TYPE_Q2_K ? 2 : 1;
    UNROLL(2)
    for (int i = 0; i < parts; i++) UNROLL(4)
    for (int v = 0; v < V; v++) {
        const ActivationColumns *a = &x[(size_t)v * apart];
        const bool h = half && v == V - 1;
        __m512 of = _mm512_loadu_ps(parts == 2 ? a->sum16[2 * b + i] : a->sum[b]);
        UNROLL(12)
        for (int f = 0; f < F; f++) {
            const float *from = &w[f].minimum[((8 * s + b) * parts + i) * P];
            __m512 minimum = floats_in_lanes(P, from), *to = &sum[f * V + v];
            *to = sum_factor(type) < 0 ? fnma_lanes(h, of, minimum, *to) : fma_lanes(h, of, minimum, *to);
        }
    }
}

// Weights to unpack while others are multiplied: superblock s of n_features rows from `first` on, into F panel rows.
typedef struct {
    const Tensor *w;
    int first, n_features, s; // s counts the superblocks of the tensor's row
    PanelRow *to;             // written to the first superblock of these rows
    PanelAhead fetch;         // weights to prefetch, which are unpacked later
} UnpackAhead;

// Work during the products of a superblock, an eighth of it with each block: prefetching or unpacking weights.
typedef struct {
    PanelAhead fetch;
    const UnpackAhead *unpack; // NULL: none
} PanelBeside;

// Missing features repeat the last one.
INLINE void unpack_ahead(int type, int F, int P, const UnpackAhead *u, int b) {
    size_t size = superblock_bytes(type), left = u->w->row_bytes - (size_t)u->s * size;
    const uint8_t *begin = (const uint8_t *)u->w->data + (size_t)u->s * size;
    for (int f = b * F / 8; f < (b + 1) * F / 8 && u->n_features > 0; f++) {
        SuperblockRoom room[2];
        const uint8_t *from[2];
        UNROLL(2)
        for (int p = 0; p < P; p++) {
            size_t feature = (size_t)(u->first + int_min(f * P + p, u->n_features - 1));
            from[p] = superblock_whole(type, begin + feature * u->w->row_bytes, left, room[p]);
        }
        if (P == 1) unpack_superblock(type, from[0], &u->to[f], 0);
        else unpack_pair(type, from, &u->to[f]);
        for (size_t at = 0; u->fetch.at && at < size; at += 64) UNROLL(2)
        for (int p = 0; p < P; p++) __builtin_prefetch(u->fetch.at + (size_t)(f * P + p) * u->fetch.stride + at, 0, 2);
    }
}

INLINE void do_beside(int type, int F, int P, const PanelBeside *beside, int b) {
    if (beside->unpack) unpack_ahead(type, F, P, beside->unpack, b);
    else if (beside->fetch.at) panel_fetch(&beside->fetch, F, superblock_bytes(type), b);
}

// sums (tile, feature, lane) += superblock s of F rows of a panel, each with P features, times that of V tiles of
// activations, which are `apart` superblocks apart; `half`: the last tile has at most eight rows. F, V, P and half are
// constants in every copy, F V <= 12.
INLINE void multiply_superblock(int type, int F, int V, int P, bool half, const PanelRow *w, int s,
                                const ActivationColumns *x, size_t apart, const PanelBeside *beside, __m512 sum[12]) {
    const int parts = scales_apart(type) ? 2 : 1, steps = 8 / parts;
    for (int b = 0; b < 8; b++) {
        do_beside(type, F, P, beside, b);
        UNROLL(2)
        for (int part = 0; part < parts; part++) {
            const int at = (8 * s + b) * parts + part; // number of the scale in the row
            __m512i dot[12], start[4];
            UNROLL(4)
            for (int v = 0; v < V; v++) {
                __m512i less = _mm512_loadu_si512(x[(size_t)v * apart].less16[2 * b + part]);
                if (parts == 1)
                    less = _mm512_add_epi32(less, _mm512_loadu_si512(x[(size_t)v * apart].less16[2 * b + 1]));
                start[v] = start_of(type, less);
            }
            UNROLL(12)
            for (int i = 0; i < F * V; i++) dot[i] = start[i % V];
            UNROLL(8)
            for (int k = 0; k < steps; k++) {
                __m512i four[4];
                UNROLL(4)
                for (int v = 0; v < V; v++) four[v] = _mm512_loadu_si512(x[(size_t)v * apart].q[b][part * steps + k]);
                UNROLL(12)
                for (int f = 0; f < F; f++) {
                    const uint8_t *q = w[f].q + SUPERBLOCK * s + byte_of(P, b, part * steps + k);
                    __m512i weights = bytes_in_lanes(P, q);
                    UNROLL(4)
                    for (int v = 0; v < V; v++)
                        dot[f * V + v] = dot_bytes(half && v == V - 1, dot[f * V + v], weights, four[v]);
                }
            }
            UNROLL(4)
            for (int v = 0; v < V; v++) {
                const bool h = half && v == V - 1;
                __m512 scale = _mm512_loadu_ps(x[(size_t)v * apart].scale[b]);
                UNROLL(12)
                for (int f = 0; f < F; f++) {
                    __m512 *to = &sum[f * V + v], product = scaled(h, dot[f * V + v], scale);
                    *to = fma_lanes(h, product, floats_in_lanes(P, &w[f].scale[at * P]), *to);
                }
            }
        }
        if (type_has_minimum(type)) add_minimum(type, F, V, P, half, w, s, b, x, apart, sum);
    }
}

// A product of a panel, n superblocks deep, with V tiles of activations.
typedef struct {
    const PanelRow *w;
    int n_features, n;
    const ActivationColumns *x;
    size_t apart; // superblocks from one tile to the next
    float *sums;  // sums of the first tile: (feature, row)
    size_t sums_apart;
    PanelAhead ahead;
} PanelProduct;

INLINE void multiply_panel(int type, int F, int V, bool half, const PanelProduct *p) {
    for (int f = 0; f < p->n_features; f += F) {
        __m512 sum[12];
        UNROLL(12)
        for (int i = 0; i < F * V; i++)
            sum[i] = _mm512_loadu_ps(p->sums + (size_t)(i % V) * p->sums_apart + (f + i / V) * LANES);
        for (int s = 0; s < p->n; s++) {
            PanelBeside beside = {p->ahead, NULL};
            if (beside.fetch.at) beside.fetch.at += (size_t)f * p->ahead.stride + (size_t)s * superblock_bytes(type);
            multiply_superblock(type, F, V, 1, half, p->w + f, s, p->x + s, p->apart, &beside, sum);
        }
        UNROLL(12)
        for (int i = 0; i < F * V; i++)
            _mm512_storeu_ps(p->sums + (size_t)(i % V) * p->sums_apart + (f + i / V) * LANES, sum[i]);
    }
}

enum { FEW = 12 }; // features that multiply_bytes computes together

// Loads the lanes of a tile. If `half`, each row has two lanes; loads the first of both.
INLINE __m512i load_lanes(bool half, const void *p) {
    __m512i v = _mm512_loadu_si512(p);
    return half ? lower(_mm512_cvtepi64_epi32(v)) : v;
}
INLINE __m512i unsigned_bytes(bool half, int32_t q) { // q plus 128, in all lanes
    return half ? lower(_mm256_xor_epi32(_mm256_set1_epi32(q), _mm256_set1_epi8((char)128)))
                : _mm512_xor_si512(_mm512_set1_epi32(q), _mm512_set1_epi8((char)128));
}
INLINE __m512 half_in_lanes(bool half, half_bits d) {
    return half ? lower_ps(_mm256_cvtph_ps(_mm_set1_epi16((int16_t)d)))
                : _mm512_cvtph_ps(_mm256_set1_epi16((int16_t)d));
}

// sums = FEW features of Q8_0 from `first` on times one tile, in pairs if the tile has rows twice (half). Bytes need no
// unpacking: four of a row are broadcast from the file, and the same instruction makes them unsigned.
INLINE void multiply_bytes(bool half, const PanelTask *t, int first, float *sums) {
    enum { FAR = 2048, BLOCK = sizeof(BlockQ8_0) };
    const size_t stride = t->w->row_bytes;
    const int n = t->w->n_in / 32;
    const uint8_t *row[FEW / 3]; // every third row: few registers address all of them
    __m512 sum[FEW];
    UNROLL(4)
    for (int i = 0; i < FEW / 3; i++) row[i] = (const uint8_t *)t->w->data + (size_t)(first + 3 * i) * stride;
    UNROLL(12)
    for (int f = 0; f < FEW; f++) sum[f] = _mm512_setzero_ps();
    for (int b = 0; b < n; b++) {
        const ActivationColumns *x = (const ActivationColumns *)t->x + b / 8;
        if (b % 2 == 0) { // at the end of these rows: the first bytes of the next FEW
            size_t far = FAR + ((size_t)b * BLOCK + FAR < stride ? 0 : (FEW - 1) * stride);
            UNROLL(12)
            for (int f = 0; f < FEW; f++) __builtin_prefetch(row[f / 3] + (size_t)(f % 3) * stride + far, 0, 2);
        }
        __m512i dot[FEW], less = _mm512_add_epi32(load_lanes(half, x->less16[2 * (b % 8)]),
                                                  load_lanes(half, x->less16[2 * (b % 8) + 1]));
        UNROLL(12)
        for (int f = 0; f < FEW; f++) dot[f] = start_of(TYPE_Q8_0, less);
        UNROLL(8)
        for (int k = 0; k < 8; k++) {
            __m512i four = load_lanes(half, x->q[b % 8][k]);
            UNROLL(12)
            for (int f = 0; f < FEW; f++) {
                int32_t q;
                memcpy(&q, row[f / 3] + (size_t)(f % 3) * stride + offsetof(BlockQ8_0, qs) + 4 * k, sizeof q);
                dot[f] = dot_bytes(half, dot[f], unsigned_bytes(half, q), four);
            }
        }
        __m512 scale = _mm512_castsi512_ps(load_lanes(half, x->scale[b % 8]));
        UNROLL(12)
        for (int f = 0; f < FEW; f++) {
            half_bits d;
            memcpy(&d, row[f / 3] + (size_t)(f % 3) * stride + offsetof(BlockQ8_0, d), sizeof d);
            sum[f] = fma_lanes(half, scaled(half, dot[f], scale), half_in_lanes(half, d), sum[f]);
        }
        UNROLL(4)
        for (int i = 0; i < FEW / 3; i++) row[i] += BLOCK;
    }
    UNROLL(12)
    for (int f = 0; f < FEW; f++)
        if (!half) _mm512_storeu_ps(sums + f * LANES, sum[f]);
        else if (f % 2) _mm512_storeu_ps(sums + f / 2 * LANES, alternate(sum[f - 1], sum[f], 0));
}

// Multiplies features [first, first + n_features) by one or two tiles without a panel: F P features at a time, from the
// first superblock to the last. Each superblock is unpacked while the one before is multiplied.
INLINE void multiply_few(int type, int F, int V, int P, bool half, const PanelTask *t, int first, int n_features,
                         float *sums) {
    if (type == TYPE_Q8_0 && V == 1)
        for (; n_features >= FEW; first += FEW, n_features -= FEW, sums += FEW / P * LANES)
            multiply_bytes(P == 2, t, first, sums);
    if (n_features == 0) return;
    enum { FAR = 2048 }; // prefetch distance in bytes from the unpacked weights
    PanelRow rows[2][12];
    __m512 sum[12];
    const int n = (int)superblocks_of(t->w->n_in), far = int_min(n, FAR / (int)superblock_bytes(type) + 1);
    const ActivationColumns *x = t->x;
    UnpackAhead next = {.w = t->w, .first = first, .n_features = n_features, .to = rows[0]};
    for (int b = 0; b < 8; b++) unpack_ahead(type, F, P, &next, b);
    for (int f = 0, i = 0; f < n_features; f += F * P) {
        UNROLL(12)
        for (int k = 0; k < F * V; k++) sum[k] = _mm512_setzero_ps();
        for (int s = 0; s < n; s++, i++) {
            bool ends = s + 1 == n;
            next = (UnpackAhead){.w = t->w,
                                 .first = first + (ends ? f + F * P : f),
                                 .n_features = n_features - (ends ? f + F * P : f),
                                 .s = ends ? 0 : s + 1,
                                 .to = rows[(i + 1) % 2]};
            int then = next.s + far, row = next.first + (then < n ? 0 : F * P);
            next.fetch = (PanelAhead){(const uint8_t *)t->w->data + (size_t)row * t->w->row_bytes +
                                          (size_t)(then < n ? then : then - n) * superblock_bytes(type),
                                      t->w->row_bytes};
            const PanelBeside beside = {.unpack = &next};
            multiply_superblock(type, F, V, P, half, rows[i % 2], 0, x + s, (size_t)n, &beside, sum);
        }
        UNROLL(12)
        for (int k = 0; k < F * V; k++) _mm512_storeu_ps(sums + k % V * TILE_SUMS + (f / P + k / V) * LANES, sum[k]);
    }
}

// The functions for one type.
typedef struct {
    void (*unpack)(const Tensor *w, int first, int n_features, int s0, int n, PanelRow *to);
    void (*one[2])(const PanelProduct *p); // one tile of rows; [1]: it has at most eight rows
    void (*two[2])(const PanelProduct *p); // two tiles; [1]: the second has at most eight rows
    void (*few_one)(const PanelTask *t, int first, int n_features, float *sums);
    void (*few_two[2])(const PanelTask *t, int first, int n_features, float *sums); // as `two`
    void (*eight)(const PanelTask *t, int first, int n_features, float *sums);      // rows
} PanelFunctions;

#define DEFINE_FUNCTIONS(TYPE)                                                                                         \
    static __attribute__((noinline)) void unpack_##TYPE(const Tensor *w, int first, int n_features, int s0, int n,     \
                                                        PanelRow *to) {                                                \
        unpack_panel(TYPE, w, first, n_features, s0, n, to);                                                           \
    }                                                                                                                  \
    static __attribute__((noinline)) void one_##TYPE(const PanelProduct *p) { multiply_panel(TYPE, 12, 1, false, p); } \
    static __attribute__((noinline)) void two_##TYPE(const PanelProduct *p) { multiply_panel(TYPE, 6, 2, false, p); }  \
    static __attribute__((noinline)) void one_half_##TYPE(const PanelProduct *p) {                                     \
        multiply_panel(TYPE, 12, 1, true, p);                                                                          \
    }                                                                                                                  \
    static __attribute__((noinline)) void two_half_##TYPE(const PanelProduct *p) {                                     \
        multiply_panel(TYPE, 6, 2, true, p);                                                                           \
    }                                                                                                                  \
    static __attribute__((noinline)) void few_one_##TYPE(const PanelTask *t, int first, int n_features, float *sums) { \
        multiply_few(TYPE, 12, 1, 1, false, t, first, n_features, sums);                                               \
    }                                                                                                                  \
    static __attribute__((noinline)) void few_two_##TYPE(const PanelTask *t, int first, int n_features, float *sums) { \
        multiply_few(TYPE, 6, 2, 1, false, t, first, n_features, sums);                                                \
    }                                                                                                                  \
    static                                                                                                             \
        __attribute__((noinline)) void few_half_##TYPE(const PanelTask *t, int first, int n_features, float *sums) {   \
        multiply_few(TYPE, 6, 2, 1, true, t, first, n_features, sums);                                                 \
    }                                                                                                                  \
    static __attribute__((noinline)) void eight_##TYPE(const PanelTask *t, int first, int n_features, float *sums) {   \
        multiply_few(TYPE, 6, 1, 2, false, t, first, n_features, sums);                                                \
    }
EACH_QUANTISED(DEFINE_FUNCTIONS)

#define FUNCTIONS_CASE(TYPE)                                                                                           \
    case TYPE: {                                                                                                       \
        static const PanelFunctions functions = {                                                                      \
            unpack_##TYPE,  {one_##TYPE, one_half_##TYPE},     {two_##TYPE, two_half_##TYPE},                          \
            few_one_##TYPE, {few_two_##TYPE, few_half_##TYPE}, eight_##TYPE};                                          \
        return &functions;                                                                                             \
    }
static const PanelFunctions *functions_of(int type) {
    switch (type) { EACH_QUANTISED(FUNCTIONS_CASE) }
    return NULL;
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// Whether the last tile of these rows has at most eight.
static bool ends_in_half(int n_rows) { return (n_rows - 1) % LANES < LANES / 2; }

// Fills the panel with superblocks [s, s + n) of a task's features, and adds their products to the sums of all rows.
// `ahead`: the weights of the next panel.
static void add_panel(const PanelTask *t, int first, int n_features, int s, int n, PanelAhead ahead,
                      PanelScratch *scratch, float *sums) {
    const PanelFunctions *functions = functions_of(t->w->type);
    int n_tiles = (t->n_rows + LANES - 1) / LANES;
    size_t n_superblocks = superblocks_of(t->w->n_in);
    functions->unpack(t->w, first, n_features, s, n, scratch->rows);
    for (int tile = 0; tile < n_tiles; tile += 2) {
        PanelProduct p = {.w = scratch->rows,
                          .n_features = (int)round_up((size_t)n_features, 12),
                          .n = n,
                          .x = (const ActivationColumns *)t->x + (size_t)tile * n_superblocks + s,
                          .apart = n_superblocks,
                          .sums = sums + (size_t)tile * TILE_SUMS,
                          .sums_apart = TILE_SUMS,
                          .ahead = tile ? (PanelAhead){NULL, 0} : ahead};
        bool half = tile + 2 >= n_tiles && ends_in_half(t->n_rows);
        (tile + 1 < n_tiles ? functions->two : functions->one)[half](&p);
    }
}

// Computes the sums of features [first, first + n_features) of one task or two, for the same rows, with panels.
static void multiply_through_panels(const PanelTask *tasks, int n_tasks, int first, int n_features,
                                    PanelScratch *scratch) {
    const int n_tiles = (tasks->n_rows + LANES - 1) / LANES, n_superblocks = (int)superblocks_of(tasks->w->n_in);
    const int padded = (int)round_up((size_t)n_features, 12);
    for (int f = n_features; f < padded; f++) memset(&scratch->rows[f], 0, sizeof scratch->rows[f]);
    for (int i = 0; i < n_tasks; i++)
        for (int tile = 0; tile < n_tiles; tile++)
            memset(scratch->sums[i] + (size_t)tile * TILE_SUMS, 0, (size_t)padded * LANES * sizeof(float));
    for (int s = 0; s < n_superblocks; s += SUPERBLOCKS)
        for (int i = 0; i < n_tasks; i++) {
            int n = int_min(SUPERBLOCKS, n_superblocks - s), next = (i + 1) % n_tasks;
            size_t at = (size_t)(next ? s : s + n) * superblock_bytes(tasks[next].w->type);
            add_panel(&tasks[i], first, n_features, s, n, panel_ahead(tasks[next].w, first, n_features, at), scratch,
                      scratch->sums[i]);
        }
}

// Sums of a pair in a register, (row, feature), become two registers. `twice`: lanes 2 r and 2 r + 1 have row r, as
// packed rows have them; otherwise lane r has it.
static void part_pairs(bool twice, int n_features, float *sums) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i from = twice ? _mm512_and_si512(lane, _mm512_set1_epi32(-2)) : _mm512_slli_epi32(lane, 1);
    for (int f = n_features - 1; f >= 0; f--) {
        __m512i at = _mm512_add_epi32(from, _mm512_set1_epi32(f % 2));
        _mm512_storeu_ps(sums + f * LANES, _mm512_permutexvar_ps(at, _mm512_loadu_ps(sums + f / 2 * LANES)));
    }
}

// Computes the sums of features [first, first + n_features) of all rows, at most PANEL_FEATURES, of one task or two.
// `twice`: see part_pairs.
static void multiply_tasks(const PanelTask *tasks, int n_tasks, int first, int n_features, bool twice,
                           PanelScratch *scratch) {
    const PanelFunctions *functions = functions_of(tasks->w->type);
    const int n_tiles = (tasks->n_rows + LANES - 1) / LANES;
    const bool pairs = columns_twice(tasks->tile, tasks->n_rows);
    if (n_tiles > 2) multiply_through_panels(tasks, n_tasks, first, n_features, scratch);
    for (int i = 0; i < n_tasks && n_tiles <= 2; i++) {
        float *sums = scratch->sums[i];
        (pairs         ? functions->eight
         : n_tiles > 1 ? functions->few_two[ends_in_half(tasks->n_rows)]
                       : functions->few_one)(&tasks[i], first, n_features, sums);
        if (pairs) part_pairs(twice, n_features, sums);
    }
}

static void run_panel(const PanelTask *t, int first, int n_features, void *room) {
    PanelScratch *scratch = room;
    multiply_tasks(t, 1, first, n_features, false, scratch);
    for (int tile = 0; tile * LANES < t->n_rows; tile++)
        panel_write(t, first, n_features, scratch->sums[0] + (size_t)tile * TILE_SUMS, tile);
}

static void run_int8_panels(const MatrixTask *t) {
    panels_run(t, superblocks_of(t->w->n_in) * sizeof(ActivationColumns), run_panel);
}

// ---- gate and up ----------------------------------------------------------------------------------------------------

// Packs n_features values of a tile, a multiple of 32, as features of h from `first` on.
static void write_columns(const float *values, int first, int n_features, ActivationColumns *h) {
    for (int f = first; f < first + n_features; f += 32) {
        __m512 v[32];
        for (int i = 0; i < 32; i++, values += LANES) v[i] = _mm512_loadu_ps(values);
        quantize_columns(v, h + f / SUPERBLOCK, f % SUPERBLOCK / 32);
    }
}

static void run_glu(const MatrixTask *t) {
    PanelScratch *scratch = t->scratch;
    const int tile0 = t->first_row / LANES, n_out = t->w->n_out, n_features = t->last - t->first;
    const ActivationColumns *x = (const ActivationColumns *)t->packed + (size_t)tile0 * superblocks_of(t->w->n_in);
    const PanelTask tasks[] = {{.w = t->gate, .x = x, .n_rows = t->n_rows, .tile = tile0},
                               {.w = t->w, .x = x, .n_rows = t->n_rows, .tile = tile0}};
    multiply_tasks(tasks, 2, t->first, n_features, true, scratch);
    ActivationColumns *to = (ActivationColumns *)t->h + (size_t)tile0 * superblocks_of(n_out);
    for (int tile = 0; tile * LANES < t->n_rows; tile++, to += superblocks_of(n_out)) {
        float *sums = scratch->sums[0] + (size_t)tile * TILE_SUMS;
        vector_gate(t->act, sums, scratch->sums[1] + (size_t)tile * TILE_SUMS, n_features * LANES);
        write_columns(sums, t->first, n_features, to);
        if (t->last == n_out && n_out % SUPERBLOCK) clear_columns(to + n_out / SUPERBLOCK, n_out % SUPERBLOCK / 32);
    }
}

#define PANEL_KERNEL(MIN_ROWS)                                                                                         \
    {                                                                                                                  \
        .min_rows = MIN_ROWS, .tile = LANES, .features = PANEL_FEATURES, .least = FEW_FEATURES, .rows = ROW_BLOCK,     \
        .scratch = sizeof(PanelScratch), .packed_bytes = columns_bytes, .pack = pack_columns, .run = run_int8_panels,  \
        .run_glu = run_glu, .glu_features = PANEL_FEATURES, .glu_least = PANEL_FEATURES,                               \
    }

// min_rows is the number of rows from which it is faster than cpu_vnni_matrix, measured with weights in memory.
const MatrixKernel *cpu_vnni_panels(int type) {
    static const MatrixKernel from_3 = PANEL_KERNEL(3), from_5 = PANEL_KERNEL(5), from_6 = PANEL_KERNEL(6),
                              from_7 = PANEL_KERNEL(7), from_9 = PANEL_KERNEL(9), from_14 = PANEL_KERNEL(14),
                              from_18 = PANEL_KERNEL(18);
    switch (type) {
    case TYPE_IQ3_XXS: return cpuid_has_vbmi() ? &from_18 : &from_5; // cpu/int8_books.c
    case TYPE_IQ3_S: return cpuid_has_vbmi() ? &from_14 : &from_5;
    case TYPE_IQ2_XXS: return cpuid_has_vbmi() ? &from_9 : &from_5;
    case TYPE_IQ2_XS:
    case TYPE_IQ2_S: return cpuid_has_vbmi() ? &from_7 : &from_5;
    case TYPE_Q3_K: return &from_3;
    case TYPE_Q2_K: return &from_6;
    case TYPE_Q6_K: return &from_7;
    default: return functions_of(type) ? &from_5 : NULL;
    }
}
