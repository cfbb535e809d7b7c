// tests/test_kernels_matmul.c: the matrix products of every CPU kernel table, on odd shapes, against double arithmetic.
#define _POSIX_C_SOURCE 200112L // posix_memalign
#include "cpu/cpuid.h"
#include "tests/rig/kernel_rig.h"

static double dot(const float *a, const float *b, int n) {
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++) sum[0] += (double)a[i] * (double)b[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

// The results of a batch of rows, in double, and their typical size if nothing cancels.
typedef struct {
    int n_rows, n_out;
    double *y;       // (n_rows, n_out), without bias
    double *typical; // (n_rows, n_out) the typical sizes
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

// ---- one call against its reference ---------------------------------------------------------------------------------

// y with canaries around it: (n_rows, stride).
typedef struct {
    float *y, *before;
    size_t n, stride;
} GuardedRows;

static GuardedRows guarded_new(int n_rows, int n_out, int extra, uint64_t *random) {
    GuardedRows o = {.stride = (size_t)(n_out + extra)};
    o.n = (size_t)(n_rows - 1) * o.stride + (size_t)n_out;
    o.y = random_floats(o.n, random);
    o.before = malloc(o.n * sizeof *o.before);
    memcpy(o.before, o.y, o.n * sizeof *o.y);
    return o;
}

static void guarded_free(GuardedRows *o) {
    free(o->y);
    free(o->before);
}

typedef struct {
    double error, norm; // sums of squares
} SquareSums;

// Features [first, last) must have the values of p; all others must be untouched.
static double guarded_distance(const GuardedRows *o, const Products *p, int n_rows, int first, int last,
                               const float *bias, bool add) {
    SquareSums s = {0};
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
    const TestMatrix *m;
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
    GuardedRows o = guarded_new(n_rows, n_out, 3, &c->random);
    // the memory ends with the last row
    float *x = malloc(((size_t)(n_rows - 1) * c->x_stride + (size_t)t.n_in) * sizeof *x);
    memcpy(x, c->x, ((size_t)(n_rows - 1) * c->x_stride + (size_t)t.n_in) * sizeof *x);
    void *scratch = poisoned(k->f32_panels ? k->f32_panels->scratch : 0);
    char what[128];
    snprintf(what, sizeof what, "%s group %d n_in %d n_out %d rows %d [%d, %d)%s%s", type_name(t.type), t.group, t.n_in,
             n_out, n_rows, first, last, add ? " add" : "", bias ? " bias" : "");
    k->matvec(&(MatvecTask){.w = &t,
                            .first = first,
                            .last = last,
                            .x = x,
                            .x_stride = c->x_stride,
                            .n_rows = n_rows,
                            .y = o.y,
                            .y_stride = o.stride,
                            .add = add,
                            .scratch = scratch});
    take_distance(MATVEC, isa, guarded_distance(&o, c->p, n_rows, first, last, t.bias, add), 1e-5, what);
    free(scratch);
    free(x);
    guarded_free(&o);
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
            TestMatrix m;
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

// ---- the matrix kernels ---------------------------------------------------------------------------------------------

enum { MOST_ROWS = 513, MOST_OUT = 130 };

typedef struct {
    const TestMatrix *m;
    // the exact products; those of weights and activations in bf16; those of activations in int8 with any scales, and
    // with scales that are multiples of a superblock's
    const Products *exact, *from_bf16, *from_int8, *from_whole;
    const float *x;
    size_t x_stride;
    uint64_t random;
} MatrixCase;

// The int8 kernel that belongs to this instruction set alone: avx512 uses its own for fewer rows. NULL: there is none
// for the type.
static const MatrixKernel *int8_kernel(int isa, int type) {
    const CpuKernels *k = kernels(isa);
    const MatrixKernel *(*of)(int) = k->int8_tiles ? k->int8_tiles : k->int8_rows;
    return of ? of(type) : NULL;
}

// The bf16 kernel of this table, of the matrix unit or of vectors; also where the table prefers f32 because bf16 is
// slower.
static const MatrixKernel *bf16_kernel(int isa, int type) {
    const CpuKernels *k = kernels(isa);
    const MatrixKernel *(*of)(int) = k->bf16_panels ? k->bf16_panels : k->bf16_lanes;
#if defined(QUILL_BF16)
    if (strcmp(isa_name(isa), "avx512") == 0 && cpuid_has_bf16()) of = cpu_bf16_panels;
#endif
    return of ? of(type) : NULL;
}

static bool is_k(int type) {
    return type == TYPE_Q2_K || type == TYPE_Q3_K || type == TYPE_Q4_K || type == TYPE_Q5_K || type == TYPE_Q6_K;
}

// Compares the kernel's products with the exact ones, and more closely with those of its rounded inputs.
static void check_matrix(MatrixCase *c, int isa, Kernel kernel, int n_out, int n_rows, bool add, bool bias) {
    const CpuKernels *table = kernels(isa);
    const MatrixKernel *k = kernel == MATRIX_BF16    ? bf16_kernel(isa, c->m->t.type)
                            : kernel == MATRIX_INT8  ? int8_kernel(isa, c->m->t.type)
                            : kernel == INT8_NO_VBMI ? kernel_without_vbmi(isa, c->m->t.type)
                            : kernel == PANELS_INT8  ? table->int8_panels(c->m->t.type)
                                                     : table->f32_panels;
    int features = !k->features ? 16 * (1 + pick(&c->random, 19)) : pick(&c->random, 2) ? k->features : k->least;
    Tensor t = c->m->t;
    t.n_out = n_out;
    if (bias) t.bias = c->m->bias;
    GuardedRows o = guarded_new(n_rows, n_out, 3, &c->random);
    void *packed = pack_all(k, c->x, c->x_stride, n_rows, t.n_in), *scratch = poisoned(k->scratch);
    char what[128];
    snprintf(what, sizeof what, "%s group %d n_in %d n_out %d rows %d%s%s", type_name(t.type), t.group, t.n_in, n_out,
             n_rows, add ? " add" : "", bias ? " bias" : "");
    for (int f = (n_out - 1) / features * features; f >= 0; f -= features) {
        for (int r = (n_rows - 1) / k->rows * k->rows; r >= 0; r -= k->rows) {
            k->run(&(MatrixTask){.w = &t,
                                 .first = f,
                                 .last = int_min(f + features, n_out),
                                 .packed = packed,
                                 .first_row = r,
                                 .n_rows = int_min(k->rows, n_rows - r),
                                 .y = o.y,
                                 .y_stride = o.stride,
                                 .add = add,
                                 .scratch = scratch});
            memset(scratch, 0xff, k->scratch);
        }
    }
    take_distance(kernel, isa, guarded_distance(&o, c->exact, n_rows, 0, n_out, t.bias, add),
                  kernel == MATRIX        ? 1e-5
                  : kernel == MATRIX_BF16 ? 1e-2
                                          : 2e-2,
                  what);
    if (kernel == MATRIX_BF16)
        take_distance(FROM_BF16, isa, guarded_distance(&o, c->from_bf16, n_rows, 0, n_out, t.bias, add), 1e-5, what);
    if (kernel == MATRIX_INT8) {
        const MatrixKernel *rows = table->int8_rows(t.type);
        bool in_units = is_k(t.type) || rows->pack == table->int8_rows(TYPE_Q4_K)->pack; // IQ4_XS on AVX2
        bool whole = k == rows && in_units && rows->pack != table->int8_rows(TYPE_Q8_0)->pack;
        const Products *want = whole ? c->from_whole : c->from_int8;
        take_distance(FROM_INT8, isa, guarded_distance(&o, want, n_rows, 0, n_out, t.bias, add), 1e-5, what);
    }
    if (kernel == INT8_NO_VBMI)
        take_distance(FROM_INT8_NO_VBMI, isa, guarded_distance(&o, c->from_int8, n_rows, 0, n_out, t.bias, add), 1e-5,
                      what);
    if (kernel == PANELS_INT8)
        take_distance(FROM_INT8_PANELS, isa, guarded_distance(&o, c->from_int8, n_rows, 0, n_out, t.bias, add), 1e-5,
                      what);
    free(packed);
    free(scratch);
    guarded_free(&o);
}

// The bits of a row's products must not depend on the number of rows or on the first feature of a task.
static void check_alone(MatrixCase *c, const MatrixKernel *k, int n_out) {
    static const int few[] = {1, 5, 8, 9, 17, 40, 57};
    Tensor t = c->m->t;
    int part = k->least ? k->least : 5;
    size_t n = (size_t)n_out;
    float *all = malloc(MOST_ROWS * n * sizeof *all), *alone = malloc(MOST_ROWS * n * sizeof *alone);
    void *packed = pack_all(k, c->x, c->x_stride, MOST_ROWS, t.n_in), *scratch = poisoned(k->scratch);
    t.n_out = n_out;
    run_part(k, &t, 0, n_out, packed, int_min(k->rows, MOST_ROWS), all, scratch);
    for (size_t i = 0; i < ARRAY_LEN(few); i++) {
        void *own = pack_all(k, c->x, c->x_stride, few[i], t.n_in);
        run_part(k, &t, part, n_out, own, few[i], alone, scratch);
        run_part(k, &t, 0, part, own, few[i], alone, scratch);
        assert_memory_equal(alone, all, (size_t)few[i] * n * sizeof *all);
        free(own);
    }
    free(all);
    free(alone);
    free(packed);
    free(scratch);
}

// maddubs, madd of words and dpbusd compute the same integers, so AVX-VNNI must give the bits of AVX2.
static void check_same_bits(MatrixCase *c, int n_out, int n_rows) {
    static const char *const two[] = {"avx2", "avxvnni"};
    float *y[2];
    Tensor t = c->m->t;
    t.n_out = n_out;
    for (int i = 0; i < 2; i++) {
        const Backend *be;
        assert_ok(cpu_backend(two[i], &be));
        const MatrixKernel *k = ((const CpuKernels *)be->impl)->int8_panels(t.type);
        void *packed = pack_all(k, c->x, c->x_stride, n_rows, t.n_in), *scratch = poisoned(k->scratch);
        y[i] = malloc((size_t)n_rows * (size_t)n_out * sizeof(float));
        run_part(k, &t, 0, k->features, packed, n_rows, y[i], scratch);
        run_part(k, &t, k->features, n_out, packed, n_rows, y[i], scratch);
        free(packed);
        free(scratch);
    }
    assert_memory_equal(y[0], y[1], (size_t)n_rows * (size_t)n_out * sizeof(float));
    free(y[0]);
    free(y[1]);
}

// Gate and up of the feed-forward in one pass must give, bit for bit, the same as their products, the gate and the
// packing one after another.
static void check_glu(MatrixCase *c, const CpuKernels *table, const MatrixKernel *k, Activation act, int n_out,
                      int n_rows) {
    GateRow *gate = k->gate ? k->gate : table->gate;
    int features = k->glu_least; // as many tasks as possible
    size_t n = (size_t)n_rows * (size_t)n_out, bytes = k->packed_bytes(n_rows, n_out);
    Tensor w[2] = {c->m->t, c->m->t};
    if (w[1].type != TYPE_I8G) w[1].data = (const uint8_t *)w[1].data + (size_t)(MOST_OUT - n_out) * w[1].row_bytes;
    void *packed = pack_all(k, c->x, c->x_stride, n_rows, w[0].n_in), *scratch = poisoned(k->scratch);
    float *y[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
    for (int r = 0; r < n_rows; r += k->rows)
        for (int i = 0; i < 2; i++)
            k->run(&(MatrixTask){.w = &w[i],
                                 .last = n_out,
                                 .packed = packed,
                                 .first_row = r,
                                 .n_rows = int_min(k->rows, n_rows - r),
                                 .y = y[i],
                                 .y_stride = (size_t)n_out,
                                 .scratch = scratch});
    for (int r = 0; r < n_rows; r++)
        gate(act, y[0] + (size_t)r * (size_t)n_out, y[1] + (size_t)r * (size_t)n_out, n_out);
    void *want = pack_all(k, y[0], (size_t)n_out, n_rows, n_out), *h = poisoned(bytes + 64);
    w[0].n_out = w[1].n_out = n_out;
    for (int f = 0; f < n_out; f += features)
        for (int r = 0; r < n_rows; r += k->rows) {
            memset(scratch, 0xff, k->scratch);
            k->run_glu(&(MatrixTask){.gate = &w[0],
                                     .w = &w[1],
                                     .act = act,
                                     .first = f,
                                     .last = int_min(f + features, n_out),
                                     .packed = packed,
                                     .first_row = r,
                                     .n_rows = int_min(k->rows, n_rows - r),
                                     .h = h,
                                     .scratch = scratch});
        }
    assert_memory_equal(h, want, bytes);
    for (size_t i = 0; i < 64; i++) assert_int_equal(((uint8_t *)h)[bytes + i], 0xff);
    void *all[] = {packed, scratch, y[0], y[1], want, h};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

// A tile of rows that is normalised and packed in one pass must have the bits of rmsnorm followed by packing.
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
                if (bf16_kernel(isa, c->m->t.type))
                    check_matrix(c, isa, MATRIX_BF16, outs[o], rows[r], flags & 1, flags & 2);
                const MatrixKernel *(*const with_glu[])(int) = {k->bf16_panels, k->int8_panels, k->bf16_lanes};
                for (size_t i = 0; i < ARRAY_LEN(with_glu); i++) {
                    const MatrixKernel *m = with_glu[i] ? with_glu[i](c->m->t.type) : NULL;
                    // int8 packs whole blocks of 32
                    int n_out = m && with_glu[i] == k->int8_panels ? (int)round_up((size_t)outs[o], 32) : outs[o];
                    if (m && m->run_glu && rows[r] >= m->min_rows && n_out <= MOST_OUT)
                        check_glu(c, k, m, (Activation)((o + r) % N_GATES), n_out, rows[r]);
                }
                if (k->int8_panels && k->int8_panels(c->m->t.type))
                    check_matrix(c, isa, PANELS_INT8, outs[o], rows[r], flags & 1, flags & 2);
                if (int8_kernel(isa, c->m->t.type) && rows[r] <= 33)
                    check_matrix(c, isa, MATRIX_INT8, outs[o], rows[r], flags & 1, flags & 2);
                if (kernel_without_vbmi(isa, c->m->t.type) && rows[r] <= 33)
                    check_matrix(c, isa, INT8_NO_VBMI, outs[o], rows[r], flags & 1, flags & 2);
            }
        int type = c->m->t.type;
        const MatrixKernel *const alone[] = {bf16_kernel(isa, type), k->int8_panels ? k->int8_panels(type) : NULL,
                                             k->int8_rows ? k->int8_rows(type) : NULL, kernel_without_vbmi(isa, type)};
        for (size_t i = 0; i < ARRAY_LEN(alone); i++)
            if (alone[i]) check_alone(c, alone[i], 97);
        if (strcmp(isa_name(isa), "avxvnni") == 0 && k->int8_panels(c->m->t.type)) check_same_bits(c, 97, 33);
    }
}

static void round_to_bf16(float *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = bf16_float(float_bf16(from[i]));
}

// 32 elements share a scale: the largest magnitude / 127.
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

// As round_to_int8, but the scale of a block is rounded up to a whole multiple of 1/127 of the largest scale among the
// eight blocks of 256 elements.
static void round_to_whole(float *to, const float *from, size_t stride, int n_rows, int n_in) {
    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i + 256 <= n_in; i += 256) {
            const float *x = from + (size_t)r * stride + i;
            float most = 0, top[8] = {0};
            for (int k = 0; k < 256; k++) top[k / 32] = fmaxf(top[k / 32], fabsf(x[k]));
            for (int b = 0; b < 8; b++) most = fmaxf(most, top[b]);
            for (int k = 0; k < 256; k++) {
                float times = most > 0 ? ceilf(top[k / 32] / most * 127) : 0, scale = most / (127 * 127) * times;
                to[(size_t)r * stride + (size_t)(i + k)] = scale > 0 ? scale * nearbyintf(x[k] * (1 / scale)) : 0;
            }
        }
}

static void matrix_of(WeightsKind w, int n_in, uint64_t *random) {
    TestMatrix m;
    if (n_in < 1) __builtin_unreachable(); // without this, gcc warns about a negative n_in

    if (!matrix_new(&m, w, MOST_OUT, n_in, random)) return;
    size_t stride = (size_t)n_in + 3, n_x = MOST_ROWS * stride, n_w = MOST_OUT * (size_t)n_in;
    float *x = random_floats(n_x, random), *xb = malloc(n_x * sizeof *xb), *wb = malloc(n_w * sizeof *wb);
    float *xq = calloc(n_x, sizeof *xq), *xw = calloc(n_x, sizeof *xw);
    for (size_t k = 0; k < n_x; k++)
        if ((int)(k % stride) >= n_in) x[k] = NAN;
    round_to_bf16(wb, m.values, n_w);
    for (size_t k = 0; k < 32; k++) x[stride + k] = 0; // a block of zeros
    if (n_in >= 256)
        for (size_t k = 0; k < 256; k++) x[2 * stride + k] = 0, x[3 * stride + k] *= k == 77 ? 10 : 1; // an outlier
    round_to_bf16(xb, x, n_x);
    round_to_int8(xq, x, stride, MOST_ROWS, n_in);
    round_to_whole(xw, x, stride, MOST_ROWS, n_in);
    Products exact = products_new(m.values, MOST_OUT, x, stride, MOST_ROWS, n_in);
    Products from_bf16 = products_new(wb, MOST_OUT, xb, stride, MOST_ROWS, n_in);
    Products from_int8 = products_new(m.values, MOST_OUT, xq, stride, MOST_ROWS, n_in);
    Products from_whole = products_new(m.values, MOST_OUT, xw, stride, MOST_ROWS, n_in);
    matrix_shapes(&(MatrixCase){&m, &exact, &from_bf16, &from_int8, &from_whole, x, stride, (uint64_t)n_in});
    products_free(&exact);
    products_free(&from_int8);
    products_free(&from_whole);
    free(xq);
    free(xw);
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

// Every block is one repeated byte, or bytes from the ends of the range that the type allows.
static void fill_extremes(TestMatrix *m, uint64_t *random) {
    static const uint8_t same[] = {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0}, ends[] = {0x00, 0xff, 0x80, 0x7f, 0x81, 0x88};
    const TypeInfo *info = type_info(m->t.type);
    const BlockScales *scales = random_blocks_scales(m->t.type);
    const uint16_t sixteenth = 0x2c00;
    uint8_t *at = m->data;
    for (int f = 0; f < m->t.n_out; f++)
        for (int i = 0; i < m->t.n_in; i += info->block, at += info->bytes) {
            for (int k = 0; k < info->bytes; k++)
                at[k] = f < (int)ARRAY_LEN(same) ? same[f] : ends[pick(random, ARRAY_LEN(ends))];
            if (m->t.type == TYPE_Q6_K && f == 1) memset(at + offsetof(BlockQ6_K, scales), 0x80, 16); // and 63
            random_blocks_put_d(scales, at, sixteenth);
            if (scales->min_at >= 0) memcpy(at + scales->min_at, &sixteenth, sizeof sixteenth);
        }
    info->dequantize(m->data, m->values, (size_t)m->t.n_out * (size_t)m->t.n_in);
}

// Activations of -127 and 127 in int8, times weights at the ends of their ranges, with signs that make sums as large as
// possible: sums of 16 bits, which saturate, must have room for them.
static void test_extremes(void **state) {
    (void)state;
    enum { OUT = 18, ROWS = 24, N_IN = 512 };
    uint64_t random = 15;
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++) {
        TestMatrix m;
        float x[ROWS * N_IN];
        if (!random_blocks_scales(all_weights[w].type)) continue;
        assert_true(matrix_new(&m, all_weights[w], OUT, N_IN, &random));
        fill_extremes(&m, &random);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < N_IN; i++) {
                bool minus = r == 0 ? false : r == 1 ? true : r == 2 ? i % 2 : r == 3 ? i / 2 % 2 : i / 4 % 2;
                if (r >= ROWS - OUT) minus = m.values[(r - (ROWS - OUT)) * N_IN + i] < 0; // the sign of the weight
                x[r * N_IN + i] = minus ? -1 : 1;
            }
        Products p = products_new(m.values, OUT, x, N_IN, ROWS, N_IN);
        MatrixCase c = {.m = &m, .exact = &p, .from_int8 = &p, .from_whole = &p, .x = x, .x_stride = N_IN, .random = 1};
        for (int isa = 0; isa < isa_count(); isa++) {
            const CpuKernels *k = kernels(isa);
            if (k->int8_panels && k->int8_panels(m.t.type)) check_matrix(&c, isa, PANELS_INT8, OUT, ROWS, false, false);
            if (int8_kernel(isa, m.t.type)) check_matrix(&c, isa, MATRIX_INT8, OUT, ROWS, false, false);
            if (kernel_without_vbmi(isa, m.t.type)) check_matrix(&c, isa, INT8_NO_VBMI, OUT, ROWS, false, false);
        }
        products_free(&p);
        matrix_free(&m);
    }
}

