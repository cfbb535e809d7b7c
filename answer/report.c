// answer/report.c: see answer/report.h.
#include "answer/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/file_sampling.h"
#include "base/paragraph.h"
#include "base/units.h"
#include "bench/roofline.h"
#include "term/terminal.h"

static double rounded(double v, int digits) {
    double scale = pow(10, digits);
    return round(v * scale) / scale;
}

// Whether the whole prompt was computed. Otherwise its time and the total are unknown.
static bool prefilled(const Request *r) { return r->time.prefill_end > 0; }

static double rate(double amount, double ms) { return ms > 0 ? 1e3 * amount / ms : 0; }

Timing report_timing(const Engine *e, const Request *r) {
    const Timeline *t = &r->time;
    Timing out = {.tokens = r->n_new, .load_ms = rounded(1e3 * e->load_seconds, 4)};
    if (t->begun > 0 && t->prefill_end > t->begun) out.prefill_ms = rounded(1e3 * (t->prefill_end - t->begun), 4);
    out.prefill_tps = rounded(rate(r->n_prompt - r->n_reused, out.prefill_ms), 2);
    if (t->prefill_end > t->start) out.total_ms = rounded(1e3 * (t->prefill_end - t->start), 4);
    if (r->n_new == 0) return out;
    out.ttft_ms = rounded(1e3 * timeline_ttft(t), 4);
    if (r->n_new > 1) {
        out.tpot_ms = rounded(1e3 * timeline_tpot(t), 4);
        out.itl_p50_ms = rounded(1e3 * stats_percentile(t->gaps, t->n_gaps, 50), 4);
        out.itl_p99_ms = rounded(1e3 * stats_percentile(t->gaps, t->n_gaps, 99), 4);
        out.decode_ms = rounded(out.tpot_ms * (r->n_new - 1), 4);
        out.decode_tps = rounded(rate(r->n_new - 1, out.decode_ms), 2);
    }
    out.total_ms = rounded(out.ttft_ms + out.decode_ms, 4);
    return out;
}

// ---- --verbose ------------------------------------------------------------------------------------------------------

static void print_item(const char *label, Buf *text) {
    paragraph_item(label, "%s", text->data);
    buf_free(text);
}

static void print_eog(const Engine *e) {
    int ids[32], n = tokenizer_eog_ids(e->tok, ids, 32);
    Buf line = {0};
    for (int i = 0; i < n && i < 32; i++) {
        Str piece = tokenizer_piece(e->tok, ids[i]);
        buf_printf(&line, "%s%d ", i ? ", " : "", ids[i]);
        utf8_escape(&line, piece.data, piece.n);
    }
    buf_str(&line, n == 0 ? "no token ends the generation" : n > 32 ? ", ..." : "");
    print_item("end", &line);
}

void report_budget(const Engine *e) {
    Buf budget = {0};
    memory_plan_budget(&e->model, &e->shape, e->scratch, &e->drafters.memory, &budget);
    device_plan_budget(&e->devices, &budget);
    fputs(budget.data, stderr);
    buf_free(&budget);
}

// Appends the name of the model's file, with its control characters as escapes.
static void add_name(Buf *out, const Gguf *g) { utf8_escape(out, gguf_name(g), strlen(gguf_name(g))); }

// The drafters that --speculate opened.
static void report_drafters(const Engine *e) {
    const DraftModel *d = e->drafters.model;
    Buf name = {0};
    if (d) {
        add_name(&name, draft_model_weights(d)->gguf);
        paragraph_item("drafts by", "%s%.500s", drafters_use_ngram(e->config.speculate) ? "n-grams, then " : "",
                       name.data);
    } else if (e->drafters.mtp)
        paragraph_item("drafts by", "%sthe model's own prediction head",
                       drafters_use_ngram(e->config.speculate) ? "n-grams, then " : "");
    else if (e->drafters.speculate) paragraph_item("drafts by", "n-grams of all texts of this run");
    buf_free(&name);
}

static void list_value(Buf *out, bool acts, const char *name, double value) {
    if (acts) buf_printf(out, "%s %.6g, ", name, value);
}

