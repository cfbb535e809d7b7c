// cpu/amx.c: the matrix kernel on Intel's AMX unit: bf16 products, f32 sums, for every type but F32.
//
// The unit multiplies bf16 (eight bits of mantissa): activations are rounded to bf16, and so are weights of other
// types. Sums are f32.
//
// A task multiplies FEATURES output features by a block of rows, DEPTH elements of the depth at a time.
// - Weights are unpacked to a bf16 panel of 32 features, row-major, the layout of the unit's left operand. The panel is
//   kept in L1 for all rows of the block, so that each weight is unpacked once for 512 rows.
// - Activations are packed once, in pairs along the depth, the layout of the right operand. One depth of them stays in
//   L2 for all features of the task and is loaded without filling L1 (tileloadd with the streaming hint).
// - Four tile products in a step share two tiles of each operand. Their sums stay in tiles within a depth, and in L2
//   between depths. A sum is added up in the order of the depth, whatever the rows are.
// - During the products the vector units unpack the next panel, and prefetches load the sums of the next tile of rows,
//   the next depth of activations, and the file's lines of the panel after the next.
// - Up to 32 rows of activations are multiplied by weights in BF16 directly from the file, whose rows already are the
//   unit's left operand.
// - Gate and up of the FFN are computed together, and their result is packed for the next product: sums of 16 features
//   by 16 rows are already half of a packed tile. The FFN's activations are never stored as f32, and neither are the
//   results of a norm.
// Measurements: docs/notebook.md. Tile shapes and the pair layout: Intel's Architecture Instruction Set Extensions
// Reference, chapter on AMX.
#define _GNU_SOURCE
#define QUILL_SIMD 512
#include "cpu/cpu.h"

#include "cpu/amx.h"
#include "cpu/amx_unpack.h"

#include <sys/syscall.h>
#include <unistd.h>

enum {
    ROWS = 32,   // rows of activations in a packed tile: two unit tiles of 16
    GROUP = 32,  // features in a panel: two unit tiles of 16
    DEPTH = 256, // elements of a panel's rows: 16 KiB
    STEPS = DEPTH / STEP,
    FEATURES = 256,  // features of a task; of gate and up together
    LEAST = 64,      // features of a task if there were too few tasks for all threads otherwise
    ROW_BLOCK = 512, // rows of a task: 256 KiB at this depth
    TILES = ROW_BLOCK / ROWS,
    HELD = FEATURES / GROUP * TILES, // tiles of sums that a task holds
    LINE = 64,                       // bytes
    DIRECT_AHEAD = 1024,             // bytes to prefetch ahead in each row of weights that is multiplied directly
    DIRECT_SUMS = FEATURES * ROWS,   // sums of such a task
};

// Linux saves tile registers only for processes that have asked for them.
bool cpu_amx_enable(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

// Elements from one packed tile of rows to the next: an odd number of depths. With an even number all tiles would share
// a few cache sets of L2.
static size_t tile_size(int n_in) { return (size_t)((n_in + DEPTH - 1) / DEPTH | 1) * DEPTH * ROWS; }

static size_t packed_bytes(int n_rows, int n_in) {
    return (size_t)((n_rows + ROWS - 1) / ROWS) * tile_size(n_in) * sizeof(uint16_t);
}

// Packs 32 elements of 16 rows, from row r on, as pairs. Rows from n_rows on and elements from n on are zero. If
// `scales` (of rows) and `weights` (of elements) are given, packs the rows' RMSNorm.
INLINE void pack_unit(uint16_t *out, const float *x, size_t x_stride, int r, int n_rows, int n, const float *scales,
                      const float *weights) {
    __mmask16 first = lanes(n), second = lanes(n - 16);
    __m512 pairs[16];
    UNROLL(16)
    for (int i = 0; i < 16; i++) {
        pairs[i] = _mm512_setzero_ps();
        if (r + i >= n_rows) continue;
        const float *row = x + (size_t)(r + i) * x_stride;
        __m512 a = _mm512_maskz_loadu_ps(first, row), b = _mm512_maskz_loadu_ps(second, row + 16);
        if (scales) {
            __m512 scale = _mm512_set1_ps(scales[r + i]);
            a = _mm512_mul_ps(_mm512_mul_ps(a, scale), _mm512_maskz_loadu_ps(first, weights));
            b = _mm512_mul_ps(_mm512_mul_ps(b, scale), _mm512_maskz_loadu_ps(second, weights + 16));
        }
        store_bf16((uint16_t *)(void *)&pairs[i], a, b);
    }
    transpose16(pairs);
    memcpy(out, pairs, sizeof pairs);
}

// Packs a tile of rows as (depth / 32, 2 unit tiles, 16 pairs, 16 rows, 2): pair p of row r has elements 2p and 2p + 1.
INLINE void pack_rows(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in,
                      const float *scales, const float *weights) {
    uint16_t *out = (uint16_t *)packed + (size_t)tile * tile_size(n_in);
    for (int k = 0; k < n_in; k += STEP)
        for (int r = 0; r < ROWS; r += 16, out += UNIT) {
            const float *from = x + k, *by = scales ? weights + k : NULL;
            if (r + 16 <= n_rows && n_in - k >= STEP) pack_unit(out, from, x_stride, r, r + 16, STEP, scales, by);
            else pack_unit(out, from, x_stride, r, n_rows, n_in - k, scales, by);
        }
}

static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    pack_rows(packed, tile, x, x_stride, n_rows, n_in, NULL, NULL);
}

