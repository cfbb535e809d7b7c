// gpu/gpu.h: the CUDA features that kernels use. With nvcc it wraps CUDA; tests compile the kernels for the CPU with
// -include tests/rig/gpu_host.h, which emulates the same names.
//
// The wrappers cover what a host does not have: shared memory, matrix instructions, asynchronous copies, launches.
// Rules that make kernels compile for both: launch kernels only with LAUNCH, take all shared memory from one Smem, and
// use no half-precision type of CUDA (halves are uint16_t bits). Matrix fragments are laid out in registers as in the
// PTX manual (mma.m16n8k16, ldmatrix).
#ifndef QUILL_GPU_H
#define QUILL_GPU_H

#include "base/status.h"
#include "formats/types.h"

#include <assert.h>
#include <math.h>

enum { WARP = 32 };
static const unsigned FULL_WARP = ~0u;

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define GPU_PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n) GPU_PRAGMA(unroll n)
#define GRID_CONSTANT __grid_constant__ // a parameter whose address may be taken
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// Divides a block's shared memory into pieces aligned to 16 bytes. Every thread must take the same pieces in the same
// order.
struct Smem {
    unsigned at;
    __device__ Smem() : at(0) {}
    template <typename T> __device__ T *take(unsigned n) {
        extern __shared__ __align__(16) unsigned char smem_arena[];
        T *piece = (T *)(smem_arena + at);
        at += (n * (unsigned)sizeof(T) + 15) / 16 * 16;
        return piece;
    }
};

static __device__ __forceinline__ float gpu_half_float(uint16_t h) { return __half2float(__ushort_as_half(h)); }
static __device__ __forceinline__ float gpu_bf16_float(uint16_t h) { return bf16_float(h); }
static __device__ __forceinline__ uint16_t gpu_float_half(float f) { return __half_as_ushort(__float2half_rn(f)); }
static __device__ __forceinline__ uint16_t gpu_float_bf16(float f) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

// Tells the compiler that p points into device memory, not shared memory, so that it emits global loads.
static __device__ __forceinline__ const void *in_global(const void *p) {
    __builtin_assume(__isGlobal(p));
    return p;
}
// Loads a value that is read only once: the caches may evict it first.
template <typename T> static __device__ __forceinline__ T stream(const void *p) { return __ldcs((const T *)p); }
// Loads a value that another block of this launch has written.
template <typename T> static __device__ __forceinline__ T load_shared_result(const T *p) { return __ldcg(p); }

