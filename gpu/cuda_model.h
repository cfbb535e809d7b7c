// gpu/cuda_model.h: a model's weights in the GPU's memory: as the fused kernels take them (DeviceTensor) and as matrix
// products do (Stack).
#ifndef QUILL_CUDA_MODEL_H
#define QUILL_CUDA_MODEL_H

#include "gpu/launch.h"

// Matrices of the same input, one above the other, as one matrix product sees them.
typedef struct {
    DeviceTensor part[3];
    int n_parts;
    int n_out, n_in;
    int type;          // of the product: TYPE_F32, TYPE_F16, TYPE_BF16
    const void *dense; // (n_out, stride) of `type` where they lie so; NULL: each slice is made so when it is needed
    size_t stride;     // elements
} Stack;

// Of a layer of experts GATE_UP and DOWN are those of the shared one; ROUTER: with the shared one's weight, in f32.
enum { QKV, OUT, GATE_UP, DOWN, ROUTER, N_STACKS };

typedef struct { // Layer.device
    GpuLayer gpu;
    Stack stack[N_STACKS];
    bool dense;              // all of them are, but the router
    int at;                  // among the layers that the GPU has
    const GpuRopes *ropes;   // the model's
    void *memory, *resident; // weights; dense copies or NULL
} CudaLayer;

typedef struct { // Tensor.device of the embedding and of the head
    DeviceTensor t;
    Stack stack;
    const float *norm;     // the output norm, with the head
    const GpuRopes *ropes; // the model's, with the embedding
    void *memory;          // NULL: another's
    void *resident;        // a dense copy of the head, or NULL
} CudaMatrix;

typedef struct {       // Model.on_device
    CudaLayer *layers; // (n_layers)
    int n_layers;
    CudaMatrix tok, head;
    GpuRopes ropes;
} CudaModel;

// Bytes of an element.
static inline size_t dense_bytes(int type) { return type == TYPE_F32 ? 4 : 2; }

// DeviceMemory.load and .unload. QUILL_MEMORY: no room; QUILL_MODEL: the GPU failed.
Status cuda_model_load(const DeviceLoad *what, CudaModel **out);
void cuda_model_free(CudaModel *m);

#endif
