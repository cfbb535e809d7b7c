// tests/rig/gpu_memory.h: device memory for the tests of kernels, on a GPU or in the host's stand-in for one.
#ifndef QUILL_GPU_MEMORY_H
#define QUILL_GPU_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void *device_new(const void *host, size_t n); // a copy of n host bytes; host NULL: all ones, which are NaN
void device_read(void *host, const void *device, size_t n); // waits for what was launched before
void device_write(void *device, const void *host, size_t n);
void device_free_all(void);       // all that device_new gave
void device_order(uint64_t seed); // of threads and blocks, where it can be chosen

#ifdef __cplusplus
}
#endif

#endif
