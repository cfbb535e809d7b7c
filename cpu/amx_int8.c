// cpu/amx_int8.c: products of several rows in integers on Intel's AMX unit: quantised weights times activations in
// int8.
//
// The arithmetic is that of cpu/int8_vnni.c on another unit: sums of 32 products are exact integers, and scales are
// applied once a block, in f32. Types with scales for 16 elements have twice as many sums: their weights are unpacked
// to bf16 in less time (cpu/amx.c). Weights are the left operand, sixteen features of a block: since the unit loads
// rows of that operand from any address, Q8_0 is multiplied directly from the file. Activations are the right operand,
// packed and transposed once for all tasks; weights would have to be transposed each time. The features of a group are
// far apart, so that each is a memory stream of its own, as in cpu/int8_vnni.c: this reaches 84 to 88% of a plain
// loop's bandwidth, against 60% with neighbouring features that are prefetched as one piece. The rest is limited by the
// vector ports, which add the blocks' sums and also serve the unit's loads, products and stores. With up to eight rows
// half of the columns would be empty: there two blocks share a product, each with columns of its own.
#define QUILL_SIMD 512
#include "cpu/cpu.h"

#include "cpu/amx.h"
#include "cpu/int8_block.h"

#include <stddef.h>

enum {
    COLUMNS = 16,    // rows of activations in a packed tile: columns of the unit's right operand
    PAIRED_ROWS = 8, // up to so many rows have two columns each, for even and for odd blocks
    GROUP = 16,      // features that go together: rows of the left operand
    APART = 16,      // the most rows of weights between neighbouring features of a group
    AHEAD = 704,     // bytes to prefetch ahead in each of a group's rows
    BEHIND = 2,      // products between storing sums and using them: a load right after the store would stall
    RING = 4,        // stored sums that are not used yet, at most
    MOST_TILES = 2,  // the most tiles of rows of a task
};

// 256 elements of a tile of rows. A tile of up to PAIRED_ROWS rows is paired: row r has columns 2 r for even blocks and
// 2 r + 1 for odd blocks. Its bytes are in the block's column, with zeros in the other one; scales and sums are then
// those of pairs of blocks.
typedef struct {
    int8_t q[8][8][COLUMNS][4];               // (block of 32, four elements, column, element)
    float scale[8][COLUMNS], sum[8][COLUMNS]; // of 32
} PackedInt8;

// 256 weights of a group, as bytes; signed unless the type has a minimum.
typedef struct {
    uint8_t q[GROUP][SUPERBLOCK];
    float scale[GROUP][16]; // of Int8Weights
} Int8Superblock;

typedef struct {
    Int8Superblock superblock[2]; // used alternately
    int32_t products[RING][GROUP][COLUMNS];
    float sums[MOST_TILES][GROUP * APART][COLUMNS];
} Int8TileScratch;

// ---- activations ----------------------------------------------------------------------------------------------------

static size_t packed_bytes(int n_rows, int n_in) {
    return round_up((size_t)n_rows, COLUMNS) / COLUMNS * superblocks_of(n_in) * sizeof(PackedInt8);
}

// Transposes 64 bytes of every row: rows in, columns of four bytes out. If paired, each of a row's columns gets half.
INLINE void turn(const Int8Activations *a, size_t at, bool paired, void *out) {
    __m512 r[16];
    UNROLL(16)
    for (int i = 0; i < 16; i++) {
        const void *from = (const uint8_t *)&a[paired ? i / 2 : i] + at;
        r[i] = _mm512_maskz_loadu_ps((__mmask16)(!paired ? 0xffff : i % 2 ? 0xff00 : 0x00ff), from);
    }
    transpose16(r);
    UNROLL(16)
    for (int i = 0; i < 16; i++) _mm512_store_ps((float *)out + 16 * i, r[i]);
}

