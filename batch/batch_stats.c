// batch/batch_stats.c: see batch/batch_stats.h.
#include "batch/batch_stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/report.h"
#include "base/pairs.h"
#include "base/paragraph.h"
#include "base/units.h"

// ---- latency targets ------------------------------------------------------------------------------------------------

static Status bad_slo(const char *text) {
    return status_error(QUILL_USAGE, "--slo: milliseconds as ttft=500,tpot=50 expected, found \"%.100s\"", text);
}

Status slo_parse(const char *text, Slo *out) {
    *out = (Slo){0};
    if (!text) return OK;
    const PairsNumber numbers[] = {{"ttft", &out->ttft, 1e-9, 1e9, .whole = false},
                                   {"tpot", &out->tpot, 1e-9, 1e9, .whole = false}};
    if (!*text || !pairs_read(text, numbers, ARRAY_LEN(numbers))) return bad_slo(text);
    out->ttft *= 1e-3;
    out->tpot *= 1e-3;
    return OK;
}

static bool keeps(const Slo *slo, const Timeline *t) {
    return (slo->ttft == 0 || timeline_ttft(t) <= slo->ttft) && (slo->tpot == 0 || timeline_tpot(t) <= slo->tpot);
}

// ---- counting -------------------------------------------------------------------------------------------------------

void batch_stats_step(BatchStats *t, const Engine *e, const Batch *b) {
    t->n_steps++;
    t->n_seqs += b->n_seqs;
    t->most_seqs = int_max(t->most_seqs, b->n_seqs);
    t->most_blocks = int_max(t->most_blocks, e->kv.pool->n_blocks - e->kv.n_free);
    const Request *before = NULL;
    for (int i = 0; i < b->n_seqs; i++) {
        const StepRows *rows = scheduler_rows(e->sched, i);
        const Request *r = rows->request;
        t->n_emitted += rows->n_emitted;
        for (int k = 0; r && r != before && k <= r->n_more; k++) {
            const Sequence *q = request_sequence(r, k);
            t->slots += q->n_cached;
            t->slots_held += (double)q->n_blocks * e->kv.pool->block;
        }
        before = r;
    }
}

void batch_stats_answer(BatchStats *t, const Request *r) {
    t->n_new += r->n_new;
    draft_counts_add(&t->drafts, &r->drafts);
    for (int i = 0; i < r->time.n_gaps; i++) sample_add(&t->itl, (double)r->time.gaps[i]);
    if (r->n_new > 1) sample_add(&t->tpot, timeline_tpot(&r->time));
}

void batch_stats_job(BatchStats *t, const Slo *slo, const Request *const *answers, int n, double end) {
    const Request *first = answers[0];
    t->n_jobs++;
    t->n_prompt += first->n_prompt;
    t->n_cached += first->n_reused;
    if (first->n_new > 0) sample_add(&t->ttft, timeline_ttft(&first->time));
    sample_add(&t->latency, end - first->time.start);
    if (first->time.begun != 0) sample_add(&t->queue, first->time.begun - first->time.start);
    bool kept = true;
    for (int i = 0; i < n; i++) kept = kept && keeps(slo, &answers[i]->time) && answers[i]->finish != FINISH_INTERRUPT;
    t->n_kept += kept;
}

void batch_stats_free(BatchStats *t) {
    sample_free(&t->ttft);
    sample_free(&t->tpot);
    sample_free(&t->itl);
    sample_free(&t->latency);
    sample_free(&t->queue);
}

// ---- printing -------------------------------------------------------------------------------------------------------

static void print_sample(const char *name, const Sample *s) {
    if (s->n == 0) return;
    double p50 = 1e3 * stats_percentile(s->values, s->n, 50);
    int d = p50 < 10 ? 3 : p50 < 100 ? 2 : 1;
    paragraph_item(name, "p50 %.*f, p95 %.*f, p99 %.*f ms", d, p50, d, 1e3 * stats_percentile(s->values, s->n, 95), d,
                   1e3 * stats_percentile(s->values, s->n, 99));
}

void batch_stats_goodput(const BatchStats *t, const Slo *slo) {
    if (slo->ttft == 0 && slo->tpot == 0) return;
    paragraph_item("goodput", "%lld of %lld jobs met --slo, %.4g requests/s", (long long)t->n_kept,
                   (long long)t->n_jobs, (double)t->n_kept / (clock_now() - t->start));
}

void batch_stats_report(const BatchStats *t, const Engine *e, const Slo *slo) {
    double seconds = clock_now() - t->start;
    paragraph_item("jobs", "%lld answered, %lld failed, %.2f s, %.4g requests/s", (long long)t->n_jobs,
                   (long long)t->n_failed, seconds, (double)t->n_jobs / seconds);
    paragraph_item("tokens",
                   "%lld generated, %.1f tok/s; %lld in prompts, %lld of these from the cache (hit rate %.1f%%)",
                   (long long)t->n_new, (double)t->n_new / seconds, (long long)t->n_prompt, (long long)t->n_cached,
                   t->n_prompt ? 100 * (double)t->n_cached / (double)t->n_prompt : 0);
    print_sample("TTFT", &t->ttft);
    print_sample("TPOT", &t->tpot);
    print_sample("ITL", &t->itl);
    print_sample("latency", &t->latency);
    print_sample("queueing", &t->queue);
    batch_stats_goodput(t, slo);
    if (t->n_steps == 0) return;
    paragraph_item("width", "%.1f sequences a step on average, %d at most; %lld steps, %lld preemptions",
                   (double)t->n_seqs / (double)t->n_steps, t->most_seqs, (long long)t->n_steps,
                   (long long)scheduler_preemptions(e->sched));
    paragraph_item("KV", "at most %d of %d blocks of %d slots in use, %.1f%% of their slots were unused",
                   t->most_blocks, e->kv.pool->n_blocks, e->kv.pool->block,
                   t->slots_held > 0 ? 100 * (1 - t->slots / t->slots_held) : 0);
    report_drafts(e, &t->drafts);
    report_store(e->kv_dir.store);
    device_plan_report(&e->devices);
    char peak[24];
    paragraph_item("peak", "%s resident", units_bytes((double)memory_peak(), peak));
}
