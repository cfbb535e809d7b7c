// cpu/bf16_panels.c: products of many rows in bf16 on AVX-512 (vdpbf16ps): weights of 16 bits, copied or rounded to
// panels of bf16, times activations rounded to bf16.
//
// Lanes, panels and tasks are those of cpu/int8_panels.c. A lane takes two elements at a time, and each f32 sum is
// added from the first to the last element of a row, whatever other rows there are. The instruction treats subnormal
// inputs as zero.
#define QUILL_SIMD 512
#include "cpu/cpu.h"

#include "cpu/bf16_pairs.h"
#include "cpu/panels.h"
#include "cpu/vector.h"

enum {
    DEPTH = 256,       // elements of a panel's row: four tiles of rows of this depth stay in L1
    STEPS = DEPTH / 2, // pairs of elements of a panel's row
    // pairs from one row to the next; not a power of two, so that rows do not share cache sets
    ROW_PAIRS = STEPS + 16,
    PIECE = 16,              // pairs of a row that are loaded together
    ONE_TILE_FEATURES = 12,  // number of features computed together with one tile of rows
    FOUR_TILES_FEATURES = 6, // number of features computed together with four tiles
};

// Elements 2k and 2k + 1, in bf16, of the sixteen rows of a tile.
typedef uint32_t RowPairs[LANES];

typedef struct {
    uint32_t rows[PANEL_FEATURES][ROW_PAIRS];
    float sums[2][ROW_BLOCK / LANES * TILE_SUMS]; // (matrix, tile of rows, feature, row), as in cpu/int8_panels.c
} Bf16PanelScratch;

static size_t pairs_of(int n_in) { return round_up((size_t)n_in, 2 * PIECE) / 2; }

// Pairs from one packed tile to the next. A distance of 64 KiB would map the same columns of all tiles to the same few
// sets of L2.
static size_t tile_pairs(int n_in) { return pairs_of(n_in) + 2 * PIECE; }

// ---- activations ----------------------------------------------------------------------------------------------------

static size_t packed_bytes(int n_rows, int n_in) {
    return round_up((size_t)n_rows, LANES) / LANES * tile_pairs(n_in) * sizeof(RowPairs);
}

