// cpu/int8_units.h: rows of activations in int8. The scale of a block is a whole number of units, and a superblock of
// 256 elements has one unit. The kernels of types whose own scales are whole numbers use them: cpu/int8_whole.c and
// cpu/int8_whole_avx2.c.
//
// A scale of such a type is a whole number times d of its superblock. So the factor of a product of two blocks is a
// whole number too, and a superblock is converted to f32 once.
#ifndef QUILL_INT8_UNITS_H
#define QUILL_INT8_UNITS_H

#include "cpu/int8_block.h"

// A superblock of activations. x is about unit times q, with the number of units (`times`) of the element's block. AVX2
// reads `sum`, AVX-512 `times`, `whole` and `product`, both the others.
typedef struct {
    int8_t q[SUPERBLOCK];             // blocks of 32 in their BlockOrder
    int16_t times16[16], whole16[16]; // units, at most MOST_TIMES, and the sum of q, for each 16 elements (put_16)
    int16_t times[8], whole[8];       // the same for each 32 elements, in file order
    int8_t product[3][16]; // for BY_HALVES: units times whole16 in file order, as three digits to the base 256
    float unit, sum[8];    // sum: of each 32 elements in file order, in f32
    char pad[12];          // q is aligned to 64 bytes
} WholeActivations;
enum { MOST_TIMES = 127 };
_Static_assert(sizeof(WholeActivations) % 64 == 0, "aligned loads of q");

// The order of the blocks of 32 activations: that of the weights that one load unpacks to, of 64 bytes on AVX-512. On
// AVX2 all types are in file order.
typedef enum {
    IN_FILE_ORDER, // Q6_K
    EVERY_SECOND,  // Q4_K and Q5_K: 0, 2, 1, 3, 4, 6, 5, 7. The two nibbles of a byte belong to blocks b and b + 1
    BY_HALVES,     // Q2_K and Q3_K: 0, 4, 1, 5, 2, 6, 3, 7. A byte has two bits of each of the blocks b to b + 3
} BlockOrder;

static int place_of(int block, BlockOrder order) {
    if (order == BY_HALVES) return block % 4 * 2 + block / 4;
    return order == EVERY_SECOND && (block % 4 == 1 || block % 4 == 2) ? block ^ 3 : block;
}

// With BY_HALVES, weights of odd blocks are unpacked to 4 times their value, which saves shifts. So the units of even
// blocks are 4 times as many in times16, and the sums of odd blocks 4 times as large in whole16: all products of the
// superblock are 4 times too large.
enum { TOO_LARGE = 4 };

// Stores what follows from the units and the sum of 16 elements.
static void put_16(WholeActivations *to, int block, int half, int times, int whole, BlockOrder order) {
    bool by_halves = order == BY_HALVES, odd = block % 2;
    int in_file = 2 * block + half, at = by_halves ? 2 * place_of(block, order) + half : in_file;
    int product = times * whole; // at most 127 x 16 x 127
    to->times16[at] = (int16_t)(by_halves && !odd ? TOO_LARGE * times : times);
    to->whole16[at] = (int16_t)(by_halves && odd ? TOO_LARGE * whole : whole);
    for (int digit = 2; digit >= 0 && by_halves; digit--) {
        int rest = (product + 128) >> 8;
        to->product[digit][in_file] = (int8_t)(product - 256 * rest);
        product = rest;
    }
}

// Quantises a superblock. The block with the largest magnitude has a scale of MOST_TIMES units. The scale of every
// other block is rounded up to whole units. That increases the squared error of the superblock by 1% at most, on
// average.
static void quantize_whole(const float *x, WholeActivations *to, BlockOrder order) {
    float largest[8], most = 0;
    for (int b = 0; b < 8; b++) {
        largest[b] = largest32(x + 32 * b);
        if (!(largest[b] <= most) && most == most) most = largest[b]; // NaN is the largest
    }
    if (most <= MOST_TIMES * INT8_TINY) most = 0; // 1 / unit might be infinite
    to->unit = most / (127 * MOST_TIMES);
    for (int b = 0; b < 8; b++) {
        float times = most > 0 ? ceilf(largest[b] / most * MOST_TIMES) : 0;
        if (!(times < MOST_TIMES)) times = MOST_TIMES; // also if infinity was divided by infinity
        float scale = to->unit * times;
        int sum[2];
        quantize32(x + 32 * b, scale > 0 ? 1 / scale : 0, to->q + 32 * place_of(b, order), sum);
        to->times[b] = (int16_t)times;
        to->whole[b] = (int16_t)(sum[0] + sum[1]);
        to->sum[b] = scale * (float)(sum[0] + sum[1]);
        for (int half = 0; half < 2; half++) put_16(to, b, half, (int)times, sum[half], order);
    }
}

// Packs a row of activations. Rows of these types are whole superblocks.
INLINE void pack_whole(void *packed, int row, const float *x, int n_in, BlockOrder order) {
    WholeActivations *to = (WholeActivations *)packed + (size_t)row * superblocks_of(n_in);
    for (int i = 0; i < n_in; i += SUPERBLOCK) quantize_whole(x + i, to++, order);
}
// Defines a MatrixKernel.pack, for tiles of one row.
#define DEFINE_PACK(NAME, ORDER)                                                                                       \
    static void NAME(void *packed, int tile, const float *x, size_t x_stride, int n_rows, int n_in) {                  \
        (void)x_stride;                                                                                                \
        (void)n_rows;                                                                                                  \
        pack_whole(packed, tile, x, n_in, ORDER);                                                                      \
    }

#endif
