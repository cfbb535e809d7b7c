// gpu/rt.c: see gpu/rt.h. The CUDA runtime is linked statically and looks for the driver at its first call. cuBLAS,
// half a gigabyte, is opened at the first matrix product.
#include "gpu/rt.h"

#include "formats/types.h"

#include <assert.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- failures -------------------------------------------------------------------------------------------------------

static Status failure;

const Status *rt_failure(void) { return failure.code ? &failure : NULL; }

void rt_fail(int code, const char *what) {
    if (!failure.code) failure = status_error(code, "%s", what);
}

static bool check(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return true;
    char text[256];
    snprintf(text, sizeof text, "%s: %s", what, cudaGetErrorString(e));
    rt_fail(e == cudaErrorMemoryAllocation ? QUILL_MEMORY : QUILL_MODEL, text);
    return false;
}

// ---- the choice of a GPU --------------------------------------------------------------------------------------------

int rt_toolkit(void) { return CUDART_VERSION; }

static const char *visible_devices(void) {
    const char *v = getenv("CUDA_VISIBLE_DEVICES");
    return v ? v : "unset";
}

static Status no_gpu(cudaError_t e, int driver) {
    if (driver == 0)
        return status_error(QUILL_MODEL, "no NVIDIA driver was found (libcuda.so.1); install one, or use --device cpu");
    if (e == cudaErrorInsufficientDriver)
        return status_error(QUILL_MODEL,
                            "a driver for CUDA %d.%d or later expected, one for %d.%d found: update it, or build quill "
                            "with an older toolkit",
                            CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, driver / 1000, driver % 1000 / 10);
    return status_error(QUILL_MODEL, "%s (CUDA_VISIBLE_DEVICES is %.100s)", cudaGetErrorString(e), visible_devices());
}

static int attribute(int device, enum cudaDeviceAttr which) {
    int v = 0;
    return cudaDeviceGetAttribute(&v, which, device) == cudaSuccess ? v : 0;
}

static int capability(int device) {
    return 10 * attribute(device, cudaDevAttrComputeCapabilityMajor) +
           attribute(device, cudaDevAttrComputeCapabilityMinor);
}

// The free memory of a device, which can be queried only with a context; 0: *reason says why.
static size_t try_device(int device, cudaError_t *reason) {
    size_t free_bytes = 0, all;
    *reason = cudaSetDevice(device);
    if (*reason == cudaSuccess) *reason = cudaFree(NULL); // makes the context
    if (*reason == cudaSuccess) *reason = cudaMemGetInfo(&free_bytes, &all);
    return *reason == cudaSuccess ? free_bytes : 0;
}

// The memory of a device, known without a context.
static size_t whole_memory(int device) {
    struct cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, device) == cudaSuccess ? p.totalGlobalMem : 0;
}

// Chooses the device with the most free memory. A context takes time and some memory of its device, so that the search
// ends at a device that has nearly all of the largest device's memory free.
static Status choose_device(int n, int *out) {
    size_t most = 0, largest = 0;
    int newest = 0;
    cudaError_t refused = cudaSuccess, reason;
    *out = -1;
    for (int i = 0; i < n; i++)
        if (capability(i) >= RT_LEAST_CAPABILITY && whole_memory(i) > largest) largest = whole_memory(i);
    for (int i = 0; i < n && (most == 0 || most < largest / 20 * 19); i++) {
        newest = int_max(newest, capability(i));
        if (capability(i) < RT_LEAST_CAPABILITY) continue;
        size_t bytes = try_device(i, &reason);
        if (reason != cudaSuccess) refused = reason;
        if (bytes > most) {
            if (*out >= 0 && cudaSetDevice(*out) == cudaSuccess) cudaDeviceReset();
            most = bytes;
            *out = i;
        } else if (reason == cudaSuccess) cudaDeviceReset();
        cudaGetLastError(); // clears the error: the caller's message reports it once
    }
    if (*out >= 0) return OK;
    if (refused != cudaSuccess)
        return status_error(QUILL_MODEL, "the GPU refuses: %s (CUDA_VISIBLE_DEVICES is %.100s)",
                            cudaGetErrorString(refused), visible_devices());
    return status_error(QUILL_MODEL, "a GPU of compute capability %d.%d or later expected, %d.%d found",
                        RT_LEAST_CAPABILITY / 10, RT_LEAST_CAPABILITY % 10, newest / 10, newest % 10);
}