static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    RowPairs *p = (RowPairs *)packed + (size_t)tile * tile_pairs(n_in);
    for (int i = 0; i < n_in; i += 2 * PIECE, p += PIECE) {
        __m512 r[16];
        __mmask16 low = lanes(n_in - i), high = lanes(n_in - i - 16);
        UNROLL(16)
        for (int k = 0; k < LANES; k++) {
            const float *row = x + (size_t)k * x_stride + i;
            r[k] = k < n_rows ? _mm512_castsi512_ps(
                                    round_32(_mm512_maskz_loadu_ps(low, row), _mm512_maskz_loadu_ps(high, row + 16)))
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
                v = round_32(_mm512_cvtph_ps(_mm512_castsi512_si256(v)),
                             _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1)));
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
    enum { MOST = FOUR_TILES_FEATURES * 4 };
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
            __m512bh pairs[4];
            UNROLL(4)
            for (int v = 0; v < V; v++) memcpy(&pairs[v], p->x[(size_t)v * p->apart + (size_t)(k + i)], 64);
            UNROLL(12)
            for (int f = 0; f < F; f++) {
                __m512i weights = _mm512_set1_epi32((int)w[f * ROW_PAIRS + i]);
                __m512bh pair;
                memcpy(&pair, &weights, sizeof pair);
                UNROLL(4)
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
static __attribute__((noinline)) void multiply_four(const Bf16Product *p) {
    for (int f = 0; f < p->n_features; f += FOUR_TILES_FEATURES) multiply_rows(p, f, FOUR_TILES_FEATURES, 4);
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// Fills the panel with elements [k, k + n) of a task's features, and adds their products to the sums of all rows.
// `ahead`: the weights of the next panel.
static void add_panel(const PanelTask *t, int first, int n_features, int k, int n, PanelAhead ahead,
                      Bf16PanelScratch *scratch, float *sums) {
    const int n_tiles = (t->n_rows + LANES - 1) / LANES;
    load_panel(t->w, first, n_features, k, n, scratch->rows);
    Bf16Product p = {.w = (const uint32_t(*)[ROW_PAIRS])scratch->rows,
                     .n_features = (int)round_up((size_t)n_features, ONE_TILE_FEATURES),
                     .steps = (int)pairs_of(n),
                     .x = (const RowPairs *)t->x + k / 2,
                     .apart = tile_pairs(t->w->n_in),
                     .sums = sums,
                     .ahead = ahead};
    for (int tile = 0, step; tile < n_tiles; tile += step, p.ahead.at = NULL) {
        step = n_tiles - tile >= 4 ? 4 : 1;
        if (step == 4) multiply_four(&p);
        else multiply_one(&p);
        p.x += (size_t)step * p.apart;
        p.sums += (size_t)step * TILE_SUMS;
    }
}

// Computes the sums of features [first, first + n_features) of all rows, at most PANEL_FEATURES, of one task or two.
static void multiply_tasks(const PanelTask *tasks, int n_tasks, int first, int n_features, Bf16PanelScratch *scratch) {
    const int n_tiles = (tasks->n_rows + LANES - 1) / LANES, n_in = tasks->w->n_in;
    const int padded = (int)round_up((size_t)n_features, ONE_TILE_FEATURES);
    for (int f = n_features; f < padded; f++) memset(scratch->rows[f], 0, sizeof scratch->rows[f]);
    for (int i = 0; i < n_tasks; i++) memset(scratch->sums[i], 0, (size_t)n_tiles * TILE_SUMS * sizeof(float));
    for (int k = 0; k < n_in; k += DEPTH)
        for (int i = 0; i < n_tasks; i++) {
            int n = int_min(DEPTH, n_in - k), next = (i + 1) % n_tasks;
            PanelAhead ahead = panel_ahead(tasks[next].w, first, n_features, (size_t)(next ? k : k + n) * 2);
            add_panel(&tasks[i], first, n_features, k, n, ahead, scratch, scratch->sums[i]);
        }
}

static void run_panel(const PanelTask *t, int first, int n_features, void *room) {
    Bf16PanelScratch *scratch = room;
    multiply_tasks(t, 1, first, n_features, scratch);
    for (int tile = 0; tile * LANES < t->n_rows; tile++)
        panel_write(t, first, n_features, scratch->sums[0] + (size_t)tile * TILE_SUMS, tile);
}

static void run_bf16_panels(const MatrixTask *t) {
    panels_run(t, tile_pairs(t->w->n_in) * sizeof(RowPairs), run_panel);
}

// Packs n_features values of a tile to h. Missing features up to a multiple of 32 have sums of zero.
static void write_pairs(const float *values, int n_features, RowPairs *h) {
    for (int k = 0; k < (int)pairs_of(n_features); k++, values += 2 * LANES)
        _mm512_storeu_si512(h[k], pair_of(_mm512_loadu_ps(values), _mm512_loadu_ps(values + LANES)));
}

static void run_glu(const MatrixTask *t) {
    Bf16PanelScratch *scratch = t->scratch;
    const int n_features = t->last - t->first;
    const size_t tile = (size_t)(t->first_row / LANES), apart = tile_pairs(t->w->n_out);
    const RowPairs *x = (const RowPairs *)t->packed + tile * tile_pairs(t->w->n_in);
    const PanelTask tasks[] = {{.w = t->gate, .x = x, .n_rows = t->n_rows}, {.w = t->w, .x = x, .n_rows = t->n_rows}};
    multiply_tasks(tasks, 2, t->first, n_features, scratch);
    RowPairs *to = (RowPairs *)t->h + tile * apart + t->first / 2;
    for (int i = 0; i * LANES < t->n_rows; i++, to += apart) {
        float *sums = scratch->sums[0] + (size_t)i * TILE_SUMS;
        vector_gate(t->act, sums, scratch->sums[1] + (size_t)i * TILE_SUMS, n_features * LANES);
        write_pairs(sums, n_features, to);
    }
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
        .run_glu = run_glu,
        .glu_features = PANEL_FEATURES,
        .glu_least = PANEL_FEATURES,
    };
    return type == TYPE_BF16 || type == TYPE_F16 ? &kernel : NULL;
}
