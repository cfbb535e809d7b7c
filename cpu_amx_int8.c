// cpu_amx_int8.c: products of several rows in integers on Intel's AMX unit: quantised weights times activations in
// int8.
//
// The arithmetic is that of cpu_int8.c, another unit does it: sums of 32 (or 16) products are exact integers, and
// scales enter once a block, in f32.
#define QUILL_SIMD 512
#include "cpu.h"

#include "amx.h"
#include "slab.h"

#include <limits.h>
#include <stddef.h>

enum {
    COLUMNS = 16,  // rows of activations in a packed tile: columns of the unit's right operand
    GROUP = 16,    // features that go together: rows of its left operand
    APART = 16,    // most rows of weights from one feature of a group to the next
    AHEAD = 1024,  // bytes to fetch ahead in each of a group's rows
    BEHIND = 2,    // blocks between a product and the use of its sums: those just stored cannot be read at once
    RING = 4,      // sums of products on their way
    MOST_TILES = 4 // of rows that a task takes past its weights
};

// 256 elements of COLUMNS rows of activations.
typedef struct {
    int8_t q[8][8][COLUMNS][4];               // (block of 32, four elements, row, element)
    float scale[8][COLUMNS], sum[8][COLUMNS]; // of 32
    float sum16[16][COLUMNS];
} PackedSlab;

// 256 weights of GROUP features: bytes, signed where no minimum is subtracted.
typedef struct {
    uint8_t q[GROUP][SLAB];
    float scale[GROUP][16], minimum[GROUP][16]; // as Weights has them
} Slab;

typedef struct {
    Slab slab[2];
    int32_t products[RING][GROUP][COLUMNS];
    float sums[MOST_TILES][GROUP * APART][COLUMNS];
} Scratch;

// ---- activations ----------------------------------------------------------------------------------------------------

static size_t packed_bytes(int n_rows, int n_in) {
    return round_up((size_t)n_rows, COLUMNS) / COLUMNS * slabs_of(n_in) * sizeof(PackedSlab);
}

// 64 bytes of every row: rows in, columns of four bytes out.
INLINE void turn(const Activations *a, size_t at, void *out) {
    __m512 r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps((const uint8_t *)&a[i] + at);
    transpose16(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) _mm512_store_ps((float *)out + 16 * i, r[i]);
}

static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    PackedSlab *p = (PackedSlab *)packed + (size_t)tile * slabs_of(n_in);
    Activations a[COLUMNS];
    memset(a, 0, sizeof a);
    for (int i = 0; i < n_in; i += SLAB, p++) {
        for (int r = 0; r < n_rows; r++) quantize_row(x + (size_t)r * x_stride + i, int_min(SLAB, n_in - i), &a[r]);
        for (int k = 0; k < SLAB; k += 64) turn(a, (size_t)k, p->q[k / 32]);
        turn(a, offsetof(Activations, scale), p->scale); // and the sums, which follow
        turn(a, offsetof(Activations, sum16), p->sum16);
    }
}

// ---- weights --------------------------------------------------------------------------------------------------------

// Tiles 0..3 are sums of products; 4 and 5 left operands, features by the bytes of a part, 6 and 7 right ones.
static void configure(int part) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = (uint16_t)(i == 4 || i == 5 ? part : 64);
        config.rows[i] = (uint8_t)(i < 6 ? 16 : part / 4);
    }
    __asm__ volatile("" ::"r"(&config) : "memory"); // the intrinsic names eight bytes only to the compiler
    _tile_loadconfig(&config);
}

// Whether the unit can load a type's bytes from where they lie in the file.
INLINE bool lies_ready(int type) { return type == TYPE_Q8_0; }

INLINE void unpack(int type, const uint8_t *from, Slab *to, int f) {
    Weights w;
    load_weights(type, from, &w);
    int offset = has_minimum(type) ? 0 : -(int)sum_factor(type);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) _mm512_store_si512(to->q[f] + 64 * i, _mm512_sub_epi8(w.u[i], bytes(offset)));
    _mm512_store_ps(to->scale[f], w.scale);
    if (type == TYPE_Q2_K) _mm512_store_ps(to->minimum[f], w.by_sum16);
}

// The scales of Q8_0 alone, gathered by loads and stores: the vector units have enough to do.
INLINE void take_scales(const uint8_t *from, size_t row_bytes, Slab *to) {
    half_bits d[GROUP][8];
#pragma GCC unroll 4
    for (int f = 0; f < GROUP; f++)
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++)
            memcpy(&d[f][b], from + (size_t)f * row_bytes + (size_t)b * sizeof(BlockQ8_0), sizeof(half_bits));
    __asm__ volatile("" ::: "memory");
    for (int f = 0; f < GROUP; f++)
        _mm256_store_ps(to->scale[f], _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)d[f])));
}