static void pack_paired(const Int8Activations *a, PackedInt8 *p) {
    for (int k = 0; k < SUPERBLOCK; k += 64) turn(a, (size_t)k, true, p->q[k / 32]);
    for (int r = 0; r < PAIRED_ROWS; r++)
        for (int b = 0; b < 8; b++) {
            p->scale[b / 2][2 * r + b % 2] = a[r].scale[b];
            p->sum[b / 2][2 * r + b % 2] = a[r].sum[b];
        }
}

static void pack_single(const Int8Activations *a, PackedInt8 *p) {
    for (int k = 0; k < SUPERBLOCK; k += 64) turn(a, (size_t)k, false, p->q[k / 32]);
    turn(a, offsetof(Int8Activations, scale), false, p->scale); // also transposes the sums, which follow the scales
}

static void pack(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {
    PackedInt8 *p = (PackedInt8 *)packed + (size_t)tile * superblocks_of(n_in);
    Int8Activations a[COLUMNS];
    memset(a, 0, sizeof a);
    for (int i = 0; i < n_in; i += SUPERBLOCK, p++) {
        for (int r = 0; r < n_rows; r++)
            quantize_row(x + (size_t)r * x_stride + i, int_min(SUPERBLOCK, n_in - i), &a[r]);
        if (n_rows <= PAIRED_ROWS) pack_paired(a, p);
        else pack_single(a, p);
    }
}

// ---- weights --------------------------------------------------------------------------------------------------------

INLINE void unpack(int type, const uint8_t *from, Int8Superblock *to, int f) {
    Int8Weights w;
    load_weights(type, from, &w);
    int offset = byte_offset(type);
    UNROLL(4)
    for (int i = 0; i < 4; i++) _mm512_store_si512(to->q[f] + 64 * i, _mm512_sub_epi8(w.u[i], bytes(offset)));
    _mm512_store_ps(to->scale[f], w.scale);
}

// Loads only the scales of Q8_0, for features `stride` bytes apart.
INLINE void load_q8_scales(const uint8_t *from, size_t stride, Int8Superblock *to) {
    half_bits d[GROUP][8];
    UNROLL(4)
    for (int f = 0; f < GROUP; f++) UNROLL(8)
    for (int b = 0; b < 8; b++) {
        half_bits one;
        memcpy(&one, from + (size_t)f * stride + (size_t)b * sizeof(BlockQ8_0), sizeof one);
        *(volatile half_bits *)&d[f][b] = one; // volatile: the compiler would combine them on the busy vector ports
    }
    for (int f = 0; f < GROUP; f++)
        _mm256_store_ps(to->scale[f], _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)d[f])));
}

// A group's superblock as the unit's operand: features are `stride` bytes apart, blocks of 32 elements `step`.
typedef struct {
    const Int8Superblock *superblock; // scales, and weights that cannot be used directly from the file
    const uint8_t *q;
    size_t stride, step;
} Operand;

// The operand for superblock s of n features from f on, each `apart` rows from the next.
INLINE Operand operand_of(int type, const Tensor *w, int f, int apart, int n, int s, Int8Superblock *to) {
    size_t block_bytes = superblock_bytes(type), done = (size_t)s * block_bytes, left = w->row_bytes - done;
    size_t stride = (size_t)apart * w->row_bytes;
    const uint8_t *from = (const uint8_t *)w->data + (size_t)f * w->row_bytes + done;
    if (type == TYPE_Q8_0 && n == GROUP && left >= block_bytes) {
        load_q8_scales(from, stride, to);
        return (Operand){to, from + offsetof(BlockQ8_0, qs), stride, sizeof(BlockQ8_0)};
    }
    for (int i = 0; i < n; i++, from += stride) {
        SuperblockRoom room;
        unpack(type, superblock_whole(type, from, left, room), to, i);
    }
    return (Operand){to, to->q[0], SUPERBLOCK, 32};
}

// ---- products -------------------------------------------------------------------------------------------------------

