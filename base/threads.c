// base/threads.c: see base/threads.h.
//
// One 64-bit ticket holds (epoch, number of tasks, next task). A worker claims a task by compare-and-swap on it, so a
// claim succeeds only for the run it was read from, and threads_run returns as soon as all tasks are done: it never
// waits for a worker that is still waking up.
#define _GNU_SOURCE
#include "base/threads.h"

#include "base/cgroup.h"
#include "base/mem.h"
#include "base/signals.h"
#include "base/sizes.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASK_BITS = 20, SPINS = 2000, SPINS_OWN = 20000 };
#define TASK_MASK ((1u << TASK_BITS) - 1)

struct ThreadPool {
    int n;
    pthread_t *threads; // (n - 1)
    _Atomic uint64_t ticket;
    _Atomic(ThreadWork *) work;
    _Atomic(void *) arg;
    _Atomic int done;
    _Atomic int sleepers;
    _Atomic bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

typedef struct {
    ThreadPool *pool;
    int index;
} Worker;

static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline bool ticket_has_task(uint64_t t) { return (t & TASK_MASK) < (t >> TASK_BITS & TASK_MASK); }

// Runs tasks of the current ticket until there are none left.
static void drain(ThreadPool *p, int thread) {
    uint64_t t = atomic_load(&p->ticket);
    while (ticket_has_task(t)) {
        ThreadWork *work = atomic_load(&p->work);
        void *arg = atomic_load(&p->arg);
        if (!atomic_compare_exchange_weak(&p->ticket, &t, t + 1)) continue;
        work(arg, (int)(t & TASK_MASK), thread);
        atomic_fetch_add(&p->done, 1);
        t = atomic_load(&p->ticket);
    }
}

static void *worker_main(void *arg) {
    Worker w = *(Worker *)arg;
    free(arg);
    signals_leave();
    ThreadPool *p = w.pool;
    while (!atomic_load(&p->stop)) {
        for (int i = 0; i < SPINS && !ticket_has_task(atomic_load(&p->ticket)); i++) cpu_relax();
        if (!ticket_has_task(atomic_load(&p->ticket))) {
            pthread_mutex_lock(&p->mutex);
            atomic_fetch_add(&p->sleepers, 1);
            while (!ticket_has_task(atomic_load(&p->ticket)) && !atomic_load(&p->stop))
                pthread_cond_wait(&p->wake, &p->mutex);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->mutex);
        }
        drain(p, w.index);
    }
    return NULL;
}

static void wake_sleepers(ThreadPool *p) {
    if (atomic_load(&p->sleepers) == 0) return;
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

// A run of more tasks than a ticket can count is divided into slices.
typedef struct {
    ThreadWork *work;
    void *arg;
    int first;
} Slice;

static void slice_work(void *arg, int task, int thread) {
    Slice *s = arg;
    s->work(s->arg, s->first + task, thread);
}

void threads_run(ThreadPool *p, ThreadWork *work, void *arg, int n_tasks) {
    enum { MOST = TASK_MASK - 1 };
    if (n_tasks > MOST) {
        for (int first = 0; first < n_tasks; first += int_min(MOST, n_tasks - first))
            threads_run(p, slice_work, &(Slice){work, arg, first}, int_min(MOST, n_tasks - first));
        return;
    }
    if (p->n == 1 || n_tasks <= 1) {
        for (int i = 0; i < n_tasks; i++) work(arg, i, 0);
        return;
    }
    atomic_store(&p->work, work);
    atomic_store(&p->arg, arg);
    atomic_store(&p->done, 0);
    uint64_t epoch = (atomic_load(&p->ticket) >> (2 * TASK_BITS)) + 1;
    atomic_store(&p->ticket, epoch << (2 * TASK_BITS) | (uint64_t)n_tasks << TASK_BITS);
    wake_sleepers(p);
    drain(p, 0);
    for (int i = 0; atomic_load(&p->done) < n_tasks; i++) {
        if (i < SPINS_OWN) cpu_relax();
        else sched_yield();
    }
}

ThreadPool *threads_new(int n) {
    ThreadPool *p = mem_alloc(sizeof *p);
    p->n = n > 0 ? n : threads_default();
    p->threads = mem_alloc((size_t)p->n * sizeof *p->threads);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (int i = 1; i < p->n; i++) {
        Worker *w = mem_alloc(sizeof *w);
        *w = (Worker){p, i};
        if (pthread_create(&p->threads[i - 1], NULL, worker_main, w) != 0) { // fewer workers, the same results
            free(w);
            p->n = i;
        }
    }
    return p;
}

void threads_free(ThreadPool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 1; i < p->n; i++) pthread_join(p->threads[i - 1], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    free(p->threads);
    free(p);
}

int threads_count(const ThreadPool *p) { return p->n; }

// Whether cpu is the first one of its core in the set: the CPUs of one core share its units.
static bool first_of_core(int cpu, const cpu_set_t *set) {
    char path[128], list[256] = "";
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (!f) return true;
    bool read = fgets(list, sizeof list, f) != NULL;
    fclose(f);
    if (!read) return true;
    for (char *s = list; *s && *s != '\n';) { // "0-1" or "0,64"
        char *end;
        long first = strtol(s, &end, 10), last = first;
        if (end == s) return true;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long c = first; c <= last && c < cpu; c++)
            if (c >= 0 && c < CPU_SETSIZE && CPU_ISSET((int)c, set)) return false;
        s = *end == ',' ? end + 1 : end;
    }
    return true;
}

int threads_default(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int cores = 0;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &set) && first_of_core(c, &set)) cores++;
    return int_max(1, int_min(cores, cgroup_cpus(CGROUP_PROC, CGROUP_MOUNT)));
}
