// gpu/cuda_products.c: see gpu/cuda_products.h.
#include "gpu/cuda_products.h"

#include "gpu/cuda_device.h"

// Rows [first, first + n) of a stack as a dense matrix: the stack's own memory, or unpacked into the slice.
static const void *dense_rows(CudaScratch *s, const Stack *k, int first, int n) {
    size_t row = k->stride * dense_bytes(k->type);
    if (k->dense) return (const uint8_t *)k->dense + (size_t)first * row;
    int begin = 0; // of the part
    for (int i = 0; i < k->n_parts; begin += k->part[i++].n_out) {
        int from = int_max(first, begin), to = int_min(first + n, begin + k->part[i].n_out);
        if (from < to)
            gpu_dequantize(&k->part[i], from - begin, to - from, k->type, s->slice + (size_t)(from - first) * row,
                           k->stride, cuda_device.stream);
    }
    return s->slice;
}

void cuda_products_multiply(CudaScratch *s, const Stack *k, int first, int n, const void *x, int n_rows, float *y,
                            size_t y_stride, bool add) {
    int most = k->dense ? n : (int)(s->slice_bytes / (k->stride * dense_bytes(k->type)));
    for (int done = 0, now; done < n; done += now) {
        now = int_min(most, n - done);
        rt_product(&(RtProduct){.type = k->type,
                                .n_rows = n_rows,
                                .n_out = now,
                                .n_in = k->n_in,
                                .x = x,
                                .w = dense_rows(s, k, first + done, now),
                                .y = y + done,
                                .x_stride = (size_t)k->n_in,
                                .w_stride = k->stride,
                                .y_stride = y_stride,
                                .add = add},
                   cuda_device.stream);
    }
}