static Status count_devices(GpuInfo *info, int *n) {
    *n = 0;
    cudaDriverGetVersion(&info->driver);
    cudaError_t e = cudaGetDeviceCount(n);
    return e == cudaSuccess && *n > 0 ? OK : no_gpu(e == cudaSuccess ? cudaErrorNoDevice : e, info->driver);
}

static Status describe(int device, GpuInfo *info) {
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess) return no_gpu(e, info->driver);
    snprintf(info->name, sizeof info->name, "%.127s", p.name);
    info->major = p.major;
    info->minor = p.minor;
    info->n_sm = p.multiProcessorCount;
    info->memory = p.totalGlobalMem;
    return OK;
}

Status rt_look(GpuInfo *out) {
    int n;
    *out = (GpuInfo){0};
    TRY(count_devices(out, &n));
    return describe(0, out);
}

static Status open_gpu(GpuInfo *info) {
    int n, device;
    TRY(count_devices(info, &n));
    TRY(choose_device(n, &device));
    cudaError_t e = cudaSetDevice(device);
    return e == cudaSuccess ? describe(device, info) : no_gpu(e, info->driver);
}

Status rt_open(GpuInfo *out) {
    static bool tried;
    static Status result;
    static GpuInfo info;
    if (!tried) result = open_gpu(&info);
    tried = true;
    *out = info;
    return result;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// Whether an allocation succeeded. An error other than too little memory is kept: it may be that of an earlier kernel.
static bool allocated(cudaError_t e) {
    if (e != cudaErrorMemoryAllocation) return check(e, "allocation");
    cudaGetLastError();
    return false;
}

void *rt_alloc(size_t n) {
    void *p = NULL;
    return allocated(cudaMalloc(&p, n ? n : 1)) ? p : NULL;
}

void rt_free(void *device) { cudaFree(device); }

size_t rt_free_bytes(void) {
    size_t n = 0, all;
    return check(cudaMemGetInfo(&n, &all), "free memory") ? n : 0;
}

void *rt_pinned(size_t n) {
    void *p = NULL;
    return allocated(cudaMallocHost(&p, n ? n : 1)) ? p : NULL;
}

void rt_unpin(void *pinned) { cudaFreeHost(pinned); }

// ---- streams and copies ---------------------------------------------------------------------------------------------

GpuStream rt_stream(void) {
    cudaStream_t s = NULL;
    check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    return s;
}

void rt_stream_free(GpuStream s) {
    if (s) cudaStreamDestroy(s);
}

void rt_upload(void *device, const void *host, size_t n, GpuStream s) {
    if (n) check(cudaMemcpyAsync(device, host, n, cudaMemcpyHostToDevice, s), "upload");
}

void rt_download(void *host, const void *device, size_t n, GpuStream s) {
    if (n) check(cudaMemcpyAsync(host, device, n, cudaMemcpyDeviceToHost, s), "download");
}

void rt_move_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, int n_rows, bool up,
                  GpuStream s) {
    check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, (size_t)n_rows,
                            up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, s),
          "copy of rows");
}

void rt_copy(void *to, const void *from, size_t n, GpuStream s) {
    if (n) check(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, s), "copy");
}

void rt_zero(void *device, size_t n, GpuStream s) {
    if (n) check(cudaMemsetAsync(device, 0, n, s), "zero");
}

bool rt_sync(GpuStream s) { return check(cudaStreamSynchronize(s), "the GPU") && !failure.code; }

// ---- marks ----------------------------------------------------------------------------------------------------------

struct RtMark {
    cudaEvent_t event;
};

RtMark *rt_mark_new(void) {
    RtMark *m = mem_alloc(sizeof *m);
    check(cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming), "event");
    return m;
}

void rt_mark(RtMark *m, GpuStream s) { check(cudaEventRecord(m->event, s), "event"); }

bool rt_wait(RtMark *m) { return check(cudaEventSynchronize(m->event), "the GPU") && !failure.code; }