// Appends the options that change the scores of tokens.
static void list_changes(Buf *out, const SamplerParams *p) {
    bool penalties = p->repeat_last_n != 0;
    list_value(out, penalties && p->repeat_penalty != 1, "repeat-penalty", (double)p->repeat_penalty);
    list_value(out, penalties && p->presence_penalty != 0, "presence-penalty", (double)p->presence_penalty);
    list_value(out, penalties && p->frequency_penalty != 0, "frequency-penalty", (double)p->frequency_penalty);
    list_value(out, p->n_bias > 0, "biases", p->n_bias);
}

// Appends the options that act on how tokens are drawn.
static void list_drawing(Buf *out, const SamplerParams *p) {
    bool xtc = p->xtc_probability > 0 && p->xtc_threshold <= 0.5F;
    list_value(out, true, "temp", (double)p->temp);
    list_value(out, p->top_k > 0, "top-k", p->top_k);
    list_value(out, p->typical < 1, "typical", (double)p->typical);
    list_value(out, p->top_p < 1, "top-p", (double)p->top_p);
    list_value(out, p->min_p > 0, "min-p", (double)p->min_p);
    list_value(out, xtc, "xtc-probability", (double)p->xtc_probability);
    list_value(out, xtc, "xtc-threshold", (double)p->xtc_threshold);
}

static void report_sampling(const Engine *e, const AnswerConfig *config) {
    const SamplerParams *p = &config->sampling;
    bool greedy = p->greedy || p->temp <= 0;
    Buf all = {0}, from_file = {0};
    if (config->beams) buf_printf(&all, "a beam search with %d beam%s, ", config->beams, config->beams > 1 ? "s" : "");
    else if (greedy) buf_str(&all, "greedy, ");
    else list_drawing(&all, p);
    list_changes(&all, p);
    if (!config->beams && !greedy) buf_printf(&all, "seed %llu, ", (unsigned long long)p->seed);
    paragraph_item("sampling", "%.*s", (int)all.n - 2, all.data);
    file_sampling_names(e->gguf, config, &from_file);
    if (from_file.n) paragraph_item("", "from the model's file: %s", from_file.data);
    buf_free(&all);
    buf_free(&from_file);
}

void report_before(const Engine *e, const AnswerConfig *config, const char *template_name) {
    const ModelConfig *c = &e->model.c;
    char size[24], count[24];
    Buf name = {0};
    add_name(&name, e->gguf);
    paragraph_item("model", "%.800s: %s, %d layers, dim %d, %s parameters, file of %s", name.data, c->arch, c->n_layers,
                   c->dim, units_count((double)model_n_params(&e->model), count),
                   units_bytes((double)gguf_file_bytes(e->gguf), size));
    buf_free(&name);
    if (c->n_experts > 0) {
        units_count((double)model_active_params(&e->model), count);
        units_bytes((double)model_active_bytes(&e->model), size);
        paragraph_item("experts", "%d of %d a token, %d wide%s; %s parameters, %s active", c->n_used, c->n_experts,
                       c->ffn, c->ffn_shared ? ", and a shared one" : "", count, size);
    }
    paragraph_item("backend", "%s %s, %d thread%s: %s", e->be->name, e->be->isa, threads_count(e->pool),
                   threads_count(e->pool) == 1 ? "" : "s", e->be->kernels);
    if (!e->devices.gpu) paragraph_item("", "on the CPU: %s", e->devices.why);
    paragraph_item("context", "%d, trained for %d; %s KV, %d rows a step", e->shape.n_ctx, c->n_ctx_train,
                   e->shape.block ? "paged" : "contiguous", scheduler_max_rows(e->sched));
    fputs("memory\n", stderr);
    report_budget(e);
    report_drafters(e);
    if (e->tok) print_eog(e);
    if (!template_name) return; // nothing is generated
    paragraph_item("template", "%s", template_name);
    report_sampling(e, config);
}

// At least three significant digits, and no exponent.
static const char *figure(double v, char out[24]) {
    snprintf(out, 24, v >= 100 ? "%.0f" : "%.3g", v);
    return out;
}

