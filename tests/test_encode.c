// tests/test_encode.c: encoded blocks of weights, against the dequantisers of formats/types.c and against the error of
// simple rounding.
#include "tests/rig/testing.h"

#include "cpu/cpuid.h"
#include "encode/encode.h"
#include "encode/fit.h"
#include "formats/random_blocks.h"
#include "formats/types.h"

enum { MOST = 4096 };

static const int fitted[] = {TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0, TYPE_Q5_1,   TYPE_Q2_K,  TYPE_Q3_K,
                             TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS};

// Roughly normal values; one in fifty is eight times as large.
static void draw_weights(float *x, int n, float size, uint64_t *random) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) sum += test_uniform(random);
        x[i] = sum * size * (test_random(random) % 50 == 0 ? 8.0f : 1.0f);
    }
}

static void draw_importance(float *w, int n, uint64_t *random) {
    for (int i = 0; i < n; i++) w[i] = expf(3 * test_uniform(random));
}

static double weighted_error(const float *x, const float *y, const float *w, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (w ? (double)w[i] : 1) * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

static double error_of(int type, const float *x, const float *importance, int n, const float *measure) {
    static uint8_t blocks[MOST * 4];
    static float y[MOST];
    encode_row(type, x, importance, (size_t)n, blocks);
    type_info(type)->dequantize(blocks, y, (size_t)n);
    return weighted_error(x, y, measure, n);
}

// The error relative to the root mean square of the weights must be at most the value that was measured, plus 3%. The
// reference encoders have errors that are 3 to 12% larger (docs/quantize.md).
static void test_error_of_every_type(void **state) {
    (void)state;
    static const struct {
        int type;
        double most;
    } limits[] = {{TYPE_F32, 0},        {TYPE_F16, 0.00022},   {TYPE_BF16, 0.00176},  {TYPE_Q8_0, 0.01024},
                  {TYPE_Q4_0, 0.16153}, {TYPE_Q4_1, 0.10825},  {TYPE_Q5_0, 0.07934},  {TYPE_Q5_1, 0.05289},
                  {TYPE_Q2_K, 0.293},   {TYPE_Q3_K, 0.2149},   {TYPE_Q4_K, 0.09741},  {TYPE_Q5_K, 0.04742},
                  {TYPE_Q6_K, 0.02926}, {TYPE_IQ4_NL, 0.1155}, {TYPE_IQ4_XS, 0.11686}};
    static float x[MOST];
    uint64_t random = 1;
    draw_weights(x, MOST, 0.02f, &random);
    double norm = 0;
    for (int i = 0; i < MOST; i++) norm += (double)x[i] * (double)x[i];
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        double error = sqrt(error_of(limits[i].type, x, NULL, MOST, NULL) / norm);
        print_message("%-7s %.5f\n", type_name(limits[i].type), error);
        if (!(error <= limits[i].most)) fail_msg("%s: %.5f", type_name(limits[i].type), error);
    }
}

// Blocks of equal or nearly equal weights, alone and in the middle of others, of both signs.
static void test_equal_weights(void **state) {
    (void)state;
    static const int types[] = {TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_1};
    static const float levels[] = {1, -1, 0.02f, -0.02f, 65504};
    float x[512], w[512];
    uint64_t random = 5;
    draw_importance(w, 512, &random);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (size_t k = 0; k < ARRAY_LEN(levels); k++)
            for (float spread = 0; spread < 0.05f; spread += 0.005f)
                for (int weighted = 0; weighted < 2; weighted++) {
                    double norm = 0;
                    for (int j = 0; j < 512; j++) x[j] = levels[k] * (1 - spread * (float)(j % 32) / 32);
                    for (int j = 0; j < 512; j++) norm += (double)x[j] * (double)x[j];
                    double error = sqrt(error_of(types[i], x, weighted ? w : NULL, 512, NULL) / norm);
                    if (!(error < 0.08))
                        fail_msg("%s, %g, spread %g: %.5f", type_name(types[i]), (double)levels[k], (double)spread,
                                 error);
                }
}

// With importance, the weighted error must be smaller.
static void test_importance_lowers_the_weighted_error(void **state) {
    (void)state;
    static float x[MOST], w[MOST];
    uint64_t random = 2;
    draw_weights(x, MOST, 1, &random);
    draw_importance(w, MOST, &random);
    for (size_t i = 0; i < ARRAY_LEN(fitted); i++) {
        double with = error_of(fitted[i], x, w, MOST, w), without = error_of(fitted[i], x, NULL, MOST, w);
        if (!(with < 0.97 * without)) fail_msg("%s: %.5f with, %.5f without", type_name(fitted[i]), with, without);
    }
    assert_false(encode_takes_importance(TYPE_Q8_0));
}

