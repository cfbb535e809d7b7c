// cpu_amx.c: the matrix kernels on Intel's AMX unit: bf16 products, f32 sums, for every type but F32.
//
// The unit multiplies bf16 alone, eight bits of mantissa. What a file keeps of its weights decides what that may cost:
// quantised weights and the activations they meet are rounded to bf16 (one product); BF16 weights are exact, and
// activations are split in two parts, high and low (two products); F16 weights are split too (three; the product of the
// two low parts is below an f32's rounding).
//
// A task takes FEATURES output features past all rows. Weights become a bf16 panel of 32 features at a depth of KC
// (32 KiB, in L1): row-major, which is what the unit wants of its left operand. Activations were packed once in pairs
// along the depth, what it wants of the right one, and stream from L2. Four tile products a step share two tiles of
// each. Tile shapes and the pair layout: Intel's Architecture Instruction Set Extensions Reference, chapter on AMX.
#define _GNU_SOURCE
#define QUILL_SIMD 512
#include "cpu.h"

#include "unpack.h"

#include <sys/syscall.h>
#include <unistd.h>

enum {
    ROWS = 32,       // rows of activations in a packed tile: two unit tiles of 16
    GROUP = 32,      // features in a panel: two unit tiles of 16
    FEATURES = 128,  // of a task
    KC = 512,        // depth of a panel
    STEP = 32,       // depth of one product
    ROW_BLOCK = 512, // rows whose sums a task keeps
    UNIT = 16 * 32,  // bf16 elements of a unit tile: 16 rows of 64 bytes
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

INLINE size_t packed_bytes(int n_rows, int n_in, int parts) {
    return (size_t)parts * round_up((size_t)n_rows, ROWS) * round_up((size_t)n_in, STEP) * sizeof(uint16_t);
}

// 32 floats as bf16, and what that rounding left.
INLINE __m512bh to_bf16(__m512 a, __m512 b) { return _mm512_cvtne2ps_pbh(b, a); }
INLINE __m512 rest_of(__m512 v) {
    __m256bh high = _mm512_cvtneps_pbh(v);
    __m256i bits;
    memcpy(&bits, &high, sizeof bits);
    return _mm512_sub_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)));
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

// (depth / 32, parts, 2 unit tiles, 16 pairs, 16 rows, 2): pair p of row r holds elements 2p and 2p + 1.
INLINE void pack_parts(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in, int parts) {
    int steps = (n_in + STEP - 1) / STEP;
    uint16_t *out = (uint16_t *)packed + (size_t)tile * (size_t)steps * (size_t)parts * 2 * UNIT;
    for (int s = 0; s < steps; s++, out += parts * 2 * UNIT)
        for (int half = 0; half < 2; half++) {
            __attribute__((aligned(64))) float high[16][16] = {0}, low[16][16] = {0}; // (row, pair of bf16)
            for (int r = 0; r < 16 && 16 * half + r < n_rows; r++) {
                const float *from = x + (size_t)(16 * half + r) * x_stride + STEP * s;
                int n = int_min(STEP, n_in - STEP * s);
                __mmask16 first = (__mmask16)(n >= 16 ? 0xffff : (1 << n) - 1);
                __mmask16 second = (__mmask16)(n >= 32 ? 0xffff : n > 16 ? (1 << (n - 16)) - 1 : 0);
                __m512 a = _mm512_maskz_loadu_ps(first, from), b = _mm512_maskz_loadu_ps(second, from + 16);
                __m512bh bf = to_bf16(a, b);
                memcpy(high[r], &bf, sizeof bf);
                if (parts == 1) continue;
                bf = to_bf16(rest_of(a), rest_of(b));
                memcpy(low[r], &bf, sizeof bf);
            }
            store_pairs(high, out + half * UNIT);
            if (parts == 2) store_pairs(low, out + (2 + half) * UNIT);
        }
}