// The number of decimals at which a thousandth of `ms` is still visible.
static int decimals(double ms) { return ms < 10 ? 3 : ms < 100 ? 2 : 1; }

static const char *ms_text(double ms, char out[24]) {
    snprintf(out, 24, "%.*f ms", decimals(ms), ms);
    return out;
}

// ", 2.31 GB/s (80% of 2.88)": an achieved rate in units of 1e9, and its share of a ceiling if that is above 0.
static void add_rate(Buf *out, double achieved, double share, double ceiling, const char *unit) {
    char a[24];
    buf_printf(out, ", %s %s", figure(achieved, a), unit);
    if (share > 0) buf_printf(out, " (%.0f%% of %s)", 100 * share, figure(ceiling, a));
}

void report_store(const KvStore *s) {
    if (!s) return;
    KvStoreStats k = kvstore_stats(s);
    char size[24], loaded[24], saved[24];
    Buf line = {0};
    buf_printf(&line, "%lld slots from %s in %s; %lld kept there, %s in %s", (long long)k.n_loaded, kvstore_dir(s),
               ms_text(1e3 * k.load_seconds, loaded), (long long)k.n_saved, units_bytes((double)k.saved_bytes, size),
               ms_text(1e3 * k.save_seconds, saved));
    if (k.n_removed) buf_printf(&line, "; %d old files removed", k.n_removed);
    print_item("KV dir", &line);
}

static void report_prefill(const Engine *e, const Request *r, const Timing *t, Roofline *roof) {
    const Timeline *time = &r->time;
    char ms[24], tps[24], flops[24], density[24];
    if (!prefilled(r)) {
        paragraph_item("prefill", "stopped after %d of %d tokens, %d cached",
                       int_max(0, r->seq->n_cached - r->n_reused), r->n_prompt - r->n_reused, r->n_reused);
        return;
    }
    Buf line = {0};
    int n = r->n_prompt - r->n_reused;
    buf_printf(&line, "%d token%s, %d cached, %s, %s tok/s, %s GFLOP", n, n == 1 ? "" : "s", r->n_reused,
               ms_text(t->prefill_ms, ms), figure(t->prefill_tps, tps), figure(time->prefill_flops / 1e9, flops));
    const char *unit = engine_prefill_unit(e);
    int threads = threads_count(e->pool);
    double gflops = rate(time->prefill_flops, t->prefill_ms) / 1e9;
    double share = roof ? roofline_share_of_unit(roof, unit, threads, gflops) : 0;
    add_rate(&line, gflops / 1e3, share, roof ? roofline_peak_gflops(roof, unit, threads) / 1e3 : 0, "TFLOP/s");
    if (time->prefill_bytes > 0)
        buf_printf(&line, ", %s FLOP/byte", figure(time->prefill_flops / time->prefill_bytes, density));
    print_item("prefill", &line);
}

static void report_decode(const Engine *e, const Request *r, const Timing *t, Roofline *roof) {
    const Timeline *time = &r->time;
    char ms[24], tps[24], bytes[24], density[24];
    Buf line = {0};
    int n = t->tokens - 1;
    buf_printf(&line, "%d token%s, %s, %s tok/s, %s", n, n == 1 ? "" : "s", ms_text(t->decode_ms, ms),
               figure(t->decode_tps, tps), units_bytes(time->decode_bytes, bytes));
    int threads = threads_count(e->pool);
    double gbs = rate(time->decode_bytes, t->decode_ms) / 1e9, each = time->decode_bytes / n, share = 0;
    if (roof && each >= BANDWIDTH_BYTES) share = roofline_share_of_read(roof, threads, gbs, each);
    add_rate(&line, gbs, share, roof ? roofline_read(roof, threads) : 0, "GB/s");
    if (roof && share == 0) buf_str(&line, " (-)"); // no share: the weights fit into the caches
    if (time->decode_bytes > 0)
        buf_printf(&line, ", %s FLOP/byte", figure(time->decode_flops / time->decode_bytes, density));
    print_item("decode", &line);
}

