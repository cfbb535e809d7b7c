// gpu/rt.h: a GPU as C sees it: which one, its memory, copies, graphs and matrix products. No CUDA type passes here.
//
// gpu/rt.c does it over the CUDA runtime, and over cuBLAS, which it opens when a matrix product is first wanted:
// neither is needed for the program to start. tests/rig/gpu_rt_host.cpp is the tests' twin: host memory, each
// operation done as late as it may be.
//
// One GPU a process. Copies and launches are queued on a stream and done in order; a failure is kept by rt_failure, and
// what came after it is void. Pointers named `device` are the GPU's; `pinned` ones are the host's, fit for fast copies.
#ifndef QUILL_GPU_RT_H
#define QUILL_GPU_RT_H

#include "base/base.h"
#include "gpu/stream.h"

typedef struct {
    char name[128];
    int major, minor; // compute capability
    int n_sm;         // multiprocessors
    size_t memory;    // bytes in all
    size_t l2;        // bytes of its L2 cache
    int driver;       // the newest CUDA that the driver speaks, 1000 major + 10 minor
} GpuInfo;

enum { RT_LEAST_CAPABILITY = 80 }; // 10 major + minor: Ampere, the first with bf16

// Opens the visible GPU with the most free memory (CUDA_VISIBLE_DEVICES says which are), once; later calls tell the
// same again. QUILL_MODEL with the driver's reason: no driver, one older than this build, no GPU, one too old or taken.
Status rt_open(GpuInfo *out);
Status rt_look(GpuInfo *out); // the first visible GPU, not opened
int rt_toolkit(void);         // the CUDA it was built with, as GpuInfo.driver

// The first thing that went wrong since rt_open, "what: the reason" (static storage), or NULL. rt_fail notes one.
const char *rt_failure(void);
void rt_fail(const char *what);

// ---- memory: NULL where it cannot be had, which is no failure yet ----
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
bool rt_sync(GpuStream s); // waits until all of it is done; false: rt_failure

// ---- a place in a stream that the host can wait for ----
typedef struct RtMark RtMark;
RtMark *rt_mark_new(void);
void rt_mark(RtMark *m, GpuStream s); // what is queued so far
bool rt_wait(RtMark *m);              // until that is done, at once if nothing was marked; false: rt_failure
void rt_mark_free(RtMark *m);

// ---- graphs: what is queued between capture and rt_capture_end is kept, not done, and done by every replay ----
typedef struct RtGraph RtGraph;
bool rt_capture(GpuStream s);
RtGraph *rt_capture_end(GpuStream s); // NULL: rt_failure
void rt_replay(RtGraph *g, GpuStream s);
void rt_graph_free(RtGraph *g);

// ---- matrix products ----
// Readies them on a stream; QUILL_MODEL: cuBLAS cannot be used, with the reason.
Status rt_products_open(GpuStream s);
const char *rt_products_name(void); // "cuBLAS 13.0.2"
// y (n_rows, n_out) f32 = or += x (n_rows, n_in) w (n_out, n_in)^T; x and w in `type`: TYPE_F32 (true f32), F16, BF16;
// sums in f32. Strides in elements, from row to row.
typedef struct {
    int type, n_rows, n_out, n_in;
    const void *x, *w;
    float *y;
    size_t x_stride, w_stride, y_stride;
    bool add;
} RtProduct;
void rt_product(const RtProduct *p, GpuStream s);

// ---- time ----
// Seconds that the device took for what was queued between the two calls.
typedef struct RtTimer RtTimer;
RtTimer *rt_timer(GpuStream s);
double rt_timer_end(RtTimer *t, GpuStream s); // waits; frees the timer

#endif
