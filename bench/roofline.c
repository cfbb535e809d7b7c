// bench/roofline.c: stores the machine's ceilings, scales them to fewer threads, and compares runs with them (see
// roofline.h).
#define _GNU_SOURCE
#include "bench/roofline.h"

#include "base/jsonio.h"
#include "base/tempfile.h"
#include "base/threads.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

const RooflineUnit roofline_units[ROOFLINE_UNITS] = {
    {"avx2", "f32 multiply-add, AVX2", "avx2_gflops", false},
    {"avx512", "f32 multiply-add, AVX-512", "avx512_gflops", false},
    {"avx512bf16", "bf16 products, AVX-512", "avx512bf16_gflops", false},
    {"amx", "bf16 tiles, AMX", "amx_gflops", false},
    {"maddubs", "int8 products, AVX2", "maddubs_gops", true},
    {"maddwd", "int16 products, AVX2", "maddwd_gops", true},
    {"avxvnni", "int8 products, AVX-VNNI", "avxvnni_gops", true},
    {"vnni", "int8 products, AVX-512", "vnni_gops", true},
    {"amxint8", "int8 tiles, AMX", "amxint8_gops", true},
};

// The index of a unit; -1: unknown name.
static int unit_index(const char *name) {
    for (int i = 0; i < ROOFLINE_UNITS; i++)
        if (strcmp(name, roofline_units[i].name) == 0) return i;
    return -1;
}

static const char *unit_measure(int i) { return roofline_units[i].integer ? "GOP/s" : "GFLOP/s"; }

// ---- the machine ----------------------------------------------------------------------------------------------------

// Reads the value of a line of /proc/cpuinfo ("model name : X"). False: its field is not `name`.
static bool cpuinfo_value(const char *line, const char *name, char *out, size_t cap) {
    const char *colon = strchr(line, ':');
    size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || !colon || line[n + strspn(line + n, " \t")] != ':') return false;
    colon += 1 + strspn(colon + 1, " ");
    snprintf(out, cap, "%.*s", (int)strcspn(colon, "\n"), colon);
    return true;
}

// Virtual machines may show a short model name that several CPU generations share; family and model distinguish them.
void roofline_cpu_name(char *out, size_t cap) {
    struct utsname u;
    char name[sizeof u.machine], family[16] = "", model[16] = "", line[256];
    snprintf(name, sizeof name, "%s", uname(&u) == 0 ? u.machine : "unknown");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') { // the lines of the first CPU
        cpuinfo_value(line, "model name", name, sizeof name);
        cpuinfo_value(line, "cpu family", family, sizeof family);
        cpuinfo_value(line, "model", model, sizeof model);
    }
    if (f) fclose(f);
    name[utf8_whole(name, strlen(name))] = 0; // removes half a character at the cut, which is not valid in JSON
    snprintf(out, cap, "%s%s%s%s%s", name, family[0] ? ", family " : "", family, model[0] ? " model " : "", model);
    out[utf8_whole(out, strlen(out))] = 0;
}

// Reads the first line of a sysfs file about cache `index` of a CPU.
static bool cache_field(int cpu, int index, const char *field, char *out, size_t cap) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, field);
    FILE *f = fopen(path, "r");
    bool read = f && fgets(out, (int)cap, f) != NULL;
    if (f) fclose(f);
    return read;
}

size_t roofline_cache_bytes(void) {
    enum { UNKNOWN_MIB = 32 };
    char size[32], shared[256];
    int index = cache_field(0, 3, "size", size, sizeof size) ? 3 : 2;
    size_t kib = 0;
    for (int cpu = 0; cache_field(cpu, index, "size", size, sizeof size); cpu++)
        if (cache_field(cpu, index, "shared_cpu_list", shared, sizeof shared) && atoi(shared) == cpu) // its first CPU
            kib += strtoul(size, NULL, 10) * (strchr(size, 'M') ? 1024 : 1);
    return (kib ? kib : UNKNOWN_MIB << 10) << 10;
}

// ---- the file -------------------------------------------------------------------------------------------------------

// VERSION counts changes of the measurement; ceilings of another version are ignored.
enum { VERSION = 3, MAX_FILE = 4096 };