// Row r of x is tiny, except that the last row has a tiny block beside usual ones. A product is not farther from the
// exact one than the sum of its magnitudes; in the last row it is as near as int8 activations are.
static void check_tiny(const MatrixKernel *k, const TestMatrix *m, const float *x, int n_rows, const char *isa) {
    const Tensor *t = &m->t;
    float *y = malloc((size_t)n_rows * (size_t)t->n_out * sizeof *y);
    void *packed = pack_all(k, x, (size_t)t->n_in, n_rows, t->n_in), *scratch = poisoned(k->scratch);
    for (int f = 0; f < t->n_out; f += k->features ? k->features : t->n_out)
        run_part(k, t, f, k->features ? int_min(f + k->features, t->n_out) : t->n_out, packed, n_rows, y, scratch);
    for (int r = 0; r < n_rows; r++)
        for (int f = 0; f < t->n_out; f++) {
            double exact = 0, size = 0, got = (double)y[r * t->n_out + f];
            for (int i = 0; i < t->n_in; i++) {
                double product = (double)m->values[f * t->n_in + i] * (double)x[r * t->n_in + i];
                exact += product;
                size += fabs(product);
            }
            if (!(fabs(got - exact) <= (r < n_rows - 1 ? 1.05 : 0.05) * size))
                fail_msg("%s, %s, row %d of %g: %g expected, %g found, sum of magnitudes %g", isa, type_name(t->type),
                         r, (double)x[r * t->n_in], exact, got, size);
        }
    free(y);
    free(packed);
    free(scratch);
}

