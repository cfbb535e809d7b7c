// gpu/cuda_model.h: a model's weights in the GPU's memory, described for the fused kernels (DeviceTensor) and for
// matrix products (Stack).
#ifndef QUILL_CUDA_MODEL_H
#define QUILL_CUDA_MODEL_H

#include "gpu/launch.h"

// Matrices with the same input (Q, K and V; gate and up), stacked by rows for one matrix product.
typedef struct {
    DeviceTensor part[3];
    int n_parts;
    int n_out, n_in;
    int type;          // type of the product: TYPE_F32, TYPE_F16, TYPE_BF16
    const void *dense; // (n_out, stride) all rows in `type`; NULL: the weights are unpacked slice by slice
    size_t stride;     // elements from row to row
} Stack;

// In a layer of experts GATE_UP and DOWN are the shared expert's; ROUTER has the router and the shared expert's gate,
// in f32. MIX has w_mix and w_z of recurrent layers, or the gate's part of Wq; RATES w_beta and w_alpha, in f32. With
// compressed K and V, QKV has the matrices that take x, Q_B those that take the compressed Q.
enum { QKV, OUT, GATE_UP, DOWN, MIX, Q_B, K_B, V_B, PER_GATE, PER_OUT, ROUTER, RATES, N_STACKS };

typedef struct { // Layer.device
    GpuLayer gpu;
    Stack stack[N_STACKS];
    bool dense;              // all stacks except ROUTER and RATES have `dense`
    int at;                  // index among the layers on the GPU
    const GpuRopes *ropes;   // CudaModel.ropes
    void *memory, *resident; // owned: weights; dense copies or NULL
} CudaLayer;

typedef struct { // Tensor.device of the embedding and of the head
    DeviceTensor t;
    Stack stack;
    const float *norm;     // the head's: the output norm; of per_embd: Ends.norm_per; NULL: none
    const GpuRopes *ropes; // the embedding's: CudaModel.ropes
    void *memory;          // owned; NULL: the weights are another CudaMatrix's
    void *resident;        // owned: a dense copy of the head, or NULL
} CudaMatrix;

typedef struct {       // Model.on_device
    CudaLayer *layers; // (n_layers)
    int n_layers;
    CudaMatrix tok, head, per_embd, per_proj;
    GpuRopes ropes;
} CudaModel;

// Bytes of one element of a dense type.
static inline size_t dense_bytes(int type) { return type == TYPE_F32 ? 4 : 2; }

// DeviceMemory.load and .unload. QUILL_MEMORY: no room; QUILL_MODEL: the GPU failed.
Status cuda_model_load(const DeviceLoad *what, CudaModel **out);
void cuda_model_free(CudaModel *m);

#endif
