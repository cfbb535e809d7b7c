// encode/encode.h: encodes f32 weights as blocks of a tensor type: the inverse of TypeInfo.dequantize
// (formats/types.h).
//
// Every machine, compiler and instruction set gives the same bytes for the same weights. Without importance F32, F16,
// BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4, TQ1_0 and TQ2_0 round as the formats' reference does (the `gguf` package
// of Python, bit for bit). The other types, and Q4_0 to Q5_1 with importance, minimise the squared error
//     sum over i of importance[i] (x[i] - dequantised x[i])^2
// by a search of their own (encode/fit.h).
#ifndef QUILL_ENCODE_H
#define QUILL_ENCODE_H

#include <stdbool.h>
#include <stddef.h>

bool encode_has(int type);               // quill can write this TYPE_
bool encode_takes_importance(int type);  // importance changes the result of encode_row
const char *encode_list(void);           // "F32, F16, ...", for messages
const char *encode_read_only_list(void); // the other types of GGUF files, which quill reads and does not write

// The largest |weight| of a row for encode_row. Up to it weights lose about as much as small ones do, whatever the
// others of their block are. Beyond it a scale or a minimum may have to be larger than the largest half.
float encode_largest(int type);

// Encodes n weights to consecutive blocks. n is a multiple of the type's block; |x| <= encode_largest(type).
// importance: (n), finite and >= 0; NULL: all weights are equally important.
void encode_row(int type, const float *x, const float *importance, size_t n, void *out);

#endif