// Activations so small that the inverse of their scale in int8 is no finite f32.
static void test_tiny_activations(void **state) {
    (void)state;
    static const float sizes[] = {1e-40f, 1e-38f, 3e-37f, 1e-36f, 5e-35f, 1e-34f, 1};
    enum { OUT = 5, ROWS = ARRAY_LEN(sizes), N_IN = 512 };
    uint64_t random = 16;
    float x[ROWS * N_IN];
    for (int i = 0; i < ROWS * N_IN; i++)
        x[i] = sizes[i / N_IN] * test_uniform(&random) * (i / N_IN == ROWS - 1 && i / 32 % 4 == 1 ? 1e-38f : 1);
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++) {
        TestMatrix m;
        if (!matrix_new(&m, all_weights[w], OUT, N_IN, &random)) continue;
        for (int isa = 0; isa < isa_count(); isa++) {
            const CpuKernels *k = kernels(isa);
            const MatrixKernel *(*const of[])(int) = {k->int8_rows, k->int8_panels, k->int8_tiles};
            for (size_t i = 0; i < ARRAY_LEN(of); i++)
                if (of[i] && of[i](m.t.type)) check_tiny(of[i](m.t.type), &m, x, ROWS, isa_name(isa));
        }
        matrix_free(&m);
    }
}

