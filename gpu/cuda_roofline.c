// gpu/cuda_roofline.c: measures the GPU's limits with the calls of a forward pass: copies, products, the matvec kernel,
// launches. Every figure is the best of several tries, on random weights, since zeros take less time.
#include "gpu/cuda.h"
#include "gpu/cuda_device.h"
#include "gpu/launch.h"
#include "gpu/rt.h"

#include <math.h>
#include <stdlib.h>

enum { TRIES = 5, LAUNCHES = 200, MOST_SIDE = 8192, ROW = 2048, MB = 1 << 20, PIECE = 32 * MB };

// Buffers of the measurements. Their size depends on the GPU's, so that the tests' emulated GPU is measured quickly.
typedef struct {
    GpuStream s;
    size_t n;       // bytes of a, and of b
    size_t piece;   // bytes of `pinned`
    uint8_t *a, *b; // bf16 weights near 1; scratch
    uint8_t *pinned;
    int side; // side of the square product: two bf16 matrices and one f32 matrix fit
} GpuMeasure;

static void fill(GpuMeasure *b) {
    uint32_t state = 1;
    for (size_t i = 0; i < b->piece / 2; i++) {
        state = state * 1664525 + 1013904223;
        // magnitudes from 0.5 to 2, with random signs
        ((uint16_t *)b->pinned)[i] = (uint16_t)(0x3f00 | (state >> 16 & 0x80ff));
    }
    for (size_t at = 0, now; at < b->n; at += now) {
        now = b->n - at < b->piece ? b->n - at : b->piece;
        rt_upload(b->a + at, b->pinned, now, b->s);
    }
    rt_copy(b->b, b->a, b->n, b->s);
    rt_sync(b->s);
}

// Seconds of the fastest of several calls.
static double best_of(GpuMeasure *b, void (*work)(GpuMeasure *b)) {
    double best = INFINITY;
    work(b);
    for (int i = 0; i < TRIES; i++) {
        RtTimer *t = rt_timer(b->s);
        work(b);
        best = fmin(best, rt_timer_end(t, b->s));
    }
    return best;
}

static void copy(GpuMeasure *b) { rt_copy(b->b, b->a, b->n, b->s); }
static void upload(GpuMeasure *b) { rt_upload(b->b, b->pinned, b->piece, b->s); }
static void download(GpuMeasure *b) { rt_download(b->pinned, b->a, b->piece, b->s); }

static void matvec(GpuMeasure *b) {
    const DeviceTensor w = {
        .type = TYPE_BF16, .n_out = (int)(b->n / (2 * ROW)), .n_in = ROW, .stride_bytes = 2 * ROW, .quants = b->a};
    float *x = (float *)b->b, *norm = x + ROW, *y = norm + ROW;
    int *row = (int *)(b->b + b->n - 256); // a row number of zero
    gpu_logits(y, x, &w, norm, 1e-5f, row, 1, gpu_rounded, b->s);
}

static void product(GpuMeasure *b, int n_rows, int n_out, int n_in) {
    uint8_t *x = b->a, *w = x + 2 * (size_t)b->side * (size_t)b->side;
    rt_product(&(RtProduct){.type = TYPE_BF16,
                            .n_rows = n_rows,
                            .n_out = n_out,
                            .n_in = n_in,
                            .x = x,
                            .w = w,
                            .y = (float *)b->b,
                            .x_stride = (size_t)n_in,
                            .w_stride = (size_t)n_in,
                            .y_stride = (size_t)n_out},
               b->s);
}

static void square(GpuMeasure *b) { product(b, b->side, b->side, b->side); }
static void flat(GpuMeasure *b) { product(b, b->side / 16, b->side, b->side); }

static void read(GpuMeasure *b) { gpu_read(b->a, b->n, (uint32_t *)(void *)b->b, b->s); }

static void launches(GpuMeasure *b) {
    for (int i = 0; i < LAUNCHES; i++) gpu_begin_and_end(false, b->s);
}
static void queue_launches(void *b) { launches(b); }
static void queue_early_launches(void *arg) {
    const GpuMeasure *b = arg;
    for (int i = 0; i < LAUNCHES; i++) gpu_begin_and_end(true, b->s);
}

