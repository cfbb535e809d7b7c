// cpu_amx.c: the matrix kernel on Intel's AMX unit: bf16 products, f32 sums, for every type but F32.
//
// The unit multiplies bf16 alone, eight bits of mantissa: activations are rounded to it, and weights that are not bf16
// already. Sums are f32.
//
// A task takes FEATURES output features past a block of rows that stays in L2. Weights become a bf16 panel of 32
// features at a depth of up to DEPTH, row-major, which is what the unit wants of its left operand; activations were
// packed once in pairs along the depth, what it wants of the right one. Four tile products a step share two tiles of
// each, and their sums stay in tiles over the whole depth of the panel. While the unit works, the vector units unpack
// the next panel, a few weights a step: 13% less time than one after the other. One tile of rows (a batch of decoding
// sequences) takes small panels instead, which stay in L1 (18 to 26% less time than through L2). Tile shapes and the
// pair layout: Intel's Architecture Instruction Set Extensions Reference, chapter on AMX.
#define _GNU_SOURCE
#define QUILL_SIMD 512
#include "cpu.h"

#include "unpack.h"

#include <sys/syscall.h>
#include <unistd.h>

enum {
    ROWS = 32,        // rows of activations in a packed tile: two unit tiles of 16
    GROUP = 32,       // features in a panel: two unit tiles of 16
    FEATURES = 128,   // of a task
    DEPTH = 2048,     // of a panel: 128 KiB
    ROW_BLOCK = 256,  // rows of a task: 1 MiB of them at this depth
    STEP = 32,        // depth of one product
    UNIT = 16 * 32,   // bf16 elements of a unit tile: 16 rows of 64 bytes
    BESIDE_TILES = 4, // from this many tiles of rows on, the next panel is unpacked beside the products
    FEW_DEPTH = 256,  // of a panel for one tile of rows: 16 KiB, in L1
    AHEAD = 1024,     // bytes to prefetch ahead in a row of weights
};

// The kernel saves tile registers only for processes that ask.
bool cpu_amx_enable(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

// All eight tiles are 16 rows of 64 bytes.
static void tiles_configure(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); // the intrinsic names eight bytes only to the compiler
    _tile_loadconfig(&config);
}

static size_t packed_bytes(int n_rows, int n_in) {
    return round_up((size_t)n_rows, ROWS) * round_up((size_t)n_in, STEP) * sizeof(uint16_t);
}

INLINE void store_bf16(uint16_t *out, __m512 a, __m512 b) { // 32 floats
    __m512bh bf = _mm512_cvtne2ps_pbh(b, a);
    memcpy(out, &bf, sizeof bf);
}

// 16 rows of pairs -> 16 pairs of rows: one unit tile.
static void store_pairs(float pairs[16][16], uint16_t *out) {
    for (int r = 0; r < 16; r += 4)
        for (int p = 0; p < 16; p += 4) {
            v4f v[4];
            for (int i = 0; i < 4; i++) memcpy(&v[i], &pairs[r + i][p], sizeof v[i]);
            transpose4(v);
            for (int i = 0; i < 4; i++) memcpy(out + ((p + i) * 16 + r) * 2, &v[i], sizeof v[i]);
        }
}

// (depth / 32, 2 unit tiles, 16 pairs, 16 rows, 2): pair p of row r holds elements 2p and 2p + 1.
static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    int steps = (n_in + STEP - 1) / STEP;
    uint16_t *out = (uint16_t *)packed + (size_t)tile * (size_t)steps * 2 * UNIT;
    for (int s = 0; s < steps; s++)
        for (int half = 0; half < 2; half++, out += UNIT) {
            __attribute__((aligned(64))) float pairs[16][16] = {0}; // (row, pair of bf16)
            for (int r = 0; r < 16 && 16 * half + r < n_rows; r++) {
                const float *from = x + (size_t)(16 * half + r) * x_stride + STEP * s;
                int n = int_min(STEP, n_in - STEP * s);
                __mmask16 first = (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
                __mmask16 second = (__mmask16)(n >= 32 ? 0xffff : n > 16 ? (1 << (n - 16)) - 1 : 0);
                store_bf16((uint16_t *)(void *)pairs[r], _mm512_maskz_loadu_ps(first, from),
                           _mm512_maskz_loadu_ps(second, from + 16));
            }
            store_pairs(pairs, out);
        }
}

