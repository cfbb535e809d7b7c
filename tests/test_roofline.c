// tests/test_roofline.c: the file of stored ceilings, their use for fewer threads, runs that exceed them, and the loops
// that measure them.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "bench/roofline.h"
#include "base/threads.h"

#include <sys/stat.h>
#include <unistd.h>

// The value of a unit, by its name.
static double *unit_of(Roofline *r, const char *name) {
    for (int i = 0; i < ROOFLINE_UNITS; i++)
        if (strcmp(roofline_units[i].name, name) == 0) return &r->gflops[i];
    fail_msg("%s: a unit expected", name);
    return NULL;
}

static Roofline roofline_of_here(void) {
    Roofline r = {.threads = threads_default(), .read_gbs = 30.25, .read_gbs_1 = 15.5};
    roofline_cpu_name(r.cpu, sizeof r.cpu);
    return r;
}

// Makes `dir` the cache directory of the user.
static void begin_cache(char dir[256]) {
    snprintf(dir, 256, "%s", test_tmp("quill-cache-XXXXXX"));
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("XDG_CACHE_HOME", dir, 1), 0);
}

static void end_cache(const char *dir) {
    char path[320];
    snprintf(path, sizeof path, "%s/quill/roofline.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/quill", dir);
    assert_int_equal(rmdir(path), 0); // no other file remains
    assert_int_equal(rmdir(dir), 0);
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_file(void **state) {
    (void)state;
    char dir[256];
    begin_cache(dir);
    Roofline r = roofline_of_here(), back;
    *unit_of(&r, "amx") = 7600, *unit_of(&r, "vnni") = 1900;
    assert_false(roofline_load(&back));
    assert_true(roofline_save(&r));
    assert_true(roofline_load(&back));
    assert_true(back.threads == r.threads && back.read_gbs == 30.25 && back.read_gbs_1 == 15.5 && !back.raised);
    assert_true(*unit_of(&back, "amx") == 7600 && *unit_of(&back, "vnni") == 1900 && *unit_of(&back, "avx2") == 0);
    assert_string_equal(back.cpu, r.cpu);
    r.read_gbs = 20, *unit_of(&r, "amx") = 100; // a new measurement replaces the stored one
    assert_true(roofline_save(&r) && roofline_load(&back));
    assert_true(back.read_gbs == 20 && *unit_of(&back, "amx") == 100);
    end_cache(dir);
}

// A file of another machine, thread count or version of the measurement must not be used.
static void test_other_keys(void **state) {
    (void)state;
    char dir[256], path[320], *text = NULL;
    size_t n = 0;
    begin_cache(dir);
    snprintf(path, sizeof path, "%s/quill/roofline.json", dir);
    Roofline r = roofline_of_here(), back;
    r.threads++; // the same CPU with more cores
    assert_true(roofline_save(&r));
    assert_false(roofline_load(&back));
    r.threads--;
    snprintf(r.cpu, sizeof r.cpu, "another machine's");
    assert_true(roofline_save(&r));
    assert_false(roofline_load(&back));
    assert_true(back.threads == 0);

    r = roofline_of_here();
    assert_true(roofline_save(&r) && roofline_load(&back));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(getdelim(&text, &n, 0, f) > 0);
    fclose(f);
    char *version = strstr(text, "\"version\": ");
    assert_non_null(version);
    version[strlen("\"version\": ")] = '1'; // version 1 of the measurement
    write_text(path, text);
    assert_false(roofline_load(&back));
    assert_true(back.threads == 0);
    free(text);
    end_cache(dir);
}

static void test_damaged(void **state) {
    (void)state;
    char dir[256], path[320];
    begin_cache(dir);
    snprintf(path, sizeof path, "%s/quill/roofline.json", dir);
    Roofline r = roofline_of_here(), back;
    assert_true(roofline_save(&r));
    const char *damaged[] = {"", "{", "[]", "null", "\xff\xfe"};
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
        write_text(path, damaged[i]);
        assert_false(roofline_load(&back));
    }
    for (int version = 0; version < 10; version++) { // one of them is the measurement's
        const char *const rest[] = {"}", ",\"cpu\":3,\"threads\":[]}"};
        for (size_t i = 0; i < ARRAY_LEN(rest); i++) {
            char text[80];
            snprintf(text, sizeof text, "{\"version\":%d%s", version, rest[i]);
            write_text(path, text);
            assert_false(roofline_load(&back));
        }
    }
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); // opening a FIFO must not wait for a writer
    assert_false(roofline_load(&back));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(roofline_load(&back));
    assert_false(roofline_save(&r)); // leaves no file
    assert_int_equal(rmdir(path), 0);
    end_cache(dir);
}

