// tests/test_kernels_rows.c: kernels of single rows (embedding, norm, RoPE, gate, soft cap, store of K and V) of every
// CPU kernel table, against double arithmetic; and the choice of a table.
#define _POSIX_C_SOURCE 200112L // posix_memalign
#include "tests/rig/kernel_rig.h"

static void embed_of(WeightsKind w, int n_in, uint64_t *random) {
    TestMatrix m;
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
                check_rmsnorm(isa, sizes[i], 1e-4f, 1e-5f, in_place, &random); // eps is the larger part of the sum
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
    // elements that are not rotated must not change
    for (int i = n_rot; i < head_dim; i++) assert_true((double)head[i] == want[i]);
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

// The usual formula of GELU, with tanh, loses small values by subtracting two nearly equal numbers. The formula with
// the sigmoid is the same function.
static double activated(Activation act, double g) {
    if (act == ACT_SWIGLU_CLAMPED) return fmin(g, 7) / (1 + exp(-1.702 * fmin(g, 7)));
    if (act == ACT_RELU) return g > 0 ? g : 0;
    double tanh_inner = sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g);
    double found = g / (1 + exp(act == ACT_GELU ? -2 * tanh_inner : -g));
    if (act == ACT_GELU && fabs(g) < 100)
        assert_true(fabs(found - 0.5 * g * (1 + tanh(tanh_inner))) < 1e-14 * (1 + fabs(g)));
    return found;
}

static double up_of(Activation act, double u) { return act == ACT_SWIGLU_CLAMPED ? fmax(-7, fmin(u, 7)) + 1 : u; }

static void check_gate(Kernel kernel, int isa, GateRow *gate_row, Activation act, int n, float size, uint64_t *random) {
    static const float edges[] = {100, -100,  0,      -0.0f, 87,    -87,   88,     -88.8f,   89,
                                  -89, 1e-8f, -1e-8f, 1e4f,  -1e4f, 1e30f, -1e30f, -INFINITY};
    float *gate = random_floats((size_t)n, random), *up = random_floats((size_t)n, random);
    double *want = malloc((size_t)n * sizeof *want);
    for (int i = 0; i < n; i++) {
        gate[i] = size > 0 ? gate[i] * size : edges[(size_t)i % (ARRAY_LEN(edges) - (kernel == GATE ? 3 : 0))];
        want[i] = gate[i] < -1000 ? 0 : activated(act, (double)gate[i]) * up_of(act, (double)up[i]);
    }
    gate_row(act, gate, up, n);
    // Compares each value by itself, so that a large neighbour does not hide a small one. Values below 1e-25 do not
    // count. The exponent in GELU, rounded to f32, is at most 58 for larger ones.
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
        check_gate(kernel, isa, gate_row, act, sizes[i], 0, &random); // bytes next to the row must not change
    }
    float nan[] = {NAN}, one[] = {1};
    gate_row(act, nan, one, 1);
    assert_true(isnan(nan[0]));
}

static void test_gate(void **state) {
    (void)state;
    for (int isa = 0; isa < isa_count(); isa++)
        for (Activation act = 0; act < N_GATES; act++) {
            const CpuKernels *k = kernels(isa);
            if (has_own(isa)) check_gate_sizes(GATE, isa, k->gate, act);
            // the others are used only by experts or without w_up, and k->gate computes them
            bool fused = act == ACT_SILU || act == ACT_GELU;
            if (k->bf16_panels && fused) check_gate_sizes(GATE_BF16, isa, k->bf16_panels(TYPE_Q8_0)->gate, act);
        }
}

// Absolute distances: a value near 0 is the difference of two nearly equal numbers.
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

// Absolute distances below 0, where the result is the difference of nearly equal numbers.
static void test_xielu(void **state) {
    (void)state;
    static const int sizes[] = {1, 3, 8, 16, 33, 100, 171};
    static const Xielu shapes[] = {{0.8f, 0.8f, 0.5f}, {1.3f, 0.2f, -0.4f}};
    uint64_t random = 18;
    for (int isa = 0; isa < isa_count(); isa++)
        for (size_t k = 0; k < 2 * ARRAY_LEN(sizes) && has_own(isa); k++) {
            const Xielu *x = &shapes[k % 2];
            int n = sizes[k / 2];
            float *v = random_floats((size_t)n + 1, &random), canary = v[n];
            double want[171];
            for (int i = 0; i < n; i++) {
                v[i] *= i == 0 ? 1e4f : i == 1 ? 0 : i == 2 ? -200 : 4;
                double a = (double)v[i], below = (double)x->n * (expm1(a) - a), above = (double)x->p * a * a;
                want[i] = (a > 0 ? above : below) + (double)x->b * a;
            }
            kernels(isa)->xielu(x, v, n);
            for (int i = 0; i < n; i++) assert_true(fabs((double)v[i] - want[i]) <= 1e-6 * fmax(1, fabs(want[i])));
            assert_true(v[n] == canary);
            v[0] = NAN;
            kernels(isa)->xielu(x, v, n);
            assert_true(isnan(v[0]));
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
        if (isnan(x[i]) && type == TYPE_F16) assert_true((got & 0x7fff) > 0x7c00); // any NaN is right
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
    // every CPU knows these names
    static const char *const known[] = {"scalar", "portable", "avx2", "avxvnni", "avx512", "amx"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        st = cpu_backend(known[i], &be);
        assert_int_equal(st.code, cpu_has_isa(known[i]) ? 0 : QUILL_MODEL);
        if (st.code) assert_non_null(strstr(st.message, known[i]));
        else assert_string_equal(be->isa, known[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backend_choice), cmocka_unit_test(test_embed), cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_rope),           cmocka_unit_test(test_gate),  cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_xielu),          cmocka_unit_test(test_to_kv),
    };
    return cmocka_run_group_tests(tests, isa_print, print_distances);
}
