// bench/bench.c: measures prefill and decoding through the same code as real requests: scheduler and model_forward.
//
// Before every repetition, untimed, the sequences are cut back to the depth and computed up to it, so that all
// repetitions do the same work. A prefill is one request with n random tokens that generates none. Decoding is B
// requests that each generate n tokens, greedily, and ignore the end of the text. A first repetition warms up and is
// not counted.
#define _GNU_SOURCE
#include "bench/bench.h"
#include "base/units.h"
#include "costs.h"

#include "base/file.h"
#include "files/builtin.h"
#include "gpu/cuda.h"
#include "engine.h"
#include "base/jsonio.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/signals.h"
#include "bench/drafts.h"
#include "bench/ops.h"
#include "bench/roofline.h"
#include "bench/shape.h"
#include "bench/step_costs.h"
#include "bench/steps.h"
#include "cli/outputs.h"
#include "cli/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_TOKENS = 8 }; // tokens in the warm-up of a decode test: enough to read every weight

typedef struct {
    bool decode; // false: prefill
    int n;       // tokens of one sequence in a repetition
    int n_seqs, depth;
    char name[64]; // "pp512", "tg128 x16 @ d4096"
    int n_reps;
    double *seconds; // (n_reps)
    double *ttft;    // (n_reps) prefill: seconds until the prompt is computed
    float *gaps;     // (n_gaps) decoding: seconds between two tokens of a sequence
    int n_gaps;
    Cost cost; // of one repetition
} Test;

typedef struct {
    const Options *o;
    Engine e;
    Sequence *seqs;    // (n_seqs) all at the depth of the test
    Request *requests; // (n_seqs)
    uint64_t n_drawn;  // random tokens drawn so far
    Test *tests;       // (n_tests) the tests with the current number of threads
    int n_tests;
    struct Row *rows; // (n_rows) the results of all tests
    int n_rows;
    Buf head; // the line above a table
    json_t *model, *results;
    Roofline roof;    // threads == 0: no ceilings are stored
    CudaRoofline gpu; // name NULL: not measured
    Progress progress;
} Bench;

// ---- running --------------------------------------------------------------------------------------------------------

static Status check_finish(const Bench *b, const Test *t, Finish why) {
    if (why == FINISH_CONTEXT)
        return status_error(QUILL_CONTEXT, "bench: %s: the KV cache of %d slots is full; try a larger --kv-mem",
                            t->name, b->e.kv.max_slots);
    TRY(engine_fault(&b->e));
    if (why == FINISH_INTERRUPT) return signals_status();
    if (why == FINISH_BROKEN)
        return status_error(
            QUILL_MODEL,
            "bench: %s: finite logits expected, none found; quill inspect --check-tensors finds the damaged weights",
            t->name);
    return OK;
}

// Computes the uncomputed tokens of sequences [first, last), and generates max_new tokens for each. times: NULL, or
// (n_seqs) the timelines of the requests, to be freed by the caller.
static Status run(Bench *b, const Test *t, int first, int last, int max_new, double *seconds, Cost *cost,
                  Timeline *times) {
    Engine *e = &b->e;
    *cost = (Cost){0};
    double start = clock_now();
    for (int i = first; i < last; i++) {
        b->requests[i] = (Request){.seq = &b->seqs[i], .sampling = sampler_defaults(), .max_new = max_new};
        b->requests[i].sampling.greedy = true;
        b->requests[i].sequence_key = (uint64_t)i;
        scheduler_add(e->sched, &b->requests[i]);
    }
    for (Batch *batch; !signals_caught() && engine_step(e, &batch);) {
        Cost step = costs_batch(&e->model, e->kv.pool, batch);
        cost->flops += step.flops;
        cost->bytes += step.bytes;
    }
    for (int i = first; i < last; i++) scheduler_cancel(e->sched, &b->requests[i]); // of a test that a signal ends
    model_wait(&e->model);
    double end = clock_now();
    *seconds = end - start;
    for (int i = first; i < last; i++) {
        if (max_new == 0) b->requests[i].time.prefill_end = end; // no request waited for a token; model_wait did
        if (times) times[i] = b->requests[i].time;
        else timeline_free(&b->requests[i].time);
    }
    for (int i = first; i < last; i++) TRY(check_finish(b, t, b->requests[i].finish));
    return OK;
}

