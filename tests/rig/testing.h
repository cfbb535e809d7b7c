// tests/rig/testing.h: shared by the unit tests: cmocka with its headers, the outside test data, a scratch directory.
#ifndef QUILL_TESTING_H
#define QUILL_TESTING_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/base.h"

#define assert_ok(status)                                                                                              \
    do {                                                                                                               \
        Status assert_status_ = (status);                                                                              \
        if (assert_status_.code) fail_msg("code %d: %s", assert_status_.code, assert_status_.message);                 \
    } while (0)

// Path of a file under $QUILL_TEST_DATA; skips the running test with a message if the variable is not set. The last
// four results stay valid.
static inline const char *test_data(const char *file) {
    static char path[4][1024];
    static int next;
    const char *dir = getenv("QUILL_TEST_DATA");
    if (!dir || !*dir) {
        print_message("skipped: QUILL_TEST_DATA is not set; it would have used %s\n", file);
        skip();
    }
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", dir, file);
    return out;
}

// Path of a file in the run's scratch directory ($QUILL_TEST_TMP, else /tmp). The last four results stay valid.
static inline const char *test_tmp(const char *file) {
    static char path[4][1024];
    static int next;
    const char *dir = getenv("QUILL_TEST_TMP");
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", dir && *dir ? dir : "/tmp", file);
    return out;
}

// A small random generator that is independent of the code under test.
static inline uint64_t test_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
// A random number in [-1, 1).
static inline float test_uniform(uint64_t *state) { return (float)(test_random(state) >> 40) * 0x1p-23f - 1.0f; }

// The larger of two errors; NaN if one of them is NaN, which fails every limit.
static inline double test_worse(double worst, double error) { return worst != worst || error <= worst ? worst : error; }

// The relative L2 distance of n floats; the absolute distance if all of `want` is 0.
static inline double test_distance(const float *got, const float *want, size_t n) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    return norm > 0 ? sqrt(error / norm) : sqrt(error);
}

#endif
