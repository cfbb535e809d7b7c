// tests/test_kernels.c: every table of CPU kernels that this machine can run, on odd shapes, against double arithmetic.
//
// Buffers have exactly the bytes that a kernel may touch (a sanitizer sees one more); what must stay as it is holds
// canaries; scratch, padding and KV slots that no row sees hold NaN, so a read of them shows in the result. The largest
// distance per kernel and instruction set is printed at the end.
#define _POSIX_C_SOURCE 200112L // posix_memalign
#include "tests/rig/testing.h"

#include "tests/rig/isas.h"
#include "tests/rig/tiny_model.h"

#include <limits.h>
#include <math.h>

// ---- the tables, and how far they were off --------------------------------------------------------------------------

typedef enum {
    MATVEC,
    MATRIX,
    MATRIX_BF16,
    FROM_BF16,
    MATRIX_INT8,
    FROM_INT8,
    EMBED,
    RMSNORM,
    ROPE,
    GATE,
    GATE_BF16,
    ATTEND,
    ATTEND_BF16,
    N_KERNELS
} Kernel;
static const char *const kernel_names[N_KERNELS] = {"matvec",      "matrix",
                                                    "matrix_bf16", "the same, from bf16 inputs",
                                                    "matrix_int8", "the same, from int8 activations",
                                                    "embed",       "rmsnorm",
                                                    "rope",        "gate",
                                                    "gate_bf16",   "attend",
                                                    "attend_bf16"};
static double worst[N_KERNELS][MOST_ISAS];
static int compared[N_KERNELS][MOST_ISAS];

static const CpuKernels *kernels(int isa) {
    const Backend *be;
    assert_ok(isa_backend(isa_name(isa), false, &be));
    return be->impl;
}

// Whether its plain f32 kernels are not those of one before it.
static bool has_own(int isa) {
    for (int i = 0; i < isa; i++)
        if (kernels(i)->matvec == kernels(isa)->matvec) return false;
    return true;
}

// Of an instruction set's two the one that is its own.
static const AttendKernel *attend_kernel(int isa) {
    const CpuKernels *k = kernels(isa);
    return k->attend_bf16 ? k->attend_bf16 : &k->attend;
}

static void take_distance(Kernel kernel, int isa, double distance, double limit, const char *what) {
    compared[kernel][isa]++;
    if (!(distance <= limit)) // NaN fails too
        fail_msg("%s %s, %s: distance up to %g expected, %g found", isa_name(isa), kernel_names[kernel], what, limit,
                 distance);
    if (distance > worst[kernel][isa]) worst[kernel][isa] = distance;
}

