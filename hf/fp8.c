// hf/fp8.c: see hf/fp8.h.
#include "hf/fp8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/types.h"

float fp8_e4m3(uint8_t bits) {
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    float magnitude = exponent == 15 && mantissa == 7 ? NAN
                      : exponent == 0                 ? ldexpf((float)mantissa, -9)
                                                      : ldexpf((float)(8 + mantissa), exponent - 10);
    return bits & 0x80 ? -magnitude : magnitude;
}

bool fp8_is(const SafeTensor *t) { return strcmp(t->dtype, "F8_E4M3") == 0; }

const SafeTensor *fp8_scale_of(const SafeFiles *files, const SafeTensor *t) {
    static const char *const kinds[] = {"_scale_inv", "_scale"};
    const SafeTensor *scale = NULL;
    for (size_t i = 0; i < ARRAY_LEN(kinds) && !scale; i++) {
        Buf name = {0};
        buf_append(&name, t->name.data, t->name.n);
        buf_str(&name, kinds[i]);
        scale = safetensors_find(files, name.data);
        buf_free(&name);
    }
    return scale;
}

// How the matrix is divided into blocks, each with one scale.
typedef struct {
    size_t down, across;  // number of scales in each direction
    size_t rows, columns; // size of a block
    float *scales;        // (down x across)
} Fp8Blocks;

static Status wrong_scale(const SafeTensor *t, const SafeTensor *scale) {
    return status_error(QUILL_MODEL,
                        "%s: tensor %.*s: scales of F32, F16 or BF16 expected, one for each matrix, each row or each "
                        "block of %.*s",
                        scale->file, (int)(scale->name.n < 100 ? scale->name.n : 100), scale->name.data,
                        (int)(t->name.n < 100 ? t->name.n : 100), t->name.data);
}

// The block length that divides n into `parts` blocks; 0: there is none. A power of two if possible: 200 rows in two
// blocks are 128 and 72.
static size_t block_size(size_t n, size_t parts) {
    for (size_t size = 1; size < n; size *= 2)
        if ((n + size - 1) / size == parts) return size;
    size_t even = parts > 0 ? (n + parts - 1) / parts : 0;
    return even > 0 && (n + even - 1) / even == parts ? even : 0;
}

static int scale_type(const SafeTensor *scale) {
    if (strcmp(scale->dtype, "F32") == 0) return TYPE_F32;
    if (strcmp(scale->dtype, "F16") == 0) return TYPE_F16;
    return strcmp(scale->dtype, "BF16") == 0 ? TYPE_BF16 : -1;
}

static Status read_blocks(const SafeTensor *t, const SafeTensor *scale, Fp8Blocks *b) {
    size_t n_out = (size_t)t->dims[0], n_in = (size_t)t->dims[1];
    int n_dims = scale ? scale->n_dims : 0;
    *b =
        (Fp8Blocks){.down = n_dims > 0 ? (size_t)scale->dims[0] : 1, .across = n_dims > 1 ? (size_t)scale->dims[1] : 1};
    b->rows = block_size(n_out, b->down);
    b->columns = block_size(n_in, b->across);
    int type = scale ? scale_type(scale) : TYPE_F32;
    if (n_dims > 2 || b->rows == 0 || b->columns == 0 || type < 0) return wrong_scale(t, scale);
    size_t n = b->down * b->across; // at most the matrix's elements
    b->scales = mem_alloc(n * sizeof *b->scales);
    b->scales[0] = 1;
    if (!scale) return OK;
    void *aligned = mem_copy((const char *)scale->data, scale->n_bytes);
    type_info(type)->dequantize(aligned, b->scales, n);
    free(aligned);
    return OK;
}

Status fp8_dequantize(const SafeTensor *t, const SafeTensor *scale, uint16_t *out) {
    Fp8Blocks b;
    float values[256];
    TRY(read_blocks(t, scale, &b));
    size_t n_out = (size_t)t->dims[0], n_in = (size_t)t->dims[1];
    for (int i = 0; i < 256; i++) values[i] = fp8_e4m3((uint8_t)i);
    for (size_t row = 0; row < n_out; row++)
        for (size_t block = 0; block < b.across; block++) {
            float s = b.scales[row / b.rows * b.across + block];
            size_t end = (block + 1) * b.columns < n_in ? (block + 1) * b.columns : n_in;
            for (size_t i = block * b.columns; i < end; i++)
                out[row * n_in + i] = float_bf16(values[t->data[row * n_in + i]] * s);
        }
    free(b.scales);
    return OK;
}

// Matrix number i of a stack, or its scales.
static SafeTensor part_of(const SafeTensor *t, uint64_t i) {
    SafeTensor part = *t;
    part.n_dims--;
    memmove(part.dims, t->dims + 1, sizeof t->dims - sizeof t->dims[0]);
    part.n_bytes = t->n_bytes / (size_t)t->dims[0];
    part.data = t->data + (size_t)i * part.n_bytes;
    return part;
}

Status fp8_dequantize_stack(const SafeTensor *t, const SafeTensor *scale, uint16_t *out) {
    if (scale && (scale->n_dims < 1 || scale->dims[0] != t->dims[0])) return wrong_scale(t, scale);
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        SafeTensor matrix = part_of(t, i), scales = scale ? part_of(scale, i) : *t;
        TRY(fp8_dequantize(&matrix, scale ? &scales : NULL, out + (size_t)i * matrix.n_bytes));
    }
    return OK;
}