static void pack_norm(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in, const float *norm,
                      float eps) {
    float scales[ROWS];
    int r = 0;
    for (; r + 4 <= n_rows; r += 4) norm_scales(x + (size_t)r * x_stride, x_stride, 4, n_in, eps, scales + r);
    for (; r < n_rows; r++) norm_scales(x + (size_t)r * x_stride, x_stride, 1, n_in, eps, scales + r);
    pack_rows(packed, tile, x, x_stride, n_rows, n_in, scales, norm);
}

// ---- panels of weights ----------------------------------------------------------------------------------------------

// A panel (depth / 32, 2 unit tiles, 16 features, 32) that is being filled; features past the end are zero.
typedef struct {
    const Tensor *w;
    uint16_t *to;
    int first, n_features; // range of rows of w
    int k0, n;             // range of elements [k0, k0 + n) of each row
    size_t bytes;          // of DEPTH weights of a row
    bool i8_whole;
    const char *then; // the weights that are prefetched meanwhile, of the first feature; those of the others follow
} Panel;

INLINE Panel panel_of(int type, const Tensor *w, uint16_t *to, int first, int n_features, int k0, int n) {
    return (Panel){.w = w,
                   .to = to,
                   .first = first,
                   .n_features = n_features,
                   .k0 = k0,
                   .n = n,
                   .bytes = w->row_bytes * DEPTH / (size_t)w->n_in,
                   .i8_whole = type == TYPE_I8G && i8_whole_blocks(w)};
}

// Unpacks block `step` of feature f, of a type that is not quantised in blocks.
INLINE void fill_block(int type, const Panel *p, int f, int step) {
    int row = p->first + f, b = p->k0 / 32 + step, left = p->n - 32 * step;
    uint16_t *out = p->to + ((size_t)step * 2 + (size_t)(f / 16)) * UNIT + f % 16 * STEP;
    if (type == TYPE_BF16 && left >= 32) { // already in the unit's layout
        memcpy(out, (const uint8_t *)p->w->data + (size_t)row * p->w->row_bytes + 64 * (size_t)b, 64);
        return;
    }
    vf v[NV];
    if (left >= 32) unpack_block(type, p->w, p->i8_whole, row, b, NULL, v);
    else unpack_slow(p->w, row, 32 * b, left, v);
    store_bf16(out, (__m512)v[0], (__m512)v[1]);
}

// The address of the panel's first feature in the file.
static const char *panel_source(const Panel *p) {
    return (const char *)p->w->data + (size_t)p->first * p->w->row_bytes + (size_t)(p->k0 / DEPTH) * p->bytes;
}

// Unpacks feature f, and prefetches the weights that follow.
INLINE void fill_feature(int type, const Panel *p, int f) {
    const char *then = p->then + (size_t)f * p->w->row_bytes;
    for (size_t i = 0; i < p->bytes; i += LINE) __builtin_prefetch(then + i, 0, 2);
    if (is_quantised(type)) { // the panel has room for a whole superblock also at the end of a row
        const uint8_t *from = (const uint8_t *)panel_source(p) + (size_t)f * p->w->row_bytes;
        size_t left = p->w->row_bytes - (size_t)(p->k0 / DEPTH) * p->bytes;
        SuperblockRoom room;
        Bf16Blocks to = {p->to + (size_t)(f / 16) * UNIT + f % 16 * STEP, 2 * UNIT};
        superblock_to_bf16(type, superblock_whole(type, from, left, room), to);
        return;
    }
    if (p->n == DEPTH) { // unrolled, F16 takes an eighth less
        UNROLL(8)
        for (int i = 0; i < STEPS; i++) fill_block(type, p, f, i);
        return;
    }
    for (int i = 0; i * STEP < p->n; i++) fill_block(type, p, f, i);
}