static int print_distances(void **state) {
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

static void *poisoned(size_t n) { // all ones: NaN in f32, f16 and bf16; aligned as the backend's scratch is
    void *p = NULL;
    if (posix_memalign(&p, 128, n ? n : 1) != 0) fail_msg("no memory for %zu bytes", n);
    memset(p, 0xff, n);
    return p;
}

static float *random_floats(size_t n, uint64_t *random) {
    float *p = malloc((n ? n : 1) * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = test_uniform(random);
    return p;
}

static int pick(uint64_t *random, int n) { return (int)(test_random(random) % (uint64_t)n); }

// ---- products: the matrices -----------------------------------------------------------------------------------------

typedef struct {
    int type, group;
} Weights;

static const Weights all_weights[] = {
    {TYPE_F32, 0},  {TYPE_F16, 0},    {TYPE_BF16, 0},   {TYPE_Q4_0, 0}, {TYPE_Q4_1, 0}, {TYPE_Q5_0, 0},
    {TYPE_Q5_1, 0}, {TYPE_Q8_0, 0},   {TYPE_Q2_K, 0},   {TYPE_Q3_K, 0}, {TYPE_Q4_K, 0}, {TYPE_Q5_K, 0},
    {TYPE_Q6_K, 0}, {TYPE_IQ4_NL, 0}, {TYPE_IQ4_XS, 0}, {TYPE_I8G, 32}, {TYPE_I8G, 64}, {TYPE_I8G, 7},
};

typedef struct {
    Tensor t;
    void *data;
    char *scales; // one byte before them, so that they are unaligned
    float *bias;
    float *values; // (n_out, n_in) what the file's bytes are worth
} Matrix;

static void fill_i8g(Matrix *m, uint64_t *random) {
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

// False where rows of n_in elements cannot have this type.
static bool matrix_new(Matrix *m, Weights w, int n_out, int n_in, uint64_t *random) {
    const TypeInfo *info = type_info(w.type);
    if (n_in % info->block) return false;
    size_t n = (size_t)n_out * (size_t)n_in, bytes = n / (size_t)info->block * (size_t)info->bytes;
    *m = (Matrix){.t = {.type = w.type, .group = w.group, .n_out = n_out, .n_in = n_in}};
    m->t.row_bytes = bytes / (size_t)n_out;
    m->values = malloc(n * sizeof *m->values);
    m->bias = random_floats((size_t)n_out, random);
    if (w.type == TYPE_I8G) fill_i8g(m, random);
    else {
        m->data = malloc(bytes);
        tiny_weights(w.type, m->data, n, 0.1f, random);
        info->dequantize(m->data, m->values, n);
    }
    m->t.data = m->data;
    if (m->scales) m->t.scales = (const void *)(m->scales + 1);
    return true;
}

static void matrix_free(Matrix *m) {
    free(m->data);
    free(m->scales);
    free(m->bias);
    free(m->values);
}

static double dot(const float *a, const float *b, int n) {
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++) sum[0] += (double)a[i] * (double)b[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

// What a batch of rows gives, in double; and the length that products of such rows have when nothing cancels.
typedef struct {
    int n_rows, n_out;
    double *y;       // (n_rows, n_out), without bias
    double *typical; // the same shape
} Products;

static Products products_new(const float *w, int n_out, const float *x, size_t x_stride, int n_rows, int n_in) {
    size_t n = (size_t)n_rows * (size_t)n_out;
    Products p = {n_rows, n_out, malloc(n * sizeof(double)), malloc(n * sizeof(double))};
    double *ww = malloc((size_t)n_out * sizeof *ww);
    for (int f = 0; f < n_out; f++) ww[f] = dot(w + (size_t)f * (size_t)n_in, w + (size_t)f * (size_t)n_in, n_in);
    for (int r = 0; r < n_rows; r++) {
        const float *xr = x + (size_t)r * x_stride;
        double xx = dot(xr, xr, n_in);
        for (int f = 0; f < n_out; f++) {
            p.y[r * n_out + f] = dot(w + (size_t)f * (size_t)n_in, xr, n_in);
            p.typical[r * n_out + f] = sqrt(ww[f] * xx / n_in);
        }
    }
    free(ww);
    return p;
}

static void products_free(Products *p) {
    free(p->y);
    free(p->typical);
}

// ---- products: one call against its reference -----------------------------------------------------------------------

// y with canaries everywhere; (n_rows, stride).
typedef struct {
    float *y, *before;
    size_t n, stride;
} Output;

static Output output_new(int n_rows, int n_out, int extra, uint64_t *random) {
    Output o = {.stride = (size_t)(n_out + extra)};
    o.n = (size_t)(n_rows - 1) * o.stride + (size_t)n_out;
    o.y = random_floats(o.n, random);
    o.before = malloc(o.n * sizeof *o.before);
    memcpy(o.before, o.y, o.n * sizeof *o.y);
    return o;
}

static void output_free(Output *o) {
    free(o->y);
    free(o->before);
}

typedef struct {
    double error, norm; // squares
} Sums;

// Features [first, last) must be what p says, all else untouched.
static double output_distance(const Output *o, const Products *p, int n_rows, int first, int last, const float *bias,
                              bool add) {
    Sums s = {0};
    for (size_t i = 0; i < o->n; i++) {
        int row = (int)(i / o->stride), f = (int)(i % o->stride);
        if (row >= n_rows || f < first || f >= last) {
            if (memcmp(&o->y[i], &o->before[i], 4) != 0) return INFINITY;
            continue;
        }
        int at = row * p->n_out + f;
        double want = p->y[at] + (bias ? (double)bias[f] : 0) + (add ? (double)o->before[i] : 0);
        double scale = fmax(fabs(want), p->typical[at]);
        s.error += ((double)o->y[i] - want) * ((double)o->y[i] - want);
        s.norm += scale * scale;
    }
    return s.norm > 0 ? sqrt(s.error / s.norm) : s.error > 0 ? INFINITY : 0;
}

static const int matvec_outs[] = {1, 2, 3, 5, 17, 33}, matvec_rows[] = {1, 2, 3, 4, 5, 7, 16, 17};

typedef struct {
    const Matrix *m;
    const Products *p;
    const float *x;
    size_t x_stride;
    uint64_t random;
} MatvecCase;

static void check_matvec(MatvecCase *c, int isa, int n_out, int n_rows, int first, int last, bool add, bool bias) {
    const CpuKernels *k = kernels(isa);
    Tensor t = c->m->t;
    t.n_out = n_out;
    if (bias) t.bias = c->m->bias;
    Output o = output_new(n_rows, n_out, 3, &c->random);
    float *x = malloc(((size_t)(n_rows - 1) * c->x_stride + (size_t)t.n_in) * sizeof *x); // ends with the last row
    memcpy(x, c->x, ((size_t)(n_rows - 1) * c->x_stride + (size_t)t.n_in) * sizeof *x);
    void *scratch = poisoned(k->f32_panels ? k->f32_panels->scratch : 0);
    char what[128];
    snprintf(what, sizeof what, "%s group %d n_in %d n_out %d rows %d [%d, %d)%s%s", type_name(t.type), t.group, t.n_in,
             n_out, n_rows, first, last, add ? " add" : "", bias ? " bias" : "");
    k->matvec(&t, first, last, x, c->x_stride, n_rows, o.y, o.stride, add, scratch);
    take_distance(MATVEC, isa, output_distance(&o, c->p, n_rows, first, last, t.bias, add), 1e-5, what);
    free(scratch);
    free(x);
    output_free(&o);
}

static void matvec_shapes(MatvecCase *c) {
    for (int isa = 0; isa < isa_count(); isa++) {
        if (!has_own(isa)) continue;
        for (size_t o = 0; o < ARRAY_LEN(matvec_outs); o++)
            for (size_t r = 0; r < ARRAY_LEN(matvec_rows); r++)
                for (int flags = 0; flags < 4; flags++) {
                    int n = matvec_outs[o], first = pick(&c->random, n), last = first + 1 + pick(&c->random, n - first);
                    check_matvec(c, isa, n, matvec_rows[r], 0, n, flags & 1, flags & 2);
                    check_matvec(c, isa, n, matvec_rows[r], first, last, flags & 1, flags & 2);
                }
    }
}

static void test_matvec(void **state) {
    (void)state;
    static const int widths[] = {32, 64, 172, 256, 768};
    uint64_t random = 11;
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++)
        for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
            int n_in = widths[i];
            Matrix m;
            if (!matrix_new(&m, all_weights[w], 33, n_in, &random)) continue;
            size_t stride = (size_t)n_in + 5;
            float *x = random_floats(17 * stride, &random);
            for (size_t k = 0; k < 17 * stride; k++)
                if ((int)(k % stride) >= n_in) x[k] = NAN;
            Products p = products_new(m.values, 33, x, stride, 17, n_in);
            matvec_shapes(&(MatvecCase){&m, &p, x, stride, w * 10 + i});
            products_free(&p);
            free(x);
            matrix_free(&m);
        }
}

// ---- products: the matrix kernels -----------------------------------------------------------------------------------

enum { MOST_ROWS = 513, MOST_OUT = 130 };

typedef struct {
    const Matrix *m;
    const Products *exact, *from_bf16, *from_int8; // of weights and activations in bf16, of activations in int8
    const float *x;
    size_t x_stride;
    uint64_t random;
} MatrixCase;

static void *pack_all(const MatrixKernel *k, const float *x, size_t x_stride, int n_rows, int n_in) {
    void *packed = poisoned(k->packed_bytes(n_rows, n_in));
    for (int tile = (n_rows + k->tile - 1) / k->tile - 1; tile >= 0; tile--) {
        int first = tile * k->tile;
        // a copy that ends with the tile's last row
        int rows = int_min(k->tile, n_rows - first);
        size_t n = (size_t)(rows - 1) * x_stride + (size_t)n_in;
        float *own = malloc(n * sizeof *own);
        memcpy(own, x + (size_t)first * x_stride, n * sizeof *own);
        k->pack(packed, tile, own, x_stride, rows, n_in);
        free(own);
    }
    return packed;
}

// Of an instruction set's two the one that is its own: avx512 has that for fewer rows. NULL: it has none for the type.
static const MatrixKernel *int8_kernel(int isa, int type) {
    const CpuKernels *k = kernels(isa);
    const MatrixKernel *(*of)(int) = k->int8_tiles ? k->int8_tiles : k->int8_rows;
    return of ? of(type) : NULL;
}

// The kernel's products against exact ones, and closely against those of what it makes of its inputs.
static void check_matrix(MatrixCase *c, int isa, Kernel kernel, int n_out, int n_rows, bool add, bool bias) {
    const CpuKernels *table = kernels(isa);
    const MatrixKernel *k = kernel == MATRIX_BF16   ? table->bf16_panels(c->m->t.type)
                            : kernel == MATRIX_INT8 ? int8_kernel(isa, c->m->t.type)
                                                    : table->f32_panels;
    int features = !k->features ? 16 * (1 + pick(&c->random, 19)) : pick(&c->random, 2) ? k->features : k->least;
    Tensor t = c->m->t;
    t.n_out = n_out;
    if (bias) t.bias = c->m->bias;
    Output o = output_new(n_rows, n_out, 3, &c->random);
    void *packed = pack_all(k, c->x, c->x_stride, n_rows, t.n_in), *scratch = poisoned(k->scratch);
    char what[128];
    snprintf(what, sizeof what, "%s group %d n_in %d n_out %d rows %d%s%s", type_name(t.type), t.group, t.n_in, n_out,
             n_rows, add ? " add" : "", bias ? " bias" : "");
    for (int f = (n_out - 1) / features * features; f >= 0; f -= features) {
        for (int r = (n_rows - 1) / k->rows * k->rows; r >= 0; r -= k->rows) {
            k->run(&t, f, int_min(f + features, n_out), packed, r, int_min(k->rows, n_rows - r), o.y, o.stride, add,
                   scratch);
            memset(scratch, 0xff, k->scratch);
        }
    }
    take_distance(kernel, isa, output_distance(&o, c->exact, n_rows, 0, n_out, t.bias, add),
                  kernel == MATRIX        ? 1e-5
                  : kernel == MATRIX_BF16 ? 1e-2
                                          : 2e-2,
                  what);
    if (kernel == MATRIX_BF16)
        take_distance(FROM_BF16, isa, output_distance(&o, c->from_bf16, n_rows, 0, n_out, t.bias, add), 1e-5, what);
    if (kernel == MATRIX_INT8)
        take_distance(FROM_INT8, isa, output_distance(&o, c->from_int8, n_rows, 0, n_out, t.bias, add), 1e-5, what);
    free(packed);
    free(scratch);
    output_free(&o);
}

// A row's products are the same bits however many rows there are: what --deterministic builds on.
static void check_alone(MatrixCase *c, int isa, int n_out) {
    static const int few[] = {1, 17, 40};
    const MatrixKernel *k = kernels(isa)->bf16_panels(c->m->t.type);
    Tensor t = c->m->t;
    size_t n = (size_t)n_out;
    float *all = malloc(MOST_ROWS * n * sizeof *all), *alone = malloc(MOST_ROWS * n * sizeof *alone);
    void *packed = pack_all(k, c->x, c->x_stride, MOST_ROWS, t.n_in), *scratch = poisoned(k->scratch);
    t.n_out = n_out;
    k->run(&t, 0, n_out, packed, 0, k->rows, all, n, false, scratch);
    for (size_t i = 0; i < ARRAY_LEN(few); i++) {
        void *own = pack_all(k, c->x, c->x_stride, few[i], t.n_in);
        k->run(&t, 0, n_out, own, 0, few[i], alone, n, false, scratch);
        assert_memory_equal(alone, all, (size_t)few[i] * n * sizeof *all);
        free(own);
    }
    free(all);
    free(alone);
    free(packed);
    free(scratch);
}

// Gate and up of the FFN in one pass give, bit for bit, what their products, the kernel's gate and packing give one
// after another.
static void check_glu(MatrixCase *c, int isa, Activation act, int n_out, int n_rows) {
    const CpuKernels *table = kernels(isa);
    const MatrixKernel *k = table->bf16_panels(c->m->t.type);
    int features = k->features / 2; // as many tasks as there can be
    size_t n = (size_t)n_rows * (size_t)n_out, bytes = k->packed_bytes(n_rows, n_out);
    Tensor w[2] = {c->m->t, c->m->t};
    if (w[1].type != TYPE_I8G) w[1].data = (const uint8_t *)w[1].data + (size_t)(MOST_OUT - n_out) * w[1].row_bytes;
    void *packed = pack_all(k, c->x, c->x_stride, n_rows, w[0].n_in), *scratch = poisoned(k->scratch);
    float *y[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
    for (int r = 0; r < n_rows; r += k->rows)
        for (int i = 0; i < 2; i++)
            k->run(&w[i], 0, n_out, packed, r, int_min(k->rows, n_rows - r), y[i], (size_t)n_out, false, scratch);
    for (int r = 0; r < n_rows; r++)
        k->gate(act, y[0] + (size_t)r * (size_t)n_out, y[1] + (size_t)r * (size_t)n_out, n_out);
    void *want = pack_all(k, y[0], (size_t)n_out, n_rows, n_out), *h = poisoned(bytes + 64);
    w[0].n_out = w[1].n_out = n_out;
    for (int f = 0; f < n_out; f += features)
        for (int r = 0; r < n_rows; r += k->rows) {
            memset(scratch, 0xff, k->scratch);
            k->run_glu(&w[0], &w[1], act, f, int_min(f + features, n_out), packed, r, int_min(k->rows, n_rows - r), h,
                       scratch);
        }
    assert_memory_equal(h, want, bytes);
    for (size_t i = 0; i < 64; i++) assert_int_equal(((uint8_t *)h)[bytes + i], 0xff);
    void *all[] = {packed, scratch, y[0], y[1], want, h};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

// The norm of a tile of rows packed as it is computed is, bit for bit, that of rmsnorm packed.
static void check_pack_norm(const CpuKernels *table, const MatrixKernel *k, int n_rows, int n_in, uint64_t *random) {
    size_t stride = (size_t)n_in + 3, n = (size_t)n_in, bytes = k->packed_bytes(2 * k->tile, n_in);
    float *x = random_floats((size_t)(n_rows - 1) * stride + n, random), *norm = random_floats(n, random);
    float *normed = malloc((size_t)n_rows * n * sizeof *normed);
    uint8_t *packed = poisoned(bytes), *want = poisoned(bytes);
    for (int r = 0; r < n_rows; r++) table->rmsnorm(normed + (size_t)r * n, x + (size_t)r * stride, norm, n_in, 1e-5f);
    k->pack(want, 1, normed, n, n_rows, n_in);
    k->pack_norm(packed, 1, x, stride, n_rows, n_in, norm, 1e-5f);
    assert_memory_equal(packed, want, bytes);
    void *all[] = {x, norm, normed, packed, want};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

static void test_pack_norm(void **state) {
    (void)state;
    static const int widths[] = {1, 31, 32, 80, 172, 256, 1000};
    uint64_t random = 21;
    for (int isa = 0; isa < isa_count(); isa++) {
        const CpuKernels *table = kernels(isa);
        const MatrixKernel *k = table->bf16_panels ? table->bf16_panels(TYPE_Q8_0) : NULL;
        for (size_t i = 0; i < ARRAY_LEN(widths) && k && k->pack_norm; i++)
            for (int n_rows = 1; n_rows <= k->tile; n_rows++) check_pack_norm(table, k, n_rows, widths[i], &random);
    }
}

static void matrix_shapes(MatrixCase *c) {
    static const int rows[] = {1, 2, 7, 13, 16, 17, 33, 100, MOST_ROWS}, outs[] = {1, 5, 12, 17, 97, MOST_OUT};
    for (int isa = 0; isa < isa_count(); isa++) {
        const CpuKernels *k = kernels(isa);
        for (size_t r = 0; r < ARRAY_LEN(rows); r++)
            for (size_t o = 0; o < ARRAY_LEN(outs); o++) {
                if (rows[r] == MOST_ROWS && outs[o] != 17 && outs[o] != MOST_OUT) continue; // large enough to matter
                int flags = pick(&c->random, 4);
                if (k->f32_panels && has_own(isa)) check_matrix(c, isa, MATRIX, outs[o], rows[r], flags & 1, flags & 2);
                if (k->bf16_panels && k->bf16_panels(c->m->t.type))
                    check_matrix(c, isa, MATRIX_BF16, outs[o], rows[r], flags & 1, flags & 2);
                if (k->bf16_panels && k->bf16_panels(c->m->t.type) && rows[r] > k->bf16_panels(c->m->t.type)->tile)
                    check_glu(c, isa, (Activation)((o + r) % N_ACTIVATIONS), outs[o], rows[r]);
                if (int8_kernel(isa, c->m->t.type) && rows[r] <= 33)
                    check_matrix(c, isa, MATRIX_INT8, outs[o], rows[r], flags & 1, flags & 2);
            }
        if (k->bf16_panels && k->bf16_panels(c->m->t.type)) check_alone(c, isa, 97);
    }
}

static void round_to_bf16(float *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = bf16_float(float_bf16(from[i]));
}

// 32 elements share a scale, 1/127 of the largest.
static void round_to_int8(float *to, const float *from, size_t stride, int n_rows, int n_in) {
    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i + 32 <= n_in; i += 32) {
            const float *x = from + (size_t)r * stride + i;
            float top = 0;
            for (int k = 0; k < 32; k++) top = fmaxf(top, fabsf(x[k]));
            for (int k = 0; k < 32; k++)
                to[(size_t)r * stride + (size_t)(i + k)] = top > 0 ? top / 127 * nearbyintf(x[k] * (127 / top)) : 0;
        }
}

static void matrix_of(Weights w, int n_in, uint64_t *random) {
    Matrix m;
    if (!matrix_new(&m, w, MOST_OUT, n_in, random)) return;
    size_t stride = (size_t)n_in + 3, n_x = MOST_ROWS * stride, n_w = MOST_OUT * (size_t)n_in;
    float *x = random_floats(n_x, random), *xb = malloc(n_x * sizeof *xb), *wb = malloc(n_w * sizeof *wb);
    float *xq = calloc(n_x, sizeof *xq);
    for (size_t k = 0; k < n_x; k++)
        if ((int)(k % stride) >= n_in) x[k] = NAN;
    round_to_bf16(wb, m.values, n_w);
    for (size_t k = 0; k < 32; k++) x[stride + k] = 0; // a block without a largest
    round_to_bf16(xb, x, n_x);
    round_to_int8(xq, x, stride, MOST_ROWS, n_in);
    Products exact = products_new(m.values, MOST_OUT, x, stride, MOST_ROWS, n_in);
    Products from_bf16 = products_new(wb, MOST_OUT, xb, stride, MOST_ROWS, n_in);
    Products from_int8 = products_new(m.values, MOST_OUT, xq, stride, MOST_ROWS, n_in);
    matrix_shapes(&(MatrixCase){&m, &exact, &from_bf16, &from_int8, x, stride, (uint64_t)n_in});
    products_free(&exact);
    products_free(&from_int8);
    free(xq);
    products_free(&from_bf16);
    free(x);
    free(xb);
    free(wb);
    matrix_free(&m);
}

static void test_matrix(void **state) {
    (void)state;
    static const int widths[] = {32, 172, 256, 544, 2304};
    uint64_t random = 12;
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++)
        for (size_t i = 0; i < ARRAY_LEN(widths); i++) matrix_of(all_weights[w], widths[i], &random);
}

// Rows around the unit's 16 and the kernel's 64, features around its groups of 16 and the 256 it takes together.
static void several_of(Weights w, int n_in, uint64_t *random) {
    enum { ROWS = 66, OUT = 290 };
    static const int rows[] = {1, 2, 3, 15, 16, 17, 31, 33, 64, ROWS}, outs[] = {1, 15, 16, 33, 271, OUT};
    Matrix m;
    if (!matrix_new(&m, w, OUT, n_in, random)) return;
    size_t n_x = ROWS * (size_t)n_in;
    float *x = random_floats(n_x, random), *xq = calloc(n_x, sizeof *xq);
    round_to_int8(xq, x, (size_t)n_in, ROWS, n_in);
    Products exact = products_new(m.values, OUT, x, (size_t)n_in, ROWS, n_in);
    Products from_int8 = products_new(m.values, OUT, xq, (size_t)n_in, ROWS, n_in);
    MatrixCase c = {.m = &m, .exact = &exact, .from_int8 = &from_int8, .x = x, .x_stride = (size_t)n_in, .random = 1};
    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        for (size_t o = 0; o < ARRAY_LEN(outs); o++)
            for (int flags = 0; flags < 4; flags++)
                check_matrix(&c, isa_count() - 1, MATRIX_INT8, outs[o], rows[r], flags & 1, flags & 2);
    products_free(&exact);
    products_free(&from_int8);
    free(x);
    free(xq);
    matrix_free(&m);
}

static void test_several_rows(void **state) {
    (void)state;
    static const int widths[] = {32, 256, 288, 1312};
    uint64_t random = 14;
    int amx = isa_count() - 1; // the last where it is there
    if (!cpu_has_isa("amx")) {
        print_message("skipped: several rows in integers want AMX, which this CPU lacks\n");
        skip();
    }
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++)
        for (size_t i = 0; i < ARRAY_LEN(widths) && int8_kernel(amx, all_weights[w].type); i++)
            several_of(all_weights[w], widths[i], &random);
}

// The model asks for the weights of a file as they are; nothing may depend on values that are not there.
static void test_matrix_kernels_are_used(void **state) {
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        const CpuKernels *k = kernels(isa);
        assert_true(!k->bf16_panels || k->f32_panels); // what has no better one falls back
        assert_int_equal(k->bf16_panels != NULL, strcmp(isa_name(isa), "amx") == 0);
        assert_true(k->attend.pairs > 0);
        assert_int_equal(k->attend_bf16 != NULL, k->bf16_panels != NULL);
        assert_int_equal(k->int8_tiles != NULL, k->bf16_panels != NULL);
    }
}

// ---- steps of a row -------------------------------------------------------------------------------------------------

static double distance_of(const float *got, const double *want, int n) {
    double error = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(error / norm) : error > 0 ? INFINITY : isnan(error) ? NAN : 0;
}

static void embed_of(Weights w, int n_in, uint64_t *random) {
    Matrix m;
    if (!matrix_new(&m, w, 5, n_in, random)) return;
    double *want = malloc((size_t)n_in * sizeof *want);
    for (int isa = 0; isa < isa_count(); isa++)
        for (int row = 0; row < 5 && has_own(isa); row++) {
            float *out = poisoned((size_t)n_in * sizeof *out);
            for (int i = 0; i < n_in; i++) want[i] = (double)m.values[(size_t)row * (size_t)n_in + (size_t)i];
            kernels(isa)->embed(&m.t, row, out);
            take_distance(EMBED, isa, distance_of(out, want, n_in), 1e-6, type_name(w.type));
            free(out);
        }
    free(want);
    matrix_free(&m);
}

static void test_embed(void **state) {
    (void)state;
    static const int widths[] = {32, 64, 172, 256, 288, 768, 1000};
    uint64_t random = 13;
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++)
        for (size_t i = 0; i < ARRAY_LEN(widths); i++) embed_of(all_weights[w], widths[i], &random);
}

