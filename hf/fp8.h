// hf/fp8.h: converts matrices and stacks of matrices in FP8 (E4M3) with scales to BF16.
//
// They are converted when they are loaded and then take twice the file's memory. A tensor type of their own would save
// that, but would need kernels for every instruction set and the GPU. The relative error of rounding to BF16 is at most
// 2^-9; that of E4M3 itself is up to 2^-4.
#ifndef QUILL_HF_FP8_H
#define QUILL_HF_FP8_H

#include "hf/safetensors.h"

#include <stdbool.h>

// The block that config.json states (quantization_config.weight_block_size); 0 x 0: it states none.
typedef struct {
    size_t rows, columns;
} Fp8Block;

bool fp8_is(const SafeTensor *t); // F8_E4M3
// The tensor with the scales of t: its name with _scale_inv or _scale added; NULL: there is none.
const SafeTensor *fp8_scale_of(const SafeFiles *files, const SafeTensor *t);

// t is a matrix of F8_E4M3. `scale` is F32, F16 or BF16. With a stated block it has one number for each block:
// ceil(n_out / rows) x ceil(n_in / columns). Without, it has one number for the matrix, one for each row (n_out, or
// n_out x 1), or one for each block (a x b: blocks of ceil(n_out / a) x ceil(n_in / b)); NULL: 1. Scales with swapped
// dimensions are recognised there if square blocks fit them and do not fit a x b. `out` has room for the matrix.
// QUILL_MODEL: scales that do not fit, or a stated block without scales.
Status fp8_dequantize(const SafeTensor *t, const SafeTensor *scale, Fp8Block stated, uint16_t *out);
// The same for a stack of matrices (E, n_out, n_in), whose scales have one dimension more: E is their first. `out` has
// room for the stack.
Status fp8_dequantize_stack(const SafeTensor *t, const SafeTensor *scale, Fp8Block stated, uint16_t *out);
float fp8_e4m3(uint8_t bits); // the value of an E4M3 byte (OCP): 4 bits of exponent, 3 of mantissa, no infinity

#endif
