// tests/rig/gpu_rt_host.cpp: gpu/rt.h without a GPU, for the tests: memory from the kernels' host (NaN until written,
// between red zones), graphs as recordings that are run again. It is as late as can be: what is queued is done when the
// host waits for it, so that a host which writes over what is still on its way is found out.
//
// $QUILL_TWIN refuses as a machine would: "none" has no driver, "old" one too old. $QUILL_TWIN_MEMORY: its bytes.
#include "tests/rig/gpu_host.h"

extern "C" {
#include "gpu/rt.h"
#include "tests/rig/gpu_rt_host.h"
}

#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

// ---- failures, the choice -------------------------------------------------------------------------------------------

static Status failed;
static size_t capacity = (size_t)1 << 30, used;
static std::map<void *, size_t> sizes;
static long n_products;

const Status *rt_failure(void) { return failed.code ? &failed : NULL; }
void rt_fail(int code, const char *what) {
    if (failed.code) return;
    failed.code = code;
    snprintf(failed.message, sizeof failed.message, "%s", what);
}
void twin_clear(void) { failed.code = 0; }
void twin_memory(size_t n) { capacity = n; }
size_t twin_used(void) { return used; }
void *twin_fill(void *device, int byte, size_t n) {
    cudaMemset(device, byte, n);
    return device;
}
long twin_products(void) { return n_products; }

int rt_toolkit(void) { return 13000; }

Status rt_look(GpuInfo *out) { return rt_open(out); }

Status rt_open(GpuInfo *out) {
    const char *as = getenv("QUILL_TWIN"), *memory = getenv("QUILL_TWIN_MEMORY");
    if (as && strcmp(as, "none") == 0)
        return status_error(QUILL_MODEL, "no NVIDIA driver was found (libcuda.so.1); install one, or use --device cpu");
    if (as && strcmp(as, "old") == 0)
        return status_error(QUILL_MODEL, "a driver for CUDA 13.0 or later expected, one for 12.4 found: update it");
    if (memory) capacity = strtoull(memory, NULL, 10);
    *out = GpuInfo{};
    snprintf(out->name, sizeof out->name, "GPU twin");
    out->major = 9;
    out->n_sm = 1;
    out->memory = capacity;
    out->driver = 13000;
    return Status{};
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static void *note(void *p, size_t n) {
    if (!p) return NULL;
    sizes[p] = n;
    used += n;
    return p;
}

static bool forget(void *p) {
    auto found = sizes.find(p);
    if (found == sizes.end()) return false;
    used -= found->second;
    sizes.erase(found);
    return true;
}

size_t rt_free_bytes(void) { return capacity > used ? capacity - used : 0; }

void *rt_alloc(size_t n) {
    void *p = NULL;
    if (n > rt_free_bytes() || cudaMalloc(&p, n ? n : 1) != cudaSuccess) return NULL;
    return note(p, n);
}

static void run_all(void) { gpu_host_run(gpu_host_queued()); }

void rt_free(void *device) {
    run_all();
    if (device && forget(device)) cudaFree(device);
    else if (device) rt_fail(QUILL_MODEL, "freed what was not allocated");
}

static std::map<const char *, size_t> pinned;

void *rt_pinned(size_t n) {
    char *p = (char *)malloc(n ? n : 1);
    if (!p) return NULL;
    memset(p, 0xff, n);
    pinned[p] = n;
    return p;
}

void rt_unpin(void *p) {
    pinned.erase((char *)p);
    free(p);
}

static bool is_pinned(const void *p) {
    auto next = pinned.upper_bound((const char *)p);
    if (next == pinned.begin()) return false;
    --next;
    return (const char *)p < next->first + next->second;
}

// ---- streams, copies, graphs ----------------------------------------------------------------------------------------

struct RtGraph {
    void *recording;
};

template <typename F> static void submit(const F &f) {
    gpu_host_submit([=] { f(); });
}

GpuStream rt_stream(void) {
    gpu_host_late();
    return NULL;
}
void rt_stream_free(GpuStream) {}

// From memory that is not pinned a copy is taken at once, into such memory the host waits: as the driver does.
void rt_upload(void *device, const void *host, size_t n, GpuStream) {
    if (n == 0) return;
    if (is_pinned(host)) return submit([=] { memcpy(device, host, n); });
    std::vector<char> copy((const char *)host, (const char *)host + n);
    submit([=] { memcpy(device, copy.data(), n); });
}
void rt_download(void *host, const void *device, size_t n, GpuStream) {
    if (n) submit([=] { memcpy(host, device, n); });
    if (!is_pinned(host)) run_all();
}
void rt_move_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, int n_rows, bool,
                  GpuStream) {
    submit([=] {
        for (int i = 0; i < n_rows; i++)
            memcpy((char *)to + (size_t)i * to_pitch, (const char *)from + (size_t)i * from_pitch, width);
    });
    run_all();
}
void rt_copy(void *to, const void *from, size_t n, GpuStream) {
    if (n) submit([=] { memcpy(to, from, n); });
}
void rt_zero(void *device, size_t n, GpuStream) {
    if (n) submit([=] { memset(device, 0, n); });
}

