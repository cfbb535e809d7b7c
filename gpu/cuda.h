// gpu/cuda.h: the backend on a GPU: weights in its memory in a layout of their own, five operations a layer, a decoding
// step as one graph. The only header of this room that the program includes.
//
// Few rows go through fused kernels that read each weight once (gpu/launch.h), as a graph that is captured once for
// each number of rows (1, 2, 4, ...) and each length of the context (256, 512, ...) and replayed from then on. Many
// rows go through cuBLAS, with weights that are dense already, or have a resident dense copy, or are made dense slice
// by slice. Products are in the weights' own type where that is dense, otherwise in bf16; sums are f32.
//
// Tokens are drawn on the GPU, and the next step may be queued before the host has them (Batch.draw): its rows embed
// the drawn tokens, and the host writes its batch into the other one of two pinned buffers.
#ifndef QUILL_CUDA_H
#define QUILL_CUDA_H

#include "kernels.h"

// Opens the GPU (rt_open), once. QUILL_MODEL: no usable GPU, with the reason.
Status cuda_backend(const Backend **out);
Status cuda_available(void); // QUILL_MODEL: no usable GPU, with the reason. Does not open it
// Opens cuBLAS now instead of at the first product of many rows. From then on Backend.kernels says whether it is there.
void cuda_open_products(void);
// QUILL_MODEL: the kernels cannot compute such heads, with the reason.
Status cuda_supports(const Heads *h);
// "13.0; NVIDIA H200, sm_90, driver for CUDA 13.0", without opening the GPU; "no" in a build without CUDA
// (gpu/cuda_none.c).
void cuda_describe(Buf *out);

// ---- bytes of the GPU's memory ----
size_t cuda_free_bytes(void);                                                         // 0 before cuda_backend
size_t cuda_layer_bytes(const Layer *l);                                              // of a layer's weights
size_t cuda_ends_bytes(const Ends *e, bool embeds);                                   // embeds: of tok_embd too
size_t cuda_scratch_bytes(const Workspace *shape, const Layer *widest, size_t *host); // host: pinned bytes besides

// ---- ceilings, for bench --roofline ----
typedef struct {
    const char *name;
    double copy_gbs;                 // GB/s read and written together
    double read_gbs;                 // GB/s that a kernel reads which does nothing else
    double matvec_gbs;               // bf16 weights that the kernel of the head reads
    double upload_gbs, download_gbs; // pinned
    double product_tflops;           // bf16, `side` cubed; 0: no cuBLAS
    double flat_tflops;              // the same with a sixteenth of the rows, as in the prefill of a prompt
    int side;
    // A kernel that does nothing, in a chain: queued on a stream, in a graph, in a graph where each begins before the
    // one before it has ended (0: this GPU cannot).
    double launch_us, node_us, early_us;
} CudaRoofline;
Status cuda_roofline(CudaRoofline *out); // a few seconds

// ---- operations by themselves, for bench --ops ----
// Seconds that the GPU takes for what `queue` queues, replayed as one graph: the fastest of some. 0: it was refused.
double cuda_replay_seconds(void (*queue)(void *arg), void *arg);
// Whether decoding kernels begin before the one before them has ended, from now on; false: this GPU cannot.
bool cuda_begin_early(bool early);
// The two parts of a step's end, for the batch that was computed last: logits of its n_out rows, tokens drawn from
// them.
void cuda_queue_head(Workspace *w, const Ends *e, const Batch *b);
void cuda_queue_draws(Workspace *w, const Batch *b);

// ---- counts of the process, for --verbose ----
typedef struct {
    long steps;              // forwards of few rows
    long captures;           // graphs made
    long replays;            // graphs launched
    long drawn, drawn_ahead; // tokens drawn on the GPU; those of a step queued before the last one's tokens were known
    long rows_fetched;       // rows of logits that were copied to the host
    int dense_layers, n_layers; // loaded layers whose products need no unpacking; all loaded layers
} CudaCounts;
CudaCounts cuda_counts(void);

#endif