// Cuts the sequences of a test back to its depth and computes them up to it. With recurrent layers or sealed K and V,
// kvcache_truncate drops tokens before the depth too.
static Status go_deep(Bench *b, const Test *t) {
    int first = t->n_seqs; // the first sequence that is shorter; all after it are run too
    for (int i = t->n_seqs - 1; i >= 0; i--) {
        Sequence *s = &b->seqs[i];
        kvcache_truncate(&b->e.kv, s, t->depth);
        steps_push(&b->e, s, t->depth - s->n_tokens, &b->n_drawn);
        if (s->n_cached < t->depth) first = i;
    }
    double seconds;
    Cost cost;
    return first < t->n_seqs ? run(b, t, first, t->n_seqs, 0, &seconds, &cost, NULL) : OK;
}

static Status run_repetition(Bench *b, const Test *t, int n, double *seconds, Cost *cost, Timeline *times) {
    TRY(go_deep(b, t));
    for (int i = 0; i < t->n_seqs; i++) steps_push(&b->e, &b->seqs[i], t->decode ? 1 : n, &b->n_drawn);
    return run(b, t, 0, t->n_seqs, t->decode ? n : 0, seconds, cost, times);
}

// Keeps the latencies of repetition i from the timelines of its requests.
static void keep_times(Test *t, int i, Timeline *times) {
    t->ttft[i] = times[0].prefill_end - times[0].start;
    for (int k = 0; k < t->n_seqs; k++) {
        int n = times[k].n_gaps;
        t->gaps = mem_resize(t->gaps, (size_t)(t->n_gaps + n) * sizeof *t->gaps);
        if (n) memcpy(t->gaps + t->n_gaps, times[k].gaps, (size_t)n * sizeof *t->gaps);
        t->n_gaps += n;
        timeline_free(&times[k]);
    }
}

static Status run_test(Bench *b, Test *t) {
    double seconds;
    progress_show(&b->progress, t->name, 0, t->n_reps);
    TRY(run_repetition(b, t, t->decode ? int_min(t->n, WARM_TOKENS) : t->n, &seconds, &t->cost, NULL));
    Timeline *times = mem_alloc((size_t)t->n_seqs * sizeof *times);
    Status st = OK;
    for (int i = 0; i < t->n_reps && !st.code; i++) {
        st = run_repetition(b, t, t->n, &t->seconds[i], &t->cost, times);
        keep_times(t, i, times);
        progress_show(&b->progress, t->name, i + 1, t->n_reps);
    }
    free(times);
    return st;
}

static void add_test(Bench *b, bool decode, int n, int depth) {
    const Options *o = b->o;
    if (n <= 0) return;
    b->tests = mem_resize(b->tests, (size_t)(b->n_tests + 1) * sizeof *b->tests);
    Test *t = &b->tests[b->n_tests++];
    *t = (Test){.decode = decode, .n = n, .depth = depth, .n_reps = o->bench.reps};
    t->n_seqs = decode ? o->bench.sequences : 1;
    t->seconds = mem_alloc((size_t)t->n_reps * sizeof *t->seconds);
    t->ttft = mem_alloc((size_t)t->n_reps * sizeof *t->ttft);
    int at = snprintf(t->name, sizeof t->name, "%s%d", decode ? "tg" : "pp", n);
    if (t->n_seqs > 1) at += snprintf(t->name + at, sizeof t->name - (size_t)at, " x%d", t->n_seqs);
    if (t->depth) snprintf(t->name + at, sizeof t->name - (size_t)at, " @ d%d", t->depth);
}

static void add_tests(Bench *b) {
    const Options *o = b->o;
    for (int d = 0; d < o->bench.depth.n; d++) {
        for (int i = 0; i < o->bench.prompt.n; i++) add_test(b, false, o->bench.prompt.at[i], o->bench.depth.at[d]);
        for (int i = 0; i < o->bench.gen.n; i++) add_test(b, true, o->bench.gen.at[i], o->bench.depth.at[d]);
    }
}