// Numbers of rows around the unit's 16 and the kernel's 32, numbers of features around its groups of 16 and the 256
// that it computes together.
static void int8_tiles_of(WeightsKind w, int n_in, uint64_t *random) {
    enum { ROWS = 66, OUT = 290 };
    static const int rows[] = {1, 2, 3, 15, 16, 17, 31, 33, 64, ROWS}, outs[] = {1, 15, 16, 33, 271, OUT};
    TestMatrix m;
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

static void test_int8_tiles(void **state) {
    (void)state;
    static const int widths[] = {32, 256, 288, 1312};
    uint64_t random = 14;
    int amx = isa_count() - 1; // "amx" is the last table, if the CPU has it
    if (!cpu_has_isa("amx")) {
        print_message("skipped: int8 on tiles needs AMX, which this CPU lacks\n");
        skip();
    }
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++)
        for (size_t i = 0; i < ARRAY_LEN(widths) && int8_kernel(amx, all_weights[w].type); i++)
            int8_tiles_of(all_weights[w], widths[i], &random);
}

enum { NAN_ROWS = 19, NAN_IN = 512, NAN_OUT = 33 };

// Rows 0, 3, 6 ... have one NaN.
static void check_nan(const float *y, const char *what) {
    for (int i = 0; i < NAN_ROWS * NAN_OUT; i++)
        if (!isfinite(y[i]) != (i / NAN_OUT % 3 == 0)) fail_msg("%s: result %d is %g", what, i, (double)y[i]);
}

