// report.c: see report.h.
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "roofline.h"

static double rounded(double v, int digits) {
    double scale = pow(10, digits);
    return round(v * scale) / scale;
}

static double rate(double amount, double ms) { return ms > 0 ? 1e3 * amount / ms : 0; }

Timing report_timing(const Engine *e, const Request *r) {
    const Timeline *t = &r->time;
    Timing out = {.tokens = r->n_new, .load_ms = rounded(1e3 * e->load_seconds, 4)};
    if (t->prefill_end > t->start) out.prefill_ms = rounded(1e3 * (t->prefill_end - t->start), 4);
    out.prefill_tps = rounded(rate(r->n_prompt - r->n_reused, out.prefill_ms), 2);
    out.total_ms = out.prefill_ms;
    if (r->n_new == 0) return out;
    out.ttft_ms = rounded(1e3 * timeline_ttft(t), 4);
    if (r->n_new > 1) {
        out.tpot_ms = rounded(1e3 * timeline_tpot(t), 4);
        out.itl_p50_ms = rounded(1e3 * percentile(t->gaps, t->n_gaps, 50), 4);
        out.itl_p99_ms = rounded(1e3 * percentile(t->gaps, t->n_gaps, 99), 4);
        out.decode_ms = rounded(out.tpot_ms * (r->n_new - 1), 4);
        out.decode_tps = rounded(rate(r->n_new - 1, out.decode_ms), 2);
    }
    out.total_ms = rounded(out.ttft_ms + out.decode_ms, 4);
    return out;
}

// ---- --verbose ------------------------------------------------------------------------------------------------------

static void print_eog(const Engine *e) {
    int ids[32], n = tokenizer_eog_ids(e->tok, ids, 32);
    fprintf(stderr, "end        ");
    for (int i = 0; i < n && i < 32; i++) {
        Buf name = {0};
        Str piece = tokenizer_piece(e->tok, ids[i]);
        utf8_escape(&name, piece.data, piece.n);
        fprintf(stderr, "%s%d %s", i ? ", " : "", ids[i], name.data);
        buf_free(&name);
    }
    fprintf(stderr, "%s\n", n == 0 ? "no token ends the generation" : n > 32 ? ", ..." : "");
}

void report_budget(const Engine *e) {
    Buf budget = {0};
    engine_budget(&e->model, &e->shape, e->scratch, &budget);
    place_budget(&e->place, &budget);
    fputs(budget.data, stderr);
    buf_free(&budget);
}

void report_before(const Engine *e, const Options *o, const char *template_name) {
    const Config *c = &e->model.c;
    char size[24], count[24];
    fprintf(stderr, "model      %s: %s, %d layers, dim %d, %s parameters, file of %s\n", gguf_name(e->gguf), c->arch,
            c->n_layers, c->dim, count_text((double)model_n_params(&e->model), count),
            size_text((double)gguf_file_bytes(e->gguf), size));
    fprintf(stderr, "backend    %s %s, %d thread%s: %s\n", e->be->name, e->be->isa, threads_count(e->pool),
            threads_count(e->pool) == 1 ? "" : "s", e->be->kernels);
    fprintf(stderr, "context    %d, trained for %d; %s KV, %d rows a step\n", e->shape.n_ctx, c->n_ctx_train,
            e->shape.block ? "paged" : "contiguous", scheduler_max_rows(e->sched));
    fputs("memory\n", stderr);
    report_budget(e);
    if (e->tok) print_eog(e);
    if (!template_name) return; // nothing is generated
    fprintf(stderr, "template   %s\n", template_name);
    if (o->sampling.greedy || o->sampling.temp <= 0) fprintf(stderr, "sampling   greedy\n");
    else fprintf(stderr, "seed       %llu\n", (unsigned long long)o->sampling.seed);
}

// "2.31 GB/s (80.1% of 2.88)": an achieved rate in units of 1e9, against a ceiling if there is one.
static void print_rate(double amount, double ms, double ceiling, const char *unit) {
    double achieved = rate(amount, ms) / 1e9;
    fprintf(stderr, ", %.4g %s", achieved, unit);
    if (ceiling > 0) fprintf(stderr, " (%.1f%% of %.4g)", 100 * achieved / ceiling, ceiling);
}

void report_store(const KvStore *s) {
    if (!s) return;
    KvStoreStats k = kvstore_stats(s);
    char size[24];
    fprintf(stderr, "KV dir     %d slots from %s in %.4f ms; %d kept there, %s in %.4f ms", k.n_loaded, kvstore_dir(s),
            1e3 * k.load_seconds, k.n_saved, size_text((double)k.saved_bytes, size), 1e3 * k.save_seconds);
    if (k.n_removed) fprintf(stderr, "; %d old files removed", k.n_removed);
    fprintf(stderr, "\n");
}

