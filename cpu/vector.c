// cpu/vector.c: the vector kernels of the CPU backend, compiled once per instruction set (QUILL_SIMD, see simd.h).
//
// Weights are unpacked to f32 in registers, straight from the file's blocks, and all arithmetic is f32. Three shapes of
// loop: matvec (few rows: lanes run along a weight row), a matrix kernel (many rows: lanes are rows of activations,
// weights are broadcast), and attention, which uses the matrix kernel's inner loop for many queries and a loop along
// the keys for few.
#include "cpu/cpu.h"

#include "cpu/unpack.h"

#include <limits.h>

#define ROW_CASE(TYPE)                                                                                                 \
    case TYPE: row_to_f32(TYPE, t, row, b0, n, out); break;
static void load_row(const Tensor *t, int row, int b0, int n, float *out) {
    switch (t->type) { EACH_TYPE(ROW_CASE) }
}

static void embed(const Tensor *t, int row, float *out) {
    float chunk[QK_K];
    for (int i = 0; i < t->n_in; i += QK_K) {
        int n = int_min(QK_K, t->n_in - i);
        load_row(t, row, i / 32, n, chunk);
        memcpy(out + i, chunk, (size_t)n * sizeof *out);
    }
}

// ---- few rows -------------------------------------------------------------------------------------------------------

// One weight row times one row of activations: the loop of decoding. The matrix is read as one stream from front to
// back, which is what the memory system is best at; four sums hide the latency of the additions.
INLINE void matvec_one(int type, const Tensor *t, int f, const float *x, float *y, bool add) {
    enum { AHEAD = 1536 }; // bytes to prefetch ahead of the loop
    vf sum[4] = {0};
    bool i8_whole = type == TYPE_I8G && i8_whole_blocks(t);
    int n_blocks = t->n_in / 32, tail = t->n_in % 32, b = 0;
    const char *stream = (const char *)t->data + (size_t)f * t->row_bytes;
    size_t block_bytes = n_blocks ? t->row_bytes / (size_t)n_blocks : 0;
    Scales c;
    for (; b + 8 <= n_blocks; b += 8) {
        const char *ahead = stream + (size_t)b * block_bytes + AHEAD;
        for (size_t at = 0; at < 8 * block_bytes; at += 64) __builtin_prefetch(ahead + at);
        load_scales(type, t, f, b, &c);
#if QUILL_SIMD // where a shift by a constant is one instruction; elsewhere it would only be long
#pragma GCC unroll 8
#endif
        for (int i = 0; i < 8; i++) {
            vf w[NV];
            unpack_block(type, t, i8_whole, f, b + i, &c, w);
#pragma GCC unroll 8
            for (int k = 0; k < NV; k++) sum[(NV * i + k) % 4] += w[k] * vload(x + 32 * (size_t)(b + i) + VL * k);
        }
    }
    for (; b < n_blocks; b++) { // rows of K-quants are whole super-blocks: none of theirs are left
        vf w[NV];
        unpack_block(type, t, i8_whole, f, b, &c, w);
#pragma GCC unroll 8
        for (int k = 0; k < NV; k++) sum[k % 4] += w[k] * vload(x + 32 * (size_t)b + VL * k);
    }
    if (tail) {
        float xt[32] = {0};
        vf w[NV];
        memcpy(xt, x + 32 * (size_t)b, (size_t)tail * sizeof *xt);
        unpack_slow(t, f, 32 * b, tail, w);
#pragma GCC unroll 8
        for (int k = 0; k < NV; k++) sum[k % 4] += w[k] * vload(xt + VL * k);
    }
    float value = vsum((sum[0] + sum[1]) + (sum[2] + sum[3])) + (t->bias ? t->bias[f] : 0);
    y[f] = add ? y[f] + value : value;
}

#if QUILL_SIMD == 512
// The same of types without scales (cpu/int8_vnni.c has the others), four weight rows at once, `apart` from one to the
// next: each is a stream of its own, and the hardware's prefetchers follow several at once.
enum { STREAMS = 4 };

INLINE void matvec_streams(int type, const Tensor *t, int f, int apart, const float *x, float *y, bool add) {
    enum { FAR = 3072, NEAR = 512 }; // bytes ahead of the loop that are fetched into L2, and into L1
    const size_t block = type == TYPE_F32 ? 128 : 64;
    vf sum[STREAMS][NV] = {0};
    int n_blocks = t->n_in / 32, tail = t->n_in % 32;
    for (int b = 0; b < n_blocks; b++)
#pragma GCC unroll 4
        for (int i = 0; i < STREAMS; i++) {
            const char *row = (const char *)t->data + (size_t)(f + i * apart) * t->row_bytes;
            vf w[NV];
            for (size_t at = (size_t)b * block; at < (size_t)(b + 1) * block; at += 64) {
                __builtin_prefetch(row + FAR + at, 0, 2);
                __builtin_prefetch(row + NEAR + at, 0, 3);
            }
            unpack_block(type, t, false, f + i * apart, b, NULL, w);
#pragma GCC unroll 2
            for (int k = 0; k < NV; k++) sum[i][k] += w[k] * vload(x + 32 * (size_t)b + VL * k);
        }
    float xt[32] = {0};
    if (tail) memcpy(xt, x + 32 * (size_t)n_blocks, (size_t)tail * sizeof *xt);
#pragma GCC unroll 4
    for (int i = 0; i < STREAMS; i++) {
        int row = f + i * apart;
        vf w[NV] = {0};
        if (tail) unpack_slow(t, row, 32 * n_blocks, tail, w);
#pragma GCC unroll 2
        for (int k = 0; k < NV; k++) sum[i][k] += w[k] * vload(xt + VL * k);
        float value = vsum(sum[i][0] + sum[i][1]) + (t->bias ? t->bias[row] : 0);
        y[row] = add ? y[row] + value : value;
    }
}
#endif

