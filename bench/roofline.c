// bench/roofline.c: measures the machine's ceilings, keeps them, and scales them (see roofline.h). Every figure is the
// best of several tries: a ceiling is what the machine can do when nobody disturbs it.
#define _GNU_SOURCE
#include "bench/roofline.h"

#include "base/tempfile.h"
#include "base/jsonio.h"
#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

// ---- time -----------------------------------------------------------------------------------------------------------

// What the process got of the CPU time that its threads could have had, over the runs that keep all of them busy.
typedef struct {
    double cpu, wall; // seconds of all threads
} Share;

// Runs the tasks; seconds.
static double timed_run(ThreadPool *pool, ThreadWork *work, void *arg, int n_tasks, Share *share) {
    clock_t cpu = clock();
    double start = clock_now();
    threads_run(pool, work, arg, n_tasks);
    double seconds = clock_now() - start;
    share->cpu += (double)(clock() - cpu) / CLOCKS_PER_SEC;
    share->wall += seconds * threads_count(pool);
    return seconds;
}

// ---- bandwidth ------------------------------------------------------------------------------------------------------

enum { PIECE = 8 << 20 }; // bytes that a task reads; a multiple of what roofline_read_loop asks for

typedef struct {
    uint8_t *data;
    int streams;
    atomic_uint_fast64_t sum; // of everything read
} ReadArgs;

static void fill_piece(void *arg, int task, int thread) {
    (void)thread;
    memset(((ReadArgs *)arg)->data + (size_t)task * PIECE, task + 1, PIECE); // untouched pages would all be one page
}

static void read_piece(void *arg, int task, int thread) {
    (void)thread;
    ReadArgs *a = arg;
    atomic_fetch_add(&a->sum, roofline_read_loop(a->data + (size_t)task * PIECE, PIECE, a->streams));
}

// GB/s, the best of some passes; how many streams do best differs between machines.
static double measure_read(ThreadPool *pool, ReadArgs *a, int n_pieces, Share *share) {
    static const int streams[] = {1, 2, 4, 8};
    double best = INFINITY;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
            a->streams = streams[i];
            best = fmin(best, timed_run(pool, read_piece, a, n_pieces, share));
        }
    return (double)n_pieces * PIECE / best * 1e-9;
}

// A GiB, or a quarter of what is free.
static int count_pieces(void) {
    size_t n = (size_t)1 << 30, quarter = memory_available() / 4;
    return int_max(8, (int)((quarter < n ? quarter : n) / PIECE));
}

// ---- FLOPs ----------------------------------------------------------------------------------------------------------

typedef struct {
    FlopLoop *loop;
    long rounds;
    double flops; // of a task
} FlopArgs;

static void run_loop(void *arg, int task, int thread) {
    FlopArgs *a = arg;
    (void)thread;
    double n = a->loop(a->rounds);
    if (task == 0) a->flops = n; // all tasks do the same
}

// GFLOP/s of all threads; tasks of about 2 ms, so that a thread that was put aside does not hold up the others.
static double measure_flops(ThreadPool *pool, const char *isa, Share *share) {
    enum { TASKS_EACH = 20, TRIES = 4 };
    FlopArgs a = {.loop = roofline_flop_loop(isa), .rounds = 10000};
    if (!a.loop) return 0;
    for (double start = clock_now(), took = 0; took < 2e-3; took = clock_now() - start) {
        a.rounds *= 2;
        start = clock_now();
        a.loop(a.rounds);
    }
    double best = INFINITY;
    int n_tasks = TASKS_EACH * threads_count(pool);
    for (int i = 0; i < TRIES; i++) best = fmin(best, timed_run(pool, run_loop, &a, n_tasks, share));
    return a.flops * n_tasks / best * 1e-9;
}

Status roofline_measure(Roofline *out) {
    int n_pieces = count_pieces();
    size_t n = (size_t)n_pieces * PIECE;
    ReadArgs a = {.data = pages_alloc(n, true)};
    if (!a.data) return status_error(QUILL_MEMORY, "--roofline: %zu bytes to read from were refused by the system", n);
    ThreadPool *pool = threads_new(0), *one = threads_new(1);
    *out = (Roofline){.threads = threads_count(pool)};
    Share share = {0};
    roofline_cpu_name(out->cpu, sizeof out->cpu);
    threads_run(pool, fill_piece, &a, n_pieces);
    out->read_gbs = measure_read(pool, &a, n_pieces, &share);
    out->read_gbs_1 = out->threads == 1 ? out->read_gbs : measure_read(one, &a, n_pieces, &share);
    out->avx2_gflops = measure_flops(pool, "avx2", &share);
    out->avx512_gflops = measure_flops(pool, "avx512", &share);
    out->amx_gflops = measure_flops(pool, "amx", &share);
    out->cpu_share = fmin(1, share.cpu / share.wall);
    threads_free(pool);
    threads_free(one);
    pages_free(a.data, n);
    return OK;
}

// ---- the file -------------------------------------------------------------------------------------------------------

enum { FILE_VERSION = 1, MAX_FILE = 4096 };

void roofline_cpu_name(char *out, size_t cap) {
    struct utsname u;
    snprintf(out, cap, "%s", uname(&u) == 0 ? u.machine : "unknown");
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        int n = (int)strcspn(colon + 1, "\n");
        while (n > 0 && *++colon == ' ') n--;
        snprintf(out, cap, "%.*s", n, colon);
        break;
    }
    if (f) fclose(f);
    out[utf8_whole(out, strlen(out))] = 0; // the cut must not leave half a character: JSON would refuse it
}

