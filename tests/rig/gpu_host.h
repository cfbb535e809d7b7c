// tests/rig/gpu_host.h: CUDA on the CPU, for the tests: a block's threads are fibers of one OS thread, run one block at
// a time.
//
// It shows what a kernel does wrong rather than how fast it is. Fibers run in an order that a seed shuffles, from one
// barrier or warp operation to the next, and blocks likewise, so that a missing barrier or a dependence between blocks
// shows. Shared memory and what cudaMalloc gives hold NaN until written, between red zones that are checked after each
// block and launch (and poisoned under AddressSanitizer). cp.async copies when it is waited for. A misaligned access of
// 16 bytes, a barrier that not all threads reach, a warp operation that not all named lanes reach: each ends the launch
// with a line that says which threads stand where; gpu_launch_error tells it. The host has no access to device memory:
// reading or writing it outside a launch or a copy is a segmentation fault, as on a machine with a GPU.
//
// One OS thread at a time may launch. Streams do nothing: a launch is over when it returns, except after gpu_host_late.
#ifndef QUILL_GPU_HOST_H
#define QUILL_GPU_HOST_H

#include "formats/types.h"

#include <algorithm>
#include <functional>
#include <math.h>
#include <stdint.h>
#include <string.h>

// ---- the language ---------------------------------------------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

extern dim3 threadIdx, blockIdx, blockDim, gridDim; // of the running fiber

void gpu_launch_failed(const char *kernel, int code, const char *why); // keeps the first for gpu_launch_error

// ---- the machine ----------------------------------------------------------------------------------------------------

// Runs kernel() for every thread of every block. gpu_launch_error reports faults. early: first runs every thread up to
// the place where it waits for the previous launch; a thread that does not wait, or that writes before it waits, is a
// fault.
void gpu_host_launch(const char *name, dim3 grid, dim3 block, size_t smem, bool early,
                     const std::function<void()> &kernel);
// Launches and submitted work run at once. After gpu_host_late they wait until gpu_host_run and then run in their
// order, as work queued on a GPU does.
void gpu_host_submit(const std::function<void()> &work);
void gpu_host_late();
size_t gpu_host_queued();         // work items queued so far, done ones included
void gpu_host_run(size_t queued); // runs the queued work until `queued` items are done
// Recordings, for graphs: launches and work submitted between gpu_host_capture and gpu_host_capture_end are stored;
// every replay runs them.
void gpu_host_capture();
void *gpu_host_capture_end();
void gpu_host_replay(void *recording);
void gpu_host_forget(void *recording);
void gpu_host_seed(uint64_t seed); // seed of the orders in which threads and blocks run
// Ends the running launch with a fault; outside of a launch only records the fault.
void gpu_host_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gpu_host_check_memory(const char *when); // red zones of the device's memory

void gpu_host_block_barrier(const char *file, int line);
// Waits until every lane of mask has arrived; then one lane runs op(lanes). lanes: the `mine` of each of the 32 lanes,
// NULL for lanes outside mask.
void gpu_host_warp(unsigned mask, void (*op)(void **lanes), void *mine, const char *file, int line);
// address of `bytes` at offset `at`; piece: how many were taken before
unsigned char *gpu_host_smem(unsigned at, unsigned piece, unsigned bytes);
void gpu_host_cp_async(void *smem, const void *global, int bytes, bool valid);
void gpu_host_cp_commit();
void gpu_host_cp_wait(int pending);
void gpu_host_wait_for_last();

template <typename... P, typename... A>
static void gpu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, void *, bool early,
                       A... args) {
    gpu_host_launch(name, grid, block, smem, early, [=] { kernel(P(args)...); });
}

struct GpuHostSmem {
    unsigned at = 0, n = 0;
    template <typename T> T *take(unsigned count) {
        unsigned bytes = (count * (unsigned)sizeof(T) + 15) / 16 * 16;
        unsigned char *piece = gpu_host_smem(at, n++, bytes);
        at += bytes;
        return (T *)piece;
    }
};
typedef GpuHostSmem Smem; // the kernels' name for it

// ---- barriers, warps ------------------------------------------------------------------------------------------------

#define GPU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(GPU_HERE) { gpu_host_block_barrier(file, line); }
static inline void __syncwarp(unsigned mask = ~0u, GPU_HERE) {
    gpu_host_warp(
        mask, [](void **) {}, NULL, file, line);
}
static inline void __threadfence() {}