INLINE void fill_panel(int type, const Panel *p) {
    for (int f = 0; f < p->n_features; f++) fill_feature(type, p, f);
}

static void clear_panel(const Panel *p) {
    if (p->n_features < GROUP) memset(p->to, 0, round_up((size_t)p->n, STEP) * GROUP * sizeof *p->to);
}

// ---- products -------------------------------------------------------------------------------------------------------

// The destination of the complete sums of a tile of rows: y, or together with the gate's sums, as activations, h.
typedef struct {
    const float *sums, *gate; // four unit tiles each: (16 features, 16 rows); gate may be NULL
    size_t half, sixteen;     // floats from a unit to that of the next 16 rows, and to that of the next 16 features
    float *y;                 // y at the first row and feature
    size_t y_stride;
    const float *bias; // bias of the first feature, or NULL
    int n_features, n_rows;
    bool add;    // y += instead of y =
    uint16_t *h; // packed: two unit tiles
    Activation act;
} SumsTarget;

// Work that overlaps with the products of a tile of rows: unpacking and prefetching.
typedef struct {
    const Panel *fill; // features [f0, f1) of the panel are unpacked
    int f0, f1;
    const uint16_t *rows; // the part of the tile that is used next, prefetched into L2, `lines` lines in a step
    int lines;
    const float *sums; // the sums of the next tile of rows, to prefetch
    const SumsTarget *target;
} Beside;

// Prefetches the lines of y for the sums of four rows in a step. Packed results are only written and need no prefetch.
INLINE void fetch_target(const SumsTarget *p, int step) {
    for (int i = 4 * step; p->y && i < int_min(4 * step + 4, p->n_rows); i++) {
        __builtin_prefetch(p->y + (size_t)i * p->y_stride, 1);
        __builtin_prefetch(p->y + (size_t)i * p->y_stride + p->n_features - 1, 1);
    }
}

INLINE void fetch_beside(const Beside *b, int step) {
    for (int i = step * b->lines; i < (step + 1) * b->lines; i++) __builtin_prefetch(b->rows + i * LINE / 2, 0, 2);
    UNROLL(8)
    for (int i = 0; i < 8; i++) __builtin_prefetch(b->sums + (step * 8 + i) * LINE / 4, 1);
    fetch_target(b->target, step);
}

// sums (4 unit tiles: features 0..15 of rows 0..15, of rows 16..31, features 16..31 likewise; 16 features, 16 rows) =
// or += panel x packed rows, over `steps` steps.
INLINE void multiply(int type, int steps, const uint16_t *panel, const uint16_t *x, int halves, float *sums, bool more,
                     const Beside *b) {
    int due = 0, filled = b->f0; // due: features owed, times `steps`; filled: features unpacked so far
    tiles_filled();
    if (more) load_sums(sums, true);
    else zero_sums();
    for (int s = 0; s < steps; s++, panel += 2 * UNIT, x += 2 * UNIT) {
        multiply_units(panel, false, x, true, halves);
        fetch_beside(b, s);
        for (due += b->f1 - b->f0; due >= steps; due -= steps) fill_feature(type, b->fill, filled++);
    }
    store_sums(sums);
}

// Writes one unit tile of sums, features from f on and rows from r on, to its destination.
INLINE void write_unit(const float *sums, const SumsTarget *p, int f, int r) {
    __m512 v[16];
    if (f >= p->n_features || r >= p->n_rows) return;
    UNROLL(16)
    for (int i = 0; i < 16; i++) v[i] = _mm512_load_ps(sums + 16 * i);
    transpose16(v);
    write_rows(v, p->n_rows - r, p->n_features - f, p->bias ? p->bias + f : NULL, p->add,
               p->y + (size_t)r * p->y_stride + f, p->y_stride);
}

