// gpu/cuda_device.h: the GPU of this process: its properties and stream, whether cuBLAS is available, counts, failures.
//
// A process uses one GPU and one stream. Every operation of the backend queues its launches on `stream`, which runs
// them in order.
#ifndef QUILL_CUDA_DEVICE_H
#define QUILL_CUDA_DEVICE_H

#include "gpu/cuda.h"
#include "gpu/launch.h"
#include "gpu/rt.h"

typedef struct {
    GpuInfo info;
    GpuStream stream;
    GpuTuning tuning;
    bool asked, products;       // whether opening cuBLAS was tried; whether it succeeded
    CudaCounts counts;          // the operations add to them
    char isa[16], kernels[256]; // Backend.isa and .kernels; isa is empty until the GPU is open
} CudaDevice;
extern CudaDevice cuda_device;

// Opens the GPU and launches a first kernel. QUILL_MODEL: there is none, or the kernel fails; QUILL_USAGE:
// QUILL_GPU_TRY has an unknown word.
Status cuda_device_open(void);
// Whether cuBLAS is available. The first call opens it; decoding does not need this large library.
bool cuda_device_has_products(void);
// The first failure of a launch or of the runtime (static storage), or NULL. Results computed since then are invalid.
const Status *cuda_device_failure(void);

#endif