// A row is a sequence of independent blocks: any division of it and any instruction set must give the same bytes.
static void test_rows_are_blocks(void **state) {
    (void)state;
    static float x[MOST], w[MOST];
    static uint8_t whole[MOST], part[MOST];
    uint64_t random = 3;
    draw_weights(x, MOST, 0.1f, &random);
    draw_importance(w, MOST, &random);
    for (size_t i = 0; i < ARRAY_LEN(fitted); i++) {
        const TypeInfo *t = type_info(fitted[i]);
        for (int weighted = 0; weighted < 2; weighted++) {
            int n = t->block * 15; // sub-blocks that are not a multiple of sixteen
            n = n > MOST ? MOST / t->block * t->block : n;
            encode_row(t->id, x, weighted ? w : NULL, (size_t)n, whole);
            for (int at = 0; at < n; at += t->block)
                encode_row(t->id, x + at, weighted ? w + at : NULL, (size_t)t->block, part + at / t->block * t->bytes);
            assert_memory_equal(whole, part, (size_t)(n / t->block * t->bytes));
        }
    }
}

static void check_same_fit(FitKernel *other, int type, const float *x, const float *w) {
    FitResult a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    fit_portable(type, x, w, FIT_LANES, &a);
    other(type, x, w, FIT_LANES, &b);
    assert_memory_equal(&a, &b, sizeof a);
}

static void test_every_isa_gives_the_same_bits(void **state) {
    (void)state;
#if defined(__x86_64__)
    float x[FIT_LANES * FIT_MOST], w[FIT_LANES * FIT_MOST];
    uint64_t random = 4;
    for (int turn = 0; turn < 20; turn++)
        for (size_t i = 0; i < ARRAY_LEN(fitted); i++) {
            draw_weights(x, FIT_LANES * FIT_MOST, turn % 3 ? 0.05f : 3e-6f, &random);
            draw_importance(w, FIT_LANES * FIT_MOST, &random);
            const float *of = turn % 2 ? w : NULL;
            if (cpuid_has_avx2()) check_same_fit(fit_avx2, fitted[i], x, of);
            if (cpuid_has_avx512()) check_same_fit(fit_avx512, fitted[i], x, of);
        }
#else
    skip();
#endif
}

// Special weights: all zero, all equal, a single nonzero one, tiny, huge; importance of zero.
static void test_odd_weights(void **state) {
    (void)state;
    static const int fitted[] = {TYPE_Q4_0,   TYPE_Q4_1,   TYPE_Q5_0,  TYPE_Q5_1,  TYPE_Q2_K,
                                 TYPE_Q3_K,   TYPE_Q4_K,   TYPE_Q5_K,  TYPE_Q6_K,  TYPE_Q8_0,
                                 TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_MXFP4, TYPE_TQ1_0, TYPE_TQ2_0};
    float x[QK_K], w[QK_K], y[QK_K];
    uint8_t block[QK_K * 4];
    for (size_t i = 0; i < ARRAY_LEN(fitted); i++)
        for (int kind = 0; kind < 9; kind++) {
            const TypeInfo *t = type_info(fitted[i]);
            float top = 0;
            for (int k = 0; k < QK_K; k++) {
                float of[] = {0,
                              0.5f,
                              -0.5f,
                              k == 77 ? -3.0f : 0,
                              1e-30f,
                              k % 2 ? 65504.0f : -65504.0f,
                              1e-7f * (float)k,
                              (float)k,
                              1e-43f * (float)(k % 9)};
                x[k] = of[kind];
                w[k] = kind == 7 ? 0 : 1;
                top = fmaxf(top, fabsf(x[k]));
            }
            for (int weighted = 0; weighted < 2; weighted++) {
                encode_row(t->id, x, weighted ? w : NULL, QK_K, block);
                t->dequantize(block, y, QK_K);
                for (int k = 0; k < QK_K; k++)
                    if (!isfinite(y[k]) || fabsf(y[k]) > 1.5f * top + 1e-5f)
                        fail_msg("%s, kind %d: %g expected, %g found", t->name, kind, (double)x[k], (double)y[k]);
                if (kind == 0) assert_true(weighted_error(x, y, NULL, QK_K) == 0);
            }
        }
}

