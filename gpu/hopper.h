// gpu/hopper.h: instructions of compute capability 9.0 (Hopper) that gpu.h lacks: products of a warpgroup with operands
// in shared memory (wgmma), barriers in shared memory (mbarrier), named barriers, registers moved between warps.
//
// Only code for sm_90a may call them. tests/rig/gpu_host_sm90.h emulates them on the CPU. The PTX manual has the
// layouts under "Asynchronous Warpgroup Level Matrix". A warpgroup is 128 threads; its warp w has rows 16w to 16w + 15
// of a product, with fragments like those of mma.m16n8k16.
#ifndef QUILL_HOPPER_H
#define QUILL_HOPPER_H

#include "gpu/gpu.h"

enum { WARPGROUP = 4 * WARP };

#ifdef __CUDACC__
static __device__ __forceinline__ unsigned smem_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// ---- barriers -------------------------------------------------------------------------------------------------------

// A barrier in shared memory that `count` arrivals complete; then its next phase begins. Phases have the parities 0, 1,
// 0 and so on; mbarrier_passed(parity) tells whether the newest completed phase has that parity (1 before the first).
static __device__ __forceinline__ void mbarrier_init(uint64_t *bar, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(count) : "memory");
}
static __device__ __forceinline__ void mbarrier_arrive(uint64_t *bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(bar)) : "memory");
}
static __device__ __forceinline__ bool mbarrier_passed(uint64_t *bar, unsigned parity) {
    unsigned passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(smem_address(bar)), "r"(parity)
                 : "memory");
    return passed != 0;
}
static __device__ __forceinline__ void mbarrier_wait(uint64_t *bar, unsigned parity) {
    unsigned passed;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(passed)
                     : "r"(smem_address(bar)), "r"(parity)
                     : "memory");
    } while (!passed);
}
// Arrives, for this thread, when all copies that it has started with cp_async16 are complete.
static __device__ __forceinline__ void cp_async_arrive(uint64_t *bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(bar)) : "memory");
}
// Named barriers 1 to 15 (0 is __syncthreads) of n threads: sync arrives and waits, arrive does not wait.
static __device__ __forceinline__ void named_sync(int id, int n) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
static __device__ __forceinline__ void named_arrive(int id, int n) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}
// Makes this thread's writes to shared memory visible to wgmma, which reads it through another path.
static __device__ __forceinline__ void smem_to_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// All threads of a warpgroup change their number of registers.
template <int N> static __device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

// 2^v, at most 2 units in the last place off; results below 2^-126 are 0.
static __device__ __forceinline__ float exp2_fast(float v) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
    return out;
}
// Two values in the range of the type, rounded.
template <int TYPE> static __device__ __forceinline__ uint32_t round_pair(float low, float high) {
    uint32_t out;
    if (TYPE == TYPE_BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// ---- products -------------------------------------------------------------------------------------------------------

// Call wgmma_begin before the first product that uses registers that other instructions have written; products run
// until wgmma_wait. wgmma_hold keeps the compiler from moving a use of the sums before the wait: call it after that.
static __device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
static __device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> static __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
template <int N> static __device__ __forceinline__ void wgmma_hold(float (&sums)[N]) {
    UNROLL
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

#define WGMMA_4(s, i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3])
#define WGMMA_16(s, i) WGMMA_4(s, i), WGMMA_4(s, i + 4), WGMMA_4(s, i + 8), WGMMA_4(s, i + 12)
#define WGMMA_32(s) WGMMA_16(s, 0), WGMMA_16(s, 16)
#define WGMMA_64(s) WGMMA_32(s), WGMMA_16(s, 32), WGMMA_16(s, 48)
#define WGMMA_LIST_32                                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_LIST_64                                                                                                  \
    WGMMA_LIST_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "  \
                  "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// n: the product's columns; list, sums: of n / 2 registers; then the numbers of the operands after them
#define WGMMA_SS(n, t, list, sums, A, B, ADD)                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." t      \
                 "." t " {" list "}, " A ", " B ", p, 1, 1, 0, 0;\n}"                                                  \
                 : sums                                                                                                \
                 : "l"(a), "l"(b), "r"((int)add)                                                                       \
                 : "memory")
#define WGMMA_RS(n, t, list, sums, A, B, ADD)                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" n "k16.f32." t      \
                 "." t " {" list "}, {" A "}, " B ", p, 1, 1, 1;\n}"                                                   \
                 : sums                                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1)                                          \
                 : "memory")