static void free_tests(Bench *b) {
    for (int i = 0; i < b->n_tests; i++) {
        free(b->tests[i].seconds);
        free(b->tests[i].ttft);
        free(b->tests[i].gaps);
    }
    free(b->tests);
    b->tests = NULL;
    b->n_tests = 0;
}

// ---- figures --------------------------------------------------------------------------------------------------------

typedef struct {
    double rate, least, most; // tok/s of all sequences together: median, slowest and fastest repetition
    double tflops, gbs;       // at the median time
    double share;             // share of the stored ceiling: FLOPs of a prefill, bandwidth of decoding; 0: unknown
} Figures;

// The figures of a test. A test that is faster than the stored ceiling raises it.
static Figures figures_of(Bench *b, const Test *t) {
    double tokens = (double)t->n * t->n_seqs, seconds = stats_median(t->seconds, t->n_reps);
    Figures f = {.rate = tokens / seconds, .tflops = t->cost.flops / seconds * 1e-12};
    f.gbs = t->cost.bytes / seconds * 1e-9;
    f.least = f.most = tokens / t->seconds[0];
    for (int i = 1; i < t->n_reps; i++) {
        double rate = tokens / t->seconds[i];
        if (rate < f.least) f.least = rate;
        if (rate > f.most) f.most = rate;
    }
    if (b->roof.threads == 0 || b->e.model.n_device > 0) return f; // only ceilings of the CPU are stored
    int threads = threads_count(b->e.pool);
    if (!t->decode) f.share = roofline_share_of_unit(&b->roof, engine_prefill_unit(&b->e), threads, f.tflops * 1e3);
    else if (t->cost.bytes / t->n >= BANDWIDTH_BYTES)
        f.share = roofline_share_of_read(&b->roof, threads, f.gbs, t->cost.bytes / t->n);
    return f;
}

// The type of most bytes of the weights.
static const char *main_type(const Model *m) {
    int types[16], n = 0;
    double bytes[ARRAY_LEN(types)];
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
#define ADDRESS(field) &l->field,
        const Tensor *all[] = {EACH_LAYER_MATRIX(ADDRESS)};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) {
            int at = 0;
            while (at < n && types[at] != all[k]->type) at++;
            if (at == n && n < (int)ARRAY_LEN(types)) types[n++] = all[k]->type, bytes[at] = 0;
            if (at < n) bytes[at] += (double)tensor_bytes(all[k]);
        }
    }
    int best = 0;
    for (int i = 1; i < n; i++)
        if (bytes[i] > bytes[best]) best = i;
    return type_name(types[best]);
}

// The name of the model, otherwise that of its file without directories.
static const char *model_label(const Bench *b) {
    const Model *m = &b->e.model;
    if (m->c.name[0]) return m->c.name;
    return file_base(gguf_name(m->gguf));
}

// ---- tables ---------------------------------------------------------------------------------------------------------

static bool output_is(const Bench *b, const char *format) { return strcmp(b->o->bench.output, format) == 0; }

static const char *const columns[] = {"model", "size MB", "params M", "type",    "threads", "isa",    "test",
                                      "tok/s", "min",     "max",      "TFLOP/s", "GB/s",    "of peak"};
enum { N_COLUMNS = ARRAY_LEN(columns) };

typedef struct Row {
    char cells[N_COLUMNS][160];
} Row;

// The first columns are the same in all rows. The table prints them in a line above, so that its rows fit a terminal.
enum { THREADS_COLUMN = 4, FIRST_OF_TABLE = 6 };

static bool is_text(int column) { return column == 0 || column == 3 || column == 5 || column == 6; }

static void make_row(Bench *b, const Test *t, Row *r) {
    const Model *m = &b->e.model;
    Figures f = figures_of(b, t);
    Buf name = {0};
    utf8_escape(&name, model_label(b), strlen(model_label(b))); // from the file: it may have control characters
    int c = 0;
#define CELL(...) snprintf(r->cells[c++], sizeof r->cells[0], __VA_ARGS__)
    CELL("%.150s", name.data);
    CELL("%.1f", (double)model_weight_bytes(m) * 1e-6);
    CELL("%.2f", (double)model_n_params(m) * 1e-6);
    CELL("%s", main_type(m));
    CELL("%d", threads_count(b->e.pool));
    CELL("%s", m->device ? m->device->isa : m->be->isa);
    CELL("%s", t->name);
    CELL("%.2f", f.rate);
    CELL("%.2f", f.least);
    CELL("%.2f", f.most);
    CELL("%.3f", f.tflops);
    CELL("%.2f", f.gbs);
    if (f.share > 0) CELL(output_is(b, "csv") ? "%.1f" : "%.1f%%", 100 * f.share);
    else if (output_is(b, "csv")) CELL("%s", "");
    else CELL("-");
#undef CELL
    buf_free(&name);
}

