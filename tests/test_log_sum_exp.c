// tests/test_log_sum_exp.c: base/log_sum_exp.h beside exp and log of the C library in double precision.
#include "tests/rig/testing.h"

#include "base/log_sum_exp.h"

#include <float.h>
#include <math.h>

enum { MOST = 3000 };

// NaN counts as -inf.
static double expected(const float *x, int n) {
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        if ((double)x[i] > most) most = (double)x[i];
    for (int i = 0; i < n; i++)
        if (x[i] == x[i]) sum += exp((double)x[i] - most);
    return most + log(sum);
}

static void test_random_rows(void **state) {
    (void)state;
    static float x[MOST];
    uint64_t random = 5;
    for (int round = 0; round < 2000; round++) {
        int n = 1 + (int)(test_random(&random) % (round % 4 ? 20 : MOST));
        float spread = exp2f(test_uniform(&random) * 7 + 3), middle = test_uniform(&random) * 100;
        for (int i = 0; i < n; i++) {
            static const float odd[] = {NAN, -INFINITY, -FLT_MAX};
            x[i] = test_random(&random) % 30 ? test_uniform(&random) * spread + middle : odd[test_random(&random) % 3];
        }
        x[test_random(&random) % (uint64_t)n] = middle;
        double found = log_sum_exp(x, n), right = expected(x, n);
        if (!(fabs(found - right) < 1e-6)) fail_msg("%d values: %.9f expected, %.9f found", n, right, found);
    }
}

// The error of one term: log(1 + exp(-d)) over all differences that matter in float.
static void test_every_difference(void **state) {
    (void)state;
    for (float d = 0; d < 120; d += 1.0f / 512) {
        float pair[2] = {3, 3 - d};
        double right = exp(-(double)d), found = expm1(log_sum_exp(pair, 2) - 3);
        if (fabs(found - right) > 3e-7 * right + 1e-15)
            fail_msg("exp(-%.6f): %.9g expected, %.9g found", (double)d, right, found);
    }
}

static void test_without_a_finite_value(void **state) {
    (void)state;
    float none[5] = {NAN, -INFINITY, NAN, -INFINITY, NAN};
    assert_true(log_sum_exp(none, 5) == -INFINITY);
    assert_true(log_sum_exp(none, 0) == -INFINITY);
    none[3] = INFINITY;
    assert_true(log_sum_exp(none, 5) == INFINITY);
    float extremes[2] = {FLT_MAX, -FLT_MAX};
    assert_true(log_sum_exp(extremes, 2) == (double)FLT_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rows),
        cmocka_unit_test(test_every_difference),
        cmocka_unit_test(test_without_a_finite_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
