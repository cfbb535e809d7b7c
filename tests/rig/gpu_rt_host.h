// tests/rig/gpu_rt_host.h: functions of the GPU's twin (tests/rig/gpu_rt_host.cpp) for tests only.
#ifndef QUILL_GPU_RT_HOST_H
#define QUILL_GPU_RT_HOST_H

#include "gpu/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sets the size of the twin's memory in bytes; allocations beyond it are refused. At first it is 1 GB, or
// $QUILL_TWIN_MEMORY bytes.
void twin_memory(size_t n);
size_t twin_used(void);                            // bytes that are allocated now, including pinned ones
void *twin_fill(void *device, int byte, size_t n); // memset of device memory, which the host cannot touch
void twin_clear(void);                             // clears the failure that rt_failure returns
void twin_refuse_graph(void);                      // the next rt_graph_ready has no memory
long twin_products(void);                          // number of matrix products so far

#ifdef __cplusplus
}
#endif

#endif
