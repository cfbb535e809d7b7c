// gpu/ceilings.cuh: kernels that measure the limits of a GPU: one only reads, one is empty.
#ifndef QUILL_CEILINGS_CUH
#define QUILL_CEILINGS_CUH

#include "gpu/gpu.h"
#include "gpu/tensors.cuh"

enum { READS = 8 }; // loads of 16 bytes that a thread has in flight

// Reads n pieces of 16 bytes. *out is written only if their bits combine to `never`, which does not happen; this keeps
// the compiler from removing the reads.
__global__ void read_all(const uint4 *data, size_t n, uint32_t never, uint32_t *out) {
    size_t step = (size_t)gridDim.x * blockDim.x, i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t bits = 0;
    for (; i + (READS - 1) * step < n; i += READS * step) {
        uint4 v[READS];
        UNROLL
        for (int k = 0; k < READS; k++) v[k] = stream<uint4>((const uint8_t *)(data + i + (size_t)k * step));
        UNROLL
        for (int k = 0; k < READS; k++) bits |= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step) {
        uint4 v = stream<uint4>((const uint8_t *)(data + i));
        bits |= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (bits == never) *out = bits;
}

// One link of a chain of launches that depend on each other.
__global__ void begin_and_end(uint32_t *unused) {
    let_next_begin();
    wait_for_last();
    if (unused) *unused = 0;
}

#endif