// The error of weights of which some are `largest`, relative to their norm.
static double error_near(int type, float largest, int kind, const float *importance) {
    static float x[QK_K];
    uint64_t random = 9;
    double norm = 0;
    for (int k = 0; k < QK_K; k++) {
        float sign = kind % 2 ? -1 : 1;
        float of[] = {k == 77 ? sign : 0, sign, k % 2 ? sign : -sign, k % 32 == 0 ? sign : test_uniform(&random)};
        x[k] = largest * of[kind / 2];
        norm += (importance ? (double)importance[k] : 1) * (double)x[k] * (double)x[k];
    }
    return sqrt(error_of(type, x, importance, QK_K, importance) / norm);
}

// Weights up to the type's largest, of one or both signs, alone and among others, lose at most a fifth more than the
// same weights divided by a power of two, or than small weights of all sizes.
static void test_largest_weights(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32,  TYPE_F16,    TYPE_BF16,   TYPE_Q8_0,  TYPE_Q4_0,  TYPE_Q4_1,
                                TYPE_Q5_0, TYPE_Q5_1,   TYPE_Q2_K,   TYPE_Q3_K,  TYPE_Q4_K,  TYPE_Q5_K,
                                TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_MXFP4, TYPE_TQ1_0, TYPE_TQ2_0};
    float w[QK_K];
    uint64_t random = 9;
    draw_importance(w, QK_K, &random);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int kind = 0; kind < 8; kind++)
            for (int weighted = 0; weighted < 2; weighted++) {
                float largest = encode_largest(types[i]);
                double at = error_near(types[i], largest, kind, weighted ? w : NULL);
                double below = error_near(types[i], largest * 0x1p-17f, kind, weighted ? w : NULL);
                double usual = error_near(types[i], largest * 0x1p-17f, 6, weighted ? w : NULL);
                if (!(at <= 1.2 * fmax(below, usual)))
                    fail_msg("%s, kind %d, weighted %d: %.4f, of small weights %.4f and %.4f", type_name(types[i]),
                             kind, weighted, at, below, usual);
            }
}

// Scales of super-blocks that are smaller than the smallest half: the integers beside them can still hold the weights.
static void test_small_weights(void **state) {
    (void)state;
    static const int types[] = {TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_XS};
    static const float sizes[] = {1e-5f, 3e-5f};
    static float x[MOST];
    uint64_t random = 7;
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
        double norm = 0;
        for (int i = 0; i < MOST; i++) {
            x[i] = sizes[k] * (test_uniform(&random) + test_uniform(&random) + test_uniform(&random));
            norm += (double)x[i] * (double)x[i];
        }
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
            double error = sqrt(error_of(types[i], x, NULL, MOST, NULL) / norm);
            if (!(error < (types[i] == TYPE_Q3_K ? 0.2 : 0.15)))
                fail_msg("%s, %g: %.3f", type_name(types[i]), (double)sizes[k], error);
        }
    }
}

// Encoding dequantised blocks again must give the same blocks if their weights use the whole range. So quantising a
// file twice loses nothing more.
static void test_again_costs_little(void **state) {
    (void)state;
    static float x[MOST], y[MOST];
    static uint8_t blocks[MOST];
    uint64_t random = 5;
    for (size_t i = 0; i < ARRAY_LEN(fitted); i++) {
        const TypeInfo *t = type_info(fitted[i]);
        draw_weights(x, MOST, 0.1f, &random);
        encode_row(t->id, x, NULL, MOST, blocks);
        t->dequantize(blocks, y, MOST);
        double first = weighted_error(x, y, NULL, MOST), again = error_of(t->id, y, NULL, MOST, NULL);
        if (!(again < 0.05 * first)) fail_msg("%s: %g after %g", t->name, again, first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_of_every_type),
        cmocka_unit_test(test_equal_weights),
        cmocka_unit_test(test_importance_lowers_the_weighted_error),
        cmocka_unit_test(test_rows_are_blocks),
        cmocka_unit_test(test_every_isa_gives_the_same_bits),
        cmocka_unit_test(test_odd_weights),
        cmocka_unit_test(test_largest_weights),
        cmocka_unit_test(test_small_weights),
        cmocka_unit_test(test_again_costs_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