static Roofline roofline_of_four(void) {
    Roofline r = {.threads = 4, .read_gbs = 40, .read_gbs_1 = 15};
    *unit_of(&r, "avx2") = 100, *unit_of(&r, "avx512") = 200, *unit_of(&r, "amx") = 800;
    return r;
}

static void test_scaling(void **state) {
    (void)state;
    Roofline r = roofline_of_four();
    assert_true(roofline_read(&r, 1) == 15 && roofline_read(&r, 2) == 30 && roofline_read(&r, 3) == 40);
    assert_true(roofline_read(&r, 4) == 40 && roofline_read(&r, 8) == 40);
    assert_true(roofline_peak_gflops(&r, "amx", 4) == 800 && roofline_peak_gflops(&r, "amx", 1) == 200);
    assert_true(roofline_peak_gflops(&r, "amx", 8) == 800 && roofline_peak_gflops(&r, "avx512", 4) == 200 &&
                roofline_peak_gflops(&r, "avx2", 2) == 50);
    assert_true(roofline_peak_gflops(&r, "scalar", 4) == 0 && roofline_peak_gflops(&(Roofline){0}, "amx", 4) == 0);
}

// A rate above the ceiling raises it and counts as 100%. With fewer threads, the ceiling is estimated from that of all
// threads.
static void test_shares(void **state) {
    (void)state;
    Roofline r = roofline_of_four();
    assert_true(roofline_share_of_unit(&r, "amx", 4, 200) == 0.25 && roofline_share_of_unit(&r, "amx", 1, 200) == 1);
    assert_true(roofline_share_of_unit(&r, "vnni", 4, 200) == 0 && roofline_share_of_unit(&r, "scalar", 4, 1) == 0);
    assert_true(roofline_share_of_read(&r, 4, 10, 1e12) == 0.25 && roofline_share_of_read(&r, 1, 15, 1e12) == 1);
    assert_false(r.raised);
    assert_true(roofline_share_of_unit(&r, "avx512", 2, 150) == 1 && r.raised);
    assert_true(*unit_of(&r, "avx512") == 300 && roofline_peak_gflops(&r, "avx512", 2) == 150);
    assert_true(*unit_of(&r, "avx2") == 100 && *unit_of(&r, "amx") == 800);

    r.raised = false;
    // the bytes fit into the caches, so this is not a rate of memory
    assert_true(roofline_share_of_read(&r, 4, 50, 1e6) == 0 && !r.raised);
    assert_true(roofline_share_of_read(&r, 4, 50, 1e12) == 1 && r.raised);
    assert_true(r.read_gbs == 50 && r.read_gbs_1 == 15);
    assert_true(roofline_share_of_read(&r, 1, 20, 1e12) == 1 && r.read_gbs == 50 && r.read_gbs_1 == 20);
    assert_true(roofline_share_of_read(&r, 2, 60, 1e12) == 1 && r.read_gbs == 60 && r.read_gbs_1 == 30);
    assert_true(roofline_read(&r, 2) == 60);
    assert_true(roofline_cache_bytes() >= 1 << 16);
}