static bool file_path(char *out, size_t cap) {
    char dir[1024];
    return dirs_cache(dir, sizeof dir) && (size_t)snprintf(out, cap, "%s/roofline.json", dir) < cap;
}

// Reads a small regular file. Other kinds (a pipe, a device) could block or have no end.
static size_t read_small(const char *path, char *out, size_t cap) {
    int fd;
    struct stat info;
    size_t n = 0;
    if (file_open(path, 0, &fd, &info).code) return 0;
    if (info.st_size > 0 && (size_t)info.st_size < cap)
        for (ssize_t got; n < cap && (got = fd_read(fd, out + n, cap - n)) > 0;) n += (size_t)got;
    close(fd);
    return n;
}

// Reads a number from 0 to below 1e9. The file is not trusted: these numbers are printed and divided by.
static bool get_figure(const json_t *o, const char *key, double *out) {
    const json_t *v = json_object_get(o, key);
    *out = json_number_value(v);
    return json_is_number(v) && *out >= 0 && *out < 1e9;
}

static const char *const step_keys[2] = {"steps_q8_0", "steps_q4_k"};

// Reads the costs of steps. They are valid if a step with more rows never costs less.
static void get_steps(const json_t *o, Roofline *r) {
    const char *unit = json_string_value(json_object_get(o, "steps_unit"));
    snprintf(r->steps_unit, sizeof r->steps_unit, "%s", unit ? unit : "");
    for (int t = 0; t < 2; t++) {
        const json_t *list = json_object_get(o, step_keys[t]);
        bool good = unit && json_array_size(list) == STEP_COSTS;
        for (int i = 0; i < STEP_COSTS && good; i++) {
            double at = r->steps[t].at[i] = json_number_value(json_array_get(list, (size_t)i));
            good = at < 1e3 && (i ? at >= r->steps[t].at[i - 1] : at == 1);
        }
        if (!good) r->steps[t] = (StepCosts){0};
    }
}

static json_t *steps_json(const StepCosts *c) {
    json_t *list = json_array();
    for (int i = 0; i < STEP_COSTS; i++) jsonio_append(list, json_real(c->at[i]));
    return list;
}

