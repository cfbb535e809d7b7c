// tests/rig/gpu_host_sm90.h: gpu/hopper.h on the CPU; part of tests/rig/gpu_host.h.
//
// Products decode the bits of their descriptors, so that a wrong layout gives wrong results. They read shared memory
// when they are issued. Their sums are NaN until they are waited for, so that an early use shows.
#ifndef QUILL_GPU_HOST_SM90_H
#define QUILL_GPU_HOST_SM90_H

#include "tests/rig/gpu_host.h"

void gpu_host_sm90(bool on); // whether the device is of compute capability 9.0, with its 227 KiB of shared memory

// The running thread waits until another thread wakes those that wait for this address.
void gpu_host_park(const void *at, const char *file, int line);
void gpu_host_wake(const void *at);
// Named barriers of the running block; wait: the thread waits until n threads have arrived.
void gpu_host_named_barrier(int id, int n, bool wait, const char *file, int line);
unsigned gpu_host_smem_address(const void *p);
const unsigned char *gpu_host_smem_at(unsigned address, unsigned bytes);
// The sums of the running thread's products: those that run on, or a copy of the registers, which become NaN.
float *gpu_host_mma_sums(float *registers, int n);
void gpu_host_mma_commit();
void gpu_host_mma_wait(int pending); // stores the sums of all groups but the newest in their registers

static inline unsigned smem_address(const void *p) { return gpu_host_smem_address(p); }

struct GpuMbarrier {
    uint16_t count, arrived;
    uint32_t phase;
};
static inline void mbarrier_init(uint64_t *bar, unsigned count) {
    *(GpuMbarrier *)(void *)bar = {(uint16_t)count, 0, 0};
}
static inline void mbarrier_arrive(uint64_t *bar) {
    GpuMbarrier *m = (GpuMbarrier *)(void *)bar;
    if (++m->arrived < m->count) return;
    m->arrived = 0;
    m->phase++;
    gpu_host_wake(bar);
}
static inline bool mbarrier_passed(uint64_t *bar, unsigned parity) {
    return (((GpuMbarrier *)(void *)bar)->phase & 1) != parity;
}
static inline void mbarrier_wait(uint64_t *bar, unsigned parity, GPU_HERE) {
    while (!mbarrier_passed(bar, parity)) gpu_host_park(bar, file, line);
}
static inline void cp_async_arrive(uint64_t *bar) {
    cp_async_commit();
    cp_async_wait<0>();
    mbarrier_arrive(bar);
}
static inline void named_sync(int id, int n, GPU_HERE) { gpu_host_named_barrier(id, n, true, file, line); }
static inline void named_arrive(int id, int n, GPU_HERE) { gpu_host_named_barrier(id, n, false, file, line); }
static inline void smem_to_wgmma() {}
template <int N> static inline void give_registers() {}
template <int N> static inline void take_registers() {}

static inline float exp2_fast(float v) { return exp2f(v); }
template <int TYPE> static inline uint32_t round_pair(float low, float high) {
    auto bits = [](float v) { return TYPE == TYPE_BF16 ? float_bf16(v) : float_half(v); };
    return (uint32_t)bits(low) | (uint32_t)bits(high) << 16;
}

// ---- products -------------------------------------------------------------------------------------------------------

static inline void wgmma_begin() {}
static inline void wgmma_commit() { gpu_host_mma_commit(); }
template <int PENDING> static inline void wgmma_wait() { gpu_host_mma_wait(PENDING); }
template <int N> static inline void wgmma_hold(float (&)[N]) {}

struct GpuWgmma {
    float *sums;
    const uint32_t *a; // fragments; NULL: a_at
    uint64_t a_at, b_at;
    int warp; // of the warpgroup
    bool add;
};
// Element (row, k) of an operand; transposed: (k, column). The swizzle exchanges bits 4-6 of an address with their
// exclusive or with bits 7-9.
template <int TYPE, bool TRANS> static float gpu_wgmma_element(uint64_t operand, unsigned row, unsigned k) {
    unsigned start = (unsigned)(operand & 0x3fff) << 4, leading = (unsigned)(operand >> 16 & 0x3fff) << 4;
    unsigned stride = (unsigned)(operand >> 32 & 0x3fff) << 4;
    unsigned at = TRANS ? start + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128
                        : start + row / 8 * stride + row % 8 * 128 + k * 2;
    uint16_t bits;
    memcpy(&bits, gpu_host_smem_at(at ^ (at >> 7 & 7) << 4, 2), 2);
    return TYPE == TYPE_BF16 ? bf16_float(bits) : half_float(bits);
}
template <int TYPE, int N, bool TRANS> static void gpu_wgmma_lanes(void **lanes) {
    static float a[16][16], b[16][N];
    const GpuWgmma *first = (const GpuWgmma *)lanes[0];
    if (first->b_at >> 62 != 1 || (first->b_at >> 49 & 7))
        gpu_host_fault("wgmma: an operand without the 128-byte swizzle, or with an offset: not emulated");
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < N; n++) b[k][n] = gpu_wgmma_element<TYPE, TRANS>(first->b_at, (unsigned)n, (unsigned)k);
    for (int r = 0; r < 16 && !first->a; r++)
        for (int k = 0; k < 16; k++)
            a[r][k] = gpu_wgmma_element<TYPE, false>(first->a_at, (unsigned)(16 * first->warp + r), (unsigned)k);
    for (int l = 0; l < 32 && first->a; l++)
        for (int r = 0; r < 8; r++) {
            uint16_t bits = (uint16_t)(((const GpuWgmma *)lanes[l])->a[r / 2] >> (16 * (r % 2)));
            a[l / 4 + 8 * (r / 2 & 1)][2 * (l % 4) + 8 * (r / 4) + r % 2] =
                TYPE == TYPE_BF16 ? bf16_float(bits) : half_float(bits);
        }
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < N / 2; i++) {
            const GpuWgmma *m = (const GpuWgmma *)lanes[l];
            int row = l / 4 + 8 * (i / 2 & 1), column = i / 4 * 8 + 2 * (l % 4) + i % 2;
            float sum = m->add ? m->sums[i] : 0;
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            m->sums[i] = sum;
        }
}
template <int TYPE, int N>
static inline void wgmma_shared(float (&sums)[N / 2], uint64_t a, uint64_t b, bool add, GPU_HERE) {
    GpuWgmma mine = {gpu_host_mma_sums(sums, N / 2), NULL, a, b, (int)threadIdx.x / 32 % 4, add};
    gpu_host_warp(~0u, gpu_wgmma_lanes<TYPE, N, false>, &mine, file, line);
}
template <int TYPE, int N>
static inline void wgmma_registers(float (&sums)[N / 2], const uint32_t *a, uint64_t b, GPU_HERE) {
    GpuWgmma mine = {gpu_host_mma_sums(sums, N / 2), a, 0, b, (int)threadIdx.x / 32 % 4, true};
    gpu_host_warp(~0u, gpu_wgmma_lanes<TYPE, N, true>, &mine, file, line);
}

#endif