static double draft_gain(const DraftCounts *c) { return c->cost > 0 ? (double)c->n_tokens / c->cost : 0; }

void report_drafts(const Engine *e, const DraftCounts *c) {
    if (!e->drafters.speculate || c->n_steps == 0) return;
    paragraph_item("drafts", "%lld, %lld accepted (%.0f%%); %.2f tokens a step, gain %.2f by the table of costs",
                   (long long)c->n_drafted, (long long)c->n_accepted,
                   c->n_drafted ? 100.0 * (double)c->n_accepted / (double)c->n_drafted : 0, draft_counts_per_step(c),
                   draft_gain(c));
}

void report_put_drafts(const Engine *e, const DraftCounts *c, json_t *object) {
    if (!e->drafters.speculate) return;
    json_t *j = json_object();
    jsonio_put(j, "drafted", json_integer(c->n_drafted));
    jsonio_put(j, "accepted", json_integer(c->n_accepted));
    jsonio_put(j, "steps", json_integer(c->n_steps));
    jsonio_put(j, "tokens_per_step", jsonio_number(draft_counts_per_step(c), 4));
    jsonio_put(j, "gain", jsonio_number(draft_gain(c), 4));
    jsonio_put(object, "speculation", j);
}

// TTFT, TPOT and the total are printed with the same decimals, and the printed total is the sum of the printed parts.
// A single token has no gap: then there is no TPOT and no ITL.
static void report_latency(const Request *r, const Timing *t) {
    int gaps = int_max(0, t->tokens - 1), d = decimals(gaps ? t->tpot_ms : t->ttft_ms);
    double ttft = rounded(t->ttft_ms, d), tpot = rounded(t->tpot_ms, d);
    const char *why = finish_name(r->finish);
    if (gaps) {
        paragraph_item("latency", "TTFT %.*f ms, TPOT %.*f ms, ITL p50 %.*f p99 %.*f ms", d, ttft, d, tpot, d,
                       t->itl_p50_ms, d, t->itl_p99_ms);
        paragraph_item("total", "%.*f ms = TTFT + TPOT x %d, %d tokens, %s", d, ttft + tpot * gaps, gaps, t->tokens,
                       why);
    } else if (t->tokens) {
        paragraph_item("latency", "TTFT %.*f ms", d, ttft);
        paragraph_item("total", "%.*f ms = TTFT, 1 token, %s", d, ttft, why);
    } else if (prefilled(r)) paragraph_item("total", "%.*f ms, 0 tokens, %s", d, t->total_ms, why);
    else paragraph_item("total", "0 tokens, %s", why);
}

// The KV cache after the answer, unless its blocks are released by then, as those of several candidates are.
static void report_slots(const Engine *e, const Request *r) {
    char a[24], b[24];
    int shared = 0;
    if (sequence_slots(r->seq) == 0) return;
    for (int i = 0; i < e->kv.pool->n_blocks; i++) shared += e->kv.refs[i] > 1;
    paragraph_item("KV", "%d slots, %d of %d blocks used, %d shared, %s of %s", sequence_slots(r->seq),
                   e->kv.pool->n_blocks - e->kv.n_free, e->kv.pool->n_blocks, shared,
                   units_bytes((double)kvshape_bytes_per_slot(&e->shape) * sequence_slots(r->seq), a),
                   units_bytes((double)kvshape_bytes(&e->shape), b));
}

static void report_memory(const Engine *e) {
    char a[24];
    device_plan_report(&e->devices);
    size_t huge = e->model.n_device ? 0 : gguf_huge_bytes(e->gguf);
    Buf line = {0};
    buf_printf(&line, "%s resident", units_bytes((double)memory_peak(), a));
    if (huge) buf_printf(&line, "; %s of the weights' file in huge pages", units_bytes((double)huge, a));
    print_item("peak", &line);
}

