// bench/roofline_measure.c: measures the machine's ceilings (see roofline.h).
//
// Every thread repeats small portions of the same work until the time is up, and notes when each portion ended. The
// result is the highest rate of all threads together in any WINDOW of that time, so that one moment without other
// programs is enough.
#define _GNU_SOURCE
#include "bench/roofline.h"

#include "base/threads.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- the best window ------------------------------------------------------------------------------------------------

#define WINDOW 2e-3 // seconds

typedef struct {
    double time; // the end of a portion
    double cpu;  // CPU time of the thread until then, seconds
    double done; // bytes or operations of the thread until then
} RoofMark;

enum { MARKS = 4096 };

typedef struct {
    int n;
    RoofMark at[MARKS];
} RoofLog;

typedef double PortionWork(void *arg, int task); // works for about WINDOW / 10; returns its bytes or operations

typedef struct {
    PortionWork *work;
    void *arg;
    double from, until; // clock_now(): marks are made from `from` on
    RoofLog *logs;      // (n_tasks)
    int n_tasks;
    bool bursts; // all threads work and sleep in step (BURST, PERIOD)
} WindowRun;

// Bursts help if other programs run: the system prefers threads that wake up to threads that were running, so all
// threads of the measurement run at the same time after a pause. Without other programs, no pause is better.
#define BURST 6e-3 // seconds of work at the beginning of each PERIOD
#define PERIOD 10e-3

static double thread_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Binds the calling thread to the k-th CPU if the process may use exactly n CPUs. Otherwise the system may run two of
// the threads on one CPU while other programs run. *before: the previous affinity. False: nothing was changed.
static bool bind_to_cpu(int k, int n, cpu_set_t *before) {
    if (sched_getaffinity(0, sizeof *before, before) != 0 || CPU_COUNT(before) != n) return false;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, before) && k-- == 0) CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

static void add_mark(RoofLog *log, double time, double done) {
    log->at[log->n++] = (RoofMark){time, thread_cpu(), done};
}