bool rt_sync(GpuStream) {
    run_all();
    gpu_host_check_memory("at a synchronisation");
    return !failed.code;
}

struct RtMark {
    size_t queued;
};
RtMark *rt_mark_new(void) { return new RtMark{0}; }
void rt_mark(RtMark *m, GpuStream) { m->queued = gpu_host_queued(); }
bool rt_wait(RtMark *m) {
    gpu_host_run(m->queued);
    return !failed.code;
}
void rt_mark_free(RtMark *m) { delete m; }

bool rt_capture(GpuStream) {
    gpu_host_capture();
    return true;
}
RtGraph *rt_capture_end(GpuStream) { return new RtGraph{gpu_host_capture_end()}; }
static bool refuses_graph;
void twin_refuse_graph(void) { refuses_graph = true; }
bool rt_graph_ready(RtGraph *, bool must) {
    bool ready = !refuses_graph;
    refuses_graph = false;
    if (!ready && must) rt_fail(QUILL_MEMORY, "graph: out of memory");
    return ready;
}
void rt_replay(RtGraph *g, GpuStream) { gpu_host_replay(g->recording); }
void rt_graph_free(RtGraph *g) {
    if (!g) return;
    gpu_host_forget(g->recording);
    delete g;
}

// ---- products -------------------------------------------------------------------------------------------------------

// $QUILL_TWIN=noblas: a machine without cuBLAS.
Status rt_products_open(GpuStream) {
    const char *as = getenv("QUILL_TWIN");
    if (as && strcmp(as, "noblas") == 0) return status_error(QUILL_MODEL, "cuBLAS cannot be opened: the twin has none");
    return Status{};
}
const char *rt_products_name(void) { return "plain products"; }

static double element(const void *p, int type, size_t i) {
    if (type == TYPE_F32) return (double)((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    return (double)(type == TYPE_F16 ? half_float(bits) : bf16_float(bits));
}

static void multiply(const RtProduct *p, size_t batch) {
    size_t from = p->transposed ? 1 : p->w_stride, step = p->transposed ? p->w_stride : 1; // of a feature; in it
    for (int r = 0; r < p->n_rows; r++)
        for (int f = 0; f < p->n_out; f++) {
            double sum = 0;
            for (int i = 0; i < p->n_in; i++)
                sum += element(p->x, p->type, batch * p->x_batch + (size_t)r * p->x_stride + (size_t)i) *
                       element(p->w, p->type, batch * p->w_batch + (size_t)f * from + (size_t)i * step);
            size_t at = batch * p->y_batch + (size_t)r * p->y_stride + (size_t)f;
            float y = (float)sum + (p->add ? (float)element(p->y, p->y_type, at) : 0);
            if (p->y_type == TYPE_F32) ((float *)p->y)[at] = y;
            else ((uint16_t *)p->y)[at] = p->y_type == TYPE_F16 ? float_half(y) : float_bf16(y);
        }
}

void rt_product(const RtProduct *p, GpuStream) {
    RtProduct copy = *p;
    n_products++;
    submit([copy] {
        for (size_t i = 0; i < (size_t)(copy.n_batch > 0 ? copy.n_batch : 1); i++) multiply(&copy, i);
    });
}

// ---- time -----------------------------------------------------------------------------------------------------------

struct RtTimer {
    double start;
};
RtTimer *rt_timer(GpuStream) { return new RtTimer{clock_now()}; }
double rt_timer_end(RtTimer *t, GpuStream) {
    run_all();
    double seconds = clock_now() - t->start;
    delete t;
    return seconds;
}