static void check_rmsnorm(int isa, int n, float size, float eps, bool in_place, uint64_t *random) {
    float *x = random_floats((size_t)n, random), *weight = random_floats((size_t)n, random);
    float *out = in_place ? x : poisoned((size_t)n * sizeof *out);
    double *want = malloc((size_t)n * sizeof *want), sum = 0;
    char what[64];
    for (int i = 0; i < n; i++) x[i] *= size;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++) want[i] = (double)x[i] / sqrt(sum / n + (double)eps) * (double)weight[i];
    snprintf(what, sizeof what, "n %d, size %g%s", n, (double)size, in_place ? ", in place" : "");
    kernels(isa)->rmsnorm(out, x, weight, n, eps);
    take_distance(RMSNORM, isa, distance_of(out, want, n), 1e-5, what);
    if (!in_place) free(out);
    free(x);
    free(weight);
    free(want);
}

static void test_rmsnorm(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 8, 15, 16, 17, 64, 80, 172, 1000};
    uint64_t random = 14;
    for (int isa = 0; isa < isa_count(); isa++)
        for (size_t i = 0; i < ARRAY_LEN(sizes) && has_own(isa); i++)
            for (int in_place = 0; in_place < 2; in_place++) {
                check_rmsnorm(isa, sizes[i], 1, 1e-5f, in_place, &random);
                check_rmsnorm(isa, sizes[i], 1e-4f, 1e-5f, in_place, &random); // eps is most of it
                check_rmsnorm(isa, sizes[i], 1e4f, 1e-6f, in_place, &random);
                check_rmsnorm(isa, sizes[i], 0, 1e-5f, in_place, &random);
            }
}