typedef struct {
    const Tensor *w;
    int first, last;
    const PackedSlab *x; // of the first row
    int n_rows;
    float *y; // of the first row
    size_t y_stride;
    bool add;
} Task;

// A group's slab as the unit takes it: features `stride` apart, parts `step`.
typedef struct {
    const Slab *slab;
    const uint8_t *q;
    size_t stride, step;
} Operand;

// Slab s of features f, f + apart, ..., n of them.
INLINE Operand operand_of(int type, const Tensor *w, int f, int apart, int n, int s, Slab *to) {
    size_t slab_bytes = slab_bytes_of(type), done = (size_t)s * slab_bytes, left = w->row_bytes - done;
    size_t stride = (size_t)apart * w->row_bytes;
    const uint8_t *from = (const uint8_t *)w->data + (size_t)f * w->row_bytes + done;
    if (lies_ready(type) && n == GROUP && left >= slab_bytes) {
        take_scales(from, stride, to);
        return (Operand){to, from + offsetof(BlockQ8_0, qs), stride, sizeof(BlockQ8_0)};
    }
    for (int i = 0; i < n; i++, from += stride) {
        const uint8_t *p = from;
        uint8_t last[8 * sizeof(BlockQ8_0)];
        if (left < slab_bytes) { // blocks that are not there have scales of zero
            memset(last, 0, sizeof last);
            p = memcpy(last, p, left);
        }
        unpack(type, p, to, i);
    }
    return (Operand){to, to->q[0], SLAB, sixteens(type) ? 16 : 32};
}

// ---- products -------------------------------------------------------------------------------------------------------

#define PRODUCT(SUM, LEFT, RIGHT)                                                                                      \
    _tile_zero(SUM);                                                                                                   \
    _tile_loadd(LEFT, w, stride);                                                                                      \
    _tile_loadd(RIGHT, x, 64);                                                                                         \
    if (has_minimum(type)) _tile_dpbusd(SUM, LEFT, RIGHT);                                                             \
    else _tile_dpbssd(SUM, LEFT, RIGHT);                                                                               \
    _tile_stored(SUM, products, 64)

// A part of a slab, on tiles by turns: products (16 features, 16 rows) = w x.
INLINE void multiply_part(int type, int turn, const uint8_t *w, size_t stride, const int8_t *x, void *products) {
    switch (turn) {
    case 0: PRODUCT(0, 4, 6); break;
    case 1: PRODUCT(1, 5, 7); break;
    case 2: PRODUCT(2, 4, 6); break;
    default: PRODUCT(3, 5, 7);
    }
}

// sums += products under their scales; part i of a slab.
INLINE void add_part(int type, int i, const int32_t *products, const Slab *w, const PackedSlab *x, __m512 sums[GROUP]) {
    int block = sixteens(type) ? i / 2 : i;
    __m512 scale = _mm512_load_ps(x->scale[block]);
    __m512 sum = _mm512_load_ps(sixteens(type) ? x->sum16[i] : x->sum[block]);
#pragma GCC unroll 16
    for (int f = 0; f < GROUP; f++) {
        __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(products + COLUMNS * f)), scale);
        sums[f] = _mm512_fmadd_ps(dot, _mm512_set1_ps(w->scale[f][i]), sums[f]);
        if (!has_minimum(type)) continue;
        __m512 minimum = _mm512_set1_ps(type == TYPE_Q2_K ? w->minimum[f][i] : w->scale[f][8 + i]);
        if (sum_factor(type) < 0) sums[f] = _mm512_fnmadd_ps(sum, minimum, sums[f]);
        else sums[f] = _mm512_fmadd_ps(sum, minimum, sums[f]);
    }
}

// sums (of features `apart`) += a slab of a group times a tile of rows; meanwhile weights are fetched: a slab of rows
// `stride` apart, at `ahead` unless that is NULL.
INLINE void multiply_slab(int type, const Operand *w, const PackedSlab *x, const uint8_t *ahead, size_t stride,
                          Scratch *scratch, float *held, int apart) {
    const int parts = sixteens(type) ? 16 : 8, each = SLAB / parts;
    __m512 sums[GROUP];
#pragma GCC unroll 16
    for (int f = 0; f < GROUP; f++) sums[f] = _mm512_load_ps(held + COLUMNS * f * apart);
    for (int i = 0; i < parts; i += RING)
#pragma GCC unroll 4
        for (int k = 0; k < RING; k++) {
            int behind = i + k - BEHIND;
            multiply_part(type, k, w->q + (size_t)(i + k) * w->step, w->stride,
                          &x->q[0][0][0][0] + (i + k) * each * COLUMNS, scratch->products[k]);
            for (int f = (i + k) * GROUP / parts; ahead && f < (i + k + 1) * GROUP / parts; f++)
                for (size_t at = 0; at < slab_bytes_of(type); at += 64)
                    __builtin_prefetch(ahead + (size_t)f * stride + at, 0, 3);
            if (behind >= 0)
                add_part(type, behind, &scratch->products[(k + RING - BEHIND) % RING][0][0], w->slab, x, sums);
        }
#pragma GCC unroll 2
    for (int i = parts - BEHIND; i < parts; i++)
        add_part(type, i, &scratch->products[i % RING][0][0], w->slab, x, sums);
#pragma GCC unroll 16
    for (int f = 0; f < GROUP; f++) _mm512_store_ps(held + COLUMNS * f * apart, sums[f]);
}