static int width_of(const Row *rows, int n_rows, int column) {
    int width = (int)strlen(columns[column]);
    for (int i = 0; i < n_rows; i++) width = int_max(width, (int)strlen(rows[i].cells[column]));
    return width;
}

// Prints columns padded to their widest cell. md: all columns, with bars between them; otherwise without the first
// columns, which the head line has.
static void print_padded(const Bench *b, bool md, Buf *out) {
    const Row *rows = b->rows;
    bool many = b->o->bench.threads.n > 1;
    for (int line = -2; line < b->n_rows; line++) { // the head, a rule under it in md, the rows
        if (line == -1 && !md) continue;
        const char *between = "";
        for (int c = 0; c < N_COLUMNS; c++) {
            if (!md && c < FIRST_OF_TABLE && !(many && c == THREADS_COLUMN)) continue;
            int width = width_of(rows, b->n_rows, c);
            const char *cell = line == -2 ? columns[c] : line == -1 ? "" : rows[line].cells[c];
            buf_str(out, md ? "| " : between);
            between = "  ";
            if (line == -1)
                for (int i = 0; i < width; i++) buf_str(out, i == width - 1 && !is_text(c) ? ":" : "-");
            else buf_printf(out, "%*s", is_text(c) ? -width : width, cell);
            if (md) buf_str(out, c == N_COLUMNS - 1 ? " |" : " ");
        }
        buf_str(out, "\n");
    }
}

static void make_head(Bench *b, const Row *row) {
    char params[24], size[24], threads[48], active[64] = "", a[24], c[24];
    const Model *m = &b->e.model;
    if (m->c.n_experts > 0)
        snprintf(active, sizeof active, " (%s, %s active)", units_count((double)model_active_params(m), a),
                 units_bytes((double)model_active_bytes(m), c));
    snprintf(threads, sizeof threads, "%.20s thread%s", row->cells[THREADS_COLUMN],
             strcmp(row->cells[THREADS_COLUMN], "1") == 0 ? "" : "s");
    b->head.n = 0;
    buf_printf(&b->head, "%s: %s parameters, %s of %s%s%s%s, %s\n\n", row->cells[0],
               units_count((double)model_n_params(m), params), units_bytes((double)model_weight_bytes(m), size),
               row->cells[3], active, b->o->bench.threads.n > 1 ? "" : ", ", b->o->bench.threads.n > 1 ? "" : threads,
               row->cells[5]);
}

static void print_csv(const Row *rows, int n_rows, Buf *out) {
    for (int line = -1; line < n_rows; line++)
        for (int c = 0; c < N_COLUMNS; c++) {
            const char *cell = line < 0 ? columns[c] : rows[line].cells[c];
            bool quote = strpbrk(cell, ",\"") != NULL;
            if (quote) buf_str(out, "\"");
            for (; *cell; cell++) buf_printf(out, *cell == '"' ? "\"\"" : "%c", *cell);
            if (quote) buf_str(out, "\"");
            buf_str(out, c == N_COLUMNS - 1 ? "\n" : ",");
        }
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static json_t *gpu_json(const Bench *b) {
    const CudaRoofline *g = &b->gpu;
    if (!g->name) return json_null();
    return json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:f}", "name",
                     jsonio_text(str_of(g->name)), "copy_gbs", g->copy_gbs, "read_gbs", g->read_gbs, "matvec_gbs",
                     g->matvec_gbs, "upload_gbs", g->upload_gbs, "download_gbs", g->download_gbs, "product_tflops",
                     g->product_tflops, "flat_tflops", g->flat_tflops, "side", g->side, "launch_us", g->launch_us,
                     "node_us", g->node_us, "early_us", g->early_us);
}

