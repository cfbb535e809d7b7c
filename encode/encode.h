// encode/encode.h: weights in f32 as blocks of a tensor type: what TypeInfo.dequantize (formats/types.h) undoes.
//
// The bytes depend on the weights alone: every machine, compiler and instruction set gives the same. Without importance
// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4, TQ1_0 and TQ2_0 round as the formats' reference does (the `gguf`
// package of Python, bit for bit). The other types, and Q4_0 to Q5_1 with importance, minimise the squared error
//     sum over i of importance[i] (x[i] - what the block says of x[i])^2
// by a search of their own (encode/fit.h).
#ifndef QUILL_ENCODE_H
#define QUILL_ENCODE_H

#include <stdbool.h>
#include <stddef.h>

#define ENCODE_LARGEST 65504.0f // no type takes weights of a larger magnitude but F32 and BF16: their scales are halves

bool encode_has(int type);               // quill can write this TYPE_
bool encode_takes_importance(int type);  // importance changes what encode_row does
const char *encode_list(void);           // "F32, F16, ...", for messages
const char *encode_read_only_list(void); // the other types of GGUF files, which quill reads and does not write

// n weights (n a multiple of the type's block, all finite, |x| <= ENCODE_LARGEST where the type is bound to it) to
// consecutive blocks. importance: (n), finite and >= 0, or NULL: all alike.
void encode_row(int type, const float *x, const float *importance, size_t n, void *out);

#endif
