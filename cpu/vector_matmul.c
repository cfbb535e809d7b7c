// cpu/vector_matmul.c: products of weights with many rows of activations. Lanes are rows; weights are broadcast from
// panels in f32.
#include "cpu/vector.h"

#include "cpu/vector_tile.h"

enum {
    KC = 256,               // depth of a panel: a tile of rows of this depth stays in L1 for all features
    PANEL_STRIDE = KC + 16, // not a power of two, so that rows do not share cache sets
    ROW_BLOCK = 512,        // rows of a task, which keeps their sums in its scratch memory
};

static size_t packed_bytes(int n_rows, int n_in) { return round_up((size_t)n_rows, T) * (size_t)n_in * sizeof(float); }

// Packs a tile of rows as (n_in, T): element k of all rows side by side; missing rows are zero.
static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    float *out = (float *)packed + (size_t)tile * T * (size_t)n_in;
    for (int r = 0; r < T; r += 4) {
        int k = 0;
        if (r + 4 <= n_rows)
            for (; k + 4 <= n_in; k += 4) {
                v4f v[4];
                for (int i = 0; i < 4; i++) memcpy(&v[i], x + (size_t)(r + i) * x_stride + k, sizeof v[i]);
                transpose4(v);
                for (int i = 0; i < 4; i++) memcpy(out + (size_t)(k + i) * T + r, &v[i], sizeof v[i]);
            }
        for (; k < n_in; k++)
            for (int i = r; i < r + 4; i++) out[(size_t)k * T + i] = i < n_rows ? x[(size_t)i * x_stride + k] : 0;
    }
}

// Writes up to four features of up to four rows: sums (feature, T) to y(row, feature), with bias.
INLINE void write_square(const float *sums, int n_features, int n_rows, const float *bias, float *y, size_t y_stride,
                         bool add) {
    size_t width = (size_t)n_features * sizeof *y;
    v4f v[4], b = {0};
    if (bias) memcpy(&b, bias, width);
    for (int i = 0; i < 4; i++) memcpy(&v[i], sums + i * T, sizeof v[i]);
    transpose4(v);
    for (int i = 0; i < n_rows; i++, y += y_stride) {
        v4f before = {0};
        if (add) memcpy(&before, y, width);
        v[i] = before + (v[i] + b);
        memcpy(y, &v[i], width);
    }
}

// Writes the sums (n_features, T) of a tile to y(row, first + feature); y points to the tile's first row. Writes four
// rows from end to end, since rows of y often share cache sets. Sums after the last feature are read but not used.
static void write_tile(const Tensor *w, int first, int n_features, const float *sums, int n_rows, float *y,
                       size_t y_stride, bool add) {
    for (int r = 0; r < n_rows; r += 4, y += 4 * y_stride)
        for (int f = 0; f < n_features; f += 4) {
            const float *from = sums + f * T + r, *bias = w->bias ? w->bias + first + f : NULL;
            int wide = int_min(4, n_features - f), high = int_min(4, n_rows - r);
            if (wide == 4 && high == 4) write_square(from, 4, 4, bias, y + first + f, y_stride, add);
            else write_square(from, wide, high, bias, y + first + f, y_stride, add);
        }
}

// Loads elements [k0, k0 + n) of the features' rows, PANEL_STRIDE apart. The hardware does not prefetch such short
// pieces of distant rows: they are prefetched some rows ahead.
static void load_panel(const Tensor *w, int first, int n_features, int k0, int n, float *panel) {
    enum { ROWS_AHEAD = 6 };
    size_t piece = w->row_bytes * (size_t)n / (size_t)w->n_in;
    const char *data = (const char *)w->data + w->row_bytes * (size_t)k0 / (size_t)w->n_in;
    for (int f = first; f < first + n_features; f++, panel += PANEL_STRIDE) {
        const char *ahead = data + (size_t)(f + ROWS_AHEAD) * w->row_bytes;
        for (size_t at = 0; at < piece; at += 64) __builtin_prefetch(ahead + at);
        vector_load_row(w, f, k0 / 32, n, panel);
    }
}

static void multiply_features(const MatrixTask *t) {
    const Tensor *w = t->w;
    float *panel = t->scratch, *sums = panel + FEATURES * PANEL_STRIDE;
    int n_rows = t->n_rows, n_features = t->last - t->first, padded = (int)round_up((size_t)n_features, NF);
    size_t tile = (size_t)w->n_in * T, tile_sums = (size_t)padded * T;
    const float *rows = (const float *)t->packed + (size_t)(t->first_row / T) * tile;
    float *y = t->y + (size_t)t->first_row * t->y_stride;
    memset(panel + (size_t)n_features * PANEL_STRIDE, 0, (size_t)(padded - n_features) * PANEL_STRIDE * sizeof *panel);
    memset(sums, 0, round_up((size_t)n_rows, T) / T * tile_sums * sizeof *sums);
    for (int k0 = 0, n; k0 < w->n_in; k0 += n) {
        n = int_min(KC, w->n_in - k0);
        load_panel(w, t->first, n_features, k0, n, panel);
        for (int r = 0; r < n_rows; r += T) {
            const float *x = rows + (size_t)(r / T) * tile + (size_t)k0 * T;
            const char *next =
                (const char *)(r + T < n_rows ? x + tile : rows + (size_t)(k0 + n) % (size_t)w->n_in * T);
            float *c = sums + (size_t)(r / T) * tile_sums;
            for (int f = 0; f < padded; f += NF, next += KC / UNROLL * AHEAD)
                multiply_tile(n, panel + f * PANEL_STRIDE, PANEL_STRIDE, 1, x, c + f * T, next);
            if (k0 + n == w->n_in)
                write_tile(w, t->first, n_features, c, int_min(T, n_rows - r), y + (size_t)r * t->y_stride, t->y_stride,
                           t->add);
        }
    }
}

const MatrixKernel vector_matmul = {
    .min_rows = VL == 16 ? 13 : 9,
    .tile = T,
    .features = FEATURES,
    .least = FEATURES,
    .rows = ROW_BLOCK,
    .scratch = (FEATURES * PANEL_STRIDE + FEATURES * ROW_BLOCK) * sizeof(float),
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = multiply_features,
};