// ---- panels of weights ----------------------------------------------------------------------------------------------

// A panel, (depth / 32, 2 unit tiles, 16 features, 32), while it is filled: features past the end are zero.
typedef struct {
    const Tensor *w;
    uint16_t *to;
    int first, n_features; // of w
    int k0, n;             // elements [k0, k0 + n) of each
    size_t block_bytes;    // of 32 of them
    bool i8_whole;
} Panel;

INLINE Panel panel_of(int type, const Tensor *w, uint16_t *to, int first, int n_features, int k0, int n) {
    return (Panel){.w = w,
                   .to = to,
                   .first = first,
                   .n_features = n_features,
                   .k0 = k0,
                   .n = n,
                   .block_bytes = w->row_bytes * 32 / (size_t)w->n_in,
                   .i8_whole = type == TYPE_I8G && i8_whole_blocks(w)};
}

// Block `step` of feature f; c holds the scales of its super-block, and is loaded where one begins.
INLINE void fill_block(int type, const Panel *p, int f, int step, Scales *c) {
    // k0 is a multiple of 256; the mask tells the compiler.
    int row = p->first + f, b = (p->k0 / 32 & ~7) + step, left = p->n - 32 * step;
    uint16_t *out = p->to + ((size_t)step * 2 + (size_t)(f / 16)) * UNIT + f % 16 * STEP;
    if (type == TYPE_BF16 && left >= 32) { // as the unit wants it
        memcpy(out, (const uint8_t *)p->w->data + (size_t)row * p->w->row_bytes + 64 * (size_t)b, 64);
        return;
    }
    vf v[NV];
    if (step % 8 == 0) load_scales(type, p->w, row, b, c);
    if (left >= 32) unpack_block(type, p->w, p->i8_whole, row, b, c, v);
    else unpack_slow(p->w, row, 32 * b, left, v);
    store_bf16(out, (__m512)v[0], (__m512)v[1]);
}

// What will be read next: further on in the row, or the beginning of the row a group of features later.
INLINE void prefetch_block(const Panel *p, int f, int step) {
    size_t at = (size_t)(p->k0 / 32 + step) * p->block_bytes + AHEAD;
    if (at >= p->w->row_bytes) at += (GROUP - 1) * p->w->row_bytes;
    __builtin_prefetch((const char *)p->w->data + (size_t)(p->first + f) * p->w->row_bytes + at);
}

INLINE void fill_panel(int type, const Panel *p) {
    Scales c;
    int steps = (p->n + STEP - 1) / STEP;
    for (int f = 0; f < p->n_features; f++) {
        int s = 0;
        for (; s + 8 <= steps; s += 8)
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) { // a super-block: its parts at places that are constants
                prefetch_block(p, f, s + i);
                fill_block(type, p, f, s + i, &c);
            }
        for (; s < steps; s++) fill_block(type, p, f, s, &c);
    }
}

static void clear_panel(const Panel *p) {
    if (p->n_features < GROUP) memset(p->to, 0, round_up((size_t)p->n, STEP) * GROUP * sizeof *p->to);
}

// ---- products -------------------------------------------------------------------------------------------------------

// Where the sums of one tile of rows go once they are whole.
typedef struct {
    float *y; // the first row and feature
    size_t y_stride;
    const float *bias; // of the first feature, or NULL
    int n_features, n_rows;
    bool add; // to what is there
} Place;