static void nan_of(const TestMatrix *m, int isa, const float *x) {
    const CpuKernels *k = kernels(isa);
    const MatrixKernel *(*const of[])(int) = {k->int8_rows, k->int8_panels, k->bf16_lanes}, *matrix;
    Tensor t = m->t;
    char what[100];
    float y[NAN_ROWS * NAN_OUT];
    void *scratch = poisoned(k->f32_panels ? k->f32_panels->scratch : 0);
    t.n_out = NAN_OUT;
    snprintf(what, sizeof what, "%s, %s", isa_name(isa), type_name(t.type));
    k->matvec(&(MatvecTask){.w = &t,
                            .last = NAN_OUT,
                            .x = x,
                            .x_stride = NAN_IN,
                            .n_rows = NAN_ROWS,
                            .y = y,
                            .y_stride = NAN_OUT,
                            .scratch = scratch});
    check_nan(y, what);
    free(scratch);
    for (size_t i = 0; i <= ARRAY_LEN(of); i++) {
        if (i == ARRAY_LEN(of)) matrix = kernel_without_vbmi(isa, t.type);
        else matrix = of[i] ? of[i](t.type) : NULL;
        if (!matrix) continue;
        void *packed = pack_all(matrix, x, NAN_IN, NAN_ROWS, NAN_IN);
        scratch = poisoned(matrix->scratch);
        run_part(matrix, &t, 0, NAN_OUT, packed, NAN_ROWS, y, scratch);
        check_nan(y, what);
        free(packed);
        free(scratch);
    }
}