void report_after(const Engine *e, const Request *r) {
    Timing t = report_timing(e, r);
    const Timeline *time = &r->time;
    Roofline roof = {0};
    bool has_roof = e->model.n_device == 0 && roofline_load(&roof); // the CPU's
    char a[24], b[24];
    fprintf(stderr, "load       %.4f ms\n", t.load_ms);
    fprintf(stderr, "prefill    %d tokens, %d cached, %.4f ms, %.2f tok/s, %.4g GFLOP", r->n_prompt - r->n_reused,
            r->n_reused, t.prefill_ms, t.prefill_tps, time->prefill_flops / 1e9);
    print_rate(time->prefill_flops / 1e3, t.prefill_ms,
               has_roof ? roofline_peak_gflops(&roof, engine_prefill_isa(e), threads_count(e->pool)) / 1e3 : 0,
               "TFLOP/s");
    if (time->prefill_bytes > 0) fprintf(stderr, ", %.3g FLOP/byte", time->prefill_flops / time->prefill_bytes);
    fprintf(stderr, "\n");
    if (t.tokens > 1) {
        fprintf(stderr, "decode     %d tokens, %.4f ms, %.2f tok/s, %s", t.tokens - 1, t.decode_ms, t.decode_tps,
                size_text(time->decode_bytes, a));
        bool in_memory = time->decode_bytes / (t.tokens - 1) >= BANDWIDTH_BYTES;
        print_rate(time->decode_bytes, t.decode_ms,
                   has_roof && in_memory ? roofline_read(&roof, threads_count(e->pool)) : 0, "GB/s");
        if (has_roof && !in_memory) fprintf(stderr, " (-)"); // its weights live in the caches
        if (time->decode_bytes > 0) fprintf(stderr, ", %.3g FLOP/byte", time->decode_flops / time->decode_bytes);
        fprintf(stderr, "\n");
    }
    if (t.tokens > 0)
        fprintf(stderr, "latency    TTFT %.4f ms, TPOT %.4f ms, ITL p50 %.4f p99 %.4f ms\n", t.ttft_ms, t.tpot_ms,
                t.itl_p50_ms, t.itl_p99_ms);
    fprintf(stderr, "total      %.4f ms = TTFT + TPOT x %d, %d tokens, %s\n", t.total_ms, int_max(0, t.tokens - 1),
            t.tokens, finish_name(r->finish));
    report_store(e->store);
    int shared = 0;
    for (int i = 0; i < e->kv.pool->n_blocks; i++) shared += e->kv.refs[i] > 1;
    fprintf(stderr, "KV         %d slots, %d of %d blocks used, %d shared, %s of %s\n", sequence_slots(&r->seq),
            e->kv.pool->n_blocks - e->kv.n_free, e->kv.pool->n_blocks, shared,
            size_text((double)kv_bytes_per_slot(&e->shape) * sequence_slots(&r->seq), a),
            size_text((double)kv_bytes(&e->shape), b));
    place_report(&e->place);
    fprintf(stderr, "peak       %s resident", size_text((double)memory_peak(), a));
    size_t huge = e->model.n_device ? 0 : gguf_huge_bytes(e->gguf);
    if (huge) fprintf(stderr, "; %s of the weights' file in huge pages", size_text((double)huge, a));
    fprintf(stderr, "\n");
}

void report_turn(const Engine *e, const Options *o, const Request *r) {
    Timing t = report_timing(e, r);
    bool color = output_color(o->color, STDERR_FILENO);
    char from[48] = "";
    if (e->n_from_dir) snprintf(from, sizeof from, " (%d from --kv-dir)", e->n_from_dir);
    fprintf(
        stderr,
        "%sturn       %d new tokens, %d cached%s, TTFT %.4f ms, %d tokens at %.2f tok/s, total %.4f ms, %s, context "
        "%d of %d%s\n",
        color ? "\033[2m" : "", r->n_prompt - r->n_reused, r->n_reused, from, t.ttft_ms, t.tokens, t.decode_tps,
        t.total_ms, finish_name(r->finish), r->seq.n_tokens - r->seq.n_gone, e->shape.n_ctx, color ? "\033[0m" : "");
}

// ---- --json ---------------------------------------------------------------------------------------------------------

static void put_ms(json_t *object, const char *key, double ms, bool known) {
    jsonio_put(object, key, known ? json_real(ms) : json_null());
}

json_t *report_json(const Engine *e, const Options *o, const Request *r, Str text) {
    Timing t = report_timing(e, r);
    bool any = t.tokens > 0;
    json_t *j = json_object(), *itl = json_object();
    jsonio_put(j, "text", jsonio_text(text));
    jsonio_put(j, "finish_reason", json_string(finish_name(r->finish)));
    jsonio_put(j, "prompt_tokens", json_integer(r->n_prompt));
    jsonio_put(j, "cached_tokens", json_integer(r->n_reused));
    jsonio_put(j, "completion_tokens", json_integer(t.tokens));
    put_ms(j, "load_ms", t.load_ms, true);
    put_ms(j, "prefill_ms", t.prefill_ms, true);
    put_ms(j, "ttft_ms", t.ttft_ms, any);
    put_ms(j, "tpot_ms", t.tpot_ms, any);
    put_ms(itl, "p50", t.itl_p50_ms, any);
    put_ms(itl, "p99", t.itl_p99_ms, any);
    jsonio_put(j, "itl_ms", itl);
    put_ms(j, "decode_ms", t.decode_ms, true);
    jsonio_put(j, "prefill_tps", json_real(t.prefill_tps));
    jsonio_put(j, "decode_tps", json_real(t.decode_tps));
    put_ms(j, "total_ms", t.total_ms, true);
    const Timeline *time = &r->time;
    jsonio_put(j, "prefill_flops", jsonio_number(time->prefill_flops, 0));
    jsonio_put(j, "decode_flops", jsonio_number(time->decode_flops, 0));
    jsonio_put(j, "prefill_bytes", jsonio_number(time->prefill_bytes, 0));
    jsonio_put(j, "decode_bytes", jsonio_number(time->decode_bytes, 0));
    jsonio_put(j, "prefill_tflops", jsonio_number(rate(time->prefill_flops, t.prefill_ms) * 1e-12, 6));
    jsonio_put(j, "decode_gbs", jsonio_number(rate(time->decode_bytes, t.decode_ms) * 1e-9, 6));
    jsonio_put(j, "seed", json_integer((json_int_t)o->sampling.seed));
    jsonio_put(j, "model", jsonio_text(str_of(gguf_name(e->gguf))));
    return j;
}
