// base/device.h: HOST_DEVICE marks a function that a CUDA compiler compiles for host and device; for other compilers it
// is empty. HOST_DEVICE_CONSTANT begins such a function in a header whose result is a constant if its argument is one:
// the kernels are expanded for each value.
#ifndef QUILL_DEVICE_H
#define QUILL_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#ifdef __cplusplus
#define HOST_DEVICE_CONSTANT HOST_DEVICE constexpr
#else
#define HOST_DEVICE_CONSTANT static inline __attribute__((always_inline))
#endif

#endif
