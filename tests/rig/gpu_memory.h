// tests/rig/gpu_memory.h: device memory for the tests of kernels, on a GPU or on the host that simulates one.
#ifndef QUILL_GPU_MEMORY_H
#define QUILL_GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void *device_new(const void *host, size_t n); // a copy of n host bytes; host NULL: all bits set, which is NaN
void device_read(void *host, const void *device, size_t n); // waits for earlier launches
void device_write(void *device, const void *host, size_t n);
void device_free_all(void);       // frees everything that device_new returned
void device_order(uint64_t seed); // sets the order of threads and blocks, if it can be chosen
bool device_sm90(bool on);        // whether it is of compute capability 9.0; the simulated one becomes so, or not

#ifdef __cplusplus
}
#endif

#endif