// act(gate) * up with a relative error of 2^-14, a thirtieth of the rounding to bf16 that follows. With an exact
// exponential and a division, gate and up took 4% longer.
INLINE vf gated(Activation act, vf gate, vf up) {
    gate = vmax(vset(act == ACT_GELU ? -1e10f : -1e30f), gate); // -inf times the sigmoid's 0 would be NaN
    vf t = sigmoid_of(act, gate) * -LOG2_E;                     // e^-.. = 2^t; p = 2^(fraction of t)
    vf f = (vf)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vf p = f * 1.353416792e-2f + 5.201146061e-2f;
    p = p * f + 2.414427569e-1f;
    p = p * f + 6.930038345e-1f;
    p = p * f + 1.000002593f;
    vf one_more = (vf)_mm512_scalef_ps((__m512)p, (__m512)t) + 1.0f;
    return gate * (vf)_mm512_rcp14_ps((__m512)one_more) * up;
}

// The same for a whole row, when there are too few rows for run_glu; gives the same bits.
INLINE void gate_all(Activation act, float *gate, const float *up, int n) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 there = lanes(n - i);
        vf g = (vf)_mm512_maskz_loadu_ps(there, gate + i), u = (vf)_mm512_maskz_loadu_ps(there, up + i);
        _mm512_mask_storeu_ps(gate + i, there, (__m512)gated(act, g, u));
    }
}

static void gate_row(Activation act, float *gate, const float *up, int n) {
    if (act == ACT_GELU) gate_all(ACT_GELU, gate, up, n);
    else gate_all(ACT_SILU, gate, up, n);
}

// act(gate) * up of 16 rows and two features, packed as pairs.
INLINE __m512 glu_pairs(Activation act, const float *gate, const float *up) {
    vf a = gated(act, vload(gate), vload(up)), b = gated(act, vload(gate + 16), vload(up + 16));
    return _mm512_castsi512_ps(pair_of((__m512)a, (__m512)b));
}

// Writes the gated sums packed. Features past the end have sums of zero and become the zeros at the end of a packed
// row.
INLINE void write_gated(Activation act, const SumsTarget *p) {
    for (int half = 0; half < 2; half++)
        for (int pair = 0; pair < 16; pair++) {
            size_t at = (size_t)(pair / 8) * p->sixteen + (size_t)half * p->half + (size_t)(pair % 8 * 32);
            __m512 line = glu_pairs(act, p->gate + at, p->sums + at);
            memcpy(p->h + half * UNIT + pair * 32, &line, sizeof line);
        }
}

static void write_glu(const SumsTarget *p) {
    if (p->act == ACT_GELU) write_gated(ACT_GELU, p);
    else write_gated(ACT_SILU, p);
}

static void write_sums(const SumsTarget *p) {
    if (p->h) write_glu(p);
    else if (p->y)
        for (size_t f = 0; f < 2; f++)
            for (size_t r = 0; r < 2; r++)
                write_unit(p->sums + f * p->sixteen + r * p->half, p, 16 * (int)f, 16 * (int)r);
}

// A task: the product of one matrix, or of gate and up together, with a block of rows.
typedef struct {
    const Tensor *w[2];
    int parts, first, last;
    const uint16_t *packed; // activations of all rows
    int first_row, n_rows;
    float *y; // results of all rows
    size_t y_stride;
    bool add;
    uint16_t *h; // all rows, packed
    Activation act;
    void *scratch; // two panels, filled alternately; then HELD tiles of sums
} AmxTask;

// The packed rows of one of the task's tiles.
INLINE const uint16_t *tile_rows(const AmxTask *t, int tile) {
    return t->packed + (size_t)(t->first_row / ROWS + tile) * tile_size(t->w[0]->n_in);
}

// Panel i of a task: all panels of one depth come before those of the next.
INLINE Panel panel_at(int type, const AmxTask *t, int i) {
    int groups = (t->last - t->first + GROUP - 1) / GROUP, k0 = i / t->parts / groups * DEPTH;
    int f0 = t->first + i / t->parts % groups * GROUP;
    return panel_of(type, t->w[i % t->parts], (uint16_t *)t->scratch + (i & 1) * GROUP * DEPTH, f0,
                    int_min(GROUP, t->last - f0), k0, int_min(DEPTH, t->w[0]->n_in - k0));
}