static void check_rope(int isa, int n_rot, int head_dim, bool adjacent, uint64_t *random) {
    float *head = random_floats((size_t)head_dim, random), c[256], s[256];
    double want[512];
    for (int i = 0; i < head_dim; i++) want[i] = (double)head[i];
    for (int i = 0; i < n_rot / 2; i++) {
        double angle = 1000 * (double)test_uniform(random);
        c[i] = (float)cos(angle);
        s[i] = (float)sin(angle);
        int a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + n_rot / 2;
        double x = want[a], y = want[b];
        want[a] = x * (double)c[i] - y * (double)s[i];
        want[b] = x * (double)s[i] + y * (double)c[i];
    }
    char what[64];
    snprintf(what, sizeof what, "n_rot %d of %d%s", n_rot, head_dim, adjacent ? ", adjacent" : "");
    kernels(isa)->rope(head, c, s, n_rot, adjacent);
    take_distance(ROPE, isa, distance_of(head, want, head_dim), 1e-6, what);
    for (int i = n_rot; i < head_dim; i++) assert_true((double)head[i] == want[i]); // not turned: not touched
    free(head);
}

static void test_rope(void **state) {
    (void)state;
    static const int shapes[][2] = {{2, 2},   {2, 8},   {6, 8},     {10, 16},  {64, 64},
                                    {32, 64}, {64, 80}, {128, 128}, {130, 256}};
    uint64_t random = 15;
    for (int isa = 0; isa < isa_count(); isa++)
        for (size_t i = 0; i < ARRAY_LEN(shapes) && has_own(isa); i++)
            for (int adjacent = 0; adjacent < 2; adjacent++)
                for (int round = 0; round < 10; round++) check_rope(isa, shapes[i][0], shapes[i][1], adjacent, &random);
}

