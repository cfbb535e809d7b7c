// tests/test_shim.c: the host that runs GPU kernels in tests must report faults of a kernel: the test uses a kernel
// with each kind of fault.
#include "tests/rig/testing.h"

#include "gpu/launch.h"
#include "tests/rig/shim_kernels.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEEDS = 20 };

// AddressSanitizer itself ends the process at an access out of bounds.
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN true
#endif
#endif
#ifndef HAS_ASAN
#define HAS_ASAN false
#endif

typedef struct {
    float *device_in, *device_out;
    float out[SHIM_THREADS]; // a copy of device_out
    char fault[600];         // message of the last launch; empty if there was no fault
    bool right;              // the results were those of SHIM_RIGHT
} ShimRun;

static ShimRun run_new(void) {
    ShimRun r = {.device_in = shim_new(SHIM_THREADS * sizeof(float))};
    float in[SHIM_THREADS];
    for (int i = 0; i < SHIM_THREADS; i++) in[i] = (float)i;
    shim_copy(r.device_in, in, sizeof in);
    return r;
}

static void launch(ShimRun *r, ShimKernel which, uint64_t seed) {
    shim_free(r->device_out);
    r->device_out = shim_new(SHIM_THREADS * sizeof(float));
    (void)gpu_launch_error();
    shim_seed(seed);
    shim_run(which, r->device_out, r->device_in);
    const Status *error = gpu_launch_error();
    snprintf(r->fault, sizeof r->fault, "%.599s", error ? error->message : "");
    shim_copy(r->out, r->device_out, sizeof r->out);
    r->right = true;
    for (int i = 0; i < SHIM_THREADS; i++) r->right &= r->out[i] == (float)(SHIM_THREADS - 1 - i);
}

static void run_free(ShimRun *r) {
    shim_free(r->device_in);
    shim_free(r->device_out);
}

static void right_under_every_order(void **state) {
    (void)state;
    ShimRun r = run_new();
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        launch(&r, SHIM_RIGHT, seed);
        assert_string_equal(r.fault, "");
        assert_true(r.right);
    }
    run_free(&r);
}

static void missing_barrier_shows(void **state) {
    (void)state;
    ShimRun r = run_new();
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        launch(&r, SHIM_NO_BARRIER, seed);
        assert_string_equal(r.fault, "");
        assert_false(r.right);
    }
    run_free(&r);
}

static void unwritten_output_is_nan(void **state) {
    (void)state;
    ShimRun r = run_new();
    launch(&r, SHIM_UNWRITTEN, 1);
    for (int i = 0; i < SHIM_THREADS; i++) assert_int_equal(isnan(r.out[i]) != 0, i == 7);
    run_free(&r);
}

static void fault_names(ShimKernel which, const char *part) {
    ShimRun r = run_new();
    launch(&r, which, 1);
    if (!strstr(r.fault, part)) fail_msg("a fault with \"%s\" expected, \"%s\" found", part, r.fault);
    launch(&r, SHIM_RIGHT, 1); // the machine must work after a fault
    assert_string_equal(r.fault, "");
    assert_true(r.right);
    run_free(&r);
}

static void barriers_that_not_all_reach(void **state) {
    (void)state;
    fault_names(SHIM_HALF_BARRIER, "at the barrier at");
    fault_names(SHIM_TWO_BARRIERS, "stands still");
}

static void lane_that_is_over(void **state) {
    (void)state;
    fault_names(SHIM_LANE_MISSING, "lane 8");
}

static void misaligned_load(void **state) {
    (void)state;
    fault_names(SHIM_MISALIGNED, "not aligned");
}

static void more_shared_memory_than_given(void **state) {
    (void)state;
    fault_names(SHIM_TOO_MUCH, "was launched with 384");
}