// The sums of a tile of rows with panel i: kept from depth to depth, and the gate's sums until up's are complete.
INLINE float *sums_at(const AmxTask *t, int i, int tile) {
    int groups = (t->last - t->first + GROUP - 1) / GROUP;
    float *held = (float *)(void *)((uint16_t *)t->scratch + 2 * GROUP * DEPTH);
    return held + (size_t)(i % (groups * t->parts) * TILES + tile) * GROUP * ROWS;
}

// Where the complete sums of a tile of rows and of n_features features, from `first` on, are written. The caller sets
// the place of the sums themselves.
INLINE SumsTarget target_at(const AmxTask *t, int first, int n_features, int tile) {
    const Tensor *w = t->w[t->parts - 1];
    int row_tile = t->first_row / ROWS + tile;
    SumsTarget to = {.n_features = n_features, .n_rows = int_min(ROWS, t->n_rows - tile * ROWS)};
    if (t->parts == 2) {
        to.act = t->act;
        to.h = t->h + (size_t)row_tile * tile_size(w->n_out) + (size_t)(first / STEP) * 2 * UNIT;
        return to;
    }
    to.y = t->y + (size_t)row_tile * ROWS * t->y_stride + first;
    to.y_stride = t->y_stride;
    to.bias = w->bias ? w->bias + first : NULL;
    to.add = t->add;
    return to;
}

// The destination of panel i's sums. None before the last depth, or for the gate before up is complete.
INLINE SumsTarget target_of(const AmxTask *t, const Panel *p, int i, int tile) {
    bool complete = p->k0 + p->n == t->w[0]->n_in && i % t->parts + 1 == t->parts;
    SumsTarget to = complete ? target_at(t, p->first, p->n_features, tile) : (SumsTarget){.n_features = p->n_features};
    to.sums = sums_at(t, i, tile), to.gate = complete && t->parts == 2 ? sums_at(t, i - 1, tile) : NULL;
    to.half = 256, to.sixteen = 512;
    return to;
}

// Panel i of a task of one matrix and one tile of rows: the depths of a group follow each other.
INLINE Panel few_panel(int type, const AmxTask *t, int i) {
    const Tensor *w = t->w[0];
    int depths = (w->n_in + DEPTH - 1) / DEPTH, f0 = t->first + i / depths * GROUP, k0 = i % depths * DEPTH;
    return panel_of(type, w, (uint16_t *)t->scratch + (i & 1) * GROUP * DEPTH, f0, int_min(GROUP, t->last - f0), k0,
                    int_min(DEPTH, w->n_in - k0));
}

// Multiplies such a task: the sums stay in tiles over the whole depth; each panel stays in L1. Between the products the
// next panel is unpacked, and the weights of the one after it are prefetched.
INLINE void run_few(int type, const AmxTask *t) {
    __attribute__((aligned(64))) float sums[GROUP * ROWS];
    int n_in = t->w[0]->n_in, halves = t->n_rows > 16 ? 2 : 1;
    int n = (t->last - t->first + GROUP - 1) / GROUP * ((n_in + DEPTH - 1) / DEPTH);
    Panel now, next = few_panel(type, t, 0), then = few_panel(type, t, int_min(1, n - 1));
    next.then = panel_source(&then);
    clear_panel(&next);
    fill_panel(type, &next);
    for (int i = 0; i < n; i++) {
        now = next;
        next = then;
        tiles_filled(); // also after the loads of the panel that is overwritten now
        if (i + 1 < n) {
            then = few_panel(type, t, int_min(i + 2, n - 1));
            next.then = panel_source(&then);
            clear_panel(&next);
        } else next.n_features = 0;
        if (now.k0 == 0) zero_sums();
        const uint16_t *x = tile_rows(t, 0) + (size_t)now.k0 * ROWS;
        int filled = 0, each = (next.n_features * STEP + now.n - 1) / now.n;
        for (int s = 0; s * STEP < now.n; s++) {
            multiply_units(now.to + s * 2 * UNIT, false, x + s * 2 * UNIT, true, halves);
            for (int to = int_min(next.n_features, filled + each); filled < to; filled++)
                fill_feature(type, &next, filled);
        }
        for (; filled < next.n_features; filled++) fill_feature(type, &next, filled);
        if (now.k0 + now.n < n_in) continue;
        store_sums(sums);
        SumsTarget to = target_at(t, now.first, now.n_features, 0);
        to.sums = sums, to.half = 256, to.sixteen = 512;
        write_sums(&to);
    }
}