void rt_mark_free(RtMark *m) {
    if (!m) return;
    cudaEventDestroy(m->event);
    free(m);
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

struct RtGraph {
    cudaGraph_t recorded;
    cudaGraphExec_t exec;
};

bool rt_capture(GpuStream s) {
    if (cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess) return true;
    cudaGetLastError(); // no failure: the caller goes on without a graph
    return false;
}

RtGraph *rt_capture_end(GpuStream s) {
    cudaGraph_t recorded = NULL;
    if (!check(cudaStreamEndCapture(s, &recorded), "graph capture")) return NULL;
    RtGraph *g = mem_alloc(sizeof *g);
    *g = (RtGraph){.recorded = recorded};
    return g;
}

bool rt_graph_ready(RtGraph *g, bool must) {
    cudaError_t e = cudaGraphInstantiate(&g->exec, g->recorded, 0);
    if (must) return check(e, "graph");
    if (e != cudaSuccess) cudaGetLastError();
    return e == cudaSuccess;
}

void rt_replay(RtGraph *g, GpuStream s) { check(cudaGraphLaunch(g->exec, s), "graph launch"); }

void rt_graph_free(RtGraph *g) {
    if (!g) return;
    if (g->exec) cudaGraphExecDestroy(g->exec);
    cudaGraphDestroy(g->recorded);
    free(g);
}

// ---- products: cuBLAS by dlopen -------------------------------------------------------------------------------------

enum { WORKSPACE = 32 << 20 }; // cuBLAS's recommendation for Hopper; without it cuBLAS allocates during products

static struct {
    void *library;
    char name[64];
    cublasHandle_t handle;
    void *workspace;
    GpuStream stream; // the stream that the handle uses now
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*get_version)(cublasHandle_t, int *);
    const char *(*status_string)(cublasStatus_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType, int, const void *, cudaDataType, int, const void *, void *,
                           cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
    cublasStatus_t (*gemm_batch)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                                 const void *, cudaDataType, int, long long, const void *, cudaDataType, int, long long,
                                 const void *, void *, cudaDataType, int, long long, int, cublasComputeType_t,
                                 cublasGemmAlgo_t);
} blas;

#ifndef QUILL_CUDA_LIB
#define QUILL_CUDA_LIB "/usr/local/cuda/lib64"
#endif

static Status open_library(void) {
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    char path[512], reason[256] = "";
    for (size_t i = 0; i < ARRAY_LEN(names) && !blas.library; i++) {
        blas.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!blas.library && !reason[0]) snprintf(reason, sizeof reason, "%s", dlerror());
        snprintf(path, sizeof path, "%s/%s", QUILL_CUDA_LIB, names[i]);
        if (!blas.library) blas.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!blas.library)
        return status_error(QUILL_MODEL, "cuBLAS cannot be opened: %s; install it or put it into LD_LIBRARY_PATH",
                            reason);
    const struct {
        void **to;
        const char *symbol;
    } symbols[] = {
        {(void **)&blas.create, "cublasCreate_v2"},
        {(void **)&blas.set_stream, "cublasSetStream_v2"},
        {(void **)&blas.set_workspace, "cublasSetWorkspace_v2"},
        {(void **)&blas.get_version, "cublasGetVersion_v2"},
        {(void **)&blas.status_string, "cublasGetStatusString"},
        {(void **)&blas.gemm, "cublasGemmEx"},
        {(void **)&blas.gemm_batch, "cublasGemmStridedBatchedEx"},
    };
    for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
        *symbols[i].to = dlsym(blas.library, symbols[i].symbol);
        if (!*symbols[i].to)
            return status_error(QUILL_MODEL, "cuBLAS: the function %s expected, none found: another version?",
                                symbols[i].symbol);
    }
    return OK;
}

static Status refused(const char *what, cublasStatus_t s) {
    return status_error(QUILL_MODEL, "cuBLAS: %s: %s", what, blas.status_string(s));
}

// Setting the stream resets the workspace.
static cublasStatus_t use_stream(GpuStream s) {
    cublasStatus_t e = blas.set_stream(blas.handle, s);
    if (e == CUBLAS_STATUS_SUCCESS) e = blas.set_workspace(blas.handle, blas.workspace, WORKSPACE);
    blas.stream = s;
    return e;
}

