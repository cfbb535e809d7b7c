// hf/fp8.h: converts matrices and stacks of matrices in FP8 (E4M3) with scales to BF16.
//
// They are converted when they are loaded and then take twice the file's memory. A tensor type of their own would save
// that, but would need kernels for every instruction set and the GPU. The relative error of rounding to BF16 is at most
// 2^-9; that of E4M3 itself is up to 2^-4.
#ifndef QUILL_HF_FP8_H
#define QUILL_HF_FP8_H

#include "hf/safetensors.h"

#include <stdbool.h>

bool fp8_is(const SafeTensor *t); // F8_E4M3
// The tensor with the scales of t: its name with _scale_inv or _scale added; NULL: there is none.
const SafeTensor *fp8_scale_of(const SafeFiles *files, const SafeTensor *t);

// t is a matrix of F8_E4M3. `scale` (F32, F16 or BF16) has one number for the matrix, one for each row (n_out, or n_out
// x 1), or one for each block of rows and columns (a x b: blocks of ceil(n_out / a) x ceil(n_in / b), as DeepSeek and
// Qwen have them); NULL: 1. `out` has room for the matrix. QUILL_MODEL: scales that do not fit.
Status fp8_dequantize(const SafeTensor *t, const SafeTensor *scale, uint16_t *out);
// The same for a stack of matrices (E, n_out, n_in), whose scales have one dimension more: E is their first. `out` has
// room for the stack.
Status fp8_dequantize_stack(const SafeTensor *t, const SafeTensor *scale, uint16_t *out);
float fp8_e4m3(uint8_t bits); // the value of an E4M3 byte (OCP): 4 bits of exponent, 3 of mantissa, no infinity

#endif
