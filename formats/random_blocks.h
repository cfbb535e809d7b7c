// formats/random_blocks.h: random weights of every type, in valid blocks: for tests, and for benchmarks of a model's
// shape without its weights.
//
// A block of random bits is a valid block of every type once its half-precision scales are finite.
#ifndef QUILL_RANDOM_BLOCKS_H
#define QUILL_RANDOM_BLOCKS_H

#include "formats/types.h"

#include <stdbool.h>

// The scales of a block type.
typedef struct {
    int type;
    int d_at, min_at; // byte offsets of the two halves; min_at -1: none. See random_blocks_put_d
    // min / d that makes the mean of the values zero. With another mean all rows would share a direction, which grows
    // from layer to layer.
    float min_per_d;
    float rms;     // root mean square of an element under d = 1 with random integers and inner scales
    bool signed_d; // values are centred on zero if d has random signs
} BlockScales;

// NULL: the type has no blocks.
const BlockScales *random_blocks_scales(int type);

// The scale nearest to d in the type's encoding: a half; for MXFP4 one byte, a power of two.
uint16_t random_blocks_d(const BlockScales *s, float d);
// Writes such a scale to its place in a block. IQ1_M has it in four nibbles.
void random_blocks_put_d(const BlockScales *s, uint8_t *block, uint16_t d);

// n elements of the type (a multiple of its block; not TYPE_I8G) with the given standard deviation. The same `random`
// gives the same bytes on every machine.
void random_blocks_fill(int type, void *out, size_t n, float deviation, uint64_t *random);

// The generator of random_blocks_fill: splitmix64.
uint64_t random_blocks_bits(uint64_t *state);
float random_blocks_uniform(uint64_t *state); // from -1 to 1

#endif