static json_t *machine_json(const Bench *b) {
    char cpu[sizeof b->roof.cpu];
    roofline_cpu_name(cpu, sizeof cpu);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    json_t *roof = b->roof.threads ? roofline_json(&b->roof) : json_null();
    return json_pack("{s:o, s:i, s:f, s:o, s:o}", "cpu", jsonio_text(str_of(cpu)), "cores", threads_default(),
                     "memory_gb", memory * 1e-9, "roofline", roof, "gpu", gpu_json(b));
}

static json_t *model_json(const Bench *b) {
    const Model *m = &b->e.model;
    const KvPool *kv = b->e.kv.pool;
    const Backend *be = m->device ? m->device : m->be;
    return json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:s}",
                     "name", jsonio_text(str_of(model_label(b))), "file", jsonio_text(str_of(gguf_name(m->gguf))),
                     "arch", m->c.arch, "type", main_type(m), "bytes", (json_int_t)model_weight_bytes(m), "params",
                     (json_int_t)model_n_params(m), "active_bytes", (json_int_t)model_active_bytes(m), "active_params",
                     (json_int_t)model_active_params(m), "layers", m->c.n_layers, "dim", m->c.dim, "threads",
                     threads_count(b->e.pool), "device", be->name, "isa", be->isa, "gpu_layers", m->n_device, "kernels",
                     be->kernels, "type_k", type_name(kv->type_k), "type_v", type_name(kv->type_v), "kv_layout",
                     b->o->engine.paged ? "paged" : "contiguous");
}

// Sets the latencies in milliseconds. ttft ends when the prompt is computed, without the logits and the sampling of the
// first token.
static void put_latency(const Test *t, json_t *j) {
    if (!t->decode) {
        jsonio_put(j, "ttft_ms", json_real(1e3 * stats_median(t->ttft, t->n_reps)));
        return;
    }
    double sum = 0;
    for (int i = 0; i < t->n_gaps; i++) sum += (double)t->gaps[i];
    bool any = t->n_gaps > 0; // a single token has no gap
    json_t *itl = json_object();
    jsonio_put(itl, "p50", any ? json_real(1e3 * stats_percentile(t->gaps, t->n_gaps, 50)) : json_null());
    jsonio_put(itl, "p99", any ? json_real(1e3 * stats_percentile(t->gaps, t->n_gaps, 99)) : json_null());
    jsonio_put(j, "itl_ms", itl);
    jsonio_put(j, "tpot_ms", any ? json_real(1e3 * sum / t->n_gaps) : json_null());
}

static json_t *test_json(Bench *b, const Test *t) {
    Figures f = figures_of(b, t);
    json_t *samples = json_array();
    for (int i = 0; i < t->n_reps; i++) jsonio_append(samples, json_real(t->seconds[i]));
    json_t *j =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "test", t->name,
                  "phase", t->decode ? "decode" : "prefill", "n", t->n, "threads", threads_count(b->e.pool),
                  "sequences", t->n_seqs, "depth", t->depth, "tok_s", f.rate, "tok_s_min", f.least, "tok_s_max", f.most,
                  "flops", t->cost.flops, "bytes", t->cost.bytes, "tflop_s", f.tflops, "gb_s", f.gbs, "of_peak",
                  f.share > 0 ? json_real(f.share) : json_null(), "seconds", samples);
    put_latency(t, j);
    return j;
}

static void print_json(const Bench *b, Buf *out) {
    json_t *all = json_pack("{s:o, s:O, s:O}", "machine", machine_json(b), "model", b->model, "results", b->results);
    jsonio_print(all, JSON_INDENT(2) | JSON_REAL_PRECISION(9), out);
    buf_str(out, "\n");
    json_decref(all);
}

// ---- the mode -------------------------------------------------------------------------------------------------------

