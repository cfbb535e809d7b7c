// gpu/cuda_products.c: see gpu/cuda_products.h.
#include "gpu/cuda_products.h"

#include "gpu/cuda_device.h"

// Rows [first, first + n) of a stack as a dense matrix: the stack's own memory, or unpacked into the slice.
static const void *dense_rows(CudaScratch *s, const Stack *k, int first, int n) {
    size_t row = k->stride * dense_bytes(k->type);
    if (k->dense) return (const uint8_t *)k->dense + (size_t)first * row;
    int begin = 0; // the first row of the current part
    for (int i = 0; i < k->n_parts; begin += k->part[i++].n_out) {
        int from = int_max(first, begin), to = int_min(first + n, begin + k->part[i].n_out);
        if (from < to)
            gpu_dequantize(&k->part[i], from - begin, to - from, k->type, s->slice + (size_t)(from - first) * row,
                           k->stride, cuda_device.stream);
    }
    return s->slice;
}

static void multiply(CudaScratch *s, const Stack *k, int first, int n, const void *x, int n_rows, void *y, int y_type,
                     size_t y_stride, bool add) {
    int most = k->dense ? n : (int)(s->slice_bytes / (k->stride * dense_bytes(k->type)));
    for (int done = 0, now; done < n; done += now) {
        now = int_min(most, n - done);
        rt_product(&(RtProduct){.type = k->type,
                                .y_type = y_type,
                                .n_rows = n_rows,
                                .n_out = now,
                                .n_in = k->n_in,
                                .x = x,
                                .w = dense_rows(s, k, first + done, now),
                                .y = (uint8_t *)y + (size_t)done * dense_bytes(y_type),
                                .x_stride = (size_t)k->n_in,
                                .w_stride = k->stride,
                                .y_stride = y_stride,
                                .add = add},
                   cuda_device.stream);
    }
}

void cuda_products_multiply(CudaScratch *s, const Stack *k, int first, int n, const void *x, int n_rows, float *y,
                            size_t y_stride, bool add) {
    multiply(s, k, first, n, x, n_rows, y, TYPE_F32, y_stride, add);
}

// Gate and up are stored in BF16 at most: F16, whose range is smaller, could overflow.
void cuda_products_gated(CudaScratch *s, const Stack *k, const void *x, int n_rows, const LayerKind *kind, void *h,
                         int type) {
    int of = k->type == TYPE_BF16 && type == TYPE_BF16 ? TYPE_BF16 : TYPE_F32, width = k->part[0].n_out;
    bool apart = k->n_parts > 1; // otherwise the product of gate is multiplied by its own activation
    const uint8_t *gate = (const uint8_t *)s->y, *up = gate + (apart ? (size_t)width * dense_bytes(of) : 0);
    multiply(s, k, 0, k->n_out, x, n_rows, s->y, of, (size_t)k->n_out, false);
    if (kind->act == ACT_XIELU)
        gpu_xielu(h, type, &kind->xielu, gate, of, k->part[0].bias, width, n_rows, cuda_device.stream);
    else
        gpu_gate_mul(h, type, kind->act, gate, up, of, (size_t)k->n_out, k->part[0].bias, k->part[apart].bias, width,
                     n_rows, cuda_device.stream);
}

void cuda_products_heads(CudaScratch *s, const Stack *k, const HeadProducts *p) {
    int rows = k->n_out / p->n_heads; // of a head's matrix
    size_t each = (size_t)rows * k->stride, slice = s->slice_bytes / (each * dense_bytes(k->type));
    int most = k->dense || slice > (size_t)p->n ? p->n : int_max(1, (int)slice);
    for (int done = 0, n; done < p->n; done += n) {
        size_t x = (size_t)done * p->x.head, y = (size_t)done * p->y.head;
        n = int_min(most, p->n - done);
        rt_product(&(RtProduct){.type = k->type,
                                .y_type = p->y_type,
                                .n_rows = p->n_rows,
                                .n_out = p->transposed ? k->n_in : rows,
                                .n_in = p->transposed ? rows : k->n_in,
                                .x = (const uint8_t *)p->x.at + x * dense_bytes(k->type),
                                .w = dense_rows(s, k, (p->first + done) * rows, n * rows),
                                .y = (uint8_t *)p->y.at + y * dense_bytes(p->y_type),
                                .x_stride = p->x.row,
                                .w_stride = k->stride,
                                .y_stride = p->y.row,
                                .transposed = p->transposed,
                                .n_batch = n,
                                .x_batch = p->x.head,
                                .w_batch = each,
                                .y_batch = p->y.head},
                   cuda_device.stream);
    }
}
