// tests/rig/rounded.h: the scalar backend over rounded inputs: what rounding alone does to the logits of a model.
//
// Kernels that round are compared with it in two ways. The distance of its logits from the plain scalar ones is the
// cost of a rounding, which no kernel may exceed. A kernel that rounds at the same places is nearer to it than that.
#ifndef QUILL_ROUNDED_H
#define QUILL_ROUNDED_H

#include "kernels.h"

// Inputs of products: int8 in blocks of 32 elements with one scale, the largest / 127; or bf16, together with the
// weights. INT8 leaves products with dense weights as they are, BF16 those with weights in F32.
typedef enum { EXACT, INT8, BF16, ROUNDINGS } Rounding;
// The result is valid until the next call with the same rounding.
const Backend *rounded_backend(Rounding products);
// What the GPU's backend rounds beside them.
typedef struct {
    int kv_type, least_head; // Q and the weights of attention, for heads of least_head elements or more; F32: neither
    int ffn;                 // outputs of gate and up of so many elements, to bf16; 0: none
} GpuRounding;
const Backend *rounded_like_gpu(Rounding products, GpuRounding others);

#endif