// The work that overlaps with the products of panel `now` (number i) and a tile of rows. All panels of this depth share
// the prefetch of the rows' next depth.
INLINE Beside beside_of(const AmxTask *t, const Panel *now, int i, const Panel *next, int tile,
                        const SumsTarget *target) {
    int tiles = (t->n_rows + ROWS - 1) / ROWS, panels = t->parts * ((t->last - t->first + GROUP - 1) / GROUP);
    int k0 = now->k0 + DEPTH < t->w[0]->n_in ? now->k0 + DEPTH : 0;
    Beside b = {.fill = next, .sums = sums_at(t, i, int_min(tile + 1, tiles - 1)), .target = target};
    b.f0 = next->n_features * tile / tiles, b.f1 = next->n_features * (tile + 1) / tiles;
    b.lines = (DEPTH * ROWS * 2 / LINE / STEPS + panels - 1) / panels;
    b.rows = tile_rows(t, tile) + (size_t)k0 * ROWS + (size_t)(i % panels * b.lines * STEPS * LINE / 2);
    return b;
}

// ---- weights in bf16, directly from the file ------------------------------------------------------------------------

// Sums += 32 features, `stride` bytes apart in the file, times one tile of rows, over the whole depth. Prefetches are
// into L2: the lines of a step often share one set of L1.
INLINE void multiply_direct(const uint8_t *weights, size_t stride, int n_in, const uint16_t *x, int halves) {
    for (int s = 0; s * STEP < n_in; s++, weights += LINE, x += 2 * UNIT) {
        UNROLL(32)
        for (int i = 0; i < GROUP; i++) __builtin_prefetch(weights + (size_t)i * stride + DIRECT_AHEAD, 0, 2);
        _tile_loadd(6, x, LINE);
        _tile_loadd(4, weights, stride);
        if (halves == 2) _tile_loadd(7, x + UNIT, LINE);
        _tile_loadd(5, weights + 16 * stride, stride);
        multiply_loaded(halves);
    }
}

// Multiplies 32 * apart features, from f on, by one tile of rows, and stores the sums as (2 halves of the rows,
// FEATURES, 16 rows). The features of a group are `apart` rows apart in the file: each is a memory stream of its own.
static void direct_sums(const Tensor *w, int f, int apart, const uint16_t *x, int halves, float *sums) {
    size_t sum_stride = (size_t)apart * 16 * sizeof(float);
    for (int g = 0; g < apart; g++) {
        float *to = sums + 16 * g, *next = to + 16 * 16 * apart;
        zero_sums();
        const uint8_t *weights = (const uint8_t *)w->data + (size_t)(f + g) * w->row_bytes;
        if (halves == 2) multiply_direct(weights, (size_t)apart * w->row_bytes, w->n_in, x, 2);
        else multiply_direct(weights, (size_t)apart * w->row_bytes, w->n_in, x, 1);
        _tile_stored(0, to, sum_stride);
        _tile_stored(1, to + DIRECT_SUMS / 2, sum_stride);
        _tile_stored(2, next, sum_stride);
        _tile_stored(3, next + DIRECT_SUMS / 2, sum_stride);
    }
}

// Multiplies the whole groups of a task's features by its only tile of rows, and returns the first feature that is
// left.
static int run_direct(const AmxTask *t) {
    int n = (t->last - t->first) / GROUP * GROUP;
    float *sums = (float *)(void *)((uint16_t *)t->scratch + 2 * GROUP * DEPTH);
    direct_sums(t->w[0], t->first, n / GROUP, tile_rows(t, 0), t->n_rows > 16 ? 2 : 1, sums);
    for (int f = 0; f < n; f += GROUP) {
        SumsTarget to = target_at(t, t->first + f, GROUP, 0);
        to.sums = sums + 16 * f;
        to.half = DIRECT_SUMS / 2, to.sixteen = 256;
        write_sums(&to);
    }
    return t->first + n;
}

