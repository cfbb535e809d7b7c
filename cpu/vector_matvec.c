// cpu/vector_matvec.c: products of weights with a few rows of activations. Lanes are elements of a weight row.
#include "cpu/vector.h"

#include "cpu/unpack.h"

// Multiplies one weight row by one row of activations: the inner loop of decoding. The matrix is read as one stream
// from front to back, which suits the memory system; four sums hide the latency of additions.
INLINE void matvec_one(int type, const Tensor *t, int f, const float *x, float *y, bool add) {
    enum { AHEAD = 1536 }; // bytes to prefetch ahead of the loop
    vf sum[4] = {0};
    bool i8_whole = type == TYPE_I8G && i8_whole_blocks(t);
    int n_blocks = t->n_in / 32, tail = t->n_in % 32, b = 0;
    const char *stream = (const char *)t->data + (size_t)f * t->row_bytes;
    size_t block_bytes = n_blocks ? t->row_bytes / (size_t)n_blocks : 0;
    SuperblockScales c;
    for (; b + 8 <= n_blocks; b += 8) {
        const char *ahead = stream + (size_t)b * block_bytes + AHEAD;
        for (size_t at = 0; at < 8 * block_bytes; at += 64) __builtin_prefetch(ahead + at);
        load_scales(type, t, f, b, &c);
#if QUILL_SIMD // a shift by a constant is one instruction; without SIMD the unrolled code would only be longer
        UNROLL(8)
#endif
        for (int i = 0; i < 8; i++) {
            vf w[NV];
            unpack_block(type, t, i8_whole, f, b + i, &c, w);
            UNROLL(8)
            for (int k = 0; k < NV; k++) sum[(NV * i + k) % 4] += w[k] * vload(x + 32 * (size_t)(b + i) + VL * k);
        }
    }
    for (; b < n_blocks; b++) { // no blocks of K types: their rows are whole super-blocks
        vf w[NV];
        unpack_block(type, t, i8_whole, f, b, &c, w);
        UNROLL(8)
        for (int k = 0; k < NV; k++) sum[k % 4] += w[k] * vload(x + 32 * (size_t)b + VL * k);
    }
    if (tail) {
        float xt[32] = {0};
        vf w[NV];
        memcpy(xt, x + 32 * (size_t)b, (size_t)tail * sizeof *xt);
        unpack_slow(t, f, 32 * b, tail, w);
        UNROLL(8)
        for (int k = 0; k < NV; k++) sum[k % 4] += w[k] * vload(xt + VL * k);
    }
    float value = vsum((sum[0] + sum[1]) + (sum[2] + sum[3])) + (t->bias ? t->bias[f] : 0);
    y[f] = add ? y[f] + value : value;
}

#if QUILL_SIMD == 512
// The same for types without scales (cpu/int8_vnni.c computes the others) and four weight rows at once, `apart` rows
// apart: each is a stream of its own, and the hardware's prefetchers follow several streams.
enum { STREAMS = 4 };

INLINE void matvec_streams(int type, const Tensor *t, int f, int apart, const float *x, float *y, bool add) {
    enum { FAR = 3072, NEAR = 512 }; // prefetch distances in bytes: into L2, and into L1
    const size_t block = type == TYPE_F32 ? 128 : 64;
    vf sum[STREAMS][NV] = {0};
    int n_blocks = t->n_in / 32, tail = t->n_in % 32;
    for (int b = 0; b < n_blocks; b++) UNROLL(4)
    for (int i = 0; i < STREAMS; i++) {
        const char *row = (const char *)t->data + (size_t)(f + i * apart) * t->row_bytes;
        vf w[NV];
        for (size_t at = (size_t)b * block; at < (size_t)(b + 1) * block; at += 64) {
            __builtin_prefetch(row + FAR + at, 0, 2);
            __builtin_prefetch(row + NEAR + at, 0, 3);
        }
        unpack_block(type, t, false, f + i * apart, b, NULL, w);
        UNROLL(2)
        for (int k = 0; k < NV; k++) sum[i][k] += w[k] * vload(x + 32 * (size_t)b + VL * k);
    }
    float xt[32] = {0};
    if (tail) memcpy(xt, x + 32 * (size_t)n_blocks, (size_t)tail * sizeof *xt);
    UNROLL(4)
    for (int i = 0; i < STREAMS; i++) {
        int row = f + i * apart;
        vf w[NV] = {0};
        if (tail) unpack_slow(t, row, 32 * n_blocks, tail, w);
        UNROLL(2)
        for (int k = 0; k < NV; k++) sum[i][k] += w[k] * vload(xt + VL * k);
        float value = vsum(sum[i][0] + sum[i][1]) + (t->bias ? t->bias[row] : 0);
        y[row] = add ? y[row] + value : value;
    }
}
#endif