// Sums 0..3 += the panel's two unit tiles times one or two of the rows.
INLINE void multiply_units(const uint16_t *panel, const uint16_t *x, int halves) {
    _tile_loadd(4, panel, 64);
    _tile_loadd(6, x, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (halves == 2) {
        _tile_loadd(7, x + UNIT, 64);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_loadd(5, panel + UNIT, 64);
    _tile_dpbf16ps(2, 5, 6);
    if (halves == 2) _tile_dpbf16ps(3, 5, 7);
}

INLINE void zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void store_sums(float *sums) { // four unit tiles, 16 features by 16 rows each
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    _tile_stored(2, sums + 512, 64);
    _tile_stored(3, sums + 768, 64);
}

// sums (4 unit tiles: features 0..15 of rows 0..15, of rows 16..31, features 16..31 likewise; 16 features, 16 rows) =
// panel x packed rows, over `steps` steps. Meanwhile features [f0, f1) of the next panel are filled, and the lines
// where the sums will go are fetched.
INLINE void multiply(int type, int steps, const uint16_t *panel, const uint16_t *x, int halves, float *sums,
                     const Panel *next, int f0, int f1, const Place *place) {
    Scales c[GROUP / BESIDE_TILES];
    zero_sums();
    for (int s = 0; s < steps; s++, panel += 2 * UNIT, x += 2 * UNIT) {
        multiply_units(panel, x, halves);
        if (s < place->n_rows) {
            __builtin_prefetch(place->y + (size_t)s * place->y_stride, 1);
            __builtin_prefetch(place->y + (size_t)s * place->y_stride + place->n_features - 1, 1);
        }
        for (int f = f0; f < f1; f++) {
            prefetch_block(next, f, s);
            fill_block(type, next, f, s, &c[f - f0]);
        }
    }
    store_sums(sums);
}

INLINE void transpose16(__m512 r[16]) {
    __m512 t[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { // pairs of rows, then fours: 4 x 4 blocks within each 128 bits
        __m512 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        __m512 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { // the blocks themselves
        __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

// One unit tile of sums, features from f and rows from r on, to its place: whole lines where the rows are aligned.
INLINE void write_unit(const float *sums, const Place *p, int f, int r) {
    __m512 v[16], bias = _mm512_setzero_ps();
    int n_features = int_min(16, p->n_features - f), n_rows = int_min(16, p->n_rows - r);
    if (n_features <= 0 || n_rows <= 0) return;
    __mmask16 there = (__mmask16)((1u << n_features) - 1);
    if (p->bias) bias = _mm512_maskz_loadu_ps(there, p->bias + f);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) v[i] = _mm512_load_ps(sums + 16 * i);
    transpose16(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        if (i >= n_rows) break;
        float *out = p->y + (size_t)(r + i) * p->y_stride + f;
        __m512 value = _mm512_add_ps(v[i], bias);
        if (p->add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(there, out));
        _mm512_mask_storeu_ps(out, there, value);
    }
}

static void write_sums(const float *sums, const Place *p) {
    for (int unit = 0; unit < 4; unit++) write_unit(sums + 256 * unit, p, unit / 2 * 16, unit % 2 * 16);
}

// One tile of rows: its sums stay in tiles over DEPTH elements, as those of many tiles do, past panels that stay in L1.
INLINE void run_few(int type, const Tensor *w, int first, int last, const uint16_t *x, int n_rows, float *y,
                    size_t y_stride, bool add, uint16_t *panel) {
    __attribute__((aligned(64))) float sums[GROUP * ROWS];
    int halves = n_rows > 16 ? 2 : 1;
    for (int f0 = first; f0 < last; f0 += GROUP)
        for (int k0 = 0; k0 < w->n_in; k0 += FEW_DEPTH) {
            Panel p = panel_of(type, w, panel, f0, int_min(GROUP, last - f0), k0, int_min(FEW_DEPTH, w->n_in - k0));
            if (k0 % DEPTH == 0) zero_sums();
            clear_panel(&p);
            fill_panel(type, &p);
            for (int s = 0; s * STEP < p.n; s++)
                multiply_units(panel + s * 2 * UNIT, x + (size_t)(k0 / STEP + s) * 2 * UNIT, halves);
            bool whole = k0 + p.n == w->n_in, part = (k0 + FEW_DEPTH) % DEPTH == 0;
            if (!whole && !part) continue;
            store_sums(sums);
            write_sums(sums, &(Place){.y = y + f0,
                                      .y_stride = y_stride,
                                      .bias = w->bias && k0 < DEPTH ? w->bias + f0 : NULL,
                                      .n_features = p.n_features,
                                      .n_rows = n_rows,
                                      .add = add || k0 >= DEPTH});
        }
}

INLINE void run_type(int type, const Tensor *w, int first, int last, const void *packed, int first_row, int n_rows,
                     float *y, size_t y_stride, bool add, void *scratch) {
    // Sums in turns, too: those just stored cannot be read at once, and are written out behind the next products.
    __attribute__((aligned(64))) float sums[2][GROUP * ROWS];
    uint16_t *panels = scratch; // two, filled in turns
    int tiles = (n_rows + ROWS - 1) / ROWS, all_steps = (w->n_in + STEP - 1) / STEP;
    int groups = (last - first + GROUP - 1) / GROUP, n_panels = groups * ((w->n_in + DEPTH - 1) / DEPTH);
    tiles_configure();
    if (tiles == 1) {
        run_few(type, w, first, last, (const uint16_t *)packed + (size_t)(first_row / ROWS * all_steps) * 2 * UNIT,
                n_rows, y + (size_t)first_row * y_stride, y_stride, add, scratch);
        _tile_release();
        return;
    }
    Panel now, next = {.n_features = 0};
    Place place, before = {.n_rows = 0};
    for (int i = -1; i < n_panels; i++) {
        now = next;
        int k0 = (i + 1) / groups * DEPTH, f0 = first + (i + 1) % groups * GROUP;
        next = panel_of(type, w, panels + (i & 1) * GROUP * DEPTH, f0, i + 1 < n_panels ? int_min(GROUP, last - f0) : 0,
                        k0, int_min(DEPTH, w->n_in - k0));
        int steps = (now.n + STEP - 1) / STEP;
        bool beside = i >= 0 && tiles >= BESIDE_TILES && next.n == now.n;
        if (next.n_features) clear_panel(&next);
        for (int t = 0; t < tiles && i >= 0; t++) {
            size_t tile = (size_t)(first_row / ROWS + t);
            const uint16_t *x =
                (const uint16_t *)packed + (tile * (size_t)all_steps + (size_t)(now.k0 / STEP)) * 2 * UNIT;
            int from = beside ? next.n_features * t / tiles : 0, to = beside ? next.n_features * (t + 1) / tiles : 0;
            place = (Place){.y = y + tile * ROWS * y_stride + now.first,
                            .y_stride = y_stride,
                            .bias = w->bias && now.k0 == 0 ? w->bias + now.first : NULL,
                            .n_features = now.n_features,
                            .n_rows = int_min(ROWS, n_rows - t * ROWS),
                            .add = add || now.k0 > 0};
            if (place.n_rows > 16) multiply(type, steps, now.to, x, 2, sums[t & 1], &next, from, to, &place);
            else multiply(type, steps, now.to, x, 1, sums[t & 1], &next, from, to, &place);
            if (before.n_rows) write_sums(sums[~t & 1], &before);
            before = place;
        }
        if (before.n_rows) write_sums(sums[~tiles & 1], &before);
        before.n_rows = 0;
        if (!beside && next.n_features) fill_panel(type, &next);
    }
    _tile_release();
}

// One function a type: in a larger one the compiler would run out of registers.
#define DEFINE_RUN(TYPE)                                                                                               \
    static __attribute__((noinline)) void run_##TYPE(const Tensor *w, int first, int last, const void *packed,         \
                                                     int first_row, int n_rows, float *y, size_t y_stride, bool add,   \
                                                     void *scratch) {                                                  \
        run_type(TYPE, w, first, last, packed, first_row, n_rows, y, y_stride, add, scratch);                          \
    }
EACH_TYPE(DEFINE_RUN)

#define RUN_CASE(TYPE)                                                                                                 \
    case TYPE: run_##TYPE(w, first, last, packed, first_row, n_rows, y, y_stride, add, scratch); break;
static void run(const Tensor *w, int first, int last, const void *packed, int first_row, int n_rows, float *y,
                size_t y_stride, bool add, void *scratch) {
    switch (w->type) { EACH_TYPE(RUN_CASE) }
}

const MatrixKernel *cpu_amx_matrix(int type) {
    static const MatrixKernel kernel = {
        .min_rows = 12,
        .tile = ROWS,
        .features = FEATURES,
        .rows = ROW_BLOCK,
        .depth = DEPTH,
        .scratch = 2 * GROUP * DEPTH * sizeof(uint16_t),
        .packed_bytes = packed_bytes,
        .pack = pack,
        .run = run,
    };
    return type == TYPE_F32 ? NULL : &kernel;
}
