// tests/rig/kernel_rig.h: shared by the tests of CPU kernels: the kernel tables of this machine, the measured
// distances, guarded memory, random matrices of every type.
//
// Buffers have exactly the bytes that a kernel may touch, so that a sanitizer sees one more. Bytes that must not change
// hold canaries. Scratch, padding and KV slots that no row sees hold NaN, so that a read of them shows in the result.
// print_distances, the teardown of a group, prints the largest distance for each kernel and instruction set. The file
// that includes this one defines _POSIX_C_SOURCE 200112L for posix_memalign.
#ifndef QUILL_KERNEL_RIG_H
#define QUILL_KERNEL_RIG_H

#include "tests/rig/testing.h"

#include "formats/random_blocks.h"
#include "tests/rig/isas.h"
#include "tests/rig/tiny_model.h"

#include <limits.h>
#include <math.h>

typedef enum {
    MATVEC,
    MATRIX,
    MATRIX_BF16,
    FROM_BF16,
    MATRIX_INT8,
    FROM_INT8,
    INT8_NO_VBMI,
    FROM_INT8_NO_VBMI,
    PANELS_INT8,
    FROM_INT8_PANELS,
    EMBED,
    RMSNORM,
    ROPE,
    GATE,
    GATE_BF16,
    ATTEND,
    ATTEND_16BIT,
    N_KERNELS
} Kernel;
static const char *const kernel_names[N_KERNELS] = {
    "matvec",
    "matrix",
    "matrix_bf16",
    "the same, from bf16 inputs",
    "matrix_int8",
    "the same, from int8 activations",
    "matrix_int8 without VBMI",
    "the same, from int8 activations",
    "panels_int8",
    "the same, from int8 activations",
    "embed",
    "rmsnorm",
    "rope",
    "gate",
    "gate_bf16",
    "attend",
    "attend_16bit",
};
static double worst[N_KERNELS][MOST_ISAS];
static int compared[N_KERNELS][MOST_ISAS];

static const CpuKernels *kernels(int isa) {
    const Backend *be;
    assert_ok(isa_backend(isa_name(isa), false, &be));
    return be->impl;
}

// The kernel that replaces cpu/int8_books.c on CPUs without VBMI, for its types.
static inline const MatrixKernel *kernel_without_vbmi(int isa, int type) {
#if defined(__x86_64__)
    bool books = kernels(isa)->int8_rows == cpu_vnni_matrix && strcmp(isa_name(isa), "avx512") == 0;
    if (books && cpu_vnni_matrix(type) == cpu_vnni_books(type)) return cpu_vnni_bytes(type);
#endif
    return (void)isa, (void)type, NULL;
}

// Whether the plain f32 kernels of a table differ from those of all earlier tables.
static inline bool has_own(int isa) {
    for (int i = 0; i < isa; i++)
        if (kernels(i)->matvec == kernels(isa)->matvec) return false;
    return true;
}

static inline void take_distance(Kernel kernel, int isa, double distance, double limit, const char *what) {
    compared[kernel][isa]++;
    if (!(distance <= limit)) // also true for NaN
        fail_msg("%s %s, %s: distance up to %g expected, %g found", isa_name(isa), kernel_names[kernel], what, limit,
                 distance);
    if (distance > worst[kernel][isa]) worst[kernel][isa] = distance;
}

static inline int print_distances(void **state) {
    (void)state;
    print_message("largest relative L2 distance%14s", "");
    for (int i = 0; i < isa_count(); i++) print_message("%10s", isa_name(i));
    for (int k = 0; k < N_KERNELS; k++) {
        print_message("\n  %-38s", kernel_names[k]);
        for (int i = 0; i < isa_count(); i++)
            if (compared[k][i]) print_message("%10.1e", worst[k][i]);
            else print_message("%10s", "-");
    }
    print_message("\n");
    return 0;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// all bits set: NaN in f32, f16 and bf16; aligned like the backend's scratch memory
static inline void *poisoned(size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 128, n ? n : 1) != 0) fail_msg("no memory for %zu bytes", n);
    memset(p, 0xff, n);
    return p;
}