// n elements of a weight row from block b0 as bf16: the row's lines in the unit tiles of its steps.
INLINE void row_to_bf16(int type, const Tensor *t, int row, int b0, int n, uint16_t *out, int parts) {
    bool i8_whole = type == TYPE_I8G && i8_whole_blocks(t);
    Scales c;
    for (int i = 0; i < n; i += 32, out += parts * 2 * UNIT) {
        vf w[NV];
        if (i % QK_K == 0) load_scales(type, t, row, b0 + i / 32, &c);
        if (n - i >= 32) unpack_block(type, t, i8_whole, row, b0 + i / 32, &c, w);
        else unpack_slow(t, row, 32 * b0 + i, n - i, w);
        __m512bh bf = to_bf16((__m512)w[0], (__m512)w[1]);
        memcpy(out, &bf, sizeof bf);
        if (parts == 1) continue;
        bf = to_bf16(rest_of((__m512)w[0]), rest_of((__m512)w[1]));
        memcpy(out + 2 * UNIT, &bf, sizeof bf);
    }
}

#define ROW_CASE(TYPE)                                                                                                 \
    case TYPE: row_to_bf16(TYPE, t, row, b0, n, out, 1); break;
static void load_row(const Tensor *t, int row, int b0, int n, uint16_t *out, int parts) {
    if (parts == 2) row_to_bf16(TYPE_F16, t, row, b0, n, out, 2);
    else switch (t->type) {
            EACH_TYPE(ROW_CASE)
        }
}

// (depth / 32, parts, 2 unit tiles, 16 features, 32): features past the end are zero.
static void fill_panel(const Tensor *w, int first, int n_features, int k0, int n, uint16_t *panel, int parts) {
    int steps = (n + STEP - 1) / STEP;
    if (n_features < GROUP) memset(panel, 0, (size_t)steps * (size_t)parts * 2 * UNIT * sizeof *panel);
    for (int f = 0; f < n_features; f++)
        load_row(w, first + f, k0 / 32, n, panel + f / 16 * UNIT + f % 16 * STEP, parts);
}