// Seconds of the fastest replay of the launches that `queue` queues, captured as one graph; 0: the capture failed. All
// kernels must have been launched before: a first launch loads the code, which is not allowed in a capture.
static double replay_seconds(GpuStream s, void (*queue)(void *arg), void *arg) {
    if (!rt_capture(s)) return 0;
    queue(arg);
    RtGraph *g = rt_capture_end(s);
    double best = INFINITY;
    bool ready = g && rt_graph_ready(g, false);
    for (int i = 0; ready && i <= TRIES; i++) { // the first replay warms up
        RtTimer *t = rt_timer(s);
        rt_replay(g, s);
        double seconds = rt_timer_end(t, s);
        if (i > 0) best = fmin(best, seconds);
    }
    rt_graph_free(g);
    return isfinite(best) ? best : 0;
}

static void measure(GpuMeasure *b, bool products, CudaRoofline *out) {
    double square_flops = 2.0 * b->side * b->side * b->side;
    fill(b);
    out->copy_gbs = 2e-9 * (double)b->n / best_of(b, copy);
    out->read_gbs = 1e-9 * (double)b->n / best_of(b, read);
    out->upload_gbs = 1e-9 * (double)b->piece / best_of(b, upload);
    out->download_gbs = 1e-9 * (double)b->piece / best_of(b, download);
    rt_zero(b->b + b->n - 256, 256, b->s);
    out->matvec_gbs = 1e-9 * (double)b->n / best_of(b, matvec);
    if (products) {
        out->product_tflops = 1e-12 * square_flops / best_of(b, square);
        out->flat_tflops = 1e-12 * square_flops / 16 / best_of(b, flat);
    }
    out->side = b->side;
    out->launch_us = 1e6 / LAUNCHES * best_of(b, launches);
    out->node_us = 1e6 / LAUNCHES * replay_seconds(b->s, queue_launches, b);
    if (gpu_begins_early()) out->early_us = 1e6 / LAUNCHES * replay_seconds(b->s, queue_early_launches, b);
}

double cuda_replay_seconds(void (*queue)(void *arg), void *arg) {
    queue(arg);
    rt_sync(cuda_device.stream);
    return replay_seconds(cuda_device.stream, queue, arg);
}

bool cuda_begin_early(bool early) {
    GpuTuning t = cuda_device.tuning;
    t.early = early;
    cuda_device.tuning = gpu_tune(t);
    return cuda_device.tuning.early == early;
}

Status cuda_roofline(CudaRoofline *out) {
    const Backend *be;
    GpuInfo info;
    TRY(cuda_backend(&be));
    TRY(rt_open(&info));
    *out = (CudaRoofline){.name = be->name};
    GpuMeasure b = {.s = rt_stream(), .n = (size_t)info.n_sm * (size_t)int_min(info.n_sm, 8) * MB};
    if (b.n > rt_free_bytes() / 3) b.n = rt_free_bytes() / 3 / MB * MB;
    b.side = MOST_SIDE;
    while (b.side > 16 && 4 * (size_t)b.side * (size_t)b.side > b.n) b.side /= 2;
    b.a = rt_alloc(b.n);
    b.b = rt_alloc(b.n);
    b.piece = b.n < PIECE ? b.n : PIECE;
    b.pinned = rt_pinned(b.piece);
    if (b.n && b.a && b.b && b.pinned) measure(&b, !rt_products_open(b.s).code, out);
    rt_sync(b.s);
    rt_free(b.a);
    rt_free(b.b);
    rt_unpin(b.pinned);
    rt_stream_free(b.s);
    const Status *why = be->memory->failure();
    if (why) return status_error(why->code, "--roofline: %s failed: %.500s", be->name, why->message);
    if (out->copy_gbs == 0)
        return status_error(QUILL_MEMORY, "--roofline: 3 x %zu bytes of the GPU's memory expected, %zu are free", b.n,
                            rt_free_bytes());
    return OK;
}