// Adds the results of the first n of the current tests to the rows and the JSON. Their engine must be open.
static void keep_results(Bench *b, int n) {
    b->rows = mem_resize(b->rows, (size_t)(b->n_rows + n) * sizeof *b->rows);
    for (int i = 0; i < n; i++) figures_of(b, &b->tests[i]); // raises the ceilings before any share is printed
    for (int i = 0; i < n; i++) {
        make_row(b, &b->tests[i], &b->rows[b->n_rows++]);
        jsonio_append(b->results, test_json(b, &b->tests[i]));
    }
    make_head(b, &b->rows[b->n_rows - 1]);
    json_decref(b->model);
    b->model = model_json(b);
}

static Status print_results(const Bench *b) {
    Buf out = {0};
    if (output_is(b, "json")) print_json(b, &out);
    else if (output_is(b, "csv")) print_csv(b->rows, b->n_rows, &out);
    else if (output_is(b, "md")) print_padded(b, true, &out);
    else {
        buf_append(&out, b->head.data, b->head.n);
        print_padded(b, false, &out);
    }
    return output_buf(&out);
}

// Measures the ceilings of the GPU, unless --device is cpu, or auto and there is no GPU.
static Status measure_gpu(Bench *b) {
    const char *device = b->o->engine.device;
    const Backend *be;
    if (device && strcmp(device, "cpu") == 0) return OK;
    Status st = cuda_backend(&be);
    if (st.code && device && strcmp(device, "cuda") == 0)
        return status_error(st.code, "--device cuda: no usable GPU: %.800s", st.message);
    return st.code ? OK : cuda_roofline(&b->gpu);
}

static void print_gpu(const CudaRoofline *g, Buf *out) {
    if (!g->name) return;
    buf_printf(out, "%s\n", g->name);
    buf_printf(out, "  %-26s %9.1f GB/s\n  %-26s %9.1f GB/s\n  %-26s %9.1f GB/s\n", "copy, read and written",
               g->copy_gbs, "reads alone", g->read_gbs, "weights of a matvec, bf16", g->matvec_gbs);
    buf_printf(out, "  %-26s %9.1f GB/s\n  %-26s %9.1f GB/s\n", "upload, pinned", g->upload_gbs, "download, pinned",
               g->download_gbs);
    buf_printf(out, "  %-26s %9.1f TFLOP/s (%d cubed)\n  %-26s %9.1f TFLOP/s (%d rows)\n", "bf16 product",
               g->product_tflops, g->side, "bf16 product", g->flat_tflops, g->side / 16);
    buf_printf(out, "  %-26s %9.2f us\n  %-26s %9.2f us\n", "a launch", g->launch_us, "a launch in a graph",
               g->node_us);
    if (g->early_us > 0) buf_printf(out, "  %-26s %9.2f us\n", "one that begins early", g->early_us);
}

// Measures the times of steps with few rows, which decide the length of drafts.
static Status measure_steps(Bench *b) {
    static const int types[2] = {TYPE_Q8_0, TYPE_Q4_K};
    Status st = OK;
    for (int t = 0; t < 2 && !st.code; t++)
        st = step_costs_measure(&b->o->engine, types[t], &b->roof.steps[t], b->roof.steps_unit);
    return st;
}

// Measures, stores and prints the ceilings. They replace the stored ones, even larger ones, which may be wrong. With
// --output json they are printed later, as part of the JSON; with csv they go to stderr.
static Status measure_roofline(Bench *b) {
    progress_show(&b->progress, "measuring this machine's ceilings", 0, 0);
    Status measured = roofline_measure(&b->roof);
    if (!measured.code) measured = measure_steps(b);
    if (!measured.code) measured = measure_gpu(b);
    progress_erase(&b->progress);
    TRY(measured);
    bool quiet = b->o->answer.quiet;
    if (b->roof.cpu_share < 0.9) { // too low to store: later runs would exceed 100% of them
        if (!quiet)
            fprintf(stderr, "quill: the ceilings were not stored: other programs took %.0f%% of the CPU meanwhile\n",
                    100 * (1 - b->roof.cpu_share));
    } else if (!roofline_save(&b->roof) && !quiet)
        fprintf(stderr, "quill: the ceilings were not stored: there is no cache directory that can be written\n");
    if (output_is(b, "json")) return OK;
    Buf out = {0};
    roofline_print(&b->roof, &out);
    print_gpu(&b->gpu, &out);
    if (!output_is(b, "csv")) return output_buf(&out);
    fputs(out.data, stderr);
    buf_free(&out);
    return OK;
}