// A NaN among a row's activations must reach all its results, whatever its lane: a damaged model must not answer.
static void test_nan(void **state) {
    (void)state;
    uint64_t random = 16;
    for (size_t w = 0; w < ARRAY_LEN(all_weights); w++) {
        TestMatrix m;
        if (!matrix_new(&m, all_weights[w], MOST_OUT, NAN_IN, &random)) continue;
        for (int turn = 0; turn < 5; turn++) {
            float *x = random_floats(NAN_ROWS * NAN_IN, &random);
            for (int r = 0; r < NAN_ROWS; r += 3) x[r * NAN_IN + pick(&random, NAN_IN)] = NAN;
            for (int isa = 0; isa < isa_count(); isa++)
                if (strcmp(isa_name(isa), "amx") != 0) nan_of(&m, isa, x);
            free(x);
        }
        matrix_free(&m);
    }
}

// The kernel tables must be consistent: a table with a special kernel also has the kernel that it falls back to.
static void test_matrix_kernels_are_used(void **state) {
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++) {
        const CpuKernels *k = kernels(isa);
        assert_true(!k->bf16_panels || k->f32_panels); // f32 panels are the fallback
        assert_int_equal(k->bf16_panels != NULL, strcmp(isa_name(isa), "amx") == 0);
        assert_true(k->attend.pairs > 0);
        assert_int_equal(k->attend_16bit != NULL, k->bf16_panels || k->int8_panels);
        assert_int_equal(k->int8_tiles != NULL, k->bf16_panels != NULL);
        assert_true(!k->int8_panels || k->int8_rows);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix_kernels_are_used),
        cmocka_unit_test(test_pack_norm),
        cmocka_unit_test(test_matvec),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_tiny_activations),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_int8_tiles),
    };
    return cmocka_run_group_tests(tests, isa_print, print_distances);
}