// GELU as the field writes it, by tanh, loses what is small to the subtraction of two near ones; by the sigmoid it is
// the same function.
static double activated(Activation act, double g) {
    double tanh_inner = sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g);
    double found = g / (1 + exp(act == ACT_GELU ? -2 * tanh_inner : -g));
    if (act == ACT_GELU && fabs(g) < 100)
        assert_true(fabs(found - 0.5 * g * (1 + tanh(tanh_inner))) < 1e-14 * (1 + fabs(g)));
    return found;
}

static void check_gate(Kernel kernel, int isa, GateRow *gate_row, Activation act, int n, float size, uint64_t *random) {
    static const float edges[] = {100, -100,  0,      -0.0f, 87,    -87,   88,     -88.8f,   89,
                                  -89, 1e-8f, -1e-8f, 1e4f,  -1e4f, 1e30f, -1e30f, -INFINITY};
    float *gate = random_floats((size_t)n, random), *up = random_floats((size_t)n, random);
    double *want = malloc((size_t)n * sizeof *want);
    for (int i = 0; i < n; i++) {
        gate[i] = size > 0 ? gate[i] * size : edges[(size_t)i % (ARRAY_LEN(edges) - (kernel == GATE ? 3 : 0))];
        want[i] = gate[i] < -1000 ? 0 : activated(act, (double)gate[i]) * (double)up[i];
    }
    gate_row(act, gate, up, n);
    // Each by itself: a large neighbour must not hide a small one. Below 1e-25 nothing is left of a gate. GELU's
    // exponent, rounded to f32, is as large as 58 above that.
    double limit = (kernel == GATE ? 1e-5 : 7e-5) + (act == ACT_GELU ? 1e-5 : 0);
    for (int i = 0; i < n; i++)
        take_distance(kernel, isa, fabs((double)gate[i] - want[i]) / (fabs(want[i]) + 1e-25), limit, "an element");
    free(gate);
    free(up);
    free(want);
}

static void check_gate_sizes(Kernel kernel, int isa, GateRow *gate_row, Activation act) {
    static const int sizes[] = {1, 3, 4, 7, 16, 33, 64, 100, 171};
    uint64_t random = 16;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        check_gate(kernel, isa, gate_row, act, sizes[i], 1, &random);
        check_gate(kernel, isa, gate_row, act, sizes[i], 20, &random);
        check_gate(kernel, isa, gate_row, act, sizes[i], 60, &random);
        check_gate(kernel, isa, gate_row, act, sizes[i], 0, &random); // the edges
    }
    float nan[] = {NAN}, one[] = {1};
    gate_row(act, nan, one, 1);
    assert_true(isnan(nan[0]));
}