// F weight rows times C rows of activations; F and C are constants in every copy.
INLINE void matvec_tile(int type, const Tensor *t, int f, int F, const float *x, size_t x_stride, int C, float *y,
                        size_t y_stride, bool add) {
    vf sum[4][4] = {0};
    bool i8_whole = type == TYPE_I8G && i8_whole_blocks(t);
    int n_blocks = t->n_in / 32, tail = t->n_in % 32;
    Scales c[4];
    for (int b = 0; b < n_blocks; b++) {
        const float *xb = x + 32 * (size_t)b;
        if (b % 8 == 0)
            for (int i = 0; i < F; i++) load_scales(type, t, f + i, b, &c[i]);
#pragma GCC unroll 4
        for (int i = 0; i < F; i++) {
            vf w[NV];
            unpack_block(type, t, i8_whole, f + i, b, &c[i], w);
#pragma GCC unroll 4
            for (int r = 0; r < C; r++)
#pragma GCC unroll 8
                for (int k = 0; k < NV; k++) sum[i][r] += w[k] * vload(xb + (size_t)r * x_stride + VL * k);
        }
    }
    // Every loop over `sum` is unrolled, so that it lives in registers.
    if (tail)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            float xt[32] = {0};
            memcpy(xt, x + (size_t)c * x_stride + 32 * (size_t)n_blocks, (size_t)tail * sizeof *xt);
#pragma GCC unroll 4
            for (int i = 0; i < F; i++) {
                vf w[NV];
                unpack_slow(t, f + i, 32 * n_blocks, tail, w);
#pragma GCC unroll 8
                for (int k = 0; k < NV; k++) sum[i][c] += w[k] * vload(xt + VL * k);
            }
        }
#pragma GCC unroll 4
    for (int i = 0; i < F; i++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            float *out = &y[(size_t)c * y_stride + (size_t)(f + i)];
            float value = vsum(sum[i][c]) + (t->bias ? t->bias[f + i] : 0);
            *out = add ? *out + value : value;
        }
}

INLINE void matvec_rows(int type, const Tensor *t, int first, int last, const float *x, size_t x_stride, int C,
                        float *y, size_t y_stride, bool add) {
    if (C == 1) {
#if QUILL_SIMD == 512
        if (type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16) {
            int apart = (last - first) / STREAMS, end = first + apart;
            for (; first < end; first++) matvec_streams(type, t, first, apart, x, y, add);
            first += (STREAMS - 1) * apart;
        }
#endif
        for (int f = first; f < last; f++) matvec_one(type, t, f, x, y, add);
        return;
    }
    int step = C <= 2 ? 4 : 2, f = first; // as many sums as registers hold beside the rows of x
    for (; f + step <= last; f += step) {
        if (C <= 2) matvec_tile(type, t, f, 4, x, x_stride, C, y, y_stride, add);
        else matvec_tile(type, t, f, 2, x, x_stride, C, y, y_stride, add);
    }
    for (; f < last; f++) matvec_tile(type, t, f, 1, x, x_stride, C, y, y_stride, add);
}

// One function a type and number of rows: in a larger one the compiler would run out of registers.
typedef void MatvecRows(const Tensor *t, int first, int last, const float *x, size_t x_stride, float *y,
                        size_t y_stride, bool add);

#define DEFINE_ROWS(NAME, TYPE, C)                                                                                     \
    static __attribute__((noinline)) void NAME##_##C(const Tensor *t, int first, int last, const float *x,             \
                                                     size_t x_stride, float *y, size_t y_stride, bool add) {           \
        matvec_rows(TYPE, t, first, last, x, x_stride, C, y, y_stride, add);                                           \
    }
