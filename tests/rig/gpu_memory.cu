// tests/rig/gpu_memory.cu: see tests/rig/gpu_memory.h.
#include "tests/rig/gpu_memory.h"

#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 512 };
static void *given[MOST];
static int n_given;

static void check(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: error %d of the GPU's runtime\n", what, (int)e);
    exit(1);
}

void *device_new(const void *host, size_t n) {
    void *p = NULL;
    if (n_given == MOST) check(cudaErrorMemoryAllocation, "too many allocations");
    check(cudaMalloc(&p, n ? n : 1), "cudaMalloc");
    if (host) device_write(p, host, n);
    else check(cudaMemset(p, 0xff, n), "cudaMemset");
    return given[n_given++] = p;
}

void device_read(void *host, const void *device, size_t n) {
    check(cudaDeviceSynchronize(), "a kernel");
    check(cudaMemcpy(host, device, n, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

void device_write(void *device, const void *host, size_t n) {
    check(cudaMemcpy(device, host, n, cudaMemcpyHostToDevice), "cudaMemcpy");
}

void device_free_all(void) {
    while (n_given > 0) check(cudaFree(given[--n_given]), "cudaFree");
}

void device_order(uint64_t seed) {
#ifdef __CUDACC__
    (void)seed;
#else
    gpu_host_seed(seed);
#endif
}

bool device_sm90(bool on) {
#ifdef __CUDACC__
    int device, major, minor;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
    return on && major == 9 && minor == 0;
#else
    gpu_host_sm90(on);
    return on;
#endif
}
