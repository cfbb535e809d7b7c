// gpu/per_layer.cuh: per-layer embeddings (Ends.per) and the end of a layer that scales the residual stream; with their
// launches.
#ifndef QUILL_PER_LAYER_CUH
#define QUILL_PER_LAYER_CUH

#include "gpu/products.cuh"

// One warp for each row and layer computes per = (norm(per) + sqrt(width) * own) / sqrt(2) over the layer's part.
__global__ void per_layer_embed(float *per, const float *own, const float *norm, float eps, int width, size_t n) {
    size_t part = (size_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    if (part >= n) return;
    per += part * (size_t)width;
    own += part * (size_t)width;
    float squares = 0, root = sqrtf((float)width), half = sqrtf(0.5f);
    for (int i = lane; i < width; i += WARP) squares += per[i] * per[i];
    float scale = 1 / sqrtf(warp_sum(squares) / (float)width + eps);
    for (int i = lane; i < width; i += WARP) per[i] = (per[i] * scale * norm[i] + own[i] * root) * half;
}

// One thread for each element.
template <Activation ACT>
__global__ void per_layer_gate(void *h, int type, const float *gate, const float *per, size_t stride, int width,
                               size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    size_t row = i / (size_t)width, e = i % (size_t)width;
    store_as(type, h, i, gated(ACT, gate[i], per[row * stride + e]));
}

// One block for each row.
__global__ void per_layer_end(float *x, const float *y, const float *norm, float eps, float scale, int dim) {
    Smem smem;
    float *sums = smem.take<float>(blockDim.x / WARP), squares = 0, factor = 1;
    size_t at = (size_t)blockIdx.x * (size_t)dim;
    for (int i = (int)threadIdx.x; norm && i < dim; i += (int)blockDim.x)
        squares += y[at + (size_t)i] * y[at + (size_t)i];
    if (norm) factor = 1 / sqrtf(block_sum(squares, sums) / (float)dim + eps);
    for (int i = (int)threadIdx.x; i < dim; i += (int)blockDim.x) {
        float v = x[at + (size_t)i];
        if (y) v += y[at + (size_t)i] * factor * (norm ? norm[i] : 1);
        x[at + (size_t)i] = v * scale;
    }
}

void gpu_per_layer_embed(float *per, const float *own, const float *norm, float eps, int width, size_t n,
                         GpuStream stream) {
    LAUNCH(per_layer_embed, blocks_for(n, THREADS / WARP), THREADS, 0, stream, per, own, norm, eps, width, n);
}

void gpu_per_layer_gate(void *h, int type, Activation act, const float *gate, const float *per, size_t stride,
                        int width, int n_rows, GpuStream stream) {
    size_t n = (size_t)n_rows * (size_t)width;
    with_activation(act, [&](auto a) {
        LAUNCH(per_layer_gate<decltype(a)::value>, blocks_for(n, THREADS), THREADS, 0, stream, h, type, gate, per, stride,
               width, n);
    });
}

void gpu_per_layer_end(float *x, const float *y, const float *norm, float eps, float scale, int dim, int n_rows,
                       GpuStream stream) {
    LAUNCH(per_layer_end, (unsigned)n_rows, THREADS, THREADS / WARP * 4, stream, x, y, y ? norm : (const float *)NULL,
           eps, scale, dim);
}

#endif