static void sleep_for(double seconds) {
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

static void run_portions(void *arg, int task, int thread) {
    (void)thread;
    WindowRun *w = arg;
    RoofLog *log = &w->logs[task];
    cpu_set_t before;
    bool bound = bind_to_cpu(task, w->n_tasks, &before);
    double done = 0, now = clock_now();
    for (log->n = 0; now < w->until && log->n < MARKS - 1;) {
        double phase = fmod(now, PERIOD);
        if (w->bursts && phase > BURST) {
            if (now >= w->from) add_mark(log, now, done);
            sleep_for(PERIOD - phase);
            now = clock_now();
        }
        if (now >= w->from) add_mark(log, now, done);
        done += w->work(w->arg, task);
        now = clock_now();
    }
    if (bound) sched_setaffinity(0, sizeof before, &before);
}

// The state of a thread at `time`, interpolated between two marks. *i: the mark to search from; becomes the mark before
// `time`.
static RoofMark mark_at(const RoofLog *log, double time, int *i) {
    while (*i + 2 < log->n && log->at[*i + 1].time <= time) ++*i;
    RoofMark a = log->at[*i], b = log->at[*i + 1];
    double part = fmin(1, fmax(0, (time - a.time) / (b.time - a.time)));
    return (RoofMark){time, a.cpu + part * (b.cpu - a.cpu), a.done + part * (b.done - a.done)};
}

// The rate of all threads in the best window, bytes or operations per second. *share: their share of the CPU time in
// that window. Returns 0 if there is no window in which all threads were running.
static double best_window(const RoofLog *logs, int n_tasks, double *share) {
    double first = 0, last = INFINITY, best = 0;
    *share = 0;
    for (int k = 0; k < n_tasks; k++) {
        if (logs[k].n < 2) return 0;
        first = fmax(first, logs[k].at[0].time);
        last = fmin(last, logs[k].at[logs[k].n - 1].time);
    }
    int *begin = mem_alloc((size_t)n_tasks * 2 * sizeof *begin), *end = begin + n_tasks;
    for (double from = first; from + WINDOW <= last; from += WINDOW / 16) {
        double done = 0, cpu = 0;
        for (int k = 0; k < n_tasks; k++) {
            RoofMark a = mark_at(&logs[k], from, &begin[k]), b = mark_at(&logs[k], from + WINDOW, &end[k]);
            done += b.done - a.done, cpu += b.cpu - a.cpu;
        }
        if (done / WINDOW > best) best = done / WINDOW, *share = cpu / (WINDOW * n_tasks);
    }
    free(begin);
    return best;
}

typedef struct {
    ThreadPool *pool;
    RoofLog *logs; // (threads)
} Gauge;

typedef struct {
    double rate, share;
} Gauged;

// Measures for `seconds`, after `warm` seconds that are not counted, and returns the better of the result and `best`.
static Gauged gauge(const Gauge *g, Gauged best, PortionWork *work, void *arg, double warm, double seconds,
                    bool bursts) {
    enum { TRIES = 5 }; // in one try, some thread may never have run
    int n = threads_count(g->pool);
    double rate = 0, share = 0;
    for (int i = 0; i < TRIES && rate == 0; i++) {
        double from = clock_now() + warm;
        WindowRun w = {work, arg, from, from + seconds, g->logs, n, bursts};
        for (int k = 0; k < n; k++) g->logs[k].n = 0;
        threads_run(g->pool, run_portions, &w, n);
        rate = best_window(g->logs, n, &share);
    }
    return rate > best.rate ? (Gauged){rate, share} : best;
}

// ---- bandwidth ------------------------------------------------------------------------------------------------------

enum { PORTION = 2 << 20, PIECE = 8 << 20 }; // bytes read between two marks; bytes written by a task of fill_piece

typedef struct {
    size_t at; // the offset in all of its streams
    uint64_t sum;
} RoofReader;

// Each thread reads its slice of the buffer again and again, as several streams far apart.
typedef struct {
    uint8_t *data;
    size_t slice, stride; // bytes of a thread; bytes from one of its streams to the next
    int streams;
    size_t ahead;
    RoofReader *readers; // (threads)
} ReadArgs;

static void fill_piece(void *arg, int task, int thread) {
    (void)thread;
    // Pages that were never written would all map to the same zero page.
    memset(((ReadArgs *)arg)->data + (size_t)task * PIECE, task + 1, PIECE);
}

static double read_portion(void *arg, int task) {
    ReadArgs *a = arg;
    RoofReader *r = &a->readers[task];
    size_t part = PORTION / (size_t)a->streams;
    if (r->at + part > a->stride) r->at = 0;
    const uint8_t *from = a->data + (size_t)task * a->slice + r->at;
    r->sum += roofline_read_loop(from, a->stride, part, a->streams, a->ahead);
    r->at += part;
    return PORTION;
}

// The read bandwidth in GB/s. The best number of streams and prefetch distance depend on the machine, so several are
// tried, alternately.
static Gauged gauge_read(const Gauge *g, ReadArgs *a, size_t n) {
    static const struct {
        int streams;
        size_t ahead;
    } ways[] = {{1, 0}, {1, 8192}, {2, 0}, {2, 2048}, {4, 0}, {4, 1024}, {8, 0}};
    enum { TURNS = 4 };
    Gauged best = {0};
    a->slice = n / (size_t)threads_count(g->pool) / 4096 * 4096;
    for (int turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            a->streams = ways[i].streams;
            a->ahead = ways[i].ahead;
            // An odd multiple of 256: with a power of two, all streams would use the same few sets of every cache.
            a->stride = (a->slice / (size_t)a->streams / 512 - 9) * 512 + 256;
            best = gauge(g, best, read_portion, a, 0.005, 0.05, turn % 2 == 1);
        }
    best.rate *= 1e-9;
    return best;
}

// The size of the buffer: four times the caches, from 1 to 4 GiB, but at most a quarter of the available memory.
static size_t buffer_size(int threads) {
    size_t want = 4 * roofline_cache_bytes(), gib = (size_t)1 << 30, free = memory_available() / 4;
    if (want < gib) want = gib;
    if (want > 4 * gib) want = 4 * gib;
    if (want > free) want = free;
    size_t least = (size_t)threads * 2 * PORTION;
    return round_up(want > least ? want : least, PIECE);
}

// ---- units ----------------------------------------------------------------------------------------------------------

typedef struct {
    FlopLoop *loop;
    long rounds;
} FlopArgs;

static double flop_portion(void *arg, int task) {
    (void)task;
    FlopArgs *a = arg;
    return a->loop(a->rounds);
}

// The rate of a unit with all threads, in GFLOP/s or GOP/s. A warm-up lets the clock fall to what the unit sustains.
static Gauged gauge_unit(const Gauge *g, const char *unit) {
    FlopArgs a = {.loop = roofline_flop_loop(unit), .rounds = 1000};
    if (!a.loop) return (Gauged){0, 1};
    for (double took = 0; took < WINDOW / 20;) {
        a.rounds *= 2;
        took = INFINITY;
        for (int i = 0; i < 3; i++) { // the fastest of three: an interruption would make the portions too small
            double start = clock_now();
            a.loop(a.rounds);
            took = fmin(took, clock_now() - start);
        }
    }
    enum { TRIES = 4 }; // repeated while other programs took CPU time in the best window
    Gauged best = {0};
    for (int i = 0; i < TRIES && best.share < 0.97; i++) best = gauge(g, best, flop_portion, &a, 0.05, 0.2, i > 0);
    best.rate *= 1e-9;
    return best;
}

// ---- everything together --------------------------------------------------------------------------------------------

static void measure_all(Roofline *out, ReadArgs *a, size_t n, ThreadPool *pool, ThreadPool *one) {
    RoofLog *logs = mem_alloc((size_t)out->threads * sizeof *logs);
    Gauge all = {pool, logs}, single = {one, logs};
    Gauged best = gauge_read(&all, a, n);
    Gauged best_1 = out->threads > 1 ? gauge_read(&single, a, n) : best;
    out->read_gbs = fmax(best.rate, best_1.rate); // other programs may have slowed the run with all threads
    out->read_gbs_1 = best_1.rate;
    out->cpu_share = fmin(best.share, best_1.share);
    for (int i = 0; i < ROOFLINE_UNITS; i++) {
        best = gauge_unit(&all, roofline_units[i].name);
        out->gflops[i] = best.rate;
        out->cpu_share = fmin(out->cpu_share, best.share);
    }
    free(logs);
}

Status roofline_measure(Roofline *out) {
    ThreadPool *pool = threads_new(0), *one = threads_new(1);
    *out = (Roofline){.threads = threads_count(pool)};
    roofline_cpu_name(out->cpu, sizeof out->cpu);
    size_t n = buffer_size(out->threads);
    ReadArgs a = {.data = pages_alloc(n, true)};
    if (a.data) {
        a.readers = mem_alloc((size_t)out->threads * sizeof *a.readers);
        threads_run(pool, fill_piece, &a, (int)(n / PIECE));
        measure_all(out, &a, n, pool, one);
        free(a.readers);
    }
    pages_free(a.data, n);
    threads_free(pool);
    threads_free(one);
    return a.data ? OK : status_error(QUILL_MEMORY, "--roofline: %zu bytes to read from were refused by the system", n);
}
