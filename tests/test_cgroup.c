// tests/test_cgroup.c: limits of memory and processors from the files of control groups, versions 1 and 2.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/cgroup.h"

static char top[1024], proc[1100]; // replace CGROUP_MOUNT and CGROUP_PROC

static void put(const char *file, const char *text) {
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", top, file);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int begin(void **state) {
    (void)state;
    snprintf(top, sizeof top, "%s", test_tmp("cgroups"));
    snprintf(proc, sizeof proc, "%s/proc", top);
    nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static int end(void **state) {
    (void)state;
    return nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_none(void **state) {
    (void)state;
    assert_true(cgroup_memory("/nowhere", "/nowhere") == SIZE_MAX);
    assert_int_equal(cgroup_cpus("/nowhere", "/nowhere"), INT_MAX);
    put("memory.max", "max\n"); // the top group of a container
    put("memory.current", "1000\n");
    put("cpu.max", "max 100000\n");
    put("proc", "0::/\n");
    assert_true(cgroup_memory(proc, top) == SIZE_MAX);
    assert_int_equal(cgroup_cpus(proc, top), INT_MAX);
    put("proc", "no colons\n:\n0::\n0::/\n");
    assert_true(cgroup_memory(proc, top) == SIZE_MAX);
}

static void test_pages_of_files_are_free(void **state) {
    (void)state;
    put("proc", "0::/\n");
    put("memory.max", "1000000\n");
    put("memory.current", "990000\n");
    assert_int_equal(cgroup_memory(proc, top), 10000);
    put("memory.stat", "anon 90000\nfile 900000\ninactive_anon 70000\nactive_anon 20000\ninactive_file 700000\n"
                       "active_file 200000\n");
    assert_int_equal(cgroup_memory(proc, top), 910000);
    put("memory.current", "800000\n"); // not read at the same time as the pages of files
    assert_int_equal(cgroup_memory(proc, top), 1000000);
    put("memory.stat", "");
    put("memory.current", "1000001\n");
    assert_int_equal(cgroup_memory(proc, top), 0);
}

static void test_the_narrowest_group_counts(void **state) {
    (void)state;
    put("proc", "0::/user.slice/job.scope\n");
    put("user.slice/memory.max", "5000\n");
    put("user.slice/memory.current", "4500\n");
    put("user.slice/cpu.max", "250000 100000\n");
    put("user.slice/job.scope/memory.max", "3000\n");
    put("user.slice/job.scope/memory.current", "100\n");
    put("user.slice/job.scope/cpu.max", "max 100000\n");
    assert_int_equal(cgroup_memory(proc, top), 500);
    assert_int_equal(cgroup_cpus(proc, top), 3);
    put("user.slice/memory.max", "max\n");
    put("user.slice/job.scope/cpu.max", "50000 100000\n");
    assert_int_equal(cgroup_memory(proc, top), 2900);
    assert_int_equal(cgroup_cpus(proc, top), 1);
    // A container that sees only its own group.
    put("memory.max", "700\n");
    put("memory.current", "0\n");
    put("proc", "0::/docker/1f2e\n");
    assert_int_equal(cgroup_memory(proc, top), 700);
    put("proc", "0::/../../user.slice/job.scope\n");
    assert_int_equal(cgroup_memory(proc, top), 700);
}

static void test_version_1(void **state) {
    (void)state;
    put("proc", "9:cpu,cpuacct:/docker/1f\n8:memory:/docker/1f\n1:name=systemd:/docker/1f\n0::/docker/1f\n");
    put("cpu/docker/1f/cpu.cfs_quota_us", "150000\n");
    put("cpu/docker/1f/cpu.cfs_period_us", "100000\n");
    put("cpu/cpu.cfs_quota_us", "-1\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/memory.usage_in_bytes", "70000\n");
    put("memory/docker/1f/memory.limit_in_bytes", "60000\n");
    put("memory/docker/1f/memory.usage_in_bytes", "50000\n");
    put("memory/docker/1f/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 4000\ntotal_active_file 300\n");
    assert_int_equal(cgroup_memory(proc, top), 14300);
    assert_int_equal(cgroup_cpus(proc, top), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, begin, end),
        cmocka_unit_test_setup_teardown(test_pages_of_files_are_free, begin, end),
        cmocka_unit_test_setup_teardown(test_the_narrowest_group_counts, begin, end),
        cmocka_unit_test_setup_teardown(test_version_1, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
