// base/device.h: HOST_DEVICE marks a function that a CUDA compiler compiles for host and device; for other compilers it
// is empty.
#ifndef QUILL_DEVICE_H
#define QUILL_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#endif