void report_after(const Engine *e, const Request *r) {
    Timing t = report_timing(e, r);
    Roofline stored = {0};
    Roofline *roof = e->model.n_device == 0 && roofline_load(&stored) ? &stored : NULL; // ceilings of the CPU
    char ms[24];
    paragraph_item("load", "%s", ms_text(t.load_ms, ms));
    report_prefill(e, r, &t, roof);
    if (t.tokens > 1) report_decode(e, r, &t, roof);
    report_drafts(e, &r->drafts);
    report_latency(r, &t);
    report_store(e->kv_dir.store);
    report_slots(e, r);
    report_memory(e);
    roofline_keep_raised(&stored, e->config.quiet);
}

void report_turn(const Engine *e, const AnswerConfig *config, const Request *r) {
    Timing t = report_timing(e, r);
    bool color = terminal_color(config->color, STDERR_FILENO);
    char from[48] = "", tps[24], ttft[24], total[24];
    if (r->n_loaded) snprintf(from, sizeof from, " (%d from --kv-dir)", r->n_loaded);
    if (color) fputs("\033[2m", stderr);
    int n = r->n_prompt - r->n_reused;
    paragraph_item("turn", "%d new token%s, %d cached%s; %d token%s at %s tok/s; context %d of %d", n,
                   n == 1 ? "" : "s", r->n_reused, from, t.tokens, t.tokens == 1 ? "" : "s", figure(t.decode_tps, tps),
                   r->seq->n_tokens - r->seq->n_gone, e->shape.n_ctx);
    paragraph_item("", "TTFT %s, total %s, %s", ms_text(t.ttft_ms, ttft), ms_text(t.total_ms, total),
                   finish_name(r->finish));
    if (color) fputs("\033[0m", stderr);
}

// ---- --json ---------------------------------------------------------------------------------------------------------

static void put_known(json_t *object, const char *key, double value, bool known) {
    jsonio_put(object, key, known ? json_real(value) : json_null());
}

json_t *report_json(const Engine *e, const AnswerConfig *config, const Request *r, const char *finish, Str text) {
    Timing t = report_timing(e, r);
    bool any = t.tokens > 0;
    json_t *j = json_object(), *itl = json_object();
    jsonio_put(j, "text", jsonio_text(text));
    jsonio_put(j, "finish_reason", json_string(finish));
    jsonio_put(j, "prompt_tokens", json_integer(r->n_prompt));
    jsonio_put(j, "cached_tokens", json_integer(r->n_reused));
    jsonio_put(j, "completion_tokens", json_integer(t.tokens));
    put_known(j, "load_ms", t.load_ms, true);
    put_known(j, "prefill_ms", t.prefill_ms, prefilled(r));
    put_known(j, "ttft_ms", t.ttft_ms, any);
    put_known(j, "tpot_ms", t.tpot_ms, t.tokens > 1);
    put_known(itl, "p50", t.itl_p50_ms, t.tokens > 1);
    put_known(itl, "p99", t.itl_p99_ms, t.tokens > 1);
    jsonio_put(j, "itl_ms", itl);
    put_known(j, "decode_ms", t.decode_ms, true);
    put_known(j, "prefill_tps", t.prefill_tps, prefilled(r));
    jsonio_put(j, "decode_tps", json_real(t.decode_tps));
    put_known(j, "total_ms", t.total_ms, prefilled(r));
    const Timeline *time = &r->time;
    jsonio_put(j, "prefill_flops", jsonio_number(time->prefill_flops, 0));
    jsonio_put(j, "decode_flops", jsonio_number(time->decode_flops, 0));
    jsonio_put(j, "prefill_bytes", jsonio_number(time->prefill_bytes, 0));
    jsonio_put(j, "decode_bytes", jsonio_number(time->decode_bytes, 0));
    put_known(j, "prefill_tflops", rounded(rate(time->prefill_flops, t.prefill_ms) * 1e-12, 6), prefilled(r));
    jsonio_put(j, "decode_gbs", jsonio_number(rate(time->decode_bytes, t.decode_ms) * 1e-9, 6));
    report_put_drafts(e, &r->drafts, j);
    jsonio_put(j, "seed", json_integer((json_int_t)config->sampling.seed));
    jsonio_put(j, "model", jsonio_text(str_of(gguf_name(e->gguf))));
    return j;
}
