// cpu/int8_panels_avx2.c: products of many rows in integers on CPUs without AVX-512: quantised weights, unpacked to
// panels of bytes, times activations in int8. Compiled twice: for AVX2 (maddubs) and for AVX-VNNI (dpbusd in 256 bits).
//
// Lanes, panels, tasks and arithmetic are those of cpu/int8_panels.c with eight rows in a tile: sums of 32 (or 16)
// products are exact integers, and scales are applied once a block, in f32, in the order of the blocks. Sixteen
// registers hold the integer sums of twelve products; the f32 sums stay in L1 and are read and written once a block.
//
// maddubs multiplies unsigned bytes of weights by activations of -127 to 127 and adds two products with saturation to
// 16 bits; adding such pairs wraps around. Neither gives a wrong result here. With u = weight + offset:
// - A pair does not saturate: u <= 63 (Q6_K), and 2 x 63 x 127 = 16002.
// - A final sum fits into 16 bits. With |weight| <= 16 (Q5, IQ3_S, Q4 with or without its offset; IQ1 and TQ have less)
//   a 16-bit sum gets 16 elements of a block of 32: 16 x 16 x 127 = 32512. With |weight| <= 32 (Q6_K; Q2_K and Q3_K
//   have less) it gets 8 elements of a block of 16: 8 x 32 x 127 = 32512.
// A sum starts at -offset times the sum of its activations, so that it ends as the sum over the weights: intermediate
// sums may wrap around, but the final one fits. Weights of seven or eight bits (Q8_0, IQ4_NL, IQ4_XS, IQ2, IQ3_XXS) do
// not fit: they and their activations are widened to 16-bit words, which madd multiplies into 32 bits.
#include "cpu/cpu.h"

#include "cpu/int8_block.h"
#include "cpu/panels.h"

#include <stddef.h>

enum {
    ROW_BYTES = 512,         // bytes of weights in a panel's row: two tiles of rows of this depth stay in L1
    STEP_BYTES = LANES * 4,  // bytes of activations in a step: four in a lane, one register
    MOST_SUMS = 12,          // integer sums at a time: F features times V tiles
    SCALES = ROW_BYTES / 16, // the most scales of a panel's row
};

// 256 elements of eight rows, column by column; scale, sum and sum16 as in Int8Activations.
typedef struct {
    float scale[8][LANES], sum[8][LANES], sum16[16][LANES];
    int32_t less16[16][LANES]; // minus the sum of 16 elements, in the layout of the step's sums; not used with words
    uint8_t q[];               // (block of 32, step, row): four bytes, or two words
} NarrowColumns;

// ROW_BYTES of a weight row. Its bytes are the weights' integers plus block_offset.
typedef struct {
    uint8_t q[ROW_BYTES + 64];
    float scale[SCALES], minimum[SCALES]; // for each block of 32, or of 16 if the type has such scales
} NarrowRow;

typedef struct {
    NarrowRow rows[PANEL_FEATURES];
    float sums[ROW_BLOCK / LANES * TILE_SUMS]; // (tile of rows, feature, row)
} NarrowScratch;

// ---- the step, for each of the two instruction sets -----------------------------------------------------------------