// Copies 16 bytes from device to shared memory (zeros if !valid); visible after cp_async_wait and a barrier.
static __device__ __forceinline__ void cp_async16(void *smem, const void *global, bool valid) {
    unsigned to = (unsigned)__cvta_generic_to_shared(smem), bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
// The same for four bytes, aligned to four. (With a cache hint of createpolicy: an illegal instruction on an H100.)
static __device__ __forceinline__ void cp_async4(void *smem, const void *global) {
    unsigned to = (unsigned)__cvta_generic_to_shared(smem);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}
static __device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// waits for all but the newest PENDING groups
template <int PENDING> static __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Loads four 8x8 matrices of 16-bit elements; lane 8i + r passes the address of row r of matrix i (16 bytes, aligned).
static __device__ __forceinline__ void ldmatrix4(uint32_t out[4], const void *row) {
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
}
static __device__ __forceinline__ void ldmatrix4_trans(uint32_t out[4], const void *row) {
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
}

// acc (16, 8) += a (16, 16) b (16, 8), f32 sums of f16 or bf16 elements.
template <int TYPE>
static __device__ __forceinline__ void mma_16816(float acc[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    if (TYPE == TYPE_BF16)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// a * b + c for two bf16 values in each word, rounded once.
static __device__ __forceinline__ uint32_t fma_bf16_pair(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

// Programmatic dependent launch (LAUNCH_EARLY). let_next_begin: the next launch may begin when all blocks have called
// it or have ended. wait_for_last: returns when the previous launches have ended; before that a thread must not read
// their results and must not write device memory. Without LAUNCH_EARLY both do nothing.
static __device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ __forceinline__ void wait_for_last() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void prefetch(const void *p) { // loads 128 bytes into L2
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Whether a kernel can be launched early: its code is for sm_90 or later, and CUDA graphs support such launches.
template <typename... P> static bool gpu_waits(void (*kernel)(P...)) {
    cudaFuncAttributes a;
    return CUDART_VERSION >= 12030 && cudaFuncGetAttributes(&a, kernel) == cudaSuccess && a.ptxVersion >= 90;
}

// Whether the binary has code of the kernel for this GPU.
template <typename... P> static bool gpu_has(void (*kernel)(P...)) {
    cudaFuncAttributes a;
    bool has = cudaFuncGetAttributes(&a, kernel) == cudaSuccess;
    if (!has) cudaGetLastError(); // a later launch must not report it
    return has;
}

void gpu_launch_failed(const char *kernel, int code, const char *why); // keeps the first failure for gpu_launch_error

template <typename... P, typename... A>
static void gpu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, void *stream,
                       bool early, A... args) {
    cudaError_t e = cudaSuccess;
    cudaFuncAttributes now = {};
    if (smem > 48 << 10) e = cudaFuncGetAttributes(&now, kernel);
    // CUDA keeps one limit for each kernel. A launch in a captured graph may need more, so it is never lowered.
    if (e == cudaSuccess && smem > 48 << 10 && (size_t)now.maxDynamicSharedSizeBytes < smem)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = (cudaStream_t)stream;
    cudaLaunchAttribute begin = {};
    begin.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    begin.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &begin;
    config.numAttrs = early;
    if (e == cudaSuccess) e = cudaLaunchKernelEx(&config, kernel, P(args)...);
    int code = e == cudaErrorMemoryAllocation ? QUILL_MEMORY : QUILL_MODEL;
    if (e != cudaSuccess) gpu_launch_failed(name, code, cudaGetErrorString(e));
}
#else
#define UNROLL
#define UNROLL_BY(n)
#define GRID_CONSTANT
#ifndef QUILL_GPU_HOST_H
#error "gpu/gpu.h needs nvcc, or -include tests/rig/gpu_host.h"
#endif
#endif

// ---- helpers for both compilers -------------------------------------------------------------------------------------

// The sum and the maximum over a warp, returned to every lane; the order of the operations is fixed.
static __device__ __forceinline__ float warp_sum(float v) {
    UNROLL
    for (int with = WARP / 2; with > 0; with /= 2) v += __shfl_xor_sync(FULL_WARP, v, with);
    return v;
}
static __device__ __forceinline__ float warp_max(float v) {
    UNROLL
    for (int with = WARP / 2; with > 0; with /= 2) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, with));
    return v;
}

// A number and its index as a key: the high half is the number's bits in sortable form, the low half the complement of
// the index, so that of equal numbers (0 and -0 too) the lower index has the larger key.
static __device__ __forceinline__ uint64_t rank_key(float v, int id) {
    uint32_t bits = float_bits(v == 0 ? 0.0f : v);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - (uint32_t)id);
}
static __device__ __forceinline__ int key_id(uint64_t key) { return (int)(0xffffffffu - (uint32_t)key); }
static __device__ __forceinline__ uint64_t warp_max_key(uint64_t key) {
    UNROLL
    for (int with = WARP / 2; with > 0; with /= 2) {
        uint64_t other = __shfl_xor_sync(FULL_WARP, key, with);
        if (other > key) key = other;
    }
    return key;
}

// Counts a block that has stored its results; returns to every thread whether it is the last of n blocks, which then
// sees the results of all (load_shared_result), and resets the counter for the next launch. last: shared.
static __device__ __forceinline__ bool is_last_block(unsigned *counter, int n, int *last) {
    __threadfence(); // makes the results visible before the counter
    __syncthreads();
    if (threadIdx.x == 0) {
        *last = atomicAdd(counter, 1u) == (unsigned)(n - 1);
        if (*last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return *last;
}

// One element of type F32, F16 or BF16.
static __device__ __forceinline__ float load_as(int type, const void *p, size_t i) {
    if (type == TYPE_F32) return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    return type == TYPE_F16 ? gpu_half_float(bits) : gpu_bf16_float(bits);
}
// Values beyond the range of F16 become +-65504: an infinity could make later results NaN.
static __device__ __forceinline__ uint16_t to_bits(int type, float v) {
    if (type == TYPE_BF16) return gpu_float_bf16(v);
    return gpu_float_half(v > 65504 ? 65504 : v < -65504 ? -65504 : v);
}
static __device__ __forceinline__ void store_as(int type, void *p, size_t i, float v) {
    if (type == TYPE_F32) ((float *)p)[i] = v;
    else ((uint16_t *)p)[i] = to_bits(type, v);
}
// Two values of type F16 or BF16 in one word, as in a matrix fragment.
template <int TYPE> static __device__ __forceinline__ uint32_t to_pair(float low, float high) {
    return (uint32_t)to_bits(TYPE, low) | (uint32_t)to_bits(TYPE, high) << 16;
}

// LAUNCH(kernel, grid, block, bytes of shared memory, stream, arguments...). Put a template kernel in parentheses.
#define LAUNCH(kernel, grid, block, smem, stream, ...)                                                                 \
    gpu_launch(#kernel, kernel, grid, block, smem, stream, false, __VA_ARGS__)
// The same; early: the kernel may begin before the previous launch has ended; all its threads must call wait_for_last.
#define LAUNCH_EARLY(early, kernel, grid, block, smem, stream, ...)                                                    \
    gpu_launch(#kernel, kernel, grid, block, smem, stream, early, __VA_ARGS__)

#endif
