// hf/fp8.c: see hf/fp8.h.
#include "hf/fp8.h"

#include <math.h>
#include <stdio.h>
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

// ---- errors ---------------------------------------------------------------------------------------------------------

static void put_shape(Buf *out, const SafeTensor *t) {
    buf_str(out, "[");
    for (int d = 0; d < t->n_dims; d++) buf_printf(out, "%s%llu", d ? ", " : "", (unsigned long long)t->dims[d]);
    buf_str(out, "]");
}

// `scale` has, or t lacks (NULL), other scales than `expected`. t and `scale` are as they are in the file, or one
// matrix of a stack and its scales.
static Status wrong_scale(const SafeTensor *t, const SafeTensor *scale, const char *expected) {
    Buf found = {0}, of = {0};
    put_shape(&of, t);
    if (scale) {
        buf_printf(&found, "%.20s of ", scale->dtype);
        put_shape(&found, scale);
    } else buf_str(&found, "none");
    const SafeTensor *named = scale ? scale : t;
    Status st =
        status_error(QUILL_MODEL,
                     "%s: tensor %.*s%s: %s expected, %s found, for weights of %s; download the weights and "
                     "config.json again, or take a GGUF file",
                     named->file, SAFE_SHOW(named->name), scale ? "" : "_scale_inv", expected, found.data, of.data);
    buf_free(&found);
    buf_free(&of);
    return st;
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

static size_t parts_of(size_t n, size_t size) { return n / size + (n % size > 0); }

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

// Whether square blocks divide n_out x n_in into down x across.
static bool square_fits(size_t n_out, size_t n_in, size_t down, size_t across) {
    for (size_t size = 1; size < 2 * n_out || size < 2 * n_in; size *= 2)
        if (parts_of(n_out, size) == down && parts_of(n_in, size) == across) return true;
    return false;
}

// Whether swapped dimensions explain the scales' shape, and the shape as it is does not: neither square blocks nor rows
// fit.
static bool is_swapped(size_t n_out, size_t n_in, size_t down, size_t across) {
    bool fits = (down == n_out && across == 1) || square_fits(n_out, n_in, down, across);
    return !fits && ((down == 1 && across == n_out) || square_fits(n_out, n_in, across, down));
}

// Finds the blocks from the scales' shape alone.
static Status guess_blocks(const SafeTensor *t, const SafeTensor *scale, Fp8Blocks *b) {
    size_t n_out = (size_t)t->dims[0], n_in = (size_t)t->dims[1];
    b->rows = block_size(n_out, b->down);
    b->columns = block_size(n_in, b->across);
    if (is_swapped(n_out, n_in, b->down, b->across)) {
        char expected[96];
        snprintf(expected, sizeof expected, "scales of [%zu, %zu]", b->across, b->down);
        return wrong_scale(t, scale, expected);
    }
    if (b->rows > 0 && b->columns > 0) return OK;
    return wrong_scale(t, scale, "one scale for each matrix, each row or each block");
}

// Takes the blocks that config.json states.
static Status take_stated(const SafeTensor *t, const SafeTensor *scale, Fp8Block stated, Fp8Blocks *b) {
    size_t down = parts_of((size_t)t->dims[0], stated.rows), across = parts_of((size_t)t->dims[1], stated.columns);
    b->rows = stated.rows, b->columns = stated.columns;
    bool one = down == 1 && across == 1 && b->down == 1 && b->across == 1; // [1], or a number without dimensions
    if (scale && (one || (scale->n_dims == 2 && b->down == down && b->across == across))) return OK;
    char expected[160];
    snprintf(expected, sizeof expected, "scales of [%zu, %zu] (config.json's weight_block_size is [%zu, %zu])", down,
             across, stated.rows, stated.columns);
    return wrong_scale(t, scale, expected);
}

static Status read_blocks(const SafeTensor *t, const SafeTensor *scale, Fp8Block stated, Fp8Blocks *b) {
    int n_dims = scale ? scale->n_dims : 0, type = scale ? scale_type(scale) : TYPE_F32;
    *b =
        (Fp8Blocks){.down = n_dims > 0 ? (size_t)scale->dims[0] : 1, .across = n_dims > 1 ? (size_t)scale->dims[1] : 1};
    if (type < 0) return wrong_scale(t, scale, "scales of F32, F16 or BF16");
    if (n_dims > 2) return wrong_scale(t, scale, "scales of two dimensions");
    if (stated.rows > 0) TRY(take_stated(t, scale, stated, b));
    else TRY(guess_blocks(t, scale, b));
    size_t n = b->down * b->across; // at most the matrix's elements
    b->scales = mem_alloc(n * sizeof *b->scales);
    b->scales[0] = 1;
    if (!scale) return OK;
    void *aligned = mem_copy((const char *)scale->data, scale->n_bytes);
    type_info(type)->dequantize(aligned, b->scales, n);
    free(aligned);
    return OK;
}

// ---- conversion -----------------------------------------------------------------------------------------------------

Status fp8_dequantize(const SafeTensor *t, const SafeTensor *scale, Fp8Block stated, uint16_t *out) {
    Fp8Blocks b;
    float values[256];
    TRY(read_blocks(t, scale, stated, &b));
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

Status fp8_dequantize_stack(const SafeTensor *t, const SafeTensor *scale, Fp8Block stated, uint16_t *out) {
    if (scale && (scale->n_dims < 1 || scale->dims[0] != t->dims[0]))
        return wrong_scale(t, scale, "scales for each matrix of the stack");
    for (uint64_t i = 0; i < t->dims[0]; i++) {
        SafeTensor matrix = part_of(t, i), scales = scale ? part_of(scale, i) : *t;
        TRY(fp8_dequantize(&matrix, scale ? &scales : NULL, stated, out + (size_t)i * matrix.n_bytes));
    }
    return OK;
}
