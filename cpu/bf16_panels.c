// cpu/bf16_panels.c: products of many rows in bf16 on AVX-512 (vdpbf16ps): weights of 16 bits, copied or rounded to
// panels of bf16, times activations rounded to bf16.
//
// Lanes, panels and tasks are those of cpu/int8_panels.c. A lane takes two elements at a time, and each f32 sum is
// added from the first to the last element of a row, whatever other rows there are. The instruction treats subnormal
// inputs as zero.
#define QUILL_SIMD 512
#include "cpu/cpu.h"

#include "cpu/panels.h"

enum {
    DEPTH = 512,       // elements of a panel's row
    STEPS = DEPTH / 2, // pairs of elements of a panel's row
    // pairs from one row to the next; not a power of two, so that rows do not share cache sets
    ROW_PAIRS = STEPS + 16,
    PIECE = 16,               // pairs of a row that are loaded together
    ONE_TILE_FEATURES = 12,   // number of features computed together with one tile of rows
    THREE_TILES_FEATURES = 8, // number of features computed together with three tiles
};

// Elements 2k and 2k + 1, in bf16, of the sixteen rows of a tile.
typedef uint32_t RowPairs[LANES];

typedef struct {
    uint32_t rows[PANEL_FEATURES][ROW_PAIRS];
    float sums[ROW_BLOCK / LANES * TILE_SUMS];
} Bf16PanelScratch;

static size_t pairs_of(int n_in) { return round_up((size_t)n_in, 2 * PIECE) / 2; }

// ---- activations ----------------------------------------------------------------------------------------------------

static size_t packed_bytes(int n_rows, int n_in) {
    return round_up((size_t)n_rows, LANES) / LANES * pairs_of(n_in) * sizeof(RowPairs);
}

INLINE __m512 round_32(__m512 low, __m512 high) {
    __m512bh half = _mm512_cvtne2ps_pbh(high, low);
    __m512 out;
    memcpy(&out, &half, sizeof out);
    return out;
}

static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    RowPairs *p = (RowPairs *)packed + (size_t)tile * pairs_of(n_in);
    for (int i = 0; i < n_in; i += 2 * PIECE, p += PIECE) {
        __m512 r[16];
        __mmask16 low = lanes(n_in - i), high = lanes(n_in - i - 16);
        UNROLL(16)
        for (int k = 0; k < LANES; k++) {
            const float *row = x + (size_t)k * x_stride + i;
            r[k] = k < n_rows ? round_32(_mm512_maskz_loadu_ps(low, row), _mm512_maskz_loadu_ps(high, row + 16))
                              : _mm512_setzero_ps();
        }
        transpose16(r);
        UNROLL(16)
        for (int k = 0; k < PIECE; k++) _mm512_storeu_ps((float *)(void *)p[k], r[k]);
    }
}

// ---- weights --------------------------------------------------------------------------------------------------------

// Loads elements [k0, k0 + n) of n_features rows from `first` on; n need not be a multiple of a piece.
static void load_panel(const Tensor *w, int first, int n_features, int k0, int n, uint32_t (*to)[ROW_PAIRS]) {
    for (int f = 0; f < n_features; f++, to++) {
        const uint16_t *row = (const uint16_t *)(const void *)((const uint8_t *)w->data +
                                                               (size_t)(first + f) * w->row_bytes + (size_t)k0 * 2);
        for (int i = 0; i < n; i += 2 * PIECE) {
            __mmask32 there = n - i >= 32 ? 0xffffffff : (1u << (n - i)) - 1;
            __m512i v = _mm512_maskz_loadu_epi16(there, row + i);
            if (w->type == TYPE_F16)
                v = _mm512_castps_si512(round_32(_mm512_cvtph_ps(_mm512_castsi512_si256(v)),
                                                 _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1))));
            _mm512_storeu_si512(*to + i / 2, v);
        }
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

typedef struct {
    const uint32_t (*w)[ROW_PAIRS];
    int n_features, steps;
    const RowPairs *x;
    size_t apart; // pairs from one tile to the next
    float *sums;  // sums of the first tile
    PanelAhead ahead;
} Bf16Product;

