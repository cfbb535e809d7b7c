// gpu/cuda_scratch.h: the memory that a workspace has on the GPU, and the pinned buffers that feed it.
//
// One allocation holds all activations. A batch's numbers (tokens, positions, block tables, ...) are another, which
// grows; they go up through one of two pinned staging buffers, so that the host can prepare a step while another runs.
#ifndef QUILL_CUDA_SCRATCH_H
#define QUILL_CUDA_SCRATCH_H

#include "gpu/cuda_graphs.h"
#include "gpu/launch.h"

enum { CUDA_UNPACK_ROWS = 32 }; // up to so many rows the fused kernels run where a product would unpack weights first

// A pinned staging buffer.
typedef struct {
    int *ints;   // (n_ints) numbers of a batch; may be written again after `sent`
    int *tokens; // (n_tokens) tokens drawn by the GPU, then GpuExperts.broken of that step; valid after `drawn`
    int n_tokens;
    RtMark *sent, *drawn; // marks in the stream
} CudaStaging;

typedef struct { // Workspace.device
    float *x;    // (max_rows, dim)
    // (max_rows, widest product): Q, K and V up to the end of attention, gate and up, what is normalised; what a row's
    // experts give, and the shared ones behind those of all rows
    float *y;
    float *q, *a;   // (max_rows, q_dim)
    float *h;       // (max_rows, ffn)
    void *xn;       // (max_rows, widest of dim and q_dim) what goes into a product, 4 bytes an element at most
    float *logits;  // (max_out, n_vocab)
    int *rows;      // (max_out) rows whose logits the host asks for
    uint8_t *slice; // (slice_bytes) weights unpacked for a product
    size_t slice_bytes;
    GpuScratch gpu;
    GpuExperts experts;
    int attend_rows; // most rows of a launch of gpu_attention
    void *sampling;  // of gpu_sample
    int *sampled;    // (max_out) tokens
    void *memory;    // all of the above
    int *ints;       // (n_ints) a batch's numbers, on the device
    size_t n_ints;
    CudaStaging staging[2];
    unsigned n_sent;          // batches so far; batch i uses staging[i % 2]
    unsigned n_drawn, n_told; // those with draws; of these, the ones whose tokens the host has fetched
    int max_rows, max_slots, n_vocab;
    GpuBatch batch;     // the step's
    const int *out_row; // (n_out) rows whose logits are wanted
    int n_out;
    const GpuSample *draws;
    int draws_want; // the most candidates that one of them looks at
    const GpuTile *tiles;
    int n_tiles;
    const Ends *embeds; // the embedding is still to be queued; NULL: it is not
    const Ends *ends;   // the step's, where the device has all of the model; otherwise NULL
    bool drew;          // the step's head and draws are queued already
    CudaGraphs graphs;
} CudaScratch;

// DeviceMemory.scratch_new and .scratch_free. QUILL_MEMORY: no room.
Status cuda_scratch_new(Workspace *w, const Heads *h);
void cuda_scratch_free(Workspace *w);
// Makes room for n numbers of a batch. False: there is none; rt_failure tells it.
bool cuda_scratch_reserve(CudaScratch *s, size_t n);
// How many rows a step of n_rows is padded to: few rows run as graphs, which exist for powers of two.
int cuda_scratch_padded_rows(int n_rows);
// The bound on slots that kernels are launched for: a power of two.
int cuda_scratch_slots(int n_slots);

#endif