#if defined(__AVXVNNI__)
#define BYTES_UNIT "avxvnni"                        // as bench/roofline.h names it
INLINE bool in_words(int type) { return type < 0; } // no type uses words
INLINE __m256i step(bool words, __m256i sum, __m256i w, __m256i x) {
    (void)words;
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}
INLINE __m256i sum_of(bool words, __m256i sum) { // 32 bits a lane
    (void)words;
    return sum;
}
INLINE __m256i add_sums(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
INLINE __m256i minus_sum(__m256i v) { return _mm256_sub_epi32(_mm256_setzero_si256(), v); }
INLINE __m256i shift_sum(__m256i v, int n) { return _mm256_slli_epi32(v, n); }
#else
#define BYTES_UNIT "maddubs"
INLINE bool in_words(int type) { return is_signed(type); }
// Sums of bytes are two 16-bit sums in each lane.
INLINE __m256i step(bool words, __m256i sum, __m256i w, __m256i x) {
    sum = words ? _mm256_add_epi32(sum, _mm256_madd_epi16(w, x)) : _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
    __asm__("" : "+x"(sum)); // keeps the order: compilers would add as a tree, for which there are too few registers
    return sum;
}
INLINE __m256i sum_of(bool words, __m256i sum) { return words ? sum : _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
INLINE __m256i add_sums(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
INLINE __m256i minus_sum(__m256i v) { return _mm256_sub_epi16(_mm256_setzero_si256(), v); }
INLINE __m256i shift_sum(__m256i v, int n) { return _mm256_slli_epi16(v, n); }
#endif

INLINE int block_steps(bool words) { return words ? 16 : 8; }             // steps of a block of 32
INLINE int panel_superblocks(bool words) { return words ? 1 : 2; }        // in a panel's row
INLINE int superblock_row_bytes(bool words) { return words ? 512 : 256; } // in a panel's row

// ---- activations ----------------------------------------------------------------------------------------------------

INLINE size_t column_bytes(bool words) { return sizeof(NarrowColumns) + (size_t)(8 * block_steps(words) * STEP_BYTES); }
INLINE size_t bytes_packed(bool words, int n_rows, int n_in) {
    return round_up((size_t)n_rows, LANES) / LANES * superblocks_of(n_in) * column_bytes(words);
}

// Transposes 32 bytes of every row, or 16 bytes widened to words, from offset `at` on: rows in, columns of four bytes
// out.
INLINE void turn_lines(const Int8Activations *a, size_t at, bool widen, void *out) {
    __m256 r[8];
    UNROLL(8)
    for (int i = 0; i < 8; i++) {
        const void *from = (const uint8_t *)&a[i] + at;
        __m256i v = widen ? _mm256_cvtepi8_epi16(_mm_loadu_si128(from)) : _mm256_loadu_si256(from);
        r[i] = _mm256_castsi256_ps(v);
    }
    transpose8(r);
    UNROLL(8)
    for (int i = 0; i < 8; i++) _mm256_storeu_ps((float *)out + 8 * i, r[i]);
}

INLINE void pack_tile(bool words, void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    uint8_t *at = (uint8_t *)packed + (size_t)tile * superblocks_of(n_in) * column_bytes(words);
    Int8Activations a[LANES];
    memset(a, 0, sizeof a);
    for (int i = 0; i < n_in; i += SUPERBLOCK, at += column_bytes(words)) {
        NarrowColumns *p = (NarrowColumns *)(void *)at;
        for (int r = 0; r < n_rows; r++)
            quantize_row(x + (size_t)r * x_stride + i, int_min(SUPERBLOCK, n_in - i), &a[r]);
        const int piece = words ? 16 : 32; // elements that fill a register
        for (int k = 0; k < SUPERBLOCK; k += piece) turn_lines(a, (size_t)k, words, p->q + k / piece * 8 * STEP_BYTES);
        turn_lines(a, offsetof(Int8Activations, scale), false, p->scale);
        turn_lines(a, offsetof(Int8Activations, sum), false, p->sum);
        turn_lines(a, offsetof(Int8Activations, sum16), false, p->sum16);
        turn_lines(a, offsetof(Int8Activations, sum16) + 32, false, p->sum16[8]);
        if (words) continue;
        for (int j = 0; j < 16; j++) {
            __m256i sum = _mm256_setzero_si256();
            for (int k = 0; k < 4; k++)
                sum = step(false, sum, _mm256_set1_epi8(1), q_load(p->q + (4 * j + k) * STEP_BYTES));
            _mm256_storeu_si256((__m256i *)(void *)p->less16[j], minus_sum(sum));
        }
    }
}

// ---- weights --------------------------------------------------------------------------------------------------------

// The offset that is added to the bytes of a panel: a power of two, or 0. Q5_1 and Q5_K have an offset in addition to
// their minimum.
INLINE int block_offset(int type) {
    if (in_words(type)) return 0;
    return is_signed(type) ? 128 : type == TYPE_Q5_1 || type == TYPE_Q5_K ? 16 : (int)offset_of(type);
}

// Unpacks a superblock of a weight row, at `from`, to superblock s of the panel's row.
INLINE void unpack_superblock(int type, const uint8_t *from, NarrowRow *to, int s) {
    const int places = scales_16(type) ? 16 : 8;
    float *scale = to->scale + s * places, *minimum = to->minimum + s * places;
    SuperblockScales c;
    superblock_scales(type, from, &c);
    for (int i = 0; i < places; i += VL) {
        vf offset = vload(c.s + i) * (float)block_offset(type);
        vstore(scale + i, vload(c.s + i));
        if (type_has_minimum(type)) vstore(minimum + i, vload(c.m + i) - offset);
    }
    uint8_t *q = to->q + s * superblock_row_bytes(in_words(type));
    UNROLL(8)
    for (int j = 0; j < 8; j++) {
        q32 w = integers(type, from, j, &c);
        if (in_words(type)) {
            __m256i *two = (__m256i *)(void *)(q + 64 * j);
            _mm256_storeu_si256(two, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(w)));
            _mm256_storeu_si256(two + 1, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(w, 1)));
        } else {
            if (is_signed(type)) w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
            _mm256_storeu_si256((__m256i *)(void *)(q + 32 * j), w);
        }
    }
}

// Unpacks superblocks [s0, s0 + n) of n_features rows from `first` on.
INLINE void unpack_panel(int type, const Tensor *w, int first, int n_features, int s0, int n, NarrowRow *to) {
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

// A product of a panel, n superblocks deep, with V tiles of activations.
typedef struct {
    const NarrowRow *w;
    int n_features, n;
    const uint8_t *x; // NarrowColumns
    size_t apart;     // bytes from one tile to the next
    float *sums;      // sums of the first tile: (feature, row)
    size_t sums_apart;
    PanelAhead ahead;
} NarrowProduct;

// Where the sums of 16 or 32 elements start: the sum of the activations times -block_offset.
INLINE __m256i start_of(int type, __m256i less) {
    switch (block_offset(type)) {
    case 0: return _mm256_setzero_si256();
    case 1: return less;
    case 4: return shift_sum(less, 2);
    case 8: return shift_sum(less, 3);
    case 16: return shift_sum(less, 4);
    case 32: return shift_sum(less, 5);
    default: return shift_sum(less, 7);
    }
}

// dot (feature, tile) = the products of part `part` of block b of superblock s; a block has `parts` parts.
INLINE void multiply_part(int type, int F, int V, const NarrowRow *w, int s, int b, int part, int parts,
                          const NarrowColumns *const x[2], __m256i dot[MOST_SUMS]) {
    const bool words = in_words(type);
    const int steps = block_steps(words) / parts, first = b * block_steps(words) + part * steps;
    __m256i start[2];
    UNROLL(2)
    for (int v = 0; v < V; v++) {
        if (words) {
            start[v] = _mm256_setzero_si256();
            continue;
        }
        __m256i less = q_load(x[v]->less16[2 * b + part]);
        if (parts == 1) less = add_sums(less, q_load(x[v]->less16[2 * b + 1]));
        start[v] = start_of(type, less);
    }
    UNROLL(12)
    for (int i = 0; i < F * V; i++) dot[i] = start[i % V];
    UNROLL(16)
    for (int k = 0; k < steps; k++) {
        __m256i four[2];
        UNROLL(2)
        for (int v = 0; v < V; v++) four[v] = q_load(x[v]->q + (first + k) * STEP_BYTES);
        UNROLL(12)
        for (int f = 0; f < F; f++) {
            int32_t u;
            memcpy(&u, w[f].q + s * superblock_row_bytes(words) + 4 * (first + k), sizeof u);
            __m256i weights = _mm256_set1_epi32(u);
            UNROLL(2)
            for (int v = 0; v < V; v++) dot[f * V + v] = step(words, dot[f * V + v], weights, four[v]);
        }
    }
}

// sums (tile, feature, row) += the result of multiply_part times its scales, minus the contribution of the minimum.
INLINE void add_part(int type, int F, int V, const NarrowRow *w, int s, int b, int part, int parts,
                     const NarrowColumns *const x[2], const __m256i dot[MOST_SUMS], float *sums, size_t sums_apart) {
    const int at = (8 * s + b) * parts + part; // among the scales of a panel's row
    UNROLL(2)
    for (int v = 0; v < V; v++) {
        __m256 scale = _mm256_loadu_ps(x[v]->scale[b]);
        __m256 of = _mm256_loadu_ps(parts == 2 ? x[v]->sum16[2 * b + part] : x[v]->sum[b]);
        UNROLL(12)
        for (int f = 0; f < F; f++) {
            float *to = sums + (size_t)v * sums_apart + f * LANES;
            __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sum_of(in_words(type), dot[f * V + v])), scale);
            __m256 sum = _mm256_fmadd_ps(product, _mm256_set1_ps(w[f].scale[at]), _mm256_loadu_ps(to));
            if (type_has_minimum(type)) sum = _mm256_fnmadd_ps(of, _mm256_set1_ps(w[f].minimum[at]), sum);
            _mm256_storeu_ps(to, sum);
        }
    }
}