static void test_gate(void **state) {
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++)
        for (Activation act = 0; act < N_ACTIVATIONS; act++) {
            const CpuKernels *k = kernels(isa);
            if (has_own(isa)) check_gate_sizes(GATE, isa, k->gate, act);
            if (k->bf16_panels) check_gate_sizes(GATE_BF16, isa, k->bf16_panels(TYPE_Q8_0)->gate, act);
        }
}

// Absolute: what is near 0 is a difference of two near ones.
static void test_softcap(void **state) {
    (void)state;
    static const int sizes[] = {1, 3, 8, 16, 33, 100, 171};
    uint64_t random = 17;
    for (int isa = 0; isa < isa_count(); isa++)
        for (size_t k = 0; k < ARRAY_LEN(sizes) && has_own(isa); k++) {
            float *v = random_floats((size_t)sizes[k] + 1, &random), canary = v[sizes[k]], cap = 3;
            double want[171];
            v[0] = sizes[k] % 2 ? 1e30f : -1e30f;
            for (int i = 0; i < sizes[k]; i++) {
                if (i > 0) v[i] *= 5;
                want[i] = (double)cap * tanh((double)v[i] / (double)cap);
            }
            kernels(isa)->softcap(v, sizes[k], cap);
            for (int i = 0; i < sizes[k]; i++) assert_true(fabs((double)v[i] - want[i]) < 1e-6 * (double)cap);
            assert_true(v[sizes[k]] == canary);
            free(v);
        }
}

static void check_to_kv(int isa, int type, int n, uint64_t *random) {
    static const uint32_t edges[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x80000000,
                                     0x33000000, 0x33000001, 0x477fefff, 0x477ff000, 0x38800000,
                                     0x387fffff, 0x7f7fffff, 0x00000001, 0x3f808000};
    size_t bytes = (size_t)n * kv_type_bytes(type);
    float *x = random_floats((size_t)n, random);
    uint8_t *out = malloc(bytes);
    for (int i = 0; i < n; i++)
        if (pick(random, 3) == 0) x[i] = bits_float(edges[(size_t)pick(random, ARRAY_LEN(edges))]);
    kernels(isa)->to_kv(out, type, x, n);
    for (int i = 0; i < n; i++) {
        uint32_t want = type == TYPE_F32 ? float_bits(x[i]) : type == TYPE_F16 ? float_half(x[i]) : float_bf16(x[i]);
        uint32_t got = 0;
        memcpy(&got, out + (size_t)i * kv_type_bytes(type), kv_type_bytes(type));
        if (isnan(x[i]) && type == TYPE_F16) assert_true((got & 0x7fff) > 0x7c00); // any NaN will do
        else if (isnan(x[i]) && type == TYPE_BF16) assert_true((got & 0x7fff) > 0x7f80);
        else assert_int_equal(got, want);
    }
    free(x);
    free(out);
}

static void test_to_kv(void **state) {
    (void)state;
    static const int sizes[] = {1, 3, 8, 15, 16, 64, 80, 96, 129}, types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    uint64_t random = 17;
    for (int isa = 0; isa < isa_count(); isa++)
        for (size_t i = 0; i < ARRAY_LEN(sizes) && has_own(isa); i++)
            for (size_t t = 0; t < ARRAY_LEN(types); t++)
                for (int round = 0; round < 20; round++) check_to_kv(isa, types[t], sizes[i], &random);
}

// ---- attention ------------------------------------------------------------------------------------------------------

enum { N_KV_HEADS = 2, N_LAYERS = 2, LAYER = 1 };

typedef struct {
    int head_dim, group, block, context, n_rows, window;
    float softcap;
    int type_k, type_v;
    bool gaps;
    uint64_t seed;
} AttendShape;

typedef struct {
    AttendShape s;
    Heads heads;
    KvPool kv;
    int *table, *slot;
    float *q;
    double *want; // (n_rows, n_heads, head_dim)
} AttendCase;

static bool sees(const AttendShape *s, int row_slot, int slot) {
    return slot <= row_slot && (s->window == 0 || slot > row_slot - s->window);
}

static double kv_value(const uint8_t *plane, int type, size_t at) {
    uint16_t half;
    float f;
    if (type == TYPE_F32) memcpy(&f, plane + 4 * at, 4);
    else {
        memcpy(&half, plane + 2 * at, 2);
        f = type == TYPE_F16 ? half_float(half) : bf16_float(half);
    }
    return (double)f;
}

static void put_kv(uint8_t *plane, int type, size_t at, float x) {
    uint16_t half = type == TYPE_F16 ? float_half(x) : float_bf16(x);
    if (type == TYPE_F32) memcpy(plane + 4 * at, &x, 4);
    else memcpy(plane + 2 * at, &half, 2);
}

// Slots that a row sees get values, all other memory of the pool stays NaN.
static void fill_pool(AttendCase *c, uint64_t *random) {
    const AttendShape *s = &c->s;
    for (int slot = 0; slot < s->context; slot++) {
        bool seen = false;
        for (int r = 0; r < s->n_rows; r++) seen |= sees(s, c->slot[r], slot);
        for (int h = 0; h < N_KV_HEADS && seen; h++) {
            size_t at = kv_index(&c->kv, LAYER, c->table[slot / s->block], h, slot % s->block);
            for (int i = 0; i < s->head_dim; i++) {
                put_kv(c->kv.k, s->type_k, at + (size_t)i, 2 * test_uniform(random));
                put_kv(c->kv.v, s->type_v, at + (size_t)i, test_uniform(random));
            }
        }
    }
}

static void shuffled(int *out, int n, uint64_t *random) {
    for (int i = 0; i < n; i++) out[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = pick(random, i + 1), t = out[i];
        out[i] = out[j];
        out[j] = t;
    }
}

// Ascending slots that end at the context's last; without gaps they are its end.
static void choose_slots(AttendCase *c, uint64_t *random) {
    int n = c->s.n_rows, context = c->s.context;
    for (int r = n - 1, top = context - 1; r >= 0; r--, top--) {
        if (c->s.gaps && r < n - 1) top -= pick(random, (top - r) / (r + 1) + 1);
        c->slot[r] = top;
    }
}

