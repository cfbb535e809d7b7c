// tests/test_amx.c: bf16 products on the AMX unit: weights that are multiplied directly from the file, against those
// that are unpacked to panels; and what they are unpacked to.
#define _POSIX_C_SOURCE 200112L // posix_memalign
#include "tests/rig/kernel_rig.h"

// Up to 32 rows use the BF16 weights in the file. Their results must have the bits that they have among more rows,
// which use panels. The first task has all of its features.
static void test_direct(void **state) {
    (void)state;
    enum { OUT = 300, ROWS = 33, N_IN = 288 };
    static const int few[] = {1, 16, 17, 32};
    uint64_t random = 17;
    if (!cpu_has_isa("amx")) {
        print_message("skipped: BF16 directly from the file needs AMX, which this CPU lacks\n");
        skip();
    }
    TestMatrix m;
    const MatrixKernel *k = kernels(isa_count() - 1)->bf16_panels(TYPE_BF16);
    assert_true(matrix_new(&m, (WeightsKind){TYPE_BF16, 0}, OUT, N_IN, &random));
    float *x = random_floats(ROWS * N_IN, &random), y[2][ROWS * OUT];
    for (size_t i = 0; i <= ARRAY_LEN(few); i++) {
        int n_rows = i == 0 ? ROWS : few[i - 1];
        void *packed = pack_all(k, x, N_IN, n_rows, N_IN), *scratch = poisoned(k->scratch);
        run_part(k, &m.t, 0, k->features, packed, n_rows, y[i > 0], scratch);
        run_part(k, &m.t, k->features, OUT, packed, n_rows, y[i > 0], scratch);
        assert_memory_equal(y[0], y[i > 0], (size_t)n_rows * OUT * sizeof(float));
        free(packed);
        free(scratch);
    }
    free(x);
    matrix_free(&m);
}

// Products with the rows of a unit matrix give the weights that the unit has multiplied. They must be those that the
// AVX-512 kernels unpack, rounded to bf16.
static void check_unpacked(int type, uint64_t *random) {
    enum { OUT = 67, N_IN = 512 };
    const CpuKernels *k = kernels(isa_count() - 1);
    const MatrixKernel *matrix = k->bf16_panels(type);
    TestMatrix m;
    if (!matrix || !matrix_new(&m, (WeightsKind){type, type == TYPE_I8G ? 64 : 0}, OUT, N_IN, random)) return;
    float *x = calloc(N_IN * N_IN, sizeof *x), *y = malloc(N_IN * OUT * sizeof *y), weights[N_IN];
    for (int i = 0; i < N_IN; i++) x[i * N_IN + i] = 1;
    void *packed = pack_all(matrix, x, N_IN, N_IN, N_IN), *scratch = poisoned(matrix->scratch);
    run_part(matrix, &m.t, 0, OUT, packed, N_IN, y, scratch);
    for (int f = 0; f < OUT; f++) {
        k->embed(&m.t, f, weights);
        for (int i = 0; i < N_IN; i++)
            if (bf16_float(float_bf16(weights[i])) != y[i * OUT + f])
                fail_msg("%s: weight %d of row %d is %a, expected %a", type_name(type), i, f, (double)y[i * OUT + f],
                         (double)bf16_float(float_bf16(weights[i])));
    }
    free(x);
    free(y);
    free(packed);
    free(scratch);
    matrix_free(&m);
}

static void test_unpacked(void **state) {
    (void)state;
    uint64_t random = 3;
    if (!cpu_has_isa("amx")) skip();
#define CHECK_UNPACKED(TYPE) check_unpacked(TYPE, &random);
    EACH_TYPE(CHECK_UNPACKED)
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_direct), cmocka_unit_test(test_unpacked)};
    return cmocka_run_group_tests(tests, isa_print, NULL);
}