#define PRODUCT(SUM, LEFT, RIGHT, I)                                                                                   \
    _tile_loadd(LEFT, w->q + (size_t)(I)*w->step, w->stride);                                                          \
    _tile_loadd(RIGHT, x + (I)*32 * COLUMNS, 64);                                                                      \
    if (type_has_minimum(type)) _tile_dpbusd(SUM, LEFT, RIGHT);                                                        \
    else _tile_dpbssd(SUM, LEFT, RIGHT)
#define PRODUCTS(SUM, LEFT, RIGHT)                                                                                     \
    _tile_zero(SUM);                                                                                                   \
    if (paired) {                                                                                                      \
        PRODUCT(SUM, 4, 6, 2 * i);                                                                                     \
        PRODUCT(SUM, 5, 7, 2 * i + 1);                                                                                 \
    } else {                                                                                                           \
        PRODUCT(SUM, LEFT, RIGHT, i);                                                                                  \
    }                                                                                                                  \
    _tile_stored(SUM, products, 64)

// products (16 features, 16 columns) = block i of a superblock times that of the activations; if paired, blocks 2 i and
// 2 i + 1. `turn` selects one of the tiles, whose number must be a constant.
INLINE void multiply_block(int type, bool paired, int turn, int i, const Operand *w, const int8_t *x, void *products) {
    switch (turn) {
    case 0: PRODUCTS(0, 4, 6); break;
    case 1: PRODUCTS(1, 5, 7); break;
    case 2: PRODUCTS(2, 4, 6); break;
    default: PRODUCTS(3, 5, 7);
    }
}

// Broadcasts of[i]; if paired, of[2 i] to even lanes and of[2 i + 1] to odd lanes.
INLINE __m512 spread(bool paired, const float *of, int i) {
    if (!paired) return _mm512_set1_ps(of[i]);
    double pair;
    memcpy(&pair, of + 2 * i, sizeof pair);
    return _mm512_castpd_ps(_mm512_set1_pd(pair));
}

// sums += products of block i (if paired: of a pair of blocks) times their scales.
INLINE void add_block(int type, bool paired, int i, const int32_t *products, const Int8Superblock *w,
                      const PackedInt8 *x, __m512 sums[GROUP]) {
    __m512 scale = _mm512_load_ps(x->scale[i]), sum = _mm512_load_ps(x->sum[i]);
    UNROLL(16)
    for (int f = 0; f < GROUP; f++) {
        __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(products + COLUMNS * f)), scale);
        sums[f] = _mm512_fmadd_ps(dot, spread(paired, w->scale[f], i), sums[f]);
        if (!type_has_minimum(type)) continue;
        __m512 minimum = spread(paired, w->scale[f] + 8, i);
        if (sum_factor(type) < 0) sums[f] = _mm512_fnmadd_ps(sum, minimum, sums[f]);
        else sums[f] = _mm512_fmadd_ps(sum, minimum, sums[f]);
    }
}

// Weights to prefetch: a superblock of rows `stride` bytes apart. at NULL: none.
typedef struct {
    const uint8_t *at;
    size_t stride;
} WeightPrefetch;

// Prefetches features [f0, f1).
INLINE void fetch(int type, const WeightPrefetch *ahead, int f0, int f1) {
    if (!ahead->at) return;
    for (int f = f0; f < f1; f++)
        for (size_t line = 0; line < superblock_bytes(type); line += 64)
            __builtin_prefetch(ahead->at + (size_t)f * ahead->stride + line, 0, 3);
}