static void reference(AttendCase *c) {
    const AttendShape *s = &c->s;
    double *p = malloc((size_t)s->context * sizeof *p);
    for (int r = 0; r < s->n_rows; r++)
        for (int h = 0; h < c->heads.n_heads; h++) {
            const float *q = c->q + (size_t)(r * c->heads.n_heads + h) * (size_t)s->head_dim;
            double *out = c->want + (size_t)(r * c->heads.n_heads + h) * (size_t)s->head_dim, max = -INFINITY, sum = 0;
            memset(out, 0, (size_t)s->head_dim * sizeof *out);
            for (int pass = 0; pass < 2; pass++)
                for (int t = 0; t <= c->slot[r]; t++) {
                    if (!sees(s, c->slot[r], t)) continue;
                    size_t at = kv_index(&c->kv, LAYER, c->table[t / s->block], h / s->group, t % s->block);
                    if (pass == 0) {
                        p[t] = 0;
                        for (int i = 0; i < s->head_dim; i++)
                            p[t] += (double)q[i] * kv_value(c->kv.k, s->type_k, at + (size_t)i);
                        p[t] *= (double)c->heads.scale;
                        if (s->softcap != 0) p[t] = (double)s->softcap * tanh(p[t] / (double)s->softcap);
                        max = fmax(max, p[t]);
                    } else {
                        double weight = exp(p[t] - max);
                        sum += weight;
                        for (int i = 0; i < s->head_dim; i++)
                            out[i] += weight * kv_value(c->kv.v, s->type_v, at + (size_t)i);
                    }
                }
            for (int i = 0; i < s->head_dim; i++) out[i] /= sum;
        }
    free(p);
}

static AttendCase attend_new(const AttendShape *shape) {
    AttendCase c = {.s = *shape};
    AttendShape *s = &c.s;
    uint64_t random = s->seed;
    s->n_rows = int_min(s->n_rows, s->context);
    if (s->block == 0) s->block = s->context; // contiguous
    int used = (s->context + s->block - 1) / s->block, n_heads = N_KV_HEADS * s->group;
    size_t n_q = (size_t)(s->n_rows * n_heads * s->head_dim);
    c.heads = (Heads){.n_heads = n_heads,
                      .n_kv_heads = N_KV_HEADS,
                      .head_dim = s->head_dim,
                      .window = s->window,
                      .softcap = s->softcap,
                      .scale = (float)(1 / sqrt(s->head_dim))};
    c.kv = (KvPool){.n_layers = N_LAYERS,
                    .n_blocks = used + 2,
                    .n_kv_heads = N_KV_HEADS,
                    .block = s->block,
                    .head_dim = s->head_dim,
                    .type_k = s->type_k,
                    .type_v = s->type_v};
    size_t n = (size_t)(N_LAYERS * c.kv.n_blocks * N_KV_HEADS * s->block) * (size_t)s->head_dim;
    c.kv.k = poisoned(c.kv.bytes_k = n * kv_type_bytes(s->type_k));
    c.kv.v = poisoned(c.kv.bytes_v = n * kv_type_bytes(s->type_v));
    c.table = malloc((size_t)c.kv.n_blocks * sizeof *c.table);
    c.slot = malloc((size_t)s->n_rows * sizeof *c.slot);
    shuffled(c.table, c.kv.n_blocks, &random);
    choose_slots(&c, &random);
    fill_pool(&c, &random);
    c.q = random_floats(n_q, &random);
    for (size_t i = 0; i < n_q; i++) c.q[i] *= 4; // so that a few keys matter more than others
    c.want = malloc(n_q * sizeof *c.want);
    reference(&c);
    return c;
}

static void attend_free(AttendCase *c) {
    free(c->kv.k);
    free(c->kv.v);
    free(c->table);
    free(c->slot);
    free(c->q);
    free(c->want);
}

static AttendTask task_of(const AttendCase *c, int head, int first, int last, float *out, void *scratch) {
    return (AttendTask){.heads = &c->heads,
                        .kv = &c->kv,
                        .table = c->table,
                        .slot = c->slot,
                        .q = c->q,
                        .out = out,
                        .layer = LAYER,
                        .kv_head = head,
                        .first = first,
                        .last = last,
                        .scratch = scratch};
}

// All pairs of both KV heads, in tasks of up to `pairs`, the last first; then one heads' range against canaries.
static void run_attend(const AttendCase *c, const AttendKernel *k, int pairs, float *out) {
    int n_pairs = c->s.n_rows * c->s.group;
    void *scratch = poisoned(k->scratch);
    for (int h = 0; h < N_KV_HEADS; h++)
        for (int first = (n_pairs - 1) / pairs * pairs; first >= 0; first -= pairs) {
            AttendTask t = task_of(c, h, first, int_min(first + pairs, n_pairs), out, scratch);
            k->run(&t);
            memset(scratch, 0xff, k->scratch);
        }
    free(scratch);
}

// The AMX unit takes a cache in 16 bits, and rounds queries, keys, weights and values to bf16.
static bool rounds_attention(const AttendCase *c, int isa) {
    return strcmp(isa_name(isa), "amx") == 0 && c->s.type_k != TYPE_F32 && c->s.type_v != TYPE_F32;
}

static void check_attend(const AttendCase *c, int isa, int pairs) {
    const AttendShape *s = &c->s;
    int n = s->n_rows * c->heads.n_heads * s->head_dim;
    float *out = poisoned((size_t)n * sizeof *out);
    char what[200];
    snprintf(what, sizeof what,
             "head_dim %d group %d block %d K %s V %s context %d rows %d window %d softcap %g%s, %d pairs a task",
             s->head_dim, s->group, s->block, type_name(s->type_k), type_name(s->type_v), s->context, s->n_rows,
             s->window, (double)s->softcap, s->gaps ? " gaps" : "", pairs);
    run_attend(c, attend_kernel(isa), pairs, out);
    bool rounded = rounds_attention(c, isa);
    take_distance(rounded ? ATTEND_BF16 : ATTEND, isa, distance_of(out, c->want, n), rounded ? 1e-2 : 1e-5, what);
    free(out);
}

// A task writes the outputs of its own pairs and head, nothing else.
static void check_attend_range(const AttendCase *c, int isa, uint64_t *random) {
    const AttendKernel *k = attend_kernel(isa);
    int n_pairs = c->s.n_rows * c->s.group, hd = c->s.head_dim, n = c->s.n_rows * c->heads.n_heads * hd;
    int first = pick(random, n_pairs), last = int_min(n_pairs, first + 1 + pick(random, k->pairs));
    int head = pick(random, N_KV_HEADS);
    float *out = poisoned((size_t)n * sizeof *out);
    void *scratch = poisoned(k->scratch);
    AttendTask t = task_of(c, head, first, last, out, scratch);
    k->run(&t);
    for (int i = 0; i < n; i++) {
        int row = i / hd / c->heads.n_heads, h = i / hd % c->heads.n_heads, pair = row * c->s.group + h % c->s.group;
        bool mine = h / c->s.group == head && pair >= first && pair < last;
        if (!mine) assert_int_equal(float_bits(out[i]), 0xffffffff);
        else assert_true(fabs((double)out[i] - c->want[i]) < (rounds_attention(c, isa) ? 3e-2 : 1e-4));
    }
    free(out);
    free(scratch);
}