static bool file_path(char *out, size_t cap) {
    char dir[1024];
    return dirs_cache(dir, sizeof dir) && (size_t)snprintf(out, cap, "%s/roofline.json", dir) < cap;
}

// The file's bytes if it is a small regular file; another kind must not block or flood us.
static size_t read_small(const char *path, char *out, size_t cap) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    size_t n = 0;
    if (fd < 0) return 0;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 && (size_t)info.st_size < cap)
        for (ssize_t got; n < cap && (got = fd_read(fd, out + n, cap - n)) > 0;) n += (size_t)got;
    close(fd);
    return n;
}

// A stored figure: a number that a machine could have.
static bool get_figure(const json_t *o, const char *key, double *out) {
    const json_t *v = json_object_get(o, key);
    *out = json_number_value(v);
    return json_is_number(v) && *out >= 0 && *out < 1e9;
}

static bool from_json(const json_t *o, Roofline *r) {
    double version, threads;
    const char *cpu = json_string_value(json_object_get(o, "cpu"));
    if (!get_figure(o, "version", &version) || !get_figure(o, "threads", &threads) ||
        !get_figure(o, "read_gbs", &r->read_gbs) || !get_figure(o, "read_gbs_1", &r->read_gbs_1) ||
        !get_figure(o, "avx2_gflops", &r->avx2_gflops) || !get_figure(o, "avx512_gflops", &r->avx512_gflops) ||
        !get_figure(o, "amx_gflops", &r->amx_gflops))
        return false;
    roofline_cpu_name(r->cpu, sizeof r->cpu);
    r->threads = threads_default();
    // The same model of CPU with another number of cores is another machine.
    return version == FILE_VERSION && threads == r->threads && r->read_gbs > 0 && cpu && strcmp(cpu, r->cpu) == 0;
}

bool roofline_load(Roofline *out) {
    char path[1100], text[MAX_FILE];
    *out = (Roofline){0};
    size_t n = file_path(path, sizeof path) ? read_small(path, text, sizeof text) : 0;
    json_t *o = n > 0 ? jsonio_read((Str){text, n}, 0, NULL) : NULL;
    bool good = o && from_json(o, out);
    if (!good) *out = (Roofline){0};
    json_decref(o);
    return good;
}

void roofline_keep_larger(Roofline *r, const Roofline *other) {
    r->read_gbs = fmax(r->read_gbs, other->read_gbs);
    r->read_gbs_1 = fmax(r->read_gbs_1, other->read_gbs_1);
    r->avx2_gflops = fmax(r->avx2_gflops, other->avx2_gflops);
    r->avx512_gflops = fmax(r->avx512_gflops, other->avx512_gflops);
    r->amx_gflops = fmax(r->amx_gflops, other->amx_gflops);
}

bool roofline_save(const Roofline *r) {
    char path[1100];
    if (!file_path(path, sizeof path)) return false;
    json_t *o = json_pack("{s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "version", FILE_VERSION, "cpu", r->cpu, "threads",
                          r->threads, "read_gbs", r->read_gbs, "read_gbs_1", r->read_gbs_1, "avx2_gflops",
                          r->avx2_gflops, "avx512_gflops", r->avx512_gflops, "amx_gflops", r->amx_gflops);
    Buf text = {0};
    jsonio_print(o, JSON_INDENT(2) | JSON_REAL_PRECISION(6), &text);
    json_decref(o);
    TempFile temp;
    Status st = tempfile_open(path, 0666, &temp);
    if (!st.code) st = tempfile_publish(&temp, fd_write_all(temp.fd, text.data, text.n));
    buf_free(&text);
    return !st.code;
}

// ---- what the figures say -------------------------------------------------------------------------------------------

double roofline_read(const Roofline *r, int threads) {
    return threads >= r->threads ? r->read_gbs : fmin(r->read_gbs, r->read_gbs_1 * threads);
}

double roofline_peak_gflops(const Roofline *r, const char *isa, int threads) {
    double peak = strstr(isa, "amx")      ? r->amx_gflops
                  : strstr(isa, "avx512") ? r->avx512_gflops
                  : strstr(isa, "avx2")   ? r->avx2_gflops
                                          : 0;
    return r->threads > 0 ? peak * int_min(threads, r->threads) / r->threads : 0;
}

void roofline_print(const Roofline *r, Buf *out) {
    const struct {
        const char *what;
        double value;
        const char *unit;
    } rows[] = {
        {"read bandwidth", r->read_gbs, "GB/s"},
        {"read bandwidth, 1 thread", r->read_gbs_1, "GB/s"},
        {"f32 multiply-add, AVX2", r->avx2_gflops, "GFLOP/s"},
        {"f32 multiply-add, AVX-512", r->avx512_gflops, "GFLOP/s"},
        {"bf16 tiles, AMX", r->amx_gflops, "GFLOP/s"},
    };
    buf_printf(out, "%s, %d thread%s\n", r->cpu, r->threads, r->threads == 1 ? "" : "s");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].value > 0) buf_printf(out, "  %-26s %9.1f %s\n", rows[i].what, rows[i].value, rows[i].unit);
        else buf_printf(out, "  %-26s %9s\n", rows[i].what, "none");
}