// Multiplies panel i while panel i + 1 is unpacked and the weights of panel i + 2 are prefetched.
INLINE void run_type(int type, const AmxTask *task) {
    int tiles = (task->n_rows + ROWS - 1) / ROWS;
    int groups = (task->last - task->first + GROUP - 1) / GROUP;
    int n_panels = task->parts * groups * ((task->w[0]->n_in + DEPTH - 1) / DEPTH);
    if (tiles == 1 && task->parts == 1) {
        run_few(type, task);
        return;
    }
    Panel now, next = {.n_features = 0}, then = panel_at(type, task, 0);
    for (int i = -1; i < n_panels; i++) {
        now = next;
        next = then;
        if (i + 1 == n_panels) next.n_features = 0;
        if (i + 2 < n_panels) then = panel_at(type, task, i + 2);
        next.then = panel_source(&then);
        if (next.n_features) clear_panel(&next);
        SumsTarget target, before = {.n_rows = 0};
        for (int t = 0; t < tiles && i >= 0; t++) {
            const uint16_t *x = tile_rows(task, t) + (size_t)now.k0 * ROWS;
            int steps = (now.n + STEP - 1) / STEP;
            float *sums = sums_at(task, i, t);
            target = target_of(task, &now, i, t);
            Beside b = beside_of(task, &now, i, &next, t, &target);
            if (task->n_rows - t * ROWS > 16) multiply(type, steps, now.to, x, 2, sums, now.k0 > 0, &b);
            else multiply(type, steps, now.to, x, 1, sums, now.k0 > 0, &b);
            write_sums(&before); // after the next products: loads of sums that were just stored would stall
            before = target;
        }
        write_sums(&before);
        if (i < 0) fill_panel(type, &next);
    }
}

// One function for each type: in a larger one the compiler would run out of registers.
#define DEFINE_RUN(TYPE)                                                                                               \
    static __attribute__((noinline)) void run_##TYPE(const AmxTask *t) { run_type(TYPE, t); }
EACH_TYPE(DEFINE_RUN)

#define RUN_CASE(TYPE)                                                                                                 \
    case TYPE: run_##TYPE(t); break;
static void run_by_type(const AmxTask *t) {
    switch (t->w[0]->type) { EACH_TYPE(RUN_CASE) }
}

static void run_task(AmxTask *t) {
    bool direct = t->w[0]->type == TYPE_BF16 && t->parts == 1 && t->n_rows <= ROWS && t->w[0]->n_in % STEP == 0;
    tiles_configure(2 * STEP);
    if (direct) t->first = run_direct(t);
    if (t->first < t->last) run_by_type(t);
    _tile_release();
}

static AmxTask amx_task(const MatrixTask *t) {
    return (AmxTask){.first = t->first,
                     .last = t->last,
                     .packed = t->packed,
                     .first_row = t->first_row,
                     .n_rows = t->n_rows,
                     .scratch = t->scratch};
}

static void run_amx(const MatrixTask *t) {
    AmxTask task = amx_task(t);
    task.w[0] = t->w, task.parts = 1;
    task.y = t->y, task.y_stride = t->y_stride, task.add = t->add;
    run_task(&task);
}

static void run_glu(const MatrixTask *t) {
    AmxTask task = amx_task(t);
    task.w[0] = t->gate, task.w[1] = t->w, task.parts = 2;
    task.h = t->h, task.act = t->act;
    run_task(&task);
}

// Fewer than min_rows rows are faster on the vector unit, measured with weights in memory.
#define KERNEL(MIN_ROWS)                                                                                               \
    {                                                                                                                  \
        .min_rows = MIN_ROWS, .tile = ROWS, .features = FEATURES, .rows = ROW_BLOCK, .least = LEAST,                   \
        .scratch = 2 * GROUP * DEPTH * sizeof(uint16_t) + HELD * GROUP * ROWS * sizeof(float),                         \
        .packed_bytes = packed_bytes, .pack = pack, .pack_norm = pack_norm, .run = run_amx, .run_glu = run_glu,        \
        .glu_features = FEATURES / 2, .glu_least = LEAST, .gate = gate_row,                                            \
    }

const MatrixKernel *cpu_amx_matrix(int type) {
    static const MatrixKernel from_3 = KERNEL(3), from_4 = KERNEL(4), from_6 = KERNEL(6), from_8 = KERNEL(8),
                              from_9 = KERNEL(9), from_13 = KERNEL(13);
    switch (type) {
    case TYPE_F32: return NULL;
    case TYPE_BF16: return &from_3;
    case TYPE_F16: return &from_4;
    case TYPE_Q4_K:
    case TYPE_Q6_K: return &from_6;
    case TYPE_Q5_0:
    case TYPE_Q5_1:
    case TYPE_Q2_K:
    case TYPE_MXFP4: return &from_9;
    case TYPE_IQ2_XXS:
    case TYPE_IQ3_XXS:
    case TYPE_IQ3_S: return &from_13;
    default: return &from_8;
    }
}