struct GpuShuffle {
    uint64_t value, result;
    unsigned from; // lane
};
static inline void gpu_shuffle_lanes(void **lanes) {
    for (int i = 0; i < 32; i++) {
        GpuShuffle *s = (GpuShuffle *)lanes[i];
        if (!s) continue;
        if (!lanes[s->from]) gpu_host_fault("lane %d shuffles from lane %u, which takes no part", i, s->from);
        else s->result = ((GpuShuffle *)lanes[s->from])->value;
    }
}
template <typename T> static inline T gpu_shuffle(unsigned mask, T value, unsigned from, const char *file, int line) {
    static_assert(sizeof(T) <= 8, "a register or two");
    GpuShuffle s = {0, 0, from};
    memcpy(&s.value, &value, sizeof value);
    gpu_host_warp(mask, gpu_shuffle_lanes, &s, file, line);
    memcpy(&value, &s.result, sizeof value);
    return value;
}
template <typename T> static inline T __shfl_sync(unsigned mask, T value, int from, GPU_HERE) {
    return gpu_shuffle(mask, value, (unsigned)from & 31, file, line);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int with, GPU_HERE) {
    return gpu_shuffle(mask, value, (threadIdx.x ^ (unsigned)with) & 31, file, line);
}

static inline unsigned __float_as_uint(float v) {
    unsigned u;
    memcpy(&u, &v, sizeof u);
    return u;
}
static inline float __uint_as_float(unsigned u) {
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

struct GpuVote {
    bool mine;
    unsigned all;
};
static inline void gpu_vote_lanes(void **lanes) {
    unsigned all = 0;
    for (int i = 0; i < 32; i++)
        if (lanes[i] && ((GpuVote *)lanes[i])->mine) all |= 1u << i;
    for (int i = 0; i < 32; i++)
        if (lanes[i]) ((GpuVote *)lanes[i])->all = all;
}
static inline unsigned __ballot_sync(unsigned mask, bool mine, GPU_HERE) {
    GpuVote v = {mine, 0};
    gpu_host_warp(mask, gpu_vote_lanes, &v, file, line);
    return v.all;
}

// ---- instructions ---------------------------------------------------------------------------------------------------

static inline unsigned atomicAdd(unsigned *p, unsigned n) {
    unsigned old = *p;
    *p += n;
    return old;
}
static inline int atomicAdd(int *p, int n) {
    int old = *p;
    *p += n;
    return old;
}
static inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (int8_t)((unsigned)a >> i) * (int8_t)((unsigned)b >> i);
    return sum;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= (unsigned)(bytes >> (8 * (select >> (4 * i) & 7)) & 255) << (8 * i);
    return out;
}
static inline unsigned __popc(unsigned x) { return (unsigned)__builtin_popcount(x); }

static inline uint32_t fma_bf16_pair(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t out = 0;
    for (int i = 0; i < 32; i += 16) {
        float v = fmaf(bf16_float((uint16_t)(a >> i)), bf16_float((uint16_t)(b >> i)), bf16_float((uint16_t)(c >> i)));
        out |= (uint32_t)float_bf16(v) << i;
    }
    return out;
}

static inline float gpu_half_float(uint16_t h) { return half_float(h); }
static inline float gpu_bf16_float(uint16_t h) { return bf16_float(h); }
static inline uint16_t gpu_float_half(float f) { return float_half(f); }
static inline uint16_t gpu_float_bf16(float f) { return float_bf16(f); }