static inline float *random_floats(size_t n, uint64_t *random) {
    float *p = malloc((n ? n : 1) * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = test_uniform(random);
    return p;
}

static inline int pick(uint64_t *random, int n) { return (int)(test_random(random) % (uint64_t)n); }

// ---- matrices -------------------------------------------------------------------------------------------------------

typedef struct {
    int type, group;
} WeightsKind;

static const WeightsKind all_weights[] = {
    {TYPE_F32, 0},     {TYPE_F16, 0},    {TYPE_BF16, 0},   {TYPE_Q4_0, 0},    {TYPE_Q4_1, 0},  {TYPE_Q5_0, 0},
    {TYPE_Q5_1, 0},    {TYPE_Q8_0, 0},   {TYPE_Q2_K, 0},   {TYPE_Q3_K, 0},    {TYPE_Q4_K, 0},  {TYPE_Q5_K, 0},
    {TYPE_Q6_K, 0},    {TYPE_IQ4_NL, 0}, {TYPE_IQ4_XS, 0}, {TYPE_MXFP4, 0},   {TYPE_IQ1_S, 0}, {TYPE_IQ1_M, 0},
    {TYPE_IQ2_XXS, 0}, {TYPE_IQ2_XS, 0}, {TYPE_IQ2_S, 0},  {TYPE_IQ3_XXS, 0}, {TYPE_IQ3_S, 0}, {TYPE_TQ1_0, 0},
    {TYPE_TQ2_0, 0},   {TYPE_I8G, 32},   {TYPE_I8G, 64},   {TYPE_I8G, 7},
};

typedef struct {
    Tensor t;
    void *data;
    char *scales; // one byte before the scales, so that these are unaligned
    float *bias;
    float *values; // (n_out, n_in) the dequantised weights
} TestMatrix;

static inline void fill_i8g(TestMatrix *m, uint64_t *random) {
    size_t n = (size_t)m->t.n_out * (size_t)m->t.n_in, group = (size_t)m->t.group, n_groups = (n + group - 1) / group;
    int8_t *q = m->data = malloc(n);
    m->scales = malloc(1 + n_groups * sizeof(float));
    for (size_t i = 0; i < n_groups; i++) {
        float scale = (1.5f + test_uniform(random)) / 1000;
        memcpy(m->scales + 1 + 4 * i, &scale, sizeof scale);
    }
    for (size_t i = 0; i < n; i++) {
        float scale;
        q[i] = (int8_t)(pick(random, 255) - 127);
        memcpy(&scale, m->scales + 1 + i / group * 4, sizeof scale);
        m->values[i] = scale * (float)q[i];
    }
}

// False if rows of n_in elements cannot have this type.
static inline bool matrix_new(TestMatrix *m, WeightsKind w, int n_out, int n_in, uint64_t *random) {
    const TypeInfo *info = type_info(w.type);
    if (n_in % info->block) return false;
    size_t n = (size_t)n_out * (size_t)n_in, bytes = n / (size_t)info->block * (size_t)info->bytes;
    *m = (TestMatrix){.t = {.type = w.type, .group = w.group, .n_out = n_out, .n_in = n_in}};
    m->t.row_bytes = bytes / (size_t)n_out;
    m->values = malloc(n * sizeof *m->values);
    m->bias = random_floats((size_t)n_out, random);
    if (w.type == TYPE_I8G) fill_i8g(m, random);
    else {
        m->data = malloc(bytes);
        random_blocks_fill(w.type, m->data, n, 0.1f, random);
        info->dequantize(m->data, m->values, n);
    }
    m->t.data = m->data;
    if (m->scales) m->t.scales = (const void *)(m->scales + 1);
    return true;
}

static inline void matrix_free(TestMatrix *m) {
    free(m->data);
    free(m->scales);
    free(m->bias);
    free(m->values);
}

// ---- matrix kernels -------------------------------------------------------------------------------------------------

// Packs rows of activations, each tile from a copy that ends with the tile's last row.
static inline void *pack_all(const MatrixKernel *k, const float *x, size_t x_stride, int n_rows, int n_in) {
    void *packed = poisoned(k->packed_bytes(n_rows, n_in));
    for (int tile = (n_rows + k->tile - 1) / k->tile - 1; tile >= 0; tile--) {
        int first = tile * k->tile;
        int rows = int_min(k->tile, n_rows - first);
        size_t n = (size_t)(rows - 1) * x_stride + (size_t)n_in;
        float *own = malloc(n * sizeof *own);
        memcpy(own, x + (size_t)first * x_stride, n * sizeof *own);
        k->pack(packed, tile, own, x_stride, rows, n_in);
        free(own);
    }
    return packed;
}

// Computes features [first, last) of the first n_rows rows; rows of y are t->n_out apart.
static inline void run_part(const MatrixKernel *k, const Tensor *t, int first, int last, const void *packed, int n_rows,
                            float *y, void *scratch) {
    k->run(&(MatrixTask){.w = t,
                         .first = first,
                         .last = last,
                         .packed = packed,
                         .n_rows = n_rows,
                         .y = y,
                         .y_stride = (size_t)t->n_out,
                         .scratch = scratch});
}

// ---- distance -------------------------------------------------------------------------------------------------------

static inline double distance_of(const float *got, const double *want, int n) {
    double error = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(error / norm) : error > 0 ? INFINITY : isnan(error) ? NAN : 0;
}

#endif