static Status open_products(GpuStream s) {
    TRY(open_library());
    cublasStatus_t e = blas.create(&blas.handle);
    if (e != CUBLAS_STATUS_SUCCESS) return refused("no handle", e);
    blas.workspace = rt_alloc(WORKSPACE);
    if (!blas.workspace)
        return status_error(
            QUILL_MEMORY,
            "cuBLAS: %d bytes of GPU memory expected for its workspace, not found; try a smaller -ngl or -c",
            WORKSPACE);
    e = use_stream(s);
    if (e != CUBLAS_STATUS_SUCCESS) return refused("no workspace", e);
    int v = 0;
    blas.get_version(blas.handle, &v);
    int major = v >= 100000 ? v / 10000 : v / 1000; // 13.0.2 is 130002, 11.9.1 was 11901
    snprintf(blas.name, sizeof blas.name, "cuBLAS %d.%d.%d", major, v / 100 % (v >= 100000 ? 100 : 10), v % 100);
    return OK;
}

Status rt_products_open(GpuStream s) {
    static bool tried;
    static Status result;
    if (!tried) result = open_products(s);
    tried = true;
    return result;
}

const char *rt_products_name(void) { return blas.name; }

static cudaDataType data_type(int type) {
    assert(type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16);
    return type == TYPE_F32 ? CUDA_R_32F : type == TYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

// cuBLAS is column-major: rows here are columns there, so that it computes y^T (n_out, n_rows) = w x^T, and a
// transposed w is one that it need not transpose.
static cublasStatus_t multiply(const RtProduct *p) {
    const float one = 1, beta = p->add ? 1 : 0;
    cudaDataType type = data_type(p->type), y_type = data_type(p->y_type);
    cublasOperation_t w_op = p->transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
    int w_stride = (int)p->w_stride, x_stride = (int)p->x_stride, y_stride = (int)p->y_stride;
    if (p->n_batch == 0)
        return blas.gemm(blas.handle, w_op, CUBLAS_OP_N, p->n_out, p->n_rows, p->n_in, &one, p->w, type, w_stride, p->x,
                         type, x_stride, &beta, p->y, y_type, y_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return blas.gemm_batch(blas.handle, w_op, CUBLAS_OP_N, p->n_out, p->n_rows, p->n_in, &one, p->w, type, w_stride,
                           (long long)p->w_batch, p->x, type, x_stride, (long long)p->x_batch, &beta, p->y, y_type,
                           y_stride, (long long)p->y_batch, p->n_batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

void rt_product(const RtProduct *p, GpuStream s) {
    cublasStatus_t e = s == blas.stream ? CUBLAS_STATUS_SUCCESS : use_stream(s);
    if (e == CUBLAS_STATUS_SUCCESS) e = multiply(p);
    if (e == CUBLAS_STATUS_SUCCESS) return;
    char text[256];
    snprintf(text, sizeof text, "cuBLAS: product of %d x %d x %d: %s", p->n_rows, p->n_out, p->n_in,
             blas.status_string(e));
    rt_fail(e == CUBLAS_STATUS_ALLOC_FAILED ? QUILL_MEMORY : QUILL_MODEL, text);
}

// ---- time -----------------------------------------------------------------------------------------------------------

struct RtTimer {
    cudaEvent_t start, end;
};

RtTimer *rt_timer(GpuStream s) {
    RtTimer *t = mem_alloc(sizeof *t);
    check(cudaEventCreate(&t->start), "event");
    check(cudaEventCreate(&t->end), "event");
    check(cudaEventRecord(t->start, s), "event");
    return t;
}

double rt_timer_end(RtTimer *t, GpuStream s) {
    float ms = 0;
    check(cudaEventRecord(t->end, s), "event");
    check(cudaEventSynchronize(t->end), "the GPU");
    check(cudaEventElapsedTime(&ms, t->start, t->end), "event");
    cudaEventDestroy(t->start);
    cudaEventDestroy(t->end);
    free(t);
    return (double)ms * 1e-3;
}
