// tests/rig/gpu_rt_host.h: what tests may ask of the GPU's twin (tests/rig/gpu_rt_host.cpp) that no GPU offers.
#ifndef QUILL_GPU_RT_HOST_H
#define QUILL_GPU_RT_HOST_H

#include "gpu/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the twin's memory holds from now on, in bytes; allocations beyond it are refused. At first 1 GB, or
// $QUILL_TWIN_MEMORY bytes.
void twin_memory(size_t n);
size_t twin_used(void);   // bytes that are allocated now, pinned ones too
void twin_clear(void);    // forgets the failure that rt_failure tells
long twin_products(void); // matrix products so far

#ifdef __cplusplus
}
#endif

#endif
