// gpu/cuda_device.c: see gpu/cuda_device.h.
#include "gpu/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CudaDevice cuda_device;

CudaCounts cuda_counts(void) { return cuda_device.counts; }

static void describe(const char *prefill) {
    const GpuTuning *t = &cuda_device.tuning;
    snprintf(cuda_device.kernels, sizeof cuda_device.kernels, "decode fused kernels in graphs%s%s; prefill %.150s%s",
             t->ring ? ", weights through a ring" : "", t->early ? ", begun early" : "", prefill,
             t->wgmma ? ", attention with wgmma" : "");
}

bool cuda_device_has_products(void) {
    if (cuda_device.asked) return cuda_device.products;
    Status st = rt_products_open(cuda_device.stream);
    cuda_device.asked = true;
    cuda_device.products = !st.code;
    if (cuda_device.products) describe(rt_products_name());
    else
        snprintf(cuda_device.kernels, sizeof cuda_device.kernels,
                 "fused kernels for prefill too, which is slow: %.180s", st.message);
    return cuda_device.products;
}

void cuda_open_products(void) { cuda_device_has_products(); }

const Status *cuda_device_failure(void) {
    const Status *e = gpu_launch_error();
    if (e) rt_fail(e->code, e->message);
    return rt_failure();
}

// ---- opening it -----------------------------------------------------------------------------------------------------

// Reads QUILL_GPU_TRY, words separated by commas: fields of GpuTuning.
static Status read_tuning(GpuTuning *t) {
    const char *words = getenv("QUILL_GPU_TRY");
    *t = (GpuTuning){.skinny = true};
    const struct {
        const char *word;
        bool *field;
    } known[] = {{"ring", &t->ring}, {"wgmma", &t->wgmma}, {"early", &t->early}};
    for (size_t n, i; words && *words; words += n + (words[n] == ',')) {
        n = strcspn(words, ",");
        for (i = 0; i < ARRAY_LEN(known); i++)
            if (strlen(known[i].word) == n && memcmp(words, known[i].word, n) == 0) break;
        if (i == ARRAY_LEN(known))
            return status_error(
                QUILL_USAGE,
                "QUILL_GPU_TRY: ring, wgmma, early, or several of them with commas expected; \"%.*s\" found", (int)n,
                words);
        *known[i].field = true;
    }
    return OK;
}

// Launches a kernel to find out whether this build has code for this GPU.
static Status first_launch(void) {
    float *p = rt_alloc(2 * sizeof *p);
    if (!p) return status_error(QUILL_MODEL, "%s has no memory left, not for its first kernel", cuda_device.info.name);
    rt_zero(p, 2 * sizeof *p, cuda_device.stream);
    gpu_convert(p + 1, TYPE_F32, p, 1, cuda_device.stream);
    bool good = rt_sync(cuda_device.stream) && !cuda_device_failure();
    rt_free(p);
    if (good) return OK;
    return status_error(QUILL_MODEL, "%s (sm_%d%d) refuses its first kernel: %s; make CUDA_ARCH=sm_%d%d builds for it",
                        cuda_device.info.name, cuda_device.info.major, cuda_device.info.minor,
                        cuda_device_failure()->message, cuda_device.info.major, cuda_device.info.minor);
}

Status cuda_device_open(void) {
    TRY(read_tuning(&cuda_device.tuning));
    TRY(rt_open(&cuda_device.info));
    cuda_device.tuning = gpu_tune(cuda_device.tuning);
    cuda_device.stream = rt_stream();
    TRY(first_launch());
    snprintf(cuda_device.isa, sizeof cuda_device.isa, "sm_%d%d", cuda_device.info.major, cuda_device.info.minor);
    describe("cuBLAS, not opened");
    return OK;
}

// ---- properties of the device ---------------------------------------------------------------------------------------

Status cuda_supports(const Heads *h) {
    if (h->head_dim > GPU_MAX_HEAD || h->head_dim % 2)
        return status_error(
            QUILL_MODEL, "the GPU: heads of an even number of up to %d elements expected, %d found; --device cpu works",
            GPU_MAX_HEAD, h->head_dim);
    return OK;
}

size_t cuda_free_bytes(void) { return cuda_device.isa[0] ? rt_free_bytes() : 0; }

Status cuda_available(void) {
    GpuInfo info;
    return rt_look(&info);
}

void cuda_describe(Buf *out) {
    GpuInfo i;
    int toolkit = rt_toolkit();
    buf_printf(out, "%d.%d; ", toolkit / 1000, toolkit % 1000 / 10);
    Status st = rt_look(&i);
    if (st.code) buf_str(out, st.message);
    else
        buf_printf(out, "%s, sm_%d%d, driver for CUDA %d.%d", i.name, i.major, i.minor, i.driver / 1000,
                   i.driver % 1000 / 10);
}
