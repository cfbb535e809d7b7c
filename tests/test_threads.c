// tests/test_threads.c: every task must run exactly once, with any number of workers, in every run.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "base/threads.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_TASKS = 3000, MOST_THREADS = 8 };

typedef struct {
    _Atomic int times[MOST_TASKS];
    int result[MOST_TASKS]; // not atomic: the pool must make the writes visible
    _Atomic int bad_thread;
    int n_threads, salt;
    _Atomic int busy[MOST_THREADS]; // a worker runs only one task at a time
} PoolRun;

static void count_task(void *arg, int task, int thread) {
    PoolRun *r = arg;
    if (thread < 0 || thread >= r->n_threads || task < 0 || task >= MOST_TASKS) {
        atomic_fetch_add(&r->bad_thread, 1);
        return;
    }
    if (atomic_fetch_add(&r->busy[thread], 1) != 0) atomic_fetch_add(&r->bad_thread, 1);
    atomic_fetch_add(&r->times[task], 1);
    r->result[task] = task * 3 + r->salt;
    atomic_fetch_sub(&r->busy[thread], 1);
}

static void check_run(ThreadPool *p, PoolRun *r, int n_tasks) {
    memset(r, 0, sizeof *r);
    r->n_threads = threads_count(p);
    r->salt = n_tasks + 17;
    threads_run(p, count_task, r, n_tasks);
    assert_int_equal(r->bad_thread, 0);
    for (int i = 0; i < MOST_TASKS; i++) {
        if (r->times[i] != (i < n_tasks)) fail_msg("task %d of %d ran %d times", i, n_tasks, (int)r->times[i]);
        if (i < n_tasks) assert_int_equal(r->result[i], i * 3 + r->salt);
    }
}

static void test_every_task_once(void **state) {
    (void)state;
    static PoolRun r;
    static const int n_tasks[] = {0, 1, 2, 3, 7, 8, 9, 64, 1000, MOST_TASKS};
    for (int n = 1; n <= MOST_THREADS; n++) {
        ThreadPool *p = threads_new(n);
        assert_int_equal(threads_count(p), n);
        for (int round = 0; round < 40; round++)
            for (size_t i = 0; i < ARRAY_LEN(n_tasks); i++) check_run(p, &r, n_tasks[i]);
        threads_free(p);
    }
}

static void add_one(void *arg, int task, int thread) {
    (void)thread;
    ((_Atomic int *)arg)[task % 4]++;
}

// Short runs without pauses: a worker that wakes late must find nothing to do, never a task of another run.
static void test_many_short_runs(void **state) {
    (void)state;
    for (int n = 2; n <= 4; n++) {
        ThreadPool *p = threads_new(n);
        for (int round = 0; round < 20000; round++) {
            _Atomic int counts[4] = {0};
            int tasks = 2 + round % 7, sum = 0;
            threads_run(p, add_one, counts, tasks);
            for (int i = 0; i < 4; i++) sum += counts[i];
            assert_int_equal(sum, tasks);
        }
        threads_free(p);
    }
}

// Long pauses: the workers sleep, and each run must wake them again.
static void test_runs_after_sleep(void **state) {
    (void)state;
    static PoolRun r;
    ThreadPool *p = threads_new(3);
    for (int round = 0; round < 20; round++) {
        usleep(3000);
        check_run(p, &r, 50);
    }
    threads_free(p);
}

// Tasks that wait for each other end only if as many workers run at once.
typedef struct {
    _Atomic int arrived, seen[MOST_THREADS];
    int n;
} Meeting;

static void meet(void *arg, int task, int thread) {
    (void)task;
    Meeting *m = arg;
    m->seen[thread]++;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->n) sched_yield();
}

static void test_all_workers_take_part(void **state) {
    (void)state;
    for (int n = 2; n <= MOST_THREADS; n++) {
        ThreadPool *p = threads_new(n);
        for (int round = 0; round < 5; round++) {
            Meeting m = {.n = n};
            threads_run(p, meet, &m, n);
            for (int i = 0; i < n; i++) assert_int_equal(m.seen[i], 1);
        }
        threads_free(p);
    }
}

static void test_caller_is_worker_0(void **state) {
    (void)state;
    static PoolRun r;
    ThreadPool *p = threads_new(1);
    check_run(p, &r, 100); // n_threads is 1: any other thread index is wrong
    threads_free(p);
}

static void test_pools_side_by_side(void **state) {
    (void)state;
    static PoolRun r;
    for (int round = 0; round < 200; round++) {
        ThreadPool *a = threads_new(2), *b = threads_new(3);
        check_run(a, &r, 20);
        check_run(b, &r, 20);
        ThreadPool *c = threads_new(2);
        check_run(c, &r, 5);
        threads_free(a);
        check_run(b, &r, 7);
        threads_free(c);
        threads_free(b);
    }
    threads_free(NULL);
    threads_free(threads_new(4)); // a pool that is never used
}

static void test_default(void **state) {
    (void)state;
    int n = threads_default();
    assert_true(n >= 1 && n <= sysconf(_SC_NPROCESSORS_CONF));
    ThreadPool *p = threads_new(0);
    assert_int_equal(threads_count(p), n);
    threads_free(p);
    p = threads_new(-3);
    assert_int_equal(threads_count(p), n);
    threads_free(p);
}

static void test_default_follows_affinity(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        assert_int_equal(threads_default(), 1); // also if the CPU is the second thread of a core
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

// More workers than processors: no worker may wait for one that has no processor.
static void test_on_one_processor(void **state) {
    (void)state;
    static PoolRun r;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    ThreadPool *p = threads_new(4);
    for (int round = 0; round < 50; round++) check_run(p, &r, 100);
    threads_free(p);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

// More tasks than one ticket can count are run in slices.
static void mark_task(void *arg, int task, int thread) {
    (void)thread;
    ((uint8_t *)arg)[task]++;
}

static void test_more_tasks_than_a_ticket_holds(void **state) {
    (void)state;
    enum { N = (1 << 21) + 3 };
    uint8_t *times = calloc(N, 1);
    ThreadPool *p = threads_new(2);
    threads_run(p, mark_task, times, N);
    threads_free(p);
    for (int i = 0; i < N; i++)
        if (times[i] != 1) fail_msg("task %d ran %d times", i, times[i]);
    free(times);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),
        cmocka_unit_test(test_many_short_runs),
        cmocka_unit_test(test_runs_after_sleep),
        cmocka_unit_test(test_all_workers_take_part),
        cmocka_unit_test(test_caller_is_worker_0),
        cmocka_unit_test(test_pools_side_by_side),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_default_follows_affinity),
        cmocka_unit_test(test_on_one_processor),
        cmocka_unit_test(test_more_tasks_than_a_ticket_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