// sums += superblock s of F rows of a panel times that of V tiles of activations; F and V are constants in every copy.
INLINE void multiply_superblock(int type, int F, int V, const NarrowRow *w, int s, const NarrowColumns *const x[2],
                                const PanelAhead *ahead, float *sums, size_t sums_apart) {
    const int parts = scales_16(type) ? 2 : 1;
    for (int b = 0; b < 8; b++) {
        if (ahead->at) panel_fetch(ahead, F, superblock_bytes(type), b);
        UNROLL(2)
        for (int part = 0; part < parts; part++) {
            __m256i dot[MOST_SUMS];
            multiply_part(type, F, V, w, s, b, part, parts, x, dot);
            add_part(type, F, V, w, s, b, part, parts, x, dot, sums, sums_apart);
        }
    }
}

INLINE void multiply_panel(int type, int F, int V, const NarrowProduct *p) {
    for (int f = 0; f < p->n_features; f += F)
        for (int s = 0; s < p->n; s++) {
            const NarrowColumns *x[2];
            for (int v = 0; v < 2; v++)
                x[v] = (const void *)(p->x + (size_t)(v < V ? v : 0) * p->apart +
                                      (size_t)s * column_bytes(in_words(type)));
            PanelAhead ahead = p->ahead;
            if (ahead.at) ahead.at += (size_t)f * ahead.stride + (size_t)s * superblock_bytes(type);
            multiply_superblock(type, F, V, p->w + f, s, x, &ahead, p->sums + f * LANES, p->sums_apart);
        }
}