// A raised ceiling is stored together with ceilings that another run has raised meanwhile. Without a stored file
// nothing is written.
static void test_keep_raised(void **state) {
    (void)state;
    char dir[256];
    begin_cache(dir);
    Roofline r = roofline_of_here(), other, back;
    *unit_of(&r, "avx2") = 100;
    other = r;
    assert_true(roofline_save(&r));
    assert_true(roofline_share_of_unit(&r, "avx2", r.threads, 120) == 1);
    assert_true(roofline_share_of_read(&other, r.threads, 35, 1e12) == 1);
    roofline_keep_raised(&r, true);
    roofline_keep_raised(&other, true);
    assert_true(roofline_load(&back));
    assert_true(*unit_of(&back, "avx2") == 120 && back.read_gbs == 35 && !r.raised);
    end_cache(dir);
    assert_true(roofline_share_of_unit(&r, "avx2", r.threads, 130) == 1);
    roofline_keep_raised(&r, true);
    assert_false(roofline_load(&back));
}

// Measured costs of steps are stored unchanged; impossible values are rejected.
static void test_step_costs(void **state) {
    (void)state;
    char dir[256], path[320];
    begin_cache(dir);
    Roofline r = roofline_of_here(), back;
    r.steps[0] = (StepCosts){{1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4}};
    snprintf(r.steps_unit, sizeof r.steps_unit, "vnni");
    assert_true(roofline_save(&r) && roofline_load(&back));
    assert_memory_equal(&back.steps, &r.steps, sizeof r.steps);
    assert_string_equal(back.steps_unit, "vnni");
    Buf out = {0};
    roofline_print(&back, &out);
    assert_non_null(strstr(out.data, "8 rows of Q8_0                   2.5 steps of one\n"));
    assert_null(strstr(out.data, "Q4_K"));
    buf_free(&out);
    r.steps[1] = (StepCosts){{1, 1.25, 1.5, 1.4, 2, 2.5, 3, 4}}; // impossible: four rows are faster than three
    assert_true(roofline_save(&r) && roofline_load(&back));
    assert_true(back.steps[0].at[7] == 4 && back.steps[1].at[0] == 0);
    json_t *j = roofline_json(&r);
    json_object_set_new(j, "version", json_integer(3));
    json_object_set_new(j, "cpu", json_string(r.cpu));
    json_object_set_new(j, "steps_q8_0", json_string("many"));
    json_dump_file(j, (snprintf(path, sizeof path, "%s/quill/roofline.json", dir), path), 0);
    json_decref(j);
    assert_true(roofline_load(&back) && back.steps[0].at[0] == 0);
    end_cache(dir);
}

static void test_print(void **state) {
    (void)state;
    Roofline r = roofline_of_four();
    Buf out = {0};
    roofline_print(&r, &out);
    assert_non_null(strstr(out.data, "bf16 tiles, AMX                800.0 GFLOP/s\n"));
    assert_null(strstr(out.data, "int8")); // units that this CPU does not have are not shown
    buf_free(&out);
    json_t *j = roofline_json(&r);
    assert_true(json_number_value(json_object_get(j, "amx_gflops")) == 800);
    assert_true(json_is_number(json_object_get(j, "vnni_gops")));
    assert_int_equal(json_object_size(j), 3 + ROOFLINE_UNITS);
    json_decref(j);
}

static void test_loops(void **state) {
    (void)state;
    uint64_t *data = aligned_alloc(64, 4096), sum = 0; // the sum does not depend on the number of streams
    for (size_t i = 0; i < 512; i++) sum += data[i] = i * 0x9e3779b97f4a7c15u;
    for (size_t streams = 1; streams <= 8; streams *= 2)
        for (size_t ahead = 0; ahead <= 512; ahead += 512)
            assert_true(roofline_read_loop(data, 4096 / streams, 4096 / streams, (int)streams, ahead) == sum);
    free(data);
    for (int i = 0; i < ROOFLINE_UNITS; i++) {
        FlopLoop *loop = roofline_flop_loop(roofline_units[i].name);
        if (loop) assert_true(loop(10) > 0 && loop(20) == 2 * loop(10));
    }
    assert_null(roofline_flop_loop("mmx"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),    cmocka_unit_test(test_other_keys), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_scaling), cmocka_unit_test(test_shares),     cmocka_unit_test(test_keep_raised),
        cmocka_unit_test(test_print),   cmocka_unit_test(test_loops),      cmocka_unit_test(test_step_costs),
    };
    return cmocka_run_group_tests_name("roofline", tests, NULL, NULL);
}