// One row's keys in parts: each part's outputs, by what it weighs, make up the whole's.
static void check_attend_parts(const AttendCase *c, int isa, uint64_t *random) {
    enum { PARTS = 3 };
    const AttendKernel *k = attend_kernel(isa);
    int slot = c->slot[0], hd = c->s.head_dim, heads = c->heads.n_heads, n = heads * hd, keys = slot + 1;
    if (!k->in_parts || c->s.n_rows != 1 || keys < PARTS) return;
    if (c->s.window) keys = int_min(keys, c->s.window);
    int cut[PARTS + 1] = {slot + 1 - keys, 0, 0, slot + 1};
    cut[1] = cut[0] + 1 + pick(random, keys - 2);
    cut[2] = cut[1] + 1 + pick(random, slot - cut[1]);
    float *out = poisoned((size_t)(PARTS * n) * sizeof *out), *lse = poisoned((size_t)(PARTS * heads) * sizeof *lse);
    float *merged = calloc((size_t)n, sizeof *merged);
    void *scratch = poisoned(k->scratch);
    for (int part = 0; part < PARTS; part++)
        for (int h = 0; h < N_KV_HEADS; h++) {
            AttendTask t = task_of(c, h, 0, c->s.group, out + part * n, scratch);
            t.from = cut[part], t.end = cut[part + 1], t.lse = lse + part * heads;
            k->run(&t);
        }
    for (int i = 0; i < n; i++) {
        double sum = 0, value = 0;
        for (int part = 0; part < PARTS; part++) {
            double weight = exp((double)lse[part * heads + i / hd] - (double)lse[i / hd]);
            sum += weight;
            value += weight * (double)out[part * n + i];
        }
        merged[i] = (float)(value / sum);
    }
    bool rounded = rounds_attention(c, isa);
    take_distance(rounded ? ATTEND_BF16 : ATTEND, isa, distance_of(merged, c->want, n), rounded ? 1e-2 : 1e-5, "parts");
    free(out);
    free(lse);
    free(merged);
    free(scratch);
}

static void attend_shape(const AttendShape *s) {
    AttendCase c = attend_new(s);
    uint64_t random = s->seed;
    for (int isa = 0; isa < isa_count(); isa++) {
        int most = attend_kernel(isa)->pairs;
        check_attend(&c, isa, most);
        check_attend(&c, isa, 1 + pick(&random, most)); // the pairs cut elsewhere, also inside a row
        check_attend_range(&c, isa, &random);
        check_attend_parts(&c, isa, &random);
    }
    attend_free(&c);
}

static void test_attend(void **state) {
    (void)state;
    static const int head_dims[] = {8, 16, 64, 80, 96, 128, 256}, groups[] = {1, 2, 3, 4, 7, 8};
    static const int blocks[] = {1, 16, 64, 0}, contexts[] = {1, 5, 95, 96, 97, 300}, rows[] = {1, 2, 5, 17, 40, 150};
    static const int types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    int n = 0;
    // Every head_dim with every group; the rest goes round, so that every pair of values meets many times.
    for (size_t d = 0; d < ARRAY_LEN(head_dims); d++)
        for (size_t g = 0; g < ARRAY_LEN(groups); g++)
            for (int round = 0; round < 10; round++, n++) {
                AttendShape s = {.head_dim = head_dims[d],
                                 .group = groups[g],
                                 .block = blocks[n % 4],
                                 .context = contexts[n / 5 % 6],
                                 .n_rows = rows[n / 4 % 6],
                                 .window = n / 2 % 3 == 0 ? 7 : 0,
                                 .softcap = n % 5 < 2 ? 3 : 0,
                                 .type_k = types[n % 3],
                                 .type_v = types[n / 7 % 3],
                                 .gaps = n / 3 % 2,
                                 .seed = (uint64_t)n};
                attend_shape(&s);
            }
}

// Rows of a tile whose windows leave keys between them that none of them sees.
static void test_attend_windows_apart(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++)
        attend_shape(&(AttendShape){.head_dim = 16,
                                    .group = 8,
                                    .block = 16,
                                    .context = 300,
                                    .n_rows = 5,
                                    .window = 7,
                                    .gaps = true,
                                    .seed = seed});
}

// Scores of hundreds: the softmax must take its maximum away first, and keep one key.
static void test_attend_large_scores(void **state) {
    (void)state;
    for (int rows = 1; rows <= 40; rows += 39) {
        AttendCase c = attend_new(
            &(AttendShape){.head_dim = 64, .group = 2, .block = 16, .context = 200, .n_rows = rows, .seed = 5});
        for (int i = 0; i < c.s.n_rows * c.heads.n_heads * 64; i++) c.q[i] *= 100;
        reference(&c);
        for (int isa = 0; isa < isa_count(); isa++) {
            float *out = poisoned((size_t)(c.s.n_rows * c.heads.n_heads * 64) * sizeof *out);
            if (has_own(isa)) {
                run_attend(&c, attend_kernel(isa), attend_kernel(isa)->pairs, out);
                // a score of 1000 has an ulp of 6e-5, which the exponential hands on
                assert_true(distance_of(out, c.want, c.s.n_rows * c.heads.n_heads * 64) < 1e-3);
            }
            free(out);
        }
        attend_free(&c);
    }
}

// ---- the choice -----------------------------------------------------------------------------------------------------

static void test_backend_choice(void **state) {
    (void)state;
    const Backend *be;
    assert_ok(cpu_backend("auto", &be));
    assert_string_equal(be->name, "cpu");
    assert_true(strcmp(be->isa, "scalar") != 0);
    assert_non_null(strstr(cpu_isa_list(), be->isa));
    assert_non_null(strstr(cpu_isa_list(), "scalar, portable"));
    Status st = cpu_backend("sse9", &be);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_non_null(strstr(st.message, "sse9"));
    assert_non_null(strstr(st.message, "portable"));
    static const char *const known[] = {"scalar", "portable", "avx2", "avx512", "amx"}; // on every CPU
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        st = cpu_backend(known[i], &be);
        assert_int_equal(st.code, cpu_has_isa(known[i]) ? 0 : QUILL_MODEL);
        if (st.code) assert_non_null(strstr(st.message, known[i]));
        else assert_string_equal(be->isa, known[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_choice),
        cmocka_unit_test(test_matrix_kernels_are_used),
        cmocka_unit_test(test_pack_norm),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_to_kv),
        cmocka_unit_test(test_matvec),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_several_rows),
        cmocka_unit_test(test_attend),
        cmocka_unit_test(test_attend_large_scores),
        cmocka_unit_test(test_attend_windows_apart),
    };
    return cmocka_run_group_tests(tests, isa_print, print_distances);
}