// Multiplies F weight rows by C rows of activations; F and C are constants in every copy.
INLINE void matvec_tile(int type, const Tensor *t, int f, int F, const float *x, size_t x_stride, int C, float *y,
                        size_t y_stride, bool add) {
    vf sum[4][4] = {0};
    bool i8_whole = type == TYPE_I8G && i8_whole_blocks(t);
    int n_blocks = t->n_in / 32, tail = t->n_in % 32;
    SuperblockScales c[4];
    for (int b = 0; b < n_blocks; b++) {
        const float *xb = x + 32 * (size_t)b;
        if (b % 8 == 0)
            for (int i = 0; i < F; i++) load_scales(type, t, f + i, b, &c[i]);
        UNROLL(4)
        for (int i = 0; i < F; i++) {
            vf w[NV];
            unpack_block(type, t, i8_whole, f + i, b, &c[i], w);
            UNROLL(4)
            for (int r = 0; r < C; r++) UNROLL(8)
            for (int k = 0; k < NV; k++) sum[i][r] += w[k] * vload(xb + (size_t)r * x_stride + VL * k);
        }
    }
    // Every loop over `sum` is unrolled, so that it lives in registers.
    if (tail) UNROLL(4)
    for (int c = 0; c < C; c++) {
        float xt[32] = {0};
        memcpy(xt, x + (size_t)c * x_stride + 32 * (size_t)n_blocks, (size_t)tail * sizeof *xt);
        UNROLL(4)
        for (int i = 0; i < F; i++) {
            vf w[NV];
            unpack_slow(t, f + i, 32 * n_blocks, tail, w);
            UNROLL(8)
            for (int k = 0; k < NV; k++) sum[i][c] += w[k] * vload(xt + VL * k);
        }
    }
    UNROLL(4)
    for (int i = 0; i < F; i++) UNROLL(4)
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
    int step = C <= 2 ? 4 : 2, f = first; // as many sums as fit into registers beside the rows of x
    for (; f + step <= last; f += step) {
        if (C <= 2) matvec_tile(type, t, f, 4, x, x_stride, C, y, y_stride, add);
        else matvec_tile(type, t, f, 2, x, x_stride, C, y, y_stride, add);
    }
    for (; f < last; f++) matvec_tile(type, t, f, 1, x, x_stride, C, y, y_stride, add);
}

// One function for each type and number of rows: in a larger one the compiler would run out of registers.
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

void vector_matvec(const MatvecTask *t) {
    // A few features at a time for all rows of x: the second group of rows finds their weights in the cache.
    int step = t->n_rows <= 4 ? t->last - t->first : 16;
    for (int f = t->first; f < t->last; f += step)
        for (int r = 0; r < t->n_rows; r += 4)
            matvec_function(t->w->type, int_min(4, t->n_rows - r))(t->w, f, int_min(f + step, t->last),
                                                                   t->x + (size_t)r * t->x_stride, t->x_stride,
                                                                   t->y + (size_t)r * t->y_stride, t->y_stride, t->add);
}