// Makes the random model of --shape, and saves it if --save is given. *out NULL: no --shape.
static Status make_shape(const Options *o, Gguf **out) {
    *out = NULL;
    if (!o->bench.shape) return OK;
    if (o->bench.save) TRY(outputs_check(o, "--save", o->bench.save));
    const TypeInfo *info = type_by_name(o->bench.type);
    TRY(shape_model(o->bench.shape, info->id, o->answer.seed_given ? o->answer.sampling.seed : 1, out));
    Status st = o->bench.save ? gguf_save(*out, o->bench.save) : OK;
    if (st.code) {
        gguf_close(*out);
        *out = NULL;
    } else if (o->bench.save && !o->answer.quiet) fprintf(stderr, "quill: wrote %s\n", o->bench.save);
    return st;
}

static Status run_tests(Bench *b, Gguf *g) {
    const Options *o = b->o;
    // One more slot than depth and test need, for the token that a decode test starts from.
    long long n_ctx = (long long)cli_largest(&o->bench.depth) + 1;
    n_ctx += int_max(cli_largest(&o->bench.prompt), cli_largest(&o->bench.gen));
    if (n_ctx > 1 << 30) {
        gguf_close(g);
        return status_error(QUILL_USAGE, "-d, -p, -n: at most %d tokens together expected, %lld found", 1 << 30, n_ctx);
    }
    int n_seqs = o->bench.sequences;
    EngineNeeds needs = {.n_ctx = (int)n_ctx, .n_seqs = n_seqs, .max_out = n_seqs, .whole = true};
    progress_show(&b->progress, "loading", 0, 0);
    Status st = g ? engine_open_view(&b->e, &o->engine, needs, g) : engine_open(&b->e, &o->engine, needs);
    progress_erase(&b->progress);
    TRY(st);
    b->seqs = mem_alloc((size_t)n_seqs * sizeof *b->seqs);
    b->requests = mem_alloc((size_t)n_seqs * sizeof *b->requests);
    engine_use_hugepages(&b->e); // before the timed part, so that all repetitions run alike
    int done = 0;
    signals_catch();
    for (; done < b->n_tests && !(st = run_test(b, &b->tests[done])).code;) done++;
    progress_erase(&b->progress);
    if (done > 0) keep_results(b, done);
    for (int i = 0; i < n_seqs; i++) sequence_end(&b->e.kv, &b->seqs[i]);
    free(b->seqs);
    free(b->requests);
    engine_close(&b->e);
    return st;
}

// Runs all tests with the i-th number of threads, on a new engine.
static Status run_threads(Bench *b, const Options *o, int i) {
    Options own = *o;
    own.engine.threads = int_max(0, o->bench.threads.at[i]);
    if (i > 0) own.bench.save = NULL;
    b->o = &own;
    Gguf *g;
    Status st = make_shape(&own, &g);
    bool only_roofline = o->bench.roofline && !o->bench.shape && !o->engine.model;
    if (!st.code && !only_roofline) add_tests(b);
    if (!st.code && b->n_tests > 0) st = run_tests(b, g);
    else if (!st.code) gguf_close(g);
    free_tests(b);
    b->o = o;
    return st;
}

Status bench_run(const Options *o) {
    if (o->engine.speculate) return bench_drafts(o);
    if (o->bench.ops) return bench_ops(o);
    Bench b = {.o = o, .progress = progress_new(o->answer.quiet), .model = json_null(), .results = json_array()};
    Status st = OK;
    if (o->bench.roofline) st = measure_roofline(&b);
    else roofline_load(&b.roof);
    for (int i = 0; i < o->bench.threads.n && !st.code; i++) st = run_threads(&b, o, i);
    if (b.n_rows > 0 || (!st.code && output_is(&b, "json"))) { // what an error or a signal has left is shown, too
        Status printed = print_results(&b);
        if (!st.code) st = printed;
    }
    if (!st.code) roofline_keep_raised(&b.roof, o->answer.quiet);
    free(b.rows);
    buf_free(&b.head);
    json_decref(b.model);
    json_decref(b.results);
    return st;
}