static void copy_read_before_it_is_there(void **state) {
    (void)state;
    ShimRun r = run_new();
    launch(&r, SHIM_WAIT, 1);
    assert_true(r.right);
    launch(&r, SHIM_NO_WAIT, 1);
    for (int i = 0; i < SHIM_THREADS; i++) assert_true(isnan(r.out[i]));
    run_free(&r);
}

static void launches_before_their_time(void **state) {
    (void)state;
    ShimRun r = run_new();
    launch(&r, SHIM_EARLY, 1);
    assert_string_equal(r.fault, "");
    assert_true(r.right);
    run_free(&r);
    fault_names(SHIM_EARLY_NO_WAIT, "thread 7 of an early launch did not wait");
    fault_names(SHIM_EARLY_WRITES, "wrote before the launch before it ended");
}

// Runs in a child process: the sanitizer ends it, or the check of the red zone reports the fault.
static void out_of_bounds(ShimKernel which, const char *part) {
    if (!HAS_ASAN) {
        fault_names(which, part);
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        ShimRun r = run_new();
        launch(&r, which, 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void writes_out_of_bounds(void **state) {
    (void)state;
    out_of_bounds(SHIM_PAST_END, "written past an allocation of 384 bytes");
    out_of_bounds(SHIM_PAST_SHARED, "wrote past piece 0");
}

// A child process dies where the host reads device memory.
static void host_without_access(void **state) {
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); // in place of the handler of cmocka
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        ShimRun r = run_new();
        volatile float first = r.device_in[0];
        (void)first;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void shuffles_sum_a_warp(void **state) {
    (void)state;
    ShimRun r = run_new();
    launch(&r, SHIM_WARP, 3);
    for (int i = 0; i < SHIM_THREADS; i++) assert_true(r.out[i] == (float)(32 * (i / 32 * 32) + 31 * 16));
    run_free(&r);
}

static void fragments_multiply(void **state) {
    (void)state;
    uint64_t random = 5;
    for (int type = TYPE_F16; type <= TYPE_BF16; type += TYPE_BF16 - TYPE_F16) {
        uint16_t a[16 * 16], b[16 * 8], *device_a = shim_new(sizeof a), *device_b = shim_new(sizeof b);
        float acc[16 * 8], *device_acc = shim_new(sizeof acc), values[2][16 * 16];
        for (int i = 0; i < 16 * 16; i++) {
            float v = values[0][i] = (float)(int)(test_random(&random) % 17) - 8;
            a[i] = type == TYPE_F16 ? float_half(v) : float_bf16(v);
        }
        for (int i = 0; i < 16 * 8; i++) {
            float v = values[1][i] = (float)(int)(test_random(&random) % 17) - 8;
            b[i] = type == TYPE_F16 ? float_half(v) : float_bf16(v);
        }
        shim_copy(device_a, a, sizeof a);
        shim_copy(device_b, b, sizeof b);
        shim_multiply(type, device_acc, device_a, device_b);
        assert_null(gpu_launch_error());
        shim_copy(acc, device_acc, sizeof acc);
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 8; column++) {
                float sum = 0;
                for (int k = 0; k < 16; k++) sum += values[0][row * 16 + k] * values[1][k * 8 + column];
                assert_true(acc[row * 8 + column] == sum);
            }
        shim_free(device_a);
        shim_free(device_b);
        shim_free(device_acc);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_under_every_order),
        cmocka_unit_test(missing_barrier_shows),
        cmocka_unit_test(unwritten_output_is_nan),
        cmocka_unit_test(barriers_that_not_all_reach),
        cmocka_unit_test(lane_that_is_over),
        cmocka_unit_test(misaligned_load),
        cmocka_unit_test(more_shared_memory_than_given),
        cmocka_unit_test(copy_read_before_it_is_there),
        cmocka_unit_test(launches_before_their_time),
        cmocka_unit_test(writes_out_of_bounds),
        cmocka_unit_test(host_without_access),
        cmocka_unit_test(shuffles_sum_a_warp),
        cmocka_unit_test(fragments_multiply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