// sums += a superblock of a group times a tile of activations. The sums of neighbouring features are `apart` rows
// apart.
INLINE void multiply_superblock(int type, bool paired, const Operand *w, const PackedInt8 *x,
                                const WeightPrefetch *ahead, Int8TileScratch *scratch, float (*held)[COLUMNS],
                                int apart) {
    const int blocks = paired ? 4 : 8, each = GROUP / blocks;
    __m512 sums[GROUP];
    UNROLL(16)
    for (int f = 0; f < GROUP; f++) sums[f] = _mm512_load_ps(held[f * apart]);
    for (int i = 0; i < blocks; i += RING) UNROLL(4)
    for (int k = 0; k < RING; k++) {
        multiply_block(type, paired, k, i + k, w, x->q[0][0][0], scratch->products[k]);
        fetch(type, ahead, (i + k) * each, (i + k + 1) * each);
        if (i + k >= BEHIND)
            add_block(type, paired, i + k - BEHIND, scratch->products[(k + RING - BEHIND) % RING][0], w->superblock, x,
                      sums);
    }
    UNROLL(2)
    for (int i = blocks - BEHIND; i < blocks; i++)
        add_block(type, paired, i, scratch->products[i % RING][0], w->superblock, x, sums);
    UNROLL(16)
    for (int f = 0; f < GROUP; f++) _mm512_store_ps(held[f * apart], sums[f]);
}

typedef struct {
    const Tensor *w;
    int first, last;
    const PackedInt8 *x; // of the first row
    int n_rows;
    float *y; // of the first row
    size_t y_stride;
    bool add;
} Int8TileTask;

// Writes the sums of 16 features from f on and of the tile of rows that begins with `row` to y.
static void write_tile(const float (*sums)[COLUMNS], const Int8TileTask *t, int f, int row, bool paired) {
    __m512 v[16];
    UNROLL(16)
    for (int i = 0; i < 16; i++) v[i] = _mm512_load_ps(sums[i]);
    transpose16(v);
    for (int i = 0; i < PAIRED_ROWS && paired; i++) v[i] = _mm512_add_ps(v[2 * i], v[2 * i + 1]);
    write_rows(v, t->n_rows - row, t->last - f, t->w->bias ? t->w->bias + f : NULL, t->add,
               t->y + (size_t)row * t->y_stride + f, t->y_stride);
}

// Whether the tile that begins with `row` is paired.
INLINE bool is_paired(const Int8TileTask *t, int row) { return t->n_rows - row <= PAIRED_ROWS; }

// Multiplies `apart` groups of n features, from feature f on.
INLINE void multiply_groups(int type, const Int8TileTask *t, int f, int apart, int n, Int8TileScratch *scratch) {
    int n_superblocks = (int)superblocks_of(t->w->n_in), steps = apart * n_superblocks;
    size_t row_bytes = t->w->row_bytes;
    const uint8_t *rows = (const uint8_t *)t->w->data + (size_t)f * row_bytes;
    Operand now, next = operand_of(type, t->w, f, apart, n, 0, &scratch->superblock[0]);
    for (int i = 0; i * COLUMNS < t->n_rows; i++)
        memset(scratch->sums[i], 0, (size_t)apart * GROUP * sizeof scratch->sums[i][0]);
    for (int step = 0; step < steps; step++) {
        int group = step / n_superblocks, s = step % n_superblocks, to = step + 1;
        WeightPrefetch ahead = {rows + (size_t)group * row_bytes + (size_t)s * superblock_bytes(type) + AHEAD,
                                (size_t)apart * row_bytes};
        now = next;
        if (to < steps)
            next = operand_of(type, t->w, f + to / n_superblocks, apart, n, to % n_superblocks,
                              &scratch->superblock[to % 2]);
        __asm__ volatile("" ::: "memory"); // the compiler does not know that tile loads read memory
        for (int i = 0; i * COLUMNS < t->n_rows; i++, ahead.at = NULL) {
            const PackedInt8 *x = t->x + i * n_superblocks + s;
            float(*sums)[COLUMNS] = &scratch->sums[i][group];
            if (is_paired(t, i * COLUMNS)) multiply_superblock(type, true, &now, x, &ahead, scratch, sums, apart);
            else multiply_superblock(type, false, &now, x, &ahead, scratch, sums, apart);
        }
    }
    for (int at = 0; at < n * apart; at += GROUP)
        for (int i = 0; i * COLUMNS < t->n_rows; i++)
            write_tile(&scratch->sums[i][at], t, f + at, i * COLUMNS, is_paired(t, i * COLUMNS));
}