static bool from_json(const json_t *o, Roofline *r) {
    double version, threads;
    const char *cpu = json_string_value(json_object_get(o, "cpu"));
    if (!get_figure(o, "version", &version) || !get_figure(o, "threads", &threads) ||
        !get_figure(o, "read_gbs", &r->read_gbs) || !get_figure(o, "read_gbs_1", &r->read_gbs_1))
        return false;
    for (int i = 0; i < ROOFLINE_UNITS; i++)
        if (!get_figure(o, roofline_units[i].key, &r->gflops[i])) return false;
    get_steps(o, r);
    roofline_cpu_name(r->cpu, sizeof r->cpu);
    r->threads = threads_default();
    // A machine with the same CPU model but another number of cores has other ceilings.
    return version == VERSION && threads == r->threads && r->read_gbs > 0 && cpu && strcmp(cpu, r->cpu) == 0;
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

// Each ceiling becomes the larger of the two.
static void keep_larger(Roofline *r, const Roofline *other) {
    r->read_gbs = fmax(r->read_gbs, other->read_gbs);
    r->read_gbs_1 = fmax(r->read_gbs_1, other->read_gbs_1);
    for (int i = 0; i < ROOFLINE_UNITS; i++) r->gflops[i] = fmax(r->gflops[i], other->gflops[i]);
}

json_t *roofline_json(const Roofline *r) {
    json_t *o = json_object();
    jsonio_put(o, "threads", json_integer(r->threads));
    jsonio_put(o, "read_gbs", json_real(r->read_gbs));
    jsonio_put(o, "read_gbs_1", json_real(r->read_gbs_1));
    for (int i = 0; i < ROOFLINE_UNITS; i++) jsonio_put(o, roofline_units[i].key, json_real(r->gflops[i]));
    if (r->steps_unit[0]) jsonio_put(o, "steps_unit", json_string(r->steps_unit));
    for (int t = 0; t < 2; t++)
        if (r->steps[t].at[0] > 0) jsonio_put(o, step_keys[t], steps_json(&r->steps[t]));
    return o;
}

bool roofline_save(const Roofline *r) {
    char path[1100];
    if (!file_path(path, sizeof path)) return false;
    json_t *o = roofline_json(r);
    jsonio_put(o, "version", json_integer(VERSION));
    jsonio_put(o, "cpu", jsonio_text(str_of(r->cpu)));
    Buf text = {0};
    jsonio_print(o, JSON_INDENT(2) | JSON_REAL_PRECISION(6), &text);
    json_decref(o);
    TempFile temp;
    Status st = tempfile_open(path, 0666, &temp);
    if (!st.code) st = tempfile_publish(&temp, fd_write_all(temp.fd, text.data, text.n));
    buf_free(&text);
    return !st.code;
}

// ---- ceilings for a number of threads -------------------------------------------------------------------------------

double roofline_read(const Roofline *r, int threads) {
    return threads >= r->threads ? r->read_gbs : fmin(r->read_gbs, r->read_gbs_1 * threads);
}

// `threads` as a fraction of r->threads, at most 1.
static double part_of(const Roofline *r, int threads) {
    return (double)int_min(threads, r->threads) / int_max(1, r->threads);
}

double roofline_peak_gflops(const Roofline *r, const char *unit, int threads) {
    int i = unit_index(unit);
    return i < 0 ? 0 : r->gflops[i] * part_of(r, threads);
}

double roofline_share_of_read(Roofline *r, int threads, double gbs, double bytes) {
    double peak = roofline_read(r, threads);
    if (peak <= 0) return 0;
    if (gbs <= peak) return gbs / peak;
    if (bytes < 2.0 * (double)roofline_cache_bytes()) return 0;
    r->read_gbs = fmax(r->read_gbs, gbs);
    if (threads < r->threads) r->read_gbs_1 = fmax(r->read_gbs_1, gbs / threads);
    r->raised = true;
    return 1;
}

double roofline_share_of_unit(Roofline *r, const char *unit, int threads, double gflops) {
    double peak = roofline_peak_gflops(r, unit, threads);
    if (peak <= 0) return 0;
    if (gflops <= peak) return gflops / peak;
    r->gflops[unit_index(unit)] = gflops / part_of(r, threads);
    r->raised = true;
    return 1;
}

static void tell_raised(Buf *out, const char *what, double from, double to, const char *measure) {
    if (to <= from) return;
    buf_printf(out, "%s%s from %.1f to %.1f %s", out->n ? ", " : "", what, from, to, measure);
}

void roofline_keep_raised(Roofline *r, bool quiet) {
    Roofline stored;
    if (!r->raised || !roofline_load(&stored)) return;
    Buf what = {0};
    tell_raised(&what, "read bandwidth", stored.read_gbs, r->read_gbs, "GB/s");
    tell_raised(&what, "that of 1 thread", stored.read_gbs_1, r->read_gbs_1, "GB/s");
    for (int i = 0; i < ROOFLINE_UNITS; i++)
        tell_raised(&what, roofline_units[i].label, stored.gflops[i], r->gflops[i], unit_measure(i));
    keep_larger(&stored, r);
    if (what.n > 0 && roofline_save(&stored) && !quiet)
        fprintf(stderr, "quill: faster than this machine's stored ceilings, which were raised: %s\n", what.data);
    buf_free(&what);
    r->raised = false;
}

static void print_row(Buf *out, const char *what, double value, const char *measure) {
    buf_printf(out, "  %-26s %9.1f %s\n", what, value, measure);
}

void roofline_print(const Roofline *r, Buf *out) {
    buf_printf(out, "%s, %d thread%s\n", r->cpu, r->threads, r->threads == 1 ? "" : "s");
    print_row(out, "read bandwidth", r->read_gbs, "GB/s");
    if (r->threads > 1) print_row(out, "read bandwidth, 1 thread", r->read_gbs_1, "GB/s");
    for (int i = 0; i < ROOFLINE_UNITS; i++)
        if (r->gflops[i] > 0) print_row(out, roofline_units[i].label, r->gflops[i], unit_measure(i));
    for (int t = 0; t < 2; t++)
        for (int i = 1; i < STEP_COSTS && r->steps[t].at[0] > 0; i++) {
            char what[48];
            snprintf(what, sizeof what, "%d rows of %s", step_cost_rows[i], t ? "Q4_K" : "Q8_0");
            print_row(out, what, r->steps[t].at[i], "steps of one");
        }
}
