// gpu/cuda.h: the CUDA backend (Backend of kernels.h). Files outside gpu/ include only this header.
//
// Steps of few rows (decoding) use fused kernels that read each weight once (gpu/launch.h). Their launches are captured
// as a CUDA graph for each padded number of rows (1, 2, 4, ...) and each bound of the context (256, 512, ...), and
// replayed from then on. Steps of many rows (prefill) use cuBLAS with dense weights: the weights themselves, a resident
// dense copy, or slices unpacked when they are needed. Products use the weights' type if it is dense, otherwise bf16;
// sums are f32.
//
// Tokens are drawn on the GPU. The next step may be queued before the host has the drawn tokens (Batch.draw): its rows
// embed them on the GPU, and the host writes the next batch into the other one of two pinned buffers.
#ifndef QUILL_CUDA_H
#define QUILL_CUDA_H

#include "kernels.h"

// Opens the GPU (rt_open) at the first call. QUILL_MODEL: no usable GPU, with the reason. QUILL_USAGE:
// QUILL_GPU_TRY has an unknown word.
Status cuda_backend(const Backend **out);
Status cuda_available(void); // the same check without opening the GPU
// Opens cuBLAS now instead of at the first product of many rows. Backend.kernels then says whether it was found.
void cuda_open_products(void);
// QUILL_MODEL: the kernels do not support such heads, with the reason.
Status cuda_supports(const Heads *h);
enum { CUDA_MAX_STATE = 256 }; // the largest key_dim and value_dim of a Recurrence that the kernels support
// "13.0; NVIDIA H200, sm_90, driver for CUDA 13.0", without opening the GPU; "no" in a build without CUDA
// (gpu/cuda_none.c).
void cuda_describe(Buf *out);

// ---- bytes of the GPU's memory ----
size_t cuda_free_bytes(void);                       // 0 before cuda_backend
size_t cuda_layer_bytes(const Layer *l);            // a layer's weights
size_t cuda_ends_bytes(const Ends *e, bool embeds); // the head; embeds: and the embeddings
// widest: model_widest_heads
size_t cuda_scratch_bytes(const Workspace *shape, const Heads *widest);

// ---- measured limits, for bench --roofline ----
typedef struct {
    const char *name;
    double copy_gbs;                 // GB/s read and written together
    double read_gbs;                 // GB/s of a kernel that only reads
    double matvec_gbs;               // GB/s of bf16 weights read by the kernel of the head
    double upload_gbs, download_gbs; // from and to pinned memory
    double product_tflops;           // a bf16 product of side x side matrices; 0: no cuBLAS
    double flat_tflops;              // the same with side / 16 rows, as in the prefill of a prompt
    int side;
    // Microseconds per launch of an empty kernel, in a chain: queued on a stream, in a graph, and in a graph whose
    // kernels begin before the previous one has ended (0: not supported by this GPU).
    double launch_us, node_us, early_us;
} CudaRoofline;
Status cuda_roofline(CudaRoofline *out); // a few seconds

// ---- single operations, for bench --ops ----
// Captures the launches that `queue` queues as one graph, and returns the seconds of its fastest replay. 0: it failed.
double cuda_replay_seconds(void (*queue)(void *arg), void *arg);
// Turns GpuTuning.early on or off; returns whether it is on now. false: not supported by this GPU.
bool cuda_begin_early(bool early);
// The two parts of a step's end, for the batch that was computed last: the logits of its n_out rows, and the draws from
// them.
void cuda_queue_head(Workspace *w, const Ends *e);
void cuda_queue_draws(Workspace *w);

// ---- counts of the process, for --verbose ----
typedef struct {
    long steps;                 // steps of few rows
    long captures;              // graphs captured
    long replays;               // graphs launched
    long drawn, drawn_ahead;    // tokens drawn on the GPU; those of steps queued before the host had the tokens before
    long unsent;                // steps whose numbers the GPU had already; only tests read it
    long rows_fetched;          // rows of logits copied to the host
    int dense_layers, n_layers; // loaded layers whose products need no unpacking; all loaded layers
} CudaCounts;
CudaCounts cuda_counts(void);

#endif