// The sums of a group and a tile of rows to their place.
static void write_tile(const float *sums, const Task *t, int f, int row) {
    __m512 v[16], bias = _mm512_setzero_ps();
    __mmask16 there = (__mmask16)((1u << int_min(GROUP, t->last - f)) - 1);
    if (t->w->bias) bias = _mm512_maskz_loadu_ps(there, t->w->bias + f);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) v[i] = _mm512_load_ps(sums + 16 * i);
    transpose16(v);
#pragma GCC unroll 16
    for (int i = 0; i < COLUMNS; i++) {
        if (row + i >= t->n_rows) break;
        float *out = t->y + (size_t)(row + i) * t->y_stride + f;
        __m512 value = _mm512_add_ps(v[i], bias);
        if (t->add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(there, out));
        _mm512_mask_storeu_ps(out, there, value);
    }
}

// Features f on, in groups of n, each `apart` from the next.
INLINE void multiply_groups(int type, const Task *t, int f, int apart, int n, Scratch *scratch) {
    int slabs = (int)slabs_of(t->w->n_in), tiles = (t->n_rows + COLUMNS - 1) / COLUMNS, steps = apart * slabs;
    size_t row_bytes = t->w->row_bytes;
    Operand now, next = operand_of(type, t->w, f, apart, n, 0, &scratch->slab[0]);
    for (int i = 0; i < tiles; i++) memset(scratch->sums[i], 0, (size_t)(n * apart) * sizeof scratch->sums[i][0]);
    for (int step = 0; step < steps; step++) {
        int to = step + 1, row = step / slabs, s = step % slabs;
        const uint8_t *ahead =
            (const uint8_t *)t->w->data + (size_t)(f + row) * row_bytes + (size_t)s * slab_bytes_of(type) + AHEAD;
        now = next;
        if (to < steps) next = operand_of(type, t->w, f + to / slabs, apart, n, to % slabs, &scratch->slab[to % 2]);
        __asm__ volatile("" ::: "memory"); // tile loads do not say that they read what was filled
        for (int i = 0; i < tiles; i++)
            multiply_slab(type, &now, t->x + i * slabs + s, i == 0 ? ahead : NULL, (size_t)apart * row_bytes, scratch,
                          scratch->sums[i][row], apart);
    }
    for (int at = 0; at < n * apart; at += GROUP)
        for (int i = 0; i < tiles; i++) write_tile(scratch->sums[i][at], t, f + at, i * COLUMNS);
}

INLINE void run_type(int type, const Task *t, Scratch *scratch) {
    configure(sixteens(type) ? 16 : 32);
    int apart, f = t->first;
    for (; t->last - f >= GROUP; f += GROUP * apart) {
        apart = int_min(APART, (t->last - f) / GROUP);
        multiply_groups(type, t, f, apart, GROUP, scratch);
    }
    if (f < t->last) multiply_groups(type, t, f, 1, t->last - f, scratch);
    _tile_release();
}

#define DEFINE_RUN(TYPE)                                                                                               \
    static __attribute__((noinline)) void run_##TYPE(const Task *t, Scratch *s) { run_type(TYPE, t, s); }
EACH_QUANTISED(DEFINE_RUN)

typedef void RunTask(const Task *t, Scratch *scratch);

#define RUN_CASE(TYPE)                                                                                                 \
    case TYPE: return run_##TYPE;
static RunTask *run_of(int type) {
    switch (type) { EACH_QUANTISED(RUN_CASE) }
    return NULL;
}

static void run(const Tensor *w, int first, int last, const void *packed, int first_row, int n_rows, float *y,
                size_t y_stride, bool add, void *scratch) {
    run_of(w->type)(&(Task){.w = w,
                            .first = first,
                            .last = last,
                            .x = (const PackedSlab *)packed + (size_t)(first_row / COLUMNS) * slabs_of(w->n_in),
                            .n_rows = n_rows,
                            .y = y + (size_t)first_row * y_stride,
                            .y_stride = y_stride,
                            .add = add},
                    scratch);
}

const MatrixKernel *cpu_amx_int8_matrix(int type) {
    static const MatrixKernel kernel = {
        .min_rows = 5,
        .tile = COLUMNS,
        .rows = MOST_TILES * COLUMNS,
        .depth = INT_MAX,
        .scratch = sizeof(Scratch),
        .packed_bytes = packed_bytes,
        .pack = pack,
        .run = run,
    };
    return run_of(type) ? &kernel : NULL;
}
