// base/device.h: HOST_DEVICE marks a function that a CUDA compiler builds for both sides; elsewhere it is nothing.
#ifndef QUILL_DEVICE_H
#define QUILL_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#endif