// sums (64, N) = a (64, 16) b (16, N), or += if `add`. a, b: descriptors of shared memory with rows of consecutive k,
// N rows for b (wgmma_rows).
template <int TYPE, int N>
static __device__ __forceinline__ void wgmma_shared(float (&sums)[N / 2], uint64_t a, uint64_t b, bool add) {
    static_assert(N == 64 || N == 128, "a product of 64 or 128 columns");
    if constexpr (N == 128 && TYPE == TYPE_BF16)
        WGMMA_SS("128", "bf16", WGMMA_LIST_64, WGMMA_64(sums), "%64", "%65", "%66");
    else if constexpr (N == 128) WGMMA_SS("128", "f16", WGMMA_LIST_64, WGMMA_64(sums), "%64", "%65", "%66");
    else if constexpr (TYPE == TYPE_BF16) WGMMA_SS("64", "bf16", WGMMA_LIST_32, WGMMA_32(sums), "%32", "%33", "%34");
    else WGMMA_SS("64", "f16", WGMMA_LIST_32, WGMMA_32(sums), "%32", "%33", "%34");
}
// sums (64, N) += a (64, 16) b (16, N). a: fragments; b: a descriptor of shared memory with rows of consecutive
// columns, a row for each k (wgmma_columns).
template <int TYPE, int N>
static __device__ __forceinline__ void wgmma_registers(float (&sums)[N / 2], const uint32_t *a, uint64_t b) {
    static_assert(N == 64 || N == 128, "a product of 64 or 128 columns");
    if constexpr (N == 128 && TYPE == TYPE_BF16)
        WGMMA_RS("128", "bf16", WGMMA_LIST_64, WGMMA_64(sums), "%64, %65, %66, %67", "%68", "%69");
    else if constexpr (N == 128)
        WGMMA_RS("128", "f16", WGMMA_LIST_64, WGMMA_64(sums), "%64, %65, %66, %67", "%68", "%69");
    else if constexpr (TYPE == TYPE_BF16)
        WGMMA_RS("64", "bf16", WGMMA_LIST_32, WGMMA_32(sums), "%32, %33, %34, %35", "%36", "%37");
    else WGMMA_RS("64", "f16", WGMMA_LIST_32, WGMMA_32(sums), "%32, %33, %34, %35", "%36", "%37");
}
#endif

// ---- tiles in shared memory -----------------------------------------------------------------------------------------

// Rows of 128 bytes, 64 elements of 16 bits, one after the other from a multiple of 1024 bytes on. Within each eight
// rows the 16-byte pieces are permuted (the 128-byte swizzle), so that pieces of eight rows lie in different banks.
enum { SWIZZLE_ROW = 128, SWIZZLE_ROWS = 8, SWIZZLE_ATOM = SWIZZLE_ROW * SWIZZLE_ROWS };
HOST_DEVICE constexpr int swizzled(int row, int piece) { return row * SWIZZLE_ROW + (piece ^ row % SWIZZLE_ROWS) * 16; }

// The descriptor of an operand at `at`: bits 0-13 its address, 16-29 and 32-45 two strides, all in units of 16 bytes;
// bits 62-63: 1, the 128-byte swizzle.
HOST_DEVICE inline uint64_t wgmma_operand(unsigned at, unsigned leading, unsigned stride) {
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 |
           (uint64_t)(stride >> 4 & 0x3fff) << 32 | (uint64_t)1 << 62;
}
// For a matrix whose rows have consecutive values of k ("K-major"). The stride is the distance from eight rows to the
// next eight; the leading stride is not used. An operand that begins 16 values of k later begins 32 bytes later.
HOST_DEVICE inline uint64_t wgmma_rows(unsigned at) { return wgmma_operand(at, 16, SWIZZLE_ATOM); }
// For a matrix with a row of consecutive columns for each k ("MN-major"). The leading stride is the distance from 64
// columns to the next 64; the other stride is the distance from eight values of k to the next eight.
HOST_DEVICE inline uint64_t wgmma_columns(unsigned at, unsigned next_columns) {
    return wgmma_operand(at, next_columns, SWIZZLE_ATOM);
}
// The operand `bytes`, a multiple of 16, further on. The address does not carry into the strides: shared memory ends
// before 2^18 bytes.
HOST_DEVICE inline uint64_t wgmma_after(uint64_t operand, unsigned bytes) {
    return (operand >> 32 << 32) | ((uint32_t)operand + bytes / 16);
}

#endif