// The functions for one type.
typedef struct {
    void (*unpack)(const Tensor *w, int first, int n_features, int s0, int n, NarrowRow *to);
    void (*one)(const NarrowProduct *p); // tile of rows
    void (*two)(const NarrowProduct *p);
} NarrowFunctions;

#define DEFINE_FUNCTIONS(TYPE)                                                                                         \
    static __attribute__((noinline)) void unpack_##TYPE(const Tensor *w, int first, int n_features, int s0, int n,     \
                                                        NarrowRow *to) {                                               \
        unpack_panel(TYPE, w, first, n_features, s0, n, to);                                                           \
    }                                                                                                                  \
    static __attribute__((noinline)) void one_##TYPE(const NarrowProduct *p) { multiply_panel(TYPE, 12, 1, p); }       \
    static __attribute__((noinline)) void two_##TYPE(const NarrowProduct *p) { multiply_panel(TYPE, 6, 2, p); }
EACH_QUANTISED(DEFINE_FUNCTIONS)

#define FUNCTIONS_CASE(TYPE)                                                                                           \
    case TYPE: {                                                                                                       \
        static const NarrowFunctions functions = {unpack_##TYPE, one_##TYPE, two_##TYPE};                              \
        return &functions;                                                                                             \
    }
static const NarrowFunctions *functions_of(int type) {
    switch (type) { EACH_QUANTISED(FUNCTIONS_CASE) }
    return NULL;
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// Computes features [first, first + n_features) of all rows of a task, at most PANEL_FEATURES.
static void run_panel(const PanelTask *t, int first, int n_features, void *room) {
    NarrowScratch *scratch = room;
    const NarrowFunctions *functions = functions_of(t->w->type);
    const bool words = in_words(t->w->type);
    int n_tiles = (t->n_rows + LANES - 1) / LANES, n_superblocks = (int)superblocks_of(t->w->n_in);
    int padded = (n_features + MOST_SUMS - 1) / MOST_SUMS * MOST_SUMS, most = panel_superblocks(words);
    size_t apart = (size_t)n_superblocks * column_bytes(words);
    for (int f = n_features; f < padded; f++) memset(&scratch->rows[f], 0, sizeof scratch->rows[f]);
    for (int i = 0; i < n_tiles; i++) memset(scratch->sums + (size_t)i * TILE_SUMS, 0, (size_t)padded * LANES * 4);
    for (int s = 0; s < n_superblocks; s += most) {
        int n = int_min(most, n_superblocks - s);
        functions->unpack(t->w, first, n_features, s, n, scratch->rows);
        PanelAhead ahead = panel_ahead(t->w, first, n_features, (size_t)(s + n) * superblock_bytes(t->w->type));
        for (int tile = 0; tile < n_tiles; tile += 2) {
            NarrowProduct p = {.w = scratch->rows,
                               .n_features = padded,
                               .n = n,
                               .x = (const uint8_t *)t->x + (size_t)tile * apart + (size_t)s * column_bytes(words),
                               .apart = apart,
                               .sums = scratch->sums + (size_t)tile * TILE_SUMS,
                               .sums_apart = TILE_SUMS,
                               .ahead = tile ? (PanelAhead){NULL, 0} : ahead};
            if (tile + 1 < n_tiles) functions->two(&p);
            else functions->one(&p);
        }
    }
    for (int tile = 0; tile < n_tiles; tile++)
        panel_write(t, first, n_features, scratch->sums + (size_t)tile * TILE_SUMS, tile);
}

static void run_int8_panels(const MatrixTask *t) {
    panels_run(t, superblocks_of(t->w->n_in) * column_bytes(in_words(t->w->type)), run_panel);
}

// Activations are packed differently for weights in bytes and for weights in words.
#define LAYOUT_FUNCTIONS(NAME, WORDS)                                                                                  \
    static size_t packed_##NAME(int n_rows, int n_in) { return bytes_packed(WORDS, n_rows, n_in); }                    \
    static void pack_##NAME(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {           \
        pack_tile(WORDS, packed, tile, x, x_stride, n_rows, n_in);                                                     \
    }
#define PANEL_KERNEL(NAME, UNIT, MIN_ROWS)                                                                             \
    {                                                                                                                  \
        .min_rows = MIN_ROWS, .tile = LANES, .features = PANEL_FEATURES, .least = FEW_FEATURES, .rows = ROW_BLOCK,     \
        .scratch = sizeof(NarrowScratch), .packed_bytes = packed_##NAME, .pack = pack_##NAME, .run = run_int8_panels,  \
        .unit = UNIT,                                                                                                  \
    }

LAYOUT_FUNCTIONS(bytes, false)

// min_rows is the number of rows from which it is faster than the kernels of few rows: with AVX-VNNI measured with
// weights in memory, otherwise with weights in the cache of a Zen 3, where both wait for arithmetic. In IQ4_XS four
// rows at a time are as fast as words for 8 and 12 rows, and faster between.
#if defined(__AVXVNNI__)
const MatrixKernel *cpu_avxvnni_panels(int type) {
    static const MatrixKernel from_4 = PANEL_KERNEL(bytes, BYTES_UNIT, 4), from_5 = PANEL_KERNEL(bytes, BYTES_UNIT, 5),
                              from_6 = PANEL_KERNEL(bytes, BYTES_UNIT, 6);
    switch (type) {
    case TYPE_Q4_0:
    case TYPE_Q3_K:
    case TYPE_Q6_K: return &from_4;
    case TYPE_Q2_K:
    case TYPE_Q5_K: return &from_6;
    default: return functions_of(type) ? &from_5 : NULL;
    }
}
#else
LAYOUT_FUNCTIONS(words, true)

const MatrixKernel *cpu_madd_panels(int type) {
    static const MatrixKernel from_5 = PANEL_KERNEL(bytes, BYTES_UNIT, 5), from_6 = PANEL_KERNEL(bytes, BYTES_UNIT, 6),
                              from_7 = PANEL_KERNEL(bytes, BYTES_UNIT, 7);
    static const MatrixKernel words_from_5 = PANEL_KERNEL(words, "maddwd", 5),
                              words_from_7 = PANEL_KERNEL(words, "maddwd", 7),
                              words_from_12 = PANEL_KERNEL(words, "maddwd", 12);
    switch (type) {
    case TYPE_Q2_K: return &from_7;
    case TYPE_Q3_K:
    case TYPE_Q4_K:
    case TYPE_Q5_K:
    case TYPE_Q6_K: return &from_6;
    case TYPE_Q8_0:
    case TYPE_IQ4_NL: return &words_from_7;
    case TYPE_IQ4_XS: return &words_from_12;
    default: return !functions_of(type) ? NULL : in_words(type) ? &words_from_5 : &from_5;
    }
}
#endif
