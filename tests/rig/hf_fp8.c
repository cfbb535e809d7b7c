// tests/rig/hf_fp8.c: weights and scales of matrices in FP8 (tests/rig/hf_directory_parts.h).
#include "tests/rig/hf_directory_parts.h"

#include <math.h>

// The nearest E4M3 value, found by trying all.
static uint8_t nearest_fp8(float v) {
    int best = 0;
    float distance = INFINITY;
    for (int bits = 0; bits < 256; bits++) {
        int e = bits >> 3 & 15, m = bits & 7;
        if (e == 15 && m == 7) continue;
        float x = (e ? ldexpf(1 + (float)m / 8, e - 7) : ldexpf((float)m / 8, -6)) * (bits & 0x80 ? -1.0f : 1.0f);
        if (fabsf(x - v) < distance) distance = fabsf(x - v), best = bits;
    }
    return (uint8_t)best;
}

// The exponents of the factors differ from block to block and from one expert to the next.
static float factor(size_t expert, size_t down, size_t across) { return (float)(16 << (expert + down + across) % 3); }

void hf_fp8_weights(Buf *out, const HfFp8 *f, const float *v) {
    for (size_t e = 0; e < f->n; e++)
        for (size_t i = 0; i < f->n_in * f->n_out; i++, v++) {
            float by = factor(f->first_expert + e, i / f->n_in / f->block, i % f->n_in / f->block);
            buf_append(out, &(uint8_t){nearest_fp8(*v * by)}, 1);
        }
}

void hf_fp8_scales(Buf *out, const HfFp8 *f, size_t dims[3]) {
    dims[0] = f->n;
    dims[1] = (f->n_out + f->block - 1) / f->block;
    dims[2] = (f->n_in + f->block - 1) / f->block;
    for (size_t e = 0; e < f->n; e++)
        for (size_t i = 0; i < dims[1] * dims[2]; i++)
            buf_append(out, &(float){1 / factor(f->first_expert + e, i / dims[2], i % dims[2])}, 4);
}
