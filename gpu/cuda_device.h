// gpu/cuda_device.h: the GPU of this process: its stream, what its kernels and cuBLAS can do, counts, failures.
//
// One GPU and one stream a process. Every operation of the backend queues its launches on `stream`; they are done in
// order.
#ifndef QUILL_CUDA_DEVICE_H
#define QUILL_CUDA_DEVICE_H

#include "gpu/cuda.h"
#include "gpu/launch.h"
#include "gpu/rt.h"

typedef struct {
    GpuInfo info;
    GpuStream stream;
    GpuTuning tuning;
    bool asked, products;       // whether opening cuBLAS was tried; whether it is there
    CudaCounts counts;          // the operations add to them
    char isa[16], kernels[256]; // Backend.isa and .kernels; isa is empty until the GPU is open
} CudaDevice;
extern CudaDevice cuda_device;

// Opens the GPU and launches a first kernel. QUILL_MODEL: there is none, or it refuses the kernel; QUILL_USAGE:
// QUILL_GPU_TRY has an unknown word.
Status cuda_device_open(void);
// Whether there is cuBLAS. The first call opens it: a large library, which decoding does without.
bool cuda_device_has_products(void);
// What failed first, of a launch or of the runtime, or NULL (static storage). Results computed since are void.
const char *cuda_device_failure(void);

#endif
