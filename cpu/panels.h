// cpu/panels.h: shared by kernels for many rows whose lanes are rows of activations (cpu/int8_panels.c,
// cpu/bf16_panels.c, cpu/int8_panels_avx2.c): sixteen rows, or eight, packed side by side, times weights that are
// broadcast from a panel in the cache.
//
// A panel holds a part of the depth of up to PANEL_FEATURES rows of weights. It is unpacked once for all rows of a
// task. The sums of a task, (tile of rows, feature, row), stay in its scratch memory until the last panel.
#ifndef QUILL_CPU_PANELS_H
#define QUILL_CPU_PANELS_H

#include "cpu/cpu.h"

#if QUILL_SIMD == 512
#include "cpu/transpose16.h"
typedef __m512 PanelLanes;
#else
#include "cpu/transpose8.h"
typedef __m256 PanelLanes;
#endif

enum {
    LANES = VL,          // rows of activations in a packed tile
    PANEL_FEATURES = 96, // features of a panel, a multiple of 6, 12 and 16
    ROW_BLOCK = 512,     // rows of a task
    // up to this number of rows a panel has FEW_FEATURES, whose weights fit into L2 when they are prefetched
    FEW_ROWS = 48,
    FEW_FEATURES = 48,
    TILE_SUMS = PANEL_FEATURES * LANES,
};

typedef struct {
    const Tensor *w;
    const void *x; // packed activations, from the first row on
    int n_rows;
    int tile; // number of the first row's tile
    float *y; // results, from the first row on
    size_t y_stride;
    bool add;
} PanelTask;

// Weights of the next panel, to prefetch: rows `stride` bytes apart. at NULL: none.
typedef struct {
    const uint8_t *at;
    size_t stride;
} PanelAhead;

// The weights from byte `at` of the same features' rows on; if `at` is past the rows' end, those of the next features.
static PanelAhead panel_ahead(const Tensor *w, int first, int n_features, size_t at) {
    size_t f = (size_t)(at < w->row_bytes ? first : first + n_features);
    return (PanelAhead){(const uint8_t *)w->data + f * w->row_bytes + (at < w->row_bytes ? at : 0), w->row_bytes};
}

// Prefetches part b of 8 of the next `bytes` of F rows, during the products of block b of a superblock. F is a constant
// in every copy.
INLINE void panel_fetch(const PanelAhead *ahead, int F, size_t bytes, int b) {
    size_t lines = (bytes + 63) / 64, first = (size_t)b * lines / 8, end = (size_t)(b + 1) * lines / 8;
    for (size_t line = first; line < end; line++) {
        UNROLL(12)
        for (int f = 0; f < F; f++) __builtin_prefetch(ahead->at + (size_t)f * ahead->stride + 64 * line, 0, 2);
    }
}

// Writes the sums of a tile, (feature, row), to y.
static void panel_write(const PanelTask *t, int first, int n_features, const float *sums, int tile) {
    for (int f = 0; f < n_features; f += LANES, sums += LANES * LANES) {
        PanelLanes v[LANES];
#if QUILL_SIMD == 512
        UNROLL(16)
        for (int i = 0; i < LANES; i++) v[i] = _mm512_loadu_ps(sums + LANES * i);
        transpose16(v);
#else
        UNROLL(8)
        for (int i = 0; i < LANES; i++) v[i] = _mm256_loadu_ps(sums + LANES * i);
        transpose8(v);
#endif
        write_rows(v, t->n_rows - tile * LANES, n_features - f, t->w->bias ? t->w->bias + first + f : NULL, t->add,
                   t->y + (size_t)(tile * LANES) * t->y_stride + first + f, t->y_stride);
    }
}

// Fetches the lines of y that a panel will write, before its products. Results of experts are larger than the caches,
// so that the stores of panel_write would wait for memory.
static void panel_claim(const float *y, size_t y_stride, int n_rows, int n_features) {
    for (int r = 0; r < n_rows; r++, y += y_stride)
        for (int i = 0; i < n_features; i += 16) __builtin_prefetch(y + i, 1, 2);
}

// Computes features [first, first + n_features) of all rows of a task, at most PANEL_FEATURES.
typedef void RunPanel(const PanelTask *t, int first, int n_features, void *scratch);

// MatrixKernel.run for panels. tile_bytes: size of one packed tile of rows.
static void panels_run(const MatrixTask *task, size_t tile_bytes, RunPanel *run_panel) {
    int tile = task->first_row / LANES;
    PanelTask t = {.w = task->w,
                   .x = (const uint8_t *)task->packed + (size_t)tile * tile_bytes,
                   .n_rows = task->n_rows,
                   .tile = tile,
                   .y = task->y + (size_t)task->first_row * task->y_stride,
                   .y_stride = task->y_stride,
                   .add = task->add};
    int step = t.n_rows <= FEW_ROWS ? FEW_FEATURES : PANEL_FEATURES;
    for (int f = task->first; f < task->last; f += step) {
        int n = int_min(step, task->last - f);
        panel_claim(t.y + f, t.y_stride, t.n_rows, n);
        run_panel(&t, f, n, task->scratch);
    }
}

#endif