// sums += F rows of a panel times V tiles; F and V are constants in every copy.
INLINE void multiply_rows(const Bf16Product *p, int f0, int F, int V) {
    enum { MOST = THREE_TILES_FEATURES * 3 };
    const uint32_t *w = p->w[f0];
    const uint8_t *next = p->ahead.at ? p->ahead.at + (size_t)f0 * p->ahead.stride : NULL;
    __m512 sum[MOST];
    UNROLL(24)
    for (int i = 0; i < F * V; i++) sum[i] = _mm512_loadu_ps(p->sums + i % V * TILE_SUMS + (f0 + i / V) * LANES);
    for (int k = 0; k < p->steps; k += PIECE, w += PIECE) {
        if (next) UNROLL(12)
        for (int f = 0; f < F; f++)
            __builtin_prefetch(next + (size_t)f * p->ahead.stride + (size_t)k * sizeof *w, 0, 2);
        UNROLL(4)
        for (int i = 0; i < PIECE; i++) {
            __m512bh pairs[3];
            UNROLL(3)
            for (int v = 0; v < V; v++) memcpy(&pairs[v], p->x[(size_t)v * p->apart + (size_t)(k + i)], 64);
            UNROLL(12)
            for (int f = 0; f < F; f++) {
                __m512i weights = _mm512_set1_epi32((int)w[f * ROW_PAIRS + i]);
                __m512bh pair;
                memcpy(&pair, &weights, sizeof pair);
                UNROLL(3)
                for (int v = 0; v < V; v++) sum[f * V + v] = _mm512_dpbf16_ps(sum[f * V + v], pair, pairs[v]);
            }
        }
    }
    UNROLL(24)
    for (int i = 0; i < F * V; i++) _mm512_storeu_ps(p->sums + i % V * TILE_SUMS + (f0 + i / V) * LANES, sum[i]);
}

static __attribute__((noinline)) void multiply_one(const Bf16Product *p) {
    for (int f = 0; f < p->n_features; f += ONE_TILE_FEATURES) multiply_rows(p, f, ONE_TILE_FEATURES, 1);
}
static __attribute__((noinline)) void multiply_three(const Bf16Product *p) {
    for (int f = 0; f < p->n_features; f += THREE_TILES_FEATURES) multiply_rows(p, f, THREE_TILES_FEATURES, 3);
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// Computes features [first, first + n_features) of all rows of a task, at most PANEL_FEATURES.
static void run_panel(const PanelTask *t, int first, int n_features, void *room) {
    Bf16PanelScratch *scratch = room;
    int n_tiles = (t->n_rows + LANES - 1) / LANES, n_in = t->w->n_in, padded = (int)round_up((size_t)n_features, 24);
    for (int f = n_features; f < padded; f++) memset(scratch->rows[f], 0, sizeof scratch->rows[f]);
    for (int i = 0; i < n_tiles; i++) memset(scratch->sums + (size_t)i * TILE_SUMS, 0, (size_t)padded * LANES * 4);
    for (int k = 0; k < n_in; k += DEPTH) {
        int n = int_min(DEPTH, n_in - k);
        load_panel(t->w, first, n_features, k, n, scratch->rows);
        Bf16Product p = {.w = (const uint32_t(*)[ROW_PAIRS])scratch->rows,
                         .n_features = padded,
                         .steps = (int)pairs_of(n),
                         .x = (const RowPairs *)t->x + k / 2,
                         .apart = pairs_of(n_in),
                         .sums = scratch->sums,
                         .ahead = panel_ahead(t->w, first, n_features, (size_t)(k + n) * 2)};
        for (int tile = 0, step; tile < n_tiles; tile += step, p.ahead.at = NULL) {
            step = n_tiles - tile >= 3 ? 3 : 1;
            if (step == 3) multiply_three(&p);
            else multiply_one(&p);
            p.x += (size_t)step * p.apart;
            p.sums += (size_t)step * TILE_SUMS;
        }
    }
    for (int tile = 0; tile < n_tiles; tile++)
        panel_write(t, first, n_features, scratch->sums + (size_t)tile * TILE_SUMS, tile);
}

static void run_bf16_panels(const Tensor *w, int first, int last, const void *packed, int first_row, int n_rows,
                            float *y, size_t y_stride, bool add, void *scratch) {
    panels_run(w, first, last, packed, pairs_of(w->n_in) * sizeof(RowPairs), first_row, n_rows, y, y_stride, add,
               scratch, run_panel);
}

const MatrixKernel *cpu_bf16_panels(int type) {
    static const MatrixKernel kernel = {
        .min_rows = 4, // measured with weights in memory, not in the cache
        .tile = LANES,
        .features = PANEL_FEATURES,
        .least = FEW_FEATURES,
        .rows = ROW_BLOCK,
        .scratch = sizeof(Bf16PanelScratch),
        .packed_bytes = packed_bytes,
        .pack = pack,
        .run = run_bf16_panels,
    };
    return type == TYPE_BF16 || type == TYPE_F16 ? &kernel : NULL;
}