#define DEFINE_MATVEC(TYPE)                                                                                            \
    DEFINE_ROWS(matvec_##TYPE, TYPE, 1)                                                                                \
    DEFINE_ROWS(matvec_##TYPE, TYPE, 2)                                                                                \
    DEFINE_ROWS(matvec_##TYPE, TYPE, 3)                                                                                \
    DEFINE_ROWS(matvec_##TYPE, TYPE, 4)
EACH_TYPE(DEFINE_MATVEC)

#define MATVEC_CASE(TYPE)                                                                                              \
    case TYPE: {                                                                                                       \
        static MatvecRows *const functions[] = {matvec_##TYPE##_1, matvec_##TYPE##_2, matvec_##TYPE##_3,               \
                                                matvec_##TYPE##_4};                                                    \
        return functions[n_rows - 1];                                                                                  \
    }
static MatvecRows *matvec_function(int type, int n_rows) {
    switch (type) { EACH_TYPE(MATVEC_CASE) }
    return NULL;
}

static void matvec(const Tensor *w, int first, int last, const float *x, size_t x_stride, int n_rows, float *y,
                   size_t y_stride, bool add, void *scratch) {
    (void)scratch;
    // A few features at a time past all rows of x: their weights are in the cache for the second group of rows.
    int step = n_rows <= 4 ? last - first : 16;
    for (int f = first; f < last; f += step)
        for (int r = 0; r < n_rows; r += 4)
            matvec_function(w->type, int_min(4, n_rows - r))(w, f, int_min(f + step, last), x + (size_t)r * x_stride,
                                                             x_stride, y + (size_t)r * y_stride, y_stride, add);
}

// ---- many rows ------------------------------------------------------------------------------------------------------

enum {
    T = 2 * VL, // rows of activations in a tile: the lanes of two vectors
    NF = VL == 16  ? 12
         : VL == 8 ? 6
                   : 4,     // weights at a time: NF x 2 sums stay in registers
    FEATURES = 96,          // of a task
    KC = 256,               // depth of a panel: a tile of rows that deep stays in L1 while the features pass
    PANEL_STRIDE = KC + 16, // not a power of two: rows must not share their cache sets
    ROW_BLOCK = 512,        // rows of a task, whose sums it keeps
    UNROLL = 8,             // steps of depth between two requests for what comes next
    PANELS = FEATURES / NF, // each asks for its part of the next tile
    AHEAD = UNROLL * T * (int)sizeof(float) / PANELS, // bytes of it a time
};

// NF weights, wf apart, times T lanes.
INLINE void multiply_step(const float *w, size_t wf, const float *x, vf sum[NF][2]) {
    vf x0 = vload(x), x1 = vload(x + VL);
#pragma GCC unroll 12
    for (int f = 0; f < NF; f++) {
        vf broadcast = vset(w[(size_t)f * wf]);
        sum[f][0] += broadcast * x0;
        sum[f][1] += broadcast * x1;
    }
}

// c(f, lane) += sum over k of w(f, k) x(k, lane) for NF features and T lanes. w(f, k) lies at w[f*wf + k*wk], x and c
// have T floats a row, so c of consecutive features is contiguous. `next` is asked for on the way, line by line: all at
// once its lines would hold up those of w and x. NULL: nothing is.
static void micro(int n, const float *w, size_t wf, size_t wk, const float *x, float *c, const char *next) {
    vf sum[NF][2];
    int k = 0;
#pragma GCC unroll 12
    for (int f = 0; f < NF; f++) {
        sum[f][0] = vload(c + f * T);
        sum[f][1] = vload(c + f * T + VL);
    }
    if (next)
        for (; k + UNROLL <= n; k += UNROLL, x += UNROLL * T, w += UNROLL * wk, next += AHEAD) {
#pragma GCC unroll 2
            for (int line = 0; line < AHEAD; line += 64) __builtin_prefetch(next + line, 0, 2);
#pragma GCC unroll 8
            for (int i = 0; i < UNROLL; i++) multiply_step(w + (size_t)i * wk, wf, x + i * T, sum);
        }
    for (; k < n; k++, x += T, w += wk) multiply_step(w, wf, x, sum);
#pragma GCC unroll 12
    for (int f = 0; f < NF; f++) {
        vstore(c + f * T, sum[f][0]);
        vstore(c + f * T + VL, sum[f][1]);
    }
}

static size_t packed_bytes(int n_rows, int n_in) { return round_up((size_t)n_rows, T) * (size_t)n_in * sizeof(float); }

// A tile of rows becomes (n_in, T): element k of all rows side by side; missing rows are zero.
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

// Up to four features of up to four rows: sums (feature, T) -> y(row, feature), with bias.
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

// The sums (n_features, T) of a tile -> y(row, first + feature); y: its first row. Four rows from end to end, since
// rows of y often share their cache sets. What lies behind the last feature is read, and not used.
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

// Elements [k0, k0 + n) of the features' rows, PANEL_STRIDE apart. Short pieces of rows far apart, which the hardware
// does not foresee: they are asked for some rows ahead.
static void load_panel(const Tensor *w, int first, int n_features, int k0, int n, float *panel) {
    enum { ROWS_AHEAD = 6 };
    size_t piece = w->row_bytes * (size_t)n / (size_t)w->n_in;
    const char *data = (const char *)w->data + w->row_bytes * (size_t)k0 / (size_t)w->n_in;
    for (int f = first; f < first + n_features; f++, panel += PANEL_STRIDE) {
        const char *ahead = data + (size_t)(f + ROWS_AHEAD) * w->row_bytes;
        for (size_t at = 0; at < piece; at += 64) __builtin_prefetch(ahead + at);
        load_row(w, f, k0 / 32, n, panel);
    }
}

static void run(const Tensor *w, int first, int last, const void *packed, int first_row, int n_rows, float *y,
                size_t y_stride, bool add, void *scratch) {
    float *panel = scratch, *sums = panel + FEATURES * PANEL_STRIDE;
    int n_features = last - first, padded = (int)round_up((size_t)n_features, NF);
    size_t tile = (size_t)w->n_in * T, tile_sums = (size_t)padded * T;
    const float *rows = (const float *)packed + (size_t)(first_row / T) * tile;
    y += (size_t)first_row * y_stride;
    memset(panel + (size_t)n_features * PANEL_STRIDE, 0, (size_t)(padded - n_features) * PANEL_STRIDE * sizeof *panel);
    memset(sums, 0, round_up((size_t)n_rows, T) / T * tile_sums * sizeof *sums);
    for (int k0 = 0, n; k0 < w->n_in; k0 += n) {
        n = int_min(KC, w->n_in - k0);
        load_panel(w, first, n_features, k0, n, panel);
        for (int r = 0; r < n_rows; r += T) {
            const float *x = rows + (size_t)(r / T) * tile + (size_t)k0 * T;
            const char *next =
                (const char *)(r + T < n_rows ? x + tile : rows + (size_t)(k0 + n) % (size_t)w->n_in * T);
            float *c = sums + (size_t)(r / T) * tile_sums;
            for (int f = 0; f < padded; f += NF, next += KC / UNROLL * AHEAD)
                micro(n, panel + f * PANEL_STRIDE, PANEL_STRIDE, 1, x, c + f * T, next);
            if (k0 + n == w->n_in)
                write_tile(w, first, n_features, c, int_min(T, n_rows - r), y + (size_t)r * y_stride, y_stride, add);
        }
    }
}

static const MatrixKernel matrix_f32 = {
    .min_rows = VL == 16 ? 13 : 9,
    .tile = T,
    .features = FEATURES,
    .least = FEATURES,
    .rows = ROW_BLOCK,
    .scratch = (FEATURES * PANEL_STRIDE + FEATURES * ROW_BLOCK) * sizeof(float),
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = run,
};

// ---- steps of a row -------------------------------------------------------------------------------------------------

static void rmsnorm(float *out, const float *x, const float *weight, int n, float eps) {
    float scale;
    int i = 0;
    norm_scales(x, 0, 1, n, eps, &scale);
    for (; i + VL <= n; i += VL) vstore(out + i, vload(x + i) * scale * vload(weight + i));
    for (; i < n; i++) out[i] = x[i] * scale * weight[i];
}

static void rope(float *head, const float *restrict cosine, const float *restrict sine, int n_rot, bool adjacent) {
    int half = n_rot / 2;
    if (adjacent) {
        for (int i = 0; i < half; i++) {
            float x = head[2 * i], y = head[2 * i + 1];
            head[2 * i] = x * cosine[i] - y * sine[i];
            head[2 * i + 1] = x * sine[i] + y * cosine[i];
        }
        return;
    }
    float *restrict first = head, *restrict second = head + half;
    for (int i = 0; i < half; i++) {
        float x = first[i], y = second[i];
        first[i] = x * cosine[i] - y * sine[i];
        second[i] = x * sine[i] + y * cosine[i];
    }
}

// act(gate) * up; both activations are gate * sigmoid(of something).
INLINE vf gated(Activation act, vf gate, vf up) { return gate / (vexp(-sigmoid_of(act, gate)) + 1.0f) * up; }

// All elements by the same arithmetic, those past the last whole vector too.
INLINE void gate_all(Activation act, float *gate, const float *up, int n) {
    int i = 0;
    for (; i + VL <= n; i += VL) vstore(gate + i, gated(act, vload(gate + i), vload(up + i)));
    float last[2][VL] = {{0}};
    size_t left = (size_t)(n - i) * sizeof **last;
    memcpy(last[0], gate + i, left);
    memcpy(last[1], up + i, left);
    vstore(last[0], gated(act, vload(last[0]), vload(last[1])));
    memcpy(gate + i, last[0], left);
}

static void gate(Activation act, float *gate, const float *up, int n) {
    if (act == ACT_GELU) gate_all(ACT_GELU, gate, up, n);
    else gate_all(ACT_SILU, gate, up, n);
}

// As gate: all elements by the same arithmetic.
static void cap_all(float *v, int n, float cap) {
    int i = 0;
    for (; i + VL <= n; i += VL) vstore(v + i, vcap(vload(v + i), cap));
    float last[VL] = {0};
    memcpy(last, v + i, (size_t)(n - i) * sizeof *last);
    vstore(last, vcap(vload(last), cap));
    memcpy(v + i, last, (size_t)(n - i) * sizeof *last);
}

static void to_kv(void *out, int type, const float *x, int n) {
    if (type == TYPE_F32) {
        memcpy(out, x, (size_t)n * sizeof *x);
        return;
    }
    uint16_t *half = out;
    int i = 0;
    for (; i + VL <= n; i += VL) {
        if (type == TYPE_F16) vstore_half(half + i, vload(x + i));
        else vstore_bf16(half + i, vload(x + i));
    }
    for (; i < n; i++) half[i] = type == TYPE_F16 ? float_half(x[i]) : float_bf16(x[i]);
}

// Elements [i, i + VL) of a head in the cache; the end of a head that is no multiple of VL is padded with zeros.
INLINE vf load_kv(const uint8_t *plane, int type, size_t at, int i, int head_dim) {
    size_t size = type == TYPE_F32 ? 4 : 2;
    const uint8_t *p = plane + (at + (size_t)i) * size;
#if QUILL_SIMD == 512
    __mmask16 there = (__mmask16)(head_dim - i >= VL ? 0xffff : (1 << (head_dim - i)) - 1);
    if (type == TYPE_F32) return (vf)_mm512_maskz_loadu_ps(there, p);
    __m256i half = _mm256_maskz_loadu_epi16(there, p);
    if (type == TYPE_F16) return (vf)_mm512_cvtph_ps(half);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
#else
    uint8_t padded[VL * 4] = {0};
    if (i + VL > head_dim) {
        memcpy(padded, p, (size_t)(head_dim - i) * size);
        p = padded;
    }
    if (type == TYPE_F32) return vload((const float *)(const void *)p);
    if (type == TYPE_F16) return vload_half((const uint16_t *)(const void *)p);
    return vload_bf16((const uint16_t *)(const void *)p);
#endif
}

// ---- sealed groups --------------------------------------------------------------------------------------------------

enum {
    KEYS = 96,      // keys of a tile; a multiple of NF on every instruction set
    KEYS_FEW = 32,  // likewise where queries are few: its rows stay in L1
    HEAD_MAX = 512, // largest head_dim (model.c refuses more)
    HEAD_PAD = 528, // rounded up to vectors, to NF and to blocks of 32
    GROUP = VL / 2, // queries that share a pass over the keys when there are few
};

// Eight bytes as 32 codes of two bits, bits 2 (i / 8) of byte i % 8.
INLINE q32 q_2_bits(const uint8_t *p) {
    uint64_t bytes;
    memcpy(&bytes, p, sizeof bytes);
#if QUILL_SIMD
    return q_and(_mm256_srlv_epi64(_mm256_set1_epi64x((long long)bytes), _mm256_setr_epi64x(0, 2, 4, 6)), 3);
#else
    uint64_t codes[4];
    for (int i = 0; i < 4; i++) codes[i] = bytes >> 2 * i & 0x0303030303030303;
    return q_load(codes);
#endif
}

// 32 elements of a slot.
INLINE void unseal_block(int type, const uint8_t *block, float *out) {
    half_bits d, m = 0;
    vf w[NV];
    memcpy(&d, block, sizeof d);
    if (type == TYPE_Q8_0) q_floats(q_load(block + offsetof(BlockQ8_0, qs)), w);
    else if (type == TYPE_Q4_0) q_floats(q_sub(q_nibbles(block + offsetof(BlockQ4_0, qs)), 8), w);
    else {
        memcpy(&m, block + offsetof(BlockKivi2, m), sizeof m);
        q_floats(q_2_bits(block + offsetof(BlockKivi2, qs)), w);
    }
    vf scale = half_vector(d), least = half_vector(m);
    for (int i = 0; i < NV; i++) vstore(out + i * VL, least + scale * w[i]);
}

INLINE void unseal_blocks(int type, const uint8_t *slot, int n, float *out) {
    size_t bytes = kv_slot_bytes(type, 32);
    for (int b = 0; b < n; b++) unseal_block(type, slot + (size_t)b * bytes, out + 32 * b);
}

static void unseal_panel(const PanelKivi2 *p, int first, int n, float *out) {
    vf scale[NV], least[NV], w[NV];
    for (int i = 0; i < NV; i++) scale[i] = vload_half(p->d + i * VL), least[i] = vload_half(p->m + i * VL);
    for (int k = 0; k < n; k++, out += HEAD_PAD) {
        q_floats(q_2_bits(p->qs[first + k]), w);
        for (int i = 0; i < NV; i++) vstore(out + i * VL, least[i] + scale[i] * w[i]);
    }
}

// 16 E4M3 bytes as halves of a 256th.
INLINE void fp8_halves(const uint8_t *p, half_bits h[16]) {
#if QUILL_SIMD
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    __m256i rest = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
    _mm256_storeu_si256((__m256i *)(void *)h, _mm256_or_si256(sign, rest));
#else
    for (int i = 0; i < 16; i++) h[i] = fp8_half(p[i]);
#endif
}

static void unseal_fp8(const uint8_t *slot, int head_dim, float *out) {
    half_bits d, h[16];
    memcpy(&d, slot, sizeof d);
    vf scale = half_vector(d) * 256.0f;
    for (int i = 0; i < head_dim; i += 16) {
        uint8_t end[16] = {0};
        bool whole = i + 16 <= head_dim;
        if (!whole) memcpy(end, slot + 2 + i, (size_t)(head_dim - i));
        fp8_halves(whole ? slot + 2 + i : end, h);
        for (int k = 0; k < 16; k += VL) vstore(out + i + k, vload_half(h + k) * scale);
    }
}

// n slots of a group from `first` on, HEAD_PAD floats apart.
static void unseal_slots(int type, bool keys, const uint8_t *group, int first, int n, int head_dim, float *out) {
    size_t slot_bytes = kv_slot_bytes(type, head_dim), blocks = ((size_t)head_dim + 31) / 32;
    if (type == TYPE_KIVI2 && keys) {
        for (size_t b = 0; b < blocks; b++) unseal_panel((const PanelKivi2 *)group + b, first, n, out + 32 * b);
        return;
    }
    group += (size_t)first * slot_bytes;
    for (int k = 0; k < n; k++, group += slot_bytes, out += HEAD_PAD) {
        if (type == TYPE_FP8) unseal_fp8(group, head_dim, out);
        else if (type == TYPE_Q8_0) unseal_blocks(TYPE_Q8_0, group, (int)blocks, out);
        else if (type == TYPE_Q4_0) unseal_blocks(TYPE_Q4_0, group, (int)blocks, out);
        else unseal_blocks(TYPE_KIVI2, group, (int)blocks, out);
    }
}

// Asks for the bytes of a later tile: a long cache streams through, and memory pages are crossed all the time.
INLINE void prefetch(const uint8_t *at, size_t n) {
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch(at + i);
}

// Slots [first, first + n) of a sealed plane as f32, HEAD_PAD apart, whole vectors; the rows' own group as it is.
static void unseal_tile(const AttendTask *t, bool value, int first, int n, float *tile, uint8_t *room) {
    int type = value ? t->kv->type_v : t->kv->type_k, hd = t->kv->head_dim, count;
    size_t group_bytes = SEAL * kv_slot_bytes(type, hd);
    for (int slot = first; slot < first + n; slot += count, tile += (size_t)count * HEAD_PAD) {
        count = int_min(first + n - slot, SEAL - slot % SEAL);
        if (slot / SEAL == attend_group(t))
            for (int k = 0; k < count; k++) {
                float *row = tile + (size_t)k * HEAD_PAD;
                memcpy(row, attend_open(t, value, slot + k), (size_t)hd * sizeof *row);
                for (int i = hd; i % VL; i++) row[i] = 0;
            }
        else {
            const uint8_t *group = attend_sealed(t, value, slot / SEAL, room);
            if (group != room) prefetch(group + KEYS / SEAL * group_bytes, group_bytes);
            unseal_slots(type, !value, group, slot % SEAL, count, hd, tile);
        }
    }
}

// ---- attention ------------------------------------------------------------------------------------------------------

static const float masked = -1e30f;

// What a task keeps; in attend_many a lane is a query.
typedef struct {
    float queries[HEAD_PAD * T]; // (head_dim, T), scaled
    float out[HEAD_PAD * T];     // (head_dim padded to NF, T)
    float scores[KEYS * T];      // (key, T), then their exponentials
    float tile[KEYS * HEAD_PAD]; // (key, head_dim) of K, then of V
    float max[T], sum[T];
    int slot[T];
    uint8_t room[SEAL_MOST];
} QueryTile;

// Where keys [first, first + n) lie: one after another within a block.
static void keys_at(const AttendTask *t, int first, int n, size_t *at) {
    int left = 0;
    for (int k = 0; k < n; k++, left--) {
        if (left == 0) {
            at[k] = attend_key(t, first + k);
            left = t->kv->block - (first + k) % t->kv->block;
        } else at[k] = at[k - 1] + (size_t)t->kv->head_dim;
    }
}

static void load_queries(const AttendTask *t, QueryTile *s, int *first_slot, int *last_slot) {
    int hd = t->heads->head_dim, group = t->heads->n_heads / t->heads->n_kv_heads;
    memset(s->queries, 0, (size_t)hd * T * sizeof *s->queries);
    memset(s->out, 0, round_up((size_t)hd, NF) * T * sizeof *s->out);
    *first_slot = INT_MAX;
    *last_slot = 0;
    for (int lane = 0; lane < T; lane++) {
        int pair = int_min(t->first + lane, t->last - 1);
        s->slot[lane] = t->slot[pair / group];
        s->max[lane] = masked;
        s->sum[lane] = 0;
        *first_slot = int_min(*first_slot, attend_first(t, s->slot[lane]));
        *last_slot = int_max(*last_slot, s->slot[lane]);
        if (t->first + lane >= t->last) continue; // an empty lane: zeros that nobody reads
        const float *q = t->q + attend_query(t, pair);
        for (int i = 0; i < hd; i++) s->queries[i * T + lane] = q[i] * t->heads->scale;
    }
}

// Whether some query of the tile sees the key. Between the windows of rows far apart lie keys that none does, and whose
// memory nobody may have written.
static bool key_seen(const AttendTask *t, const QueryTile *s, int key) {
    if (!t->heads->window) return true;
    for (int lane = 0; lane < T; lane++)
        if (key <= s->slot[lane] && key > s->slot[lane] - t->heads->window) return true;
    return false;
}

INLINE void load_type(const uint8_t *plane, int type, const size_t *at, int n, int hd, float *tile) {
    for (int k = 0; k < n; k++, tile += HEAD_PAD) {
        int i = 0;
        for (; i + VL <= hd; i += VL) vstore(tile + i, load_kv(plane, type, at[k], i, i + VL));
        if (i < hd) vstore(tile + i, load_kv(plane, type, at[k], i, hd));
    }
}

static void load_dense(const AttendTask *t, bool value, const size_t *at, int n, float *tile) {
    const uint8_t *plane = value ? t->kv->v : t->kv->k;
    int type = value ? t->kv->type_v : t->kv->type_k, hd = t->kv->head_dim;
    if (type == TYPE_F32) load_type(plane, TYPE_F32, at, n, hd, tile);
    else if (type == TYPE_F16) load_type(plane, TYPE_F16, at, n, hd, tile);
    else load_type(plane, TYPE_BF16, at, n, hd, tile);
}

// n keys' rows of one plane as f32; unseen rows, and those up to `padded`, are zero.
static void load_tile(const AttendTask *t, QueryTile *s, bool value, int first, int n, int padded) {
    int type = value ? t->kv->type_v : t->kv->type_k;
    size_t at[KEYS], row = (size_t)t->heads->head_dim * sizeof *s->tile;
    if (kv_is_sealed(type)) unseal_tile(t, value, first, n, s->tile, s->room);
    else keys_at(t, first, n, at);
    for (int k = 0, run; k < n && !kv_is_sealed(type); k += run) {
        bool seen = key_seen(t, s, first + k);
        run = t->heads->window ? 1 : n;
        float *tile = s->tile + (size_t)k * HEAD_PAD;
        if (seen) load_dense(t, value, at + k, run, tile);
        else
            for (int i = 0; i < run; i++) memset(tile + (size_t)i * HEAD_PAD, 0, row);
    }
    for (int k = n; k < padded; k++) memset(s->tile + (size_t)k * HEAD_PAD, 0, row);
}

static void cap_scores(const AttendTask *t, float *scores, int n) {
    if (t->heads->softcap != 0) cap_all(scores, n, t->heads->softcap);
}

// Masks, takes the new maxima, and turns scores into exponentials; rescales the output where a maximum grew.
static void softmax_tile(const AttendTask *t, QueryTile *s, int first, int n) {
    int hd = t->heads->head_dim, window = t->heads->window ? t->heads->window : INT_MAX;
    for (int half = 0; half < T; half += VL) {
        vi slot, oldest;
        memcpy(&slot, s->slot + half, sizeof slot);
        oldest = slot - window; // the newest slot that is too old
        vf before = vload(s->max + half), top = before, total = {0};
        for (int k = 0; k < n; k++) {
            float *row = s->scores + k * T + half;
            vi key = (vi){0} + (first + k);
            vf score = vselect((key <= slot) & (key > oldest), vload(row), vset(masked));
            vstore(row, score);
            top = vmax(top, score);
        }
        for (int k = 0; k < n; k++) {
            float *row = s->scores + k * T + half;
            vf score = vload(row);
            vf p = vselect(score > masked, vexp(score - top), vset(0));
            vstore(row, p);
            total += p;
        }
        vf scale = vexp(before - top);
        vstore(s->max + half, top);
        vstore(s->sum + half, vload(s->sum + half) * scale + total);
        for (int i = 0; i < hd; i++) {
            float *o = s->out + i * T + half;
            vstore(o, vload(o) * scale);
        }
    }
}

// Tiles end at multiples of KEYS, wherever the first begins: what is summed together does not depend on who shares the
// pass over the keys.
static void attend_many(const AttendTask *t) {
    QueryTile *s = t->scratch;
    int hd = t->heads->head_dim, first, last, n;
    load_queries(t, s, &first, &last);
    for (int k0 = first; k0 <= last; k0 += n) {
        n = int_min(KEYS - k0 % KEYS, last + 1 - k0);
        load_tile(t, s, false, k0, n, (int)round_up((size_t)n, NF));
        memset(s->scores, 0, sizeof s->scores);
        for (int k = 0; k < n; k += NF) // scores(key, lane) = K(key, i) queries(i, lane)
            micro(hd, s->tile + (size_t)k * HEAD_PAD, HEAD_PAD, 1, s->queries, s->scores + k * T, NULL);
        cap_scores(t, s->scores, n * T);
        softmax_tile(t, s, k0, n);
        load_tile(t, s, true, k0, n, (int)round_up((size_t)n, NF));
        for (int i = 0; i < hd; i += NF) // out(i, lane) += V(key, i) scores(key, lane)
            micro(n, s->tile + i, 1, HEAD_PAD, s->scores, s->out + i * T, NULL);
    }
    for (int pair = t->first; pair < t->last; pair++) {
        int lane = pair - t->first;
        float *to = t->out + attend_query(t, pair), inverse = 1 / s->sum[lane];
        for (int i = 0; i < hd; i++) to[i] = s->out[i * T + lane] * inverse;
    }
}

// ---- few queries ----------------------------------------------------------------------------------------------------
//
// Up to GROUP heads that read the same keys, all of one row. G of them, and E = VL / G elements of each, or keys, are
// the lanes of a vector: lane h*E + e belongs to head h. One load repeats E elements of a key for all heads; what E
// lanes of a head hold apart is added up for E keys at once, which leaves the scores with keys in the lanes, as softmax
// wants them. The values are summed with elements in the lanes.

// G queries, scaled: element j*E + e of head h at lane h*E + e of vector j.
INLINE void pack_queries(const AttendTask *t, int pair, int count, int G, float *q) {
    const int hd = t->kv->head_dim, E = VL / G;
    memset(q, 0, round_up((size_t)hd, VL) * (size_t)G * sizeof *q);
    for (int h = 0; h < count; h++) {
        const float *from = t->q + attend_query(t, pair + h);
        for (int i = 0; i < hd; i++) q[i / E * VL + h * E + i % E] = from[i] * t->heads->scale;
    }
}

// The rows that a later tile is made of, asked for line by line while this one is worked on: all at once they would
// wait for each other. A sealed group is asked for by unseal_tile.
typedef struct {
    const uint8_t *at;
    size_t size; // bytes of an element; 0: none are asked for
} Ahead;

static Ahead ahead(const AttendTask *t, bool value, int first, int last, const QueryTile *s) {
    int type = value ? t->kv->type_v : t->kv->type_k;
    if (first > last || kv_is_sealed(type)) return (Ahead){(const uint8_t *)s->tile, 0};
    size_t size = kv_type_bytes(type);
    return (Ahead){(value ? t->kv->v : t->kv->k) + attend_key(t, first) * size, size};
}

// Scores of n keys, a multiple of C, E of them in a vector.
INLINE void score_keys(const float *q, const float *tile, int n, int hd, int G, Ahead next, float *scores) {
    const int E = VL / G, C = E > 8 ? E : 8;
    for (int k = 0; k < n; k += C, tile += (size_t)C * HEAD_PAD) {
        vf sum[VL > 8 ? VL : 8] = {0};
        for (int i = 0; i < hd; i += E) {
            vf query = vload(q + i * G);
#pragma GCC unroll 16
            for (size_t line = 0; line < C * E * sizeof(uint16_t); line += 64) __builtin_prefetch(next.at + line);
            next.at += (size_t)(C * E) * next.size;
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) sum[c] += query * vrepeat(tile + (size_t)c * HEAD_PAD + i, E);
        }
        int left = C;
#pragma GCC unroll 4
        for (int d = 1; d < E; d *= 2) {
            left /= 2;
#pragma GCC unroll 8
            for (int c = 0; c < left; c++) sum[c] = vfold(sum[2 * c], sum[2 * c + 1], d);
        }
        for (int c = 0; c < C / E; c++) vstore(scores + k * G + c * VL, sum[c]);
    }
}

// Scores of n keys become exponentials; what has been summed up so far is to be scaled by `scale`.
INLINE void soften(float *scores, int n, int G, vf *max, vf *sum, float *scale) {
    const int E = VL / G;
    vf top = *max, total = {0};
    if (n % E) {
        vi key;
        for (int i = 0; i < VL; i++) key[i] = i % E;
        float *last = scores + n / E * VL;
        vstore(last, vselect(key < n % E, vload(last), vset(masked)));
    }
    for (int k = 0; k < n; k += E) top = vmax(top, vload(scores + k * G));
#pragma GCC unroll 4
    for (int d = 1; d < E; d *= 2) top = vmax(top, vswap(top, d));
    for (int k = 0; k < n; k += E) {
        vf p = vexp(vload(scores + k * G) - top);
        vstore(scores + k * G, p);
        total += p;
    }
    vf change = vexp(*max - top);
    vstore(scale, change);
    *sum = *sum * change + total;
    *max = top;
}

// out(head, element) = out scale + the values of n keys by their weights, for B vectors of elements.
INLINE void sum_values(const float *weights, const float *tile, int n, int G, int B, const float *scale, Ahead next,
                       size_t next_row, float *out) {
    const int E = VL / G;
    vf sum[GROUP][8];
#pragma GCC unroll 8
    for (int h = 0; h < G; h++)
#pragma GCC unroll 8
        for (int b = 0; b < B; b++) sum[h][b] = vload(out + h * HEAD_PAD + b * VL) * scale[h * E];
    for (int k = 0; k < n; k++, tile += HEAD_PAD) {
        const float *weight = weights + k / E * VL + k % E;
        vf value[8];
#pragma GCC unroll 4
        for (size_t line = 0; line < (size_t)(B * VL) * sizeof(uint16_t); line += 64)
            __builtin_prefetch(next.at + (size_t)k * next_row + line);
#pragma GCC unroll 8
        for (int b = 0; b < B; b++) value[b] = vload(tile + b * VL);
#pragma GCC unroll 8
        for (int h = 0; h < G; h++)
#pragma GCC unroll 8
            for (int b = 0; b < B; b++) sum[h][b] += value[b] * weight[h * E];
    }
#pragma GCC unroll 8
    for (int h = 0; h < G; h++)
#pragma GCC unroll 8
        for (int b = 0; b < B; b++) vstore(out + h * HEAD_PAD + b * VL, sum[h][b]);
}

// The same for a whole head: as many elements at a time as their sums have registers.
INLINE void sum_heads(const float *weights, const float *tile, int n, int hd, int G, const float *scale, Ahead next,
                      float *out) {
    const int B = VL / G < 8 ? VL / G : 8;
    int end = (hd + VL - 1) / VL * VL;
    size_t row = (size_t)hd * next.size;
    for (int i = 0, b; i < end; i += b * VL, next.at += (size_t)(b * VL) * next.size) {
        int left = (end - i) / VL;
        b = left >= B ? B : left >= 4 && B > 4 ? 4 : left >= 2 && B > 2 ? 2 : 1;
        if (b == B) sum_values(weights, tile + i, n, G, B, scale, next, row, out + i);
        else if (b == 4) sum_values(weights, tile + i, n, G, 4, scale, next, row, out + i);
        else if (b == 2) sum_values(weights, tile + i, n, G, 2, scale, next, row, out + i);
        else sum_values(weights, tile + i, n, G, 1, scale, next, row, out + i);
    }
}

INLINE void attend_heads(const AttendTask *t, int pair, int count, int G) {
    QueryTile *s = t->scratch;
    int hd = t->kv->head_dim, slot = t->slot[pair / (t->heads->n_heads / t->heads->n_kv_heads)], n;
    int last = attend_last(t, slot);
    const int E = VL / G;
    float scale[VL];
    vf max = vset(masked), sum = {0};
    for (int lane = 0; lane < T; lane++) s->slot[lane] = slot;
    pack_queries(t, pair, count, G, s->queries);
    memset(s->out, 0, (size_t)G * HEAD_PAD * sizeof *s->out);
    for (int k0 = attend_first(t, slot); k0 <= last; k0 += n) {
        n = int_min(KEYS_FEW - k0 % KEYS_FEW, last + 1 - k0);
        int padded = (int)round_up((size_t)n, 16);
        load_tile(t, s, false, k0, n, padded);
        score_keys(s->queries, s->tile, padded, hd, G, ahead(t, false, k0 + n, last, s), s->scores);
        cap_scores(t, s->scores, padded * G);
        soften(s->scores, n, G, &max, &sum, scale);
        load_tile(t, s, true, k0, n, n);
        sum_heads(s->scores, s->tile, n, hd, G, scale, ahead(t, true, k0 + n, last, s), s->out);
    }
#pragma GCC unroll 4
    for (int d = 1; d < E; d *= 2) sum += vswap(sum, d);
    vstore(scale, sum);
    for (int h = 0; h < count; h++) {
        size_t at = attend_query(t, pair + h);
        for (int i = 0; i < hd; i++) t->out[at + (size_t)i] = s->out[h * HEAD_PAD + i] / scale[h * E];
        if (t->lse) t->lse[at / (size_t)hd] = max[h * E] + logf(scale[h * E]);
    }
}

static void attend_few(const AttendTask *t) {
    int group = t->heads->n_heads / t->heads->n_kv_heads;
    for (int pair = t->first, n; pair < t->last; pair += n) {
        n = int_min(int_min(t->last - pair, group - pair % group), GROUP); // of one row
#if QUILL_SIMD == 512
        if (n > 4) {
            attend_heads(t, pair, n, 8);
            continue;
        }
#endif
#if QUILL_SIMD
        if (n > 2) {
            attend_heads(t, pair, n, 4);
            continue;
        }
#endif
        if (n > 1) attend_heads(t, pair, n, 2);
        else attend_heads(t, pair, n, 1);
    }
}

static void attend(const AttendTask *t) {
    if (t->last - t->first >= T / 2 && !t->lse) attend_many(t);
    else attend_few(t);
}

// ---- the table ------------------------------------------------------------------------------------------------------

#if QUILL_SIMD == 512
#define NAME cpu_avx512
#define ISA "avx512"
#elif QUILL_SIMD == 256
#define NAME cpu_avx2
#define ISA "avx2"
#else
#define NAME cpu_portable
#define ISA "portable"
#endif

const CpuKernels NAME = {
    .isa = ISA,
    .embed = embed,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .gate = gate,
    .softcap = cap_all,
    .to_kv = to_kv,
    .matvec = matvec,
    .attend = {.run = attend, .scratch = sizeof(QueryTile), .pairs = T, .in_parts = true},
    .attend_in_order = attend_many,
    .matrix = &matrix_f32,
};
