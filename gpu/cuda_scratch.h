// gpu/cuda_scratch.h: a workspace's memory on the GPU, and the pinned buffers that batches are copied from.
//
// One allocation holds all activations. A second one, which grows, holds a batch's numbers (tokens, positions, block
// tables, ...). These are uploaded from two pinned staging buffers in turn, so that the host can prepare a step while
// another one runs.
#ifndef QUILL_CUDA_SCRATCH_H
#define QUILL_CUDA_SCRATCH_H

#include "gpu/cuda_graphs.h"
#include "gpu/recurrent.h"

enum { CUDA_UNPACK_ROWS = 32 }; // the most rows for which fused kernels replace a product that must unpack its weights

// A pinned staging buffer.
typedef struct {
    int *ints;   // (n_ints) numbers of a batch; may be overwritten when `sent` is reached
    int *tokens; // (n_tokens) tokens drawn by the GPU, then GpuExperts.broken of that step; valid when `drawn` is
                 // reached
    int n_tokens;
    RtMark *sent, *drawn; // marks in the stream
} CudaStaging;

typedef struct { // Workspace.device
    float *x;    // (max_rows, dim)
    // (max_rows, widest product) outputs of products: Q, K and V until attention has ended; gate and up; a sub-layer's
    // output before its norm; in layers of experts the outputs of all pairs, then those of the shared expert
    float *y;
    float *q, *a; // (max_rows, q_dim); a: (max_rows, a_dim), rows of the layer's own width
    int q_dim;    // row width of the layer that has filled q last
    float *per;   // (max_rows, per_dim) as Workspace.per
    // (max_rows, latent_dim + the widest K), (max_rows, latent_dim): products of layers with compressed K and V
    float *latent[2];
    uint8_t *expansion; // (expansion_bytes) K and V of some heads in the expanded form of such layers
    size_t expansion_bytes;
    bool *expands;  // (max_rows) on the host, by sequence: whether its rows of the current layer use that form
    int *no_blocks; // 0: the block table of a cache with one block
    // (max_rows, q_dim + 2*kv_dim) GpuScratch.qkv of layers whose K and V later layers share, by kind of pool; NULL:
    // there are none
    float *shared_qkv[KV_KINDS];
    float *h;        // (max_rows, ffn)
    void *xn;        // (max_rows, the widest input of a product) input of a product, at most 4 bytes per element
    float *mix;      // (max_rows, mix_step) as gpu/recurrent.h has it; the gates of gated attention
    size_t mix_step; // floats from row to row of mix, and of y in recurrent layers
    float *logits;   // (max_out, n_vocab)
    int *rows;       // (max_out) rows whose logits the host asks for
    uint8_t *slice;  // (slice_bytes) weights unpacked for a product
    size_t slice_bytes;
    GpuScratch gpu;
    GpuExperts experts;
    int attend_rows; // the most rows of a launch of gpu_attention
    void *sampling;  // scratch of gpu_sample
    int *sampled;    // (max_out) drawn tokens
    void *memory;    // the allocation that contains all of the above
    int *ints;       // (n_ints) a batch's numbers, on the device
    size_t n_ints;
    CudaStaging staging[2];
    unsigned n_sent;          // batches prepared; batch i uses staging[i % 2]
    int *there;               // (n_ints) the values of the first n_there numbers of `ints` once the queued work is done
    size_t n_there;           // 0: not known
    bool advances;            // the step's draws advance its numbers (GpuAdvance)
    unsigned n_drawn, n_told; // batches with draws; batches whose drawn tokens the host has fetched
    int max_rows, max_slots, n_vocab;
    GpuBatch batch;     // the step's
    GpuStates states;   // the step's
    const int *out_row; // (n_out) rows whose logits are wanted
    int n_out;
    GpuSample *draws;
    int draws_want; // the most candidates that one of the draws needs (gpu_sample_wants)
    const GpuTile *tiles;
    int n_tiles;
    const Ends *embeds; // not NULL: the embedding must still be queued
    const Ends *ends;   // the model's, if all of the model is on the device; otherwise NULL
    bool drew;          // the step's head and draws are queued already
    CudaGraphs graphs;
} CudaScratch;

// DeviceMemory.scratch_new and .scratch_free. QUILL_MEMORY: no room.
Status cuda_scratch_new(Workspace *w, const Heads *h);
void cuda_scratch_free(Workspace *w);
// Makes room for n numbers of a batch. False: no memory; rt_failure has the message.
bool cuda_scratch_reserve(CudaScratch *s, size_t n);
// How many rows a step of n_rows is padded to: few rows run as graphs, which exist for powers of two.
int cuda_scratch_padded_rows(int n_rows);
// The bound on slots that kernels are launched for: a power of two.
int cuda_scratch_slots(int n_slots);

#endif
