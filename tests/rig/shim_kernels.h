// tests/rig/shim_kernels.h: kernels with a planted fault, for the test of the host that runs kernels
// (tests/rig/gpu_host.h).
#ifndef QUILL_SHIM_KERNELS_H
#define QUILL_SHIM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Functions to test the machine itself. Device memory is NaN until it is written, and lies between red zones.
void shim_seed(uint64_t seed);
void *shim_new(size_t n);
void shim_copy(void *to, const void *from, size_t n); // the host itself has no access to device memory
void shim_free(void *p);

enum { SHIM_THREADS = 96 };
typedef enum {
    SHIM_RIGHT,         // out[i] (SHIM_THREADS) = in[SHIM_THREADS - 1 - i] through shared memory
    SHIM_NO_BARRIER,    // the same without the barrier between writing and reading
    SHIM_PAST_END,      // writes one element past out
    SHIM_PAST_SHARED,   // writes one element past its shared memory
    SHIM_UNWRITTEN,     // does not write one element of out
    SHIM_HALF_BARRIER,  // a barrier that only the even threads reach
    SHIM_TWO_BARRIERS,  // two barriers, each reached by half the threads
    SHIM_LANE_MISSING,  // a shuffle that names a lane which has ended
    SHIM_MISALIGNED,    // loads 16 bytes from an address that is not a multiple of 16
    SHIM_WAIT,          // SHIM_RIGHT with cp.async
    SHIM_NO_WAIT,       // reads data of cp.async before it has arrived
    SHIM_TOO_MUCH,      // uses more shared memory than it was launched with
    SHIM_EARLY,         // SHIM_RIGHT, launched before the previous launch has ended; the kernel waits for that
    SHIM_EARLY_NO_WAIT, // thread 7 does not wait
    SHIM_EARLY_WRITES,  // writes before it waits
    SHIM_WARP,          // out[i] = the sum of in over i's warp, by shuffles
} ShimKernel;
void shim_run(ShimKernel which, float *out, const float *in);

// acc (16, 8) = a (16, 16) b (16, 8) through ldmatrix and mma, elements of `type`; b read transposed from (16, 8).
void shim_multiply(int type, float *acc, const uint16_t *a, const uint16_t *b);

#ifdef __cplusplus
}
#endif

#endif