INLINE void run_type(int type, const Int8TileTask *t, Int8TileScratch *scratch) {
    int apart, f = t->first;
    tiles_configure(32);
    for (; t->last - f >= GROUP; f += GROUP * apart) {
        apart = int_min(APART, (t->last - f) / GROUP);
        multiply_groups(type, t, f, apart, GROUP, scratch);
    }
    if (f < t->last) multiply_groups(type, t, f, 1, t->last - f, scratch);
    _tile_release();
}

typedef void RunTask(const Int8TileTask *t, Int8TileScratch *scratch);

// The types of the unit: those with scales for 32 elements, but not IQ2 and IQ3, which the vector units multiply faster
// by few rows (cpu/int8_books.c).
// clang-format off
#define EACH_TILE_TYPE(X) \
    X(TYPE_Q4_0) X(TYPE_Q4_1) X(TYPE_Q5_0) X(TYPE_Q5_1) X(TYPE_Q8_0) X(TYPE_Q4_K) X(TYPE_Q5_K) X(TYPE_IQ4_NL) \
    X(TYPE_IQ4_XS) X(TYPE_MXFP4) X(TYPE_IQ1_S) X(TYPE_TQ1_0) X(TYPE_TQ2_0)
// clang-format on

#define DEFINE_RUN(TYPE)                                                                                               \
    static __attribute__((noinline)) void run_##TYPE(const Int8TileTask *t, Int8TileScratch *scratch) {                \
        run_type(TYPE, t, scratch);                                                                                    \
    }
EACH_TILE_TYPE(DEFINE_RUN)

#define RUN_CASE(TYPE)                                                                                                 \
    case TYPE: return run_##TYPE;
static RunTask *run_of(int type) {
    switch (type) { EACH_TILE_TYPE(RUN_CASE) }
    return NULL;
}

static void run_amx_int8(const MatrixTask *t) {
    size_t tile = (size_t)(t->first_row / COLUMNS);
    Int8TileTask task = {.w = t->w,
                         .first = t->first,
                         .last = t->last,
                         .x = (const PackedInt8 *)t->packed + tile * superblocks_of(t->w->n_in),
                         .n_rows = t->n_rows,
                         .y = t->y + (size_t)t->first_row * t->y_stride,
                         .y_stride = t->y_stride,
                         .add = t->add};
    run_of(t->w->type)(&task, t->scratch);
}

// Fewer than MIN_ROWS rows are faster on the vector unit, more than MOST_ROWS as bf16, measured with weights in memory.
#define KERNEL(MIN_ROWS, MOST_ROWS)                                                                                    \
    {                                                                                                                  \
        .min_rows = MIN_ROWS, .most_rows = MOST_ROWS, .tile = COLUMNS, .rows = MOST_TILES * COLUMNS,                   \
        .scratch = sizeof(Int8TileScratch), .packed_bytes = packed_bytes, .pack = pack, .run = run_amx_int8,           \
    }

const MatrixKernel *cpu_amx_int8_matrix(int type) {
    static const MatrixKernel from_5 = KERNEL(5, COLUMNS), from_6 = KERNEL(6, COLUMNS), from_7 = KERNEL(7, COLUMNS),
                              to_32 = KERNEL(5, MOST_TILES * COLUMNS);
    if (!run_of(type)) return NULL;
    switch (type) {
    case TYPE_Q8_0:
    case TYPE_Q5_0:
    case TYPE_Q5_1:
    case TYPE_Q5_K: return &to_32;
    case TYPE_Q4_0:
    case TYPE_Q4_1: return &from_7;
    case TYPE_IQ4_NL:
    case TYPE_IQ4_XS: return &from_6;
    default: return &from_5;
    }
}
