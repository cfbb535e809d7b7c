// tests/rig/shim_kernels.cu: see tests/rig/shim_kernels.h.
#include "tests/rig/shim_kernels.h"

#include "gpu/gpu.h"

void shim_seed(uint64_t seed) { gpu_host_seed(seed); }

void *shim_new(size_t n) {
    void *p = NULL;
    return cudaMalloc(&p, n) == cudaSuccess ? p : NULL;
}

void shim_copy(void *to, const void *from, size_t n) { cudaMemcpy(to, from, n, cudaMemcpyDefault); }

void shim_free(void *p) { cudaFree(p); }

template <int WHICH> __global__ void planted(float *out, const float *in) {
    Smem smem;
    float *shared = smem.take<float>(SHIM_THREADS + (WHICH == SHIM_TOO_MUCH ? 4 : 0));
    int i = (int)threadIdx.x;
    if (WHICH == SHIM_EARLY_WRITES) out[i] = 0;
    if (WHICH != SHIM_EARLY_NO_WAIT || i != 7) wait_for_last();
    shared[i] = in[i];
    if (WHICH == SHIM_PAST_SHARED && i == 5) shared[SHIM_THREADS] = 1;
    if (WHICH != SHIM_NO_BARRIER) __syncthreads();
    if (WHICH == SHIM_HALF_BARRIER && i % 2 == 0) __syncthreads();
    if (WHICH == SHIM_TWO_BARRIERS) {
        if (i % 2) __syncthreads();
        else __syncthreads();
    }
    if (WHICH == SHIM_LANE_MISSING) {
        if (i == 40) return;
        shared[i] = __shfl_xor_sync(FULL_WARP, shared[i], 1);
    }
    if (WHICH == SHIM_MISALIGNED && i == 0) out[0] = bits_float(stream<uint4>(in + 1).x);
    if (WHICH == SHIM_UNWRITTEN && i == 7) return;
    if (WHICH == SHIM_PAST_END && i == 7) out[SHIM_THREADS] = 1;
    out[i] = shared[SHIM_THREADS - 1 - i];
}

__global__ void fetched(float *out, const float *in, bool wait) { // SHIM_RIGHT, if it waits
    Smem smem;
    float *shared = smem.take<float>(SHIM_THREADS);
    int i = (int)threadIdx.x;
    if (i < SHIM_THREADS / 4) cp_async16(shared + 4 * i, in + 4 * i, true);
    cp_async_commit();
    if (wait) cp_async_wait<0>();
    __syncthreads();
    out[i] = shared[SHIM_THREADS - 1 - i];
}

__global__ void summed(float *out, const float *in) { out[threadIdx.x] = warp_sum(in[threadIdx.x]); }

void shim_run(ShimKernel which, float *out, const float *in) {
    const size_t smem = SHIM_THREADS * sizeof(float);
    switch (which) {
#define PLANTED(W)                                                                                                     \
    case W: LAUNCH(planted<W>, 1, SHIM_THREADS, smem, NULL, out, in); break;
        PLANTED(SHIM_RIGHT)
        PLANTED(SHIM_NO_BARRIER)
        PLANTED(SHIM_PAST_END)
        PLANTED(SHIM_PAST_SHARED)
        PLANTED(SHIM_UNWRITTEN)
        PLANTED(SHIM_HALF_BARRIER)
        PLANTED(SHIM_TWO_BARRIERS)
        PLANTED(SHIM_LANE_MISSING)
        PLANTED(SHIM_MISALIGNED)
        PLANTED(SHIM_TOO_MUCH)
#undef PLANTED
#define EARLY(W)                                                                                                       \
    case W: LAUNCH_EARLY(true, planted<W>, 1, SHIM_THREADS, smem, NULL, out, in); break;
        EARLY(SHIM_EARLY)
        EARLY(SHIM_EARLY_NO_WAIT)
        EARLY(SHIM_EARLY_WRITES)
#undef EARLY
    case SHIM_WAIT:
    case SHIM_NO_WAIT: LAUNCH(fetched, 1, SHIM_THREADS, smem, NULL, out, in, which == SHIM_WAIT); break;
    case SHIM_WARP: LAUNCH(summed, 1, SHIM_THREADS, 0, NULL, out, in); break;
    }
}

template <int TYPE> __global__ void multiply(float *acc, const uint16_t *a, const uint16_t *b) {
    Smem smem;
    uint16_t *sa = smem.take<uint16_t>(16 * 16), *sb = smem.take<uint16_t>(16 * 16);
    int lane = (int)threadIdx.x;
    for (int i = lane; i < 16 * 16; i += WARP) {
        sa[i] = a[i];
        sb[i] = i % 16 < 8 ? b[i / 16 * 8 + i % 16] : (uint16_t)0;
    }
    __syncthreads();
    uint32_t fa[4], fb[4];
    ldmatrix4(fa, sa + lane % 16 * 16 + lane / 16 * 8);
    ldmatrix4_trans(fb, sb + lane % 16 * 16 + lane / 16 * 8);
    float sums[4] = {0, 0, 0, 0};
    mma_16816<TYPE>(sums, fa, fb[0], fb[1]);
    for (int i = 0; i < 4; i++) acc[(lane / 4 + i / 2 * 8) * 8 + 2 * (lane % 4) + i % 2] = sums[i];
}

void shim_multiply(int type, float *acc, const uint16_t *a, const uint16_t *b) {
    if (type == TYPE_F16) LAUNCH(multiply<TYPE_F16>, 1, WARP, 1024, NULL, acc, a, b);
    else LAUNCH(multiply<TYPE_BF16>, 1, WARP, 1024, NULL, acc, a, b);
}