static inline const void *in_global(const void *p) { return p; }
template <typename T> static inline T stream(const void *p) {
    if ((uintptr_t)p % sizeof(T)) gpu_host_fault("a load of %zu bytes from %p, which is not aligned", sizeof(T), p);
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <typename T> static inline T load_shared_result(const T *p) { return *p; }

static inline void cp_async16(void *smem, const void *global, bool valid) {
    gpu_host_cp_async(smem, global, 16, valid);
}
static inline void cp_async4(void *smem, const void *global) { gpu_host_cp_async(smem, global, 4, true); }
static inline void let_next_begin() {}
static inline void wait_for_last() { gpu_host_wait_for_last(); }
static inline void prefetch(const void *p) { (void)*(const volatile uint8_t *)p; } // must be there
template <typename... P> static bool gpu_waits(void (*)(P...)) { return true; }
template <typename... P> static bool gpu_has(void (*)(P...)) { return true; }

static inline void cp_async_commit() { gpu_host_cp_commit(); }
template <int PENDING> static inline void cp_async_wait() { gpu_host_cp_wait(PENDING); }

// Fragments: see the PTX manual's figures of ldmatrix and mma.m16n8k16.
struct GpuLdmatrix {
    const uint16_t *row;
    uint32_t *out;
};
// Lane l gets elements (l / 4, 2 * (l % 4)) and the next one of each matrix; transposed, rows and columns change
// places.
template <bool TRANS> static void gpu_ldmatrix_lanes(void **lanes) {
    for (int l = 0; l < 32; l++)
        for (int m = 0; m < 4; m++) {
            int r = l / 4, c = 2 * (l % 4);
            auto element = [&](int row, int column) { return ((GpuLdmatrix *)lanes[8 * m + row])->row[column]; };
            uint32_t low = TRANS ? element(c, r) : element(r, c), high = TRANS ? element(c + 1, r) : element(r, c + 1);
            ((GpuLdmatrix *)lanes[l])->out[m] = low | high << 16;
        }
}
static inline void ldmatrix4(uint32_t out[4], const void *row, GPU_HERE) {
    if ((uintptr_t)row % 16) gpu_host_fault("ldmatrix: a row at %p, which is not aligned to 16 bytes", row);
    GpuLdmatrix mine = {(const uint16_t *)row, out};
    gpu_host_warp(~0u, gpu_ldmatrix_lanes<false>, &mine, file, line);
}
static inline void ldmatrix4_trans(uint32_t out[4], const void *row, GPU_HERE) {
    if ((uintptr_t)row % 16) gpu_host_fault("ldmatrix: a row at %p, which is not aligned to 16 bytes", row);
    GpuLdmatrix mine = {(const uint16_t *)row, out};
    gpu_host_warp(~0u, gpu_ldmatrix_lanes<true>, &mine, file, line);
}

struct GpuMma {
    float *acc;
    uint32_t a[4], b[2];
};
// With g = lane / 4 and t = lane % 4. a: registers 0..3 hold rows g, g+8, g, g+8 at columns 2t, 2t, 2t+8, 2t+8 and the
// next; b: rows 2t and 2t+8 and the next at column g; acc: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
template <int TYPE> static void gpu_mma_lanes(void **lanes) {
    float a[16][16], b[16][8];
    auto value = [](uint32_t pair, int i) {
        uint16_t bits = (uint16_t)(pair >> (16 * i));
        return TYPE == TYPE_BF16 ? bf16_float(bits) : half_float(bits);
    };
    for (int l = 0; l < 32; l++) {
        const GpuMma *m = (GpuMma *)lanes[l];
        int g = l / 4, t = l % 4;
        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < 4; r++) a[g + 8 * (r & 1)][2 * t + 8 * (r >> 1) + i] = value(m->a[r], i);
            for (int r = 0; r < 2; r++) b[2 * t + 8 * r + i][g] = value(m->b[r], i);
        }
    }
    for (int l = 0; l < 32; l++)
        for (int r = 0; r < 4; r++) {
            int row = l / 4 + 8 * (r >> 1), column = 2 * (l % 4) + (r & 1);
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            ((GpuMma *)lanes[l])->acc[r] += sum;
        }
}
template <int TYPE>
static inline void mma_16816(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1, GPU_HERE) {
    GpuMma mine = {acc, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    gpu_host_warp(~0u, gpu_mma_lanes<TYPE>, &mine, file, line);
}

// ---- the runtime: as much of it as quill calls ----------------------------------------------------------------------

typedef enum { cudaSuccess, cudaErrorMemoryAllocation = 2, cudaErrorLaunchFailure = 719 } cudaError_t;
typedef enum {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
} cudaMemcpyKind;
cudaError_t cudaMalloc(void **out, size_t n); // NaN, between red zones
cudaError_t cudaFree(void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *p, int byte, size_t n);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetDevice(int *out);
typedef enum {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
} cudaDeviceAttr;
// 2 multiprocessors: a block has several groups of rows at small shapes too.
cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int device);

#include "tests/rig/gpu_host_sm90.h"

#endif