// Sums 0..3 += the panel's two unit tiles times the rows' two.
INLINE void multiply_units(const uint16_t *panel, const uint16_t *x) {
    _tile_loadd(4, panel, 64);
    _tile_loadd(6, x, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, x + UNIT, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, panel + UNIT, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

// sums (32 features, 32 rows) += panel x packed rows, over `steps` steps. wp and xp: parts of weights and activations.
INLINE void multiply(int steps, const uint16_t *panel, int wp, const uint16_t *x, int xp, float *sums) {
    enum { SUMS_STRIDE = ROWS * sizeof(float) };
    _tile_loadd(0, sums, SUMS_STRIDE);
    _tile_loadd(1, sums + 16, SUMS_STRIDE);
    _tile_loadd(2, sums + 16 * ROWS, SUMS_STRIDE);
    _tile_loadd(3, sums + 16 * ROWS + 16, SUMS_STRIDE);
    for (int s = 0; s < steps; s++, panel += wp * 2 * UNIT, x += xp * 2 * UNIT) {
        multiply_units(panel, x);
        if (xp == 2) multiply_units(panel, x + 2 * UNIT);
        if (wp == 2) multiply_units(panel + 2 * UNIT, x);
    }
    _tile_stored(0, sums, SUMS_STRIDE);
    _tile_stored(1, sums + 16, SUMS_STRIDE);
    _tile_stored(2, sums + 16 * ROWS, SUMS_STRIDE);
    _tile_stored(3, sums + 16 * ROWS + 16, SUMS_STRIDE);
}

// sums: (features, ROWS) of one tile of rows -> y(row, first + feature), with bias.
static void write_sums(const Tensor *w, int first, int n_features, const float *sums, int n_rows, float *y,
                       size_t y_stride, bool add) {
    for (int f = 0; f < n_features; f += 4) {
        size_t n = (size_t)int_min(4, n_features - f) * sizeof(float); // bytes of the features that are there
        v4f bias = {0};
        if (w->bias) memcpy(&bias, w->bias + first + f, n);
        for (int r = 0; r < n_rows; r += 4) {
            v4f v[4];
            for (int i = 0; i < 4; i++) memcpy(&v[i], sums + (f + i) * ROWS + r, sizeof v[i]);
            transpose4(v);
            for (int i = 0; i < 4 && r + i < n_rows; i++) {
                float *out = y + (size_t)(r + i) * y_stride + first + f;
                v4f value = v[i] + bias, old = {0};
                if (n == sizeof value) {
                    if (add) memcpy(&old, out, sizeof old);
                    value += old;
                    memcpy(out, &value, sizeof value);
                } else {
                    if (add) memcpy(&old, out, n);
                    value += old;
                    memcpy(out, &value, n);
                }
            }
        }
    }
}

INLINE void run_parts(const Tensor *w, int first, int last, const void *packed, int n_rows, float *y, size_t y_stride,
                      bool add, void *scratch, int wp, int xp) {
    uint16_t *panel = scratch;
    float *sums = (float *)(panel + 2 * GROUP * KC); // (tile of rows, FEATURES, ROWS)
    int n_features = last - first, groups = (n_features + GROUP - 1) / GROUP;
    int all_steps = (w->n_in + STEP - 1) / STEP;
    tiles_configure();
    for (int r0 = 0; r0 < n_rows; r0 += ROW_BLOCK) {
        int rows = int_min(ROW_BLOCK, n_rows - r0), tiles = (rows + ROWS - 1) / ROWS;
        memset(sums, 0, (size_t)tiles * FEATURES * ROWS * sizeof *sums);
        for (int k0 = 0; k0 < w->n_in; k0 += KC) {
            int n = int_min(KC, w->n_in - k0), steps = (n + STEP - 1) / STEP;
            for (int g = 0; g < groups; g++) {
                fill_panel(w, first + g * GROUP, int_min(GROUP, n_features - g * GROUP), k0, n, panel, wp);
                for (int t = 0; t < tiles; t++) {
                    size_t tile = (size_t)(r0 / ROWS + t) * (size_t)all_steps + (size_t)(k0 / STEP);
                    multiply(steps, panel, wp, (const uint16_t *)packed + tile * (size_t)xp * 2 * UNIT, xp,
                             sums + ((size_t)t * FEATURES + (size_t)g * GROUP) * ROWS);
                }
            }
        }
        for (int t = 0; t < tiles; t++)
            write_sums(w, first, n_features, sums + (size_t)t * FEATURES * ROWS, int_min(ROWS, rows - t * ROWS),
                       y + (size_t)(r0 + t * ROWS) * y_stride, y_stride, add);
    }
    _tile_release();
}

static size_t packed_bytes_1(int n_rows, int n_in) { return packed_bytes(n_rows, n_in, 1); }
static size_t packed_bytes_2(int n_rows, int n_in) { return packed_bytes(n_rows, n_in, 2); }
static void pack_1(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    pack_parts(packed, tile, x, x_stride, n_rows, n_in, 1);
}
static void pack_2(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    pack_parts(packed, tile, x, x_stride, n_rows, n_in, 2);
}

#define DEFINE_RUN(NAME, WP, XP)                                                                                       \
    static void NAME(const Tensor *w, int first, int last, const void *packed, int n_rows, float *y, size_t y_stride,  \
                     bool add, void *scratch) {                                                                        \
        run_parts(w, first, last, packed, n_rows, y, y_stride, add, scratch, WP, XP);                                  \
    }
DEFINE_RUN(run_rounded, 1, 1)
DEFINE_RUN(run_bf16, 1, 2)
DEFINE_RUN(run_f16, 2, 2)

#define KERNEL(RUN, PARTS)                                                                                             \
    {                                                                                                                  \
        .tile = ROWS, .features = FEATURES,                                                                            \
        .scratch = 2 * GROUP * KC * sizeof(uint16_t) + (size_t)FEATURES * ROW_BLOCK * sizeof(float),                   \
        .packed_bytes = packed_bytes_##PARTS, .pack = pack_##PARTS, .run = RUN                                         \
    }

const MatrixKernel *cpu_amx_matrix(int type) {
    static const MatrixKernel rounded = KERNEL(run_rounded, 1), bf16 = KERNEL(run_bf16, 2), f16 = KERNEL(run_f16, 2);
    if (type == TYPE_F32) return NULL;
    return type == TYPE_BF16 ? &bf16 : type == TYPE_F16 ? &f16 : &rounded;
}
