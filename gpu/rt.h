// gpu/rt.h: the GPU runtime for C: device, memory, copies, graphs and matrix products, without CUDA types.
//
// gpu/rt.c implements it with the CUDA runtime and with cuBLAS, which it opens at the first matrix product; the program
// starts without either. For tests, tests/rig/gpu_rt_host.cpp implements it in host memory and delays each operation as
// long as the contract allows.
//
// A process uses one GPU. Copies and launches are queued on a stream and run in order. rt_failure keeps the first
// failure; results computed after it are invalid. Pointers named `device` are in the GPU's memory, `pinned` ones in
// page-locked host memory, from which copies are fast.
#ifndef QUILL_GPU_RT_H
#define QUILL_GPU_RT_H

#include "base/base.h"
#include "gpu/stream.h"

typedef struct {
    char name[128];
    int major, minor; // compute capability
    int n_sm;         // multiprocessors
    size_t memory;    // total bytes
    int driver;       // the newest CUDA version that the driver supports, 1000 major + 10 minor
} GpuInfo;

enum { RT_LEAST_CAPABILITY = 80 }; // 10 major + minor: Ampere, the first with bf16

// Opens the visible GPU (CUDA_VISIBLE_DEVICES) with the most free memory; later calls return the same result.
// QUILL_MODEL with the driver's reason: no driver, a driver older than this build, no GPU, or one too old or in use.
Status rt_open(GpuInfo *out);
Status rt_look(GpuInfo *out); // describes the first visible GPU without opening it
int rt_toolkit(void);         // the CUDA version of this build, as GpuInfo.driver

// The first failure since rt_open (static storage), or NULL: QUILL_MEMORY or QUILL_MODEL, with "operation: reason" as
// its message. rt_fail records one.
const Status *rt_failure(void);
void rt_fail(int code, const char *what);

// ---- memory: NULL if there is not enough; rt_failure does not count that as a failure ----
void *rt_alloc(size_t n); // on the device, aligned to 256
void rt_free(void *device);
size_t rt_free_bytes(void);
void *rt_pinned(size_t n);
void rt_unpin(void *pinned);

// ---- a stream, and copies on it ----
GpuStream rt_stream(void);
void rt_stream_free(GpuStream s);
void rt_upload(void *device, const void *host, size_t n, GpuStream s);
void rt_download(void *host, const void *device, size_t n, GpuStream s);
// n_rows pieces of `width` bytes, to_pitch and from_pitch bytes apart; `up` to the device, otherwise from it.
void rt_move_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, int n_rows, bool up,
                  GpuStream s);
void rt_copy(void *to, const void *from, size_t n, GpuStream s); // within the device
void rt_zero(void *device, size_t n, GpuStream s);
bool rt_sync(GpuStream s); // waits until everything queued is done; false: rt_failure

// ---- marks: points in a stream that the host can wait for ----
typedef struct RtMark RtMark;
RtMark *rt_mark_new(void);
void rt_mark(RtMark *m, GpuStream s); // marks the operations queued so far
bool rt_wait(RtMark *m);              // waits until they are done; returns at once without a mark; false: rt_failure
void rt_mark_free(RtMark *m);

// ---- graphs: operations queued between rt_capture and rt_capture_end are recorded, and run by every replay ----
typedef struct RtGraph RtGraph;
bool rt_capture(GpuStream s);         // false: the stream records nothing, and runs what is queued as usual
RtGraph *rt_capture_end(GpuStream s); // NULL: rt_failure
// Prepares a recorded graph for replays. false: the device has no memory for it, which is a failure (rt_failure) if
// `must`.
bool rt_graph_ready(RtGraph *g, bool must);
void rt_replay(RtGraph *g, GpuStream s);
void rt_graph_free(RtGraph *g);

// ---- matrix products ----
// Opens cuBLAS for a stream. QUILL_MODEL: it cannot be used, with the reason. QUILL_MEMORY: no room for its workspace.
Status rt_products_open(GpuStream s);
const char *rt_products_name(void); // "cuBLAS 13.0.2"
// y (n_rows, n_out) = or += x (n_rows, n_in) w (n_out, n_in)^T. x and w are of `type`: TYPE_F32 (no TF32), F16 or
// BF16; sums are f32; y is f32, or of `type`. Strides are in elements from row to row. n_batch: 0 is one product;
// otherwise so many, whose operands are x_batch, w_batch and y_batch elements apart.
typedef struct {
    int type, y_type, n_rows, n_out, n_in;
    const void *x, *w;
    void *y;
    size_t x_stride, w_stride, y_stride;
    bool add;
    bool transposed; // w is (n_in, n_out)
    int n_batch;
    size_t x_batch, w_batch, y_batch;
} RtProduct;
void rt_product(const RtProduct *p, GpuStream s);

// ---- time ----
// Seconds that the device took for the operations queued between rt_timer and rt_timer_end.
typedef struct RtTimer RtTimer;
RtTimer *rt_timer(GpuStream s);
double rt_timer_end(RtTimer *t, GpuStream s); // waits; frees the timer

#endif
