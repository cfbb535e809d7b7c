// bench/drafts.c: see bench/drafts.h.
#include "bench/drafts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/prepare.h"
#include "base/file.h"
#include "base/jsonio.h"
#include "base/output.h"
#include "base/progress.h"
#include "cli/values.h"
#include "engine.h"
#include "policy/plain.h"

enum { BOUND_ROWS = 8, WARM_TOKENS = 8 };

// A prompt that is answered, or a text that is replayed.
typedef struct {
    Sequence seq;
    const Tokenizer *tok;
    int n_prompt;
    int *forced, n_forced; // of a replay: the tokens that replace sampled ones; NULL: no replay
    int *said, n_said;     // the answer without drafts
    bool other;            // the answer with drafts differs
    char name[64];
} Work;

typedef enum { PLAIN, DRAFTED, ORACLE, N_ARMS } Arm;

typedef struct {
    char name[64];
    int n_tokens, n_texts, n_other; // n_other: texts whose answer with drafts differs
    double rates[N_ARMS];           // tok/s, the median of the repetitions; 0: not run, or all tokens in one step
    double gains[N_ARMS];           // the rate over that of the run without drafts before it, the median; 0 likewise
    DraftCounts drafts;             // of one repetition
} DraftsResult;

typedef struct {
    const Options *o;
    Engine e;
    Buf *files; // (n_files) the texts of --replay, OLD NEW OLD NEW ...
    int n_files;
    Work *work; // (n_work)
    int n_work;
    SamplerParams sampling;
    DraftsResult *results; // (n_results)
    int n_results;
    Progress progress;
} Drafts;

// ---- policies -------------------------------------------------------------------------------------------------------

// Accepts the tokens of Work.forced instead of sampling.
static void replay_accept(const Policy *p, Scheduler *s, StepRows *rows, int n) {
    const Work *w = rows->request->arg;
    (void)p, (void)n;
    for (int i = 0; i < rows->n_out; i++) {
        int token = w->forced[rows->seq->n_tokens - w->n_prompt];
        if (!scheduler_emit(s, rows, token, NULL)) return;
        if (i < rows->n_draft && token != rows->draft[i]) return;
    }
}

// Proposes the tokens of Work.forced as drafts, as many as a step of BOUND_ROWS has room for.
static void oracle_propose(const Policy *p, Scheduler *s, StepRows *rows) {
    const Work *w = rows->request->arg;
    (void)p, (void)s;
    if (rows->n_out == 0) return;
    int at = rows->seq->n_tokens - w->n_prompt;
    rows->n_draft = int_max(0, int_min(int_min(rows->room, BOUND_ROWS - 1), w->n_forced - at));
    for (int i = 0; i < rows->n_draft; i++) rows->draft[i] = w->forced[at + i];
    rows->n_out += rows->n_draft;
}

static const Policy replaying = {.accept = replay_accept, .next = &plain_policy};
static const Policy oracle = {.propose = oracle_propose, .next = &replaying};

// ---- running --------------------------------------------------------------------------------------------------------

static Finish until_end(Request *r, int token, const float *logits) {
    const Work *w = r->arg;
    (void)logits;
    return tokenizer_is_eog(w->tok, token) ? FINISH_EOG : RUNNING;
}

// Cuts the sequence back to its prompt. Blocks of the prompt are reused if they are still cached.
static void rewind_work(Drafts *d, Work *w) {
    kvcache_release(&d->e.kv, &w->seq);
    w->seq.n_tokens = w->n_prompt;
}

static void keep_answer(Work *w, Arm arm) {
    int n = w->seq.n_tokens - w->n_prompt;
    const int *answer = w->seq.tokens + w->n_prompt;
    if (arm == PLAIN) {
        w->said = mem_resize(w->said, (size_t)n * sizeof *w->said + 1);
        memcpy(w->said, answer, (size_t)n * sizeof *w->said);
        w->n_said = n;
    } else w->other = n != w->n_said || memcmp(answer, w->said, (size_t)n * sizeof *answer) != 0;
}

static Status check(const Drafts *d, const Work *w, const Request *r) {
    TRY(engine_fault(&d->e));
    if (r->finish == FINISH_BROKEN) return engine_no_logit(&d->e, r->seq->n_tokens, "");
    if (r->finish != FINISH_CONTEXT) return OK;
    return status_error(QUILL_CONTEXT, "bench: %s: the KV cache of %d slots is full; try a larger --kv-mem", w->name,
                        d->e.kv.max_slots);
}

// Answers works [first, last) together, with at most `most` tokens each. *seconds: the time of decoding, from the first
// token of all works to the last.
static Status run_arm(Drafts *d, int first, int last, Arm arm, int most, double *seconds, DraftsResult *out) {
    int n = last - first;
    Request *r = mem_alloc((size_t)n * sizeof *r);
    Speculate *fresh = speculate_new(speculate_plan(d->e.drafters.speculate)); // without n-grams of earlier repetitions
    const Policy *plain = d->work[first].forced ? &replaying : &plain_policy, drafted = speculate_policy(fresh, plain);
    for (int i = 0; i < n; i++) {
        Work *w = &d->work[first + i];
        rewind_work(d, w);
        r[i] = (Request){.seq = &w->seq, .sampling = d->sampling, .sequence_key = (uint64_t)(first + i), .arg = w};
        r[i].policy = arm == PLAIN ? plain : arm == DRAFTED ? &drafted : &oracle;
        r[i].max_new = int_min(most, w->forced ? w->n_forced : d->o->bench.gen.at[0]);
        r[i].emit = w->forced ? NULL : until_end;
        scheduler_add(d->e.sched, &r[i]);
    }
    for (Batch *b; engine_step(&d->e, &b);)
        for (int i = 0; i < n; i++)
            if (r[i].finish != RUNNING) kvcache_release(&d->e.kv, r[i].seq); // waiting requests may need its blocks
    model_wait(&d->e.model);
    double from = r[0].time.first, to = r[0].time.last;
    Status st = OK;
    *out = (DraftsResult){.n_texts = n};
    for (int i = 0; i < n; i++) {
        Work *w = &d->work[first + i];
        from = r[i].time.first < from ? r[i].time.first : from;
        to = r[i].time.last > to ? r[i].time.last : to;
        out->n_tokens += r[i].n_new;
        draft_counts_add(&out->drafts, &r[i].drafts);
        keep_answer(w, arm);
        out->n_other += w->other;
        if (!st.code) st = check(d, w, &r[i]);
        timeline_free(&r[i].time);
    }
    *seconds = to - from;
    speculate_free(fresh);
    free(r);
    return st;
}

// The median rate of each arm, and the median gain of the arms over the plain run before them. rates: (N_ARMS, n_reps)
static void summarise(DraftsResult *out, double *const *rates, int n_arms, int n_reps) {
    for (int arm = 0; arm < n_arms; arm++) {
        double *gains = mem_alloc((size_t)n_reps * sizeof *gains);
        for (int i = 0; i < n_reps; i++) gains[i] = rates[PLAIN][i] > 0 ? rates[arm][i] / rates[PLAIN][i] : 0;
        out->gains[arm] = stats_median(gains, n_reps);
        out->rates[arm] = stats_median(rates[arm], n_reps);
        free(gains);
    }
}

// Runs all arms alternately, after an untimed run that computes the prompts. Texts of two arms can differ in length, so
// each run has its own rate.
static Status measure(Drafts *d, int first, int last) {
    int n_reps = d->o->bench.reps, n_arms = d->work[first].forced ? N_ARMS : ORACLE;
    double seconds, *rates[N_ARMS];
    DraftsResult *out = &d->results[d->n_results], last_run;
    for (int i = 0; i < N_ARMS; i++) rates[i] = mem_alloc((size_t)n_reps * sizeof(double));
    progress_show(&d->progress, d->work[first].name, 0, n_reps);
    Status st = run_arm(d, first, last, PLAIN, WARM_TOKENS, &seconds, &last_run);
    for (int rep = 0; rep < n_reps && !st.code; rep++) {
        for (int arm = 0; arm < n_arms && !st.code; arm++) {
            st = run_arm(d, first, last, arm, INT_MAX, &seconds, &last_run);
            // The time begins at the first token; 0 seconds if all tokens came in one step.
            rates[arm][rep] = seconds > 0 ? (last_run.n_tokens - 1) / seconds : 0;
            if (arm == DRAFTED) *out = last_run;
        }
        progress_show(&d->progress, d->work[first].name, rep + 1, n_reps);
    }
    if (!st.code) summarise(out, rates, n_arms, n_reps);
    snprintf(out->name, sizeof out->name, "%s", d->work[first].name);
    if (last - first > 1)
        snprintf(out->name, sizeof out->name, "%d texts, %d at once", last - first, d->e.shape.n_seqs);
    for (int i = 0; i < N_ARMS; i++) free(rates[i]);
    d->n_results += !st.code;
    return st;
}

// ---- the texts ------------------------------------------------------------------------------------------------------

static Work *add_work(Drafts *d, const char *name, size_t n) {
    d->work = mem_resize(d->work, (size_t)(d->n_work + 1) * sizeof *d->work);
    Work *w = &d->work[d->n_work++];
    *w = (Work){.tok = d->e.tok};
    Buf shown = {0};
    utf8_escape(&shown, name, n);
    snprintf(w->name, sizeof w->name, "%s", shown.data);
    w->name[utf8_whole(w->name, strlen(w->name))] = 0;
    buf_free(&shown);
    return w;
}

// Reads the files of --replay. Each is read once, since it may be a pipe.
static Status read_replays(Drafts *d) {
    int n = d->o->bench.replay ? d->o->bench.n_files : 0;
    d->files = mem_alloc((size_t)n * sizeof *d->files + 1);
    for (int i = 0; i < n; i++) {
        Buf *text = &d->files[d->n_files++];
        *text = (Buf){0};
        TRY(file_read(d->o->bench.files[i], text));
        if (text->n == 0)
            return status_error(QUILL_USAGE, "--replay: %.500s: text expected, found an empty file",
                                d->o->bench.files[i]);
    }
    return OK;
}

// Adds the replay of files i and i + 1.
static Status add_replay(Drafts *d, int i) {
    const Buf *was = &d->files[i], *is = &d->files[i + 1];
    const char *name = file_base(d->o->bench.files[i + 1]);
    Work *w = add_work(d, name, strlen(name));
    size_t bound = tokenizer_bound(w->tok, was->n > is->n ? was->n : is->n);
    int *ids = mem_alloc(bound * sizeof *ids + 1), bos = tokenizer_bos(w->tok);
    if (bos >= 0) sequence_push(&w->seq, &bos, 1);
    sequence_push(&w->seq, ids, (int)tokenizer_encode(w->tok, was->data, was->n, NULL, ids, bound));
    w->n_prompt = w->seq.n_tokens;
    w->n_forced = (int)tokenizer_encode(w->tok, is->data, is->n, NULL, ids, bound);
    w->forced = ids;
    return answer_fits(&d->e, &d->o->answer, w->n_prompt + w->n_forced);
}

static Status add_prompt(Drafts *d, const ChatTemplate *template, Str line) {
    Rendered text = {0};
    Work *w = add_work(d, line.data, line.n);
    Status st = answer_prepare(&d->e, &d->o->answer, line, template, &text, &w->seq);
    w->n_prompt = w->seq.n_tokens;
    rendered_free(&text);
    return st;
}

static Status add_prompts(Drafts *d, const Buf *lines) {
    ChatTemplate *template;
    TRY(chat_template_choose(d->e.gguf, d->e.tok, &d->o->answer, &template));
    Status st = OK;
    for (size_t at = 0, n; at < lines->n && !st.code; at += n + 1) {
        const char *end = memchr(lines->data + at, '\n', lines->n - at);
        n = end ? (size_t)(end - lines->data) - at : lines->n - at;
        if (n > 0) st = add_prompt(d, template, (Str){lines->data + at, n});
    }
    chat_template_free(template);
    return st;
}

// Without prompts: generates texts from the BOS token alone.
static Status add_nothing(Drafts *d) {
    int bos = int_max(0, tokenizer_bos(d->e.tok));
    for (int i = 0; i < d->o->bench.sequences; i++) {
        Work *w = add_work(d, "from nothing", 12);
        sequence_push(&w->seq, &bos, 1);
        w->n_prompt = 1;
    }
    return OK;
}

static Status add_works(Drafts *d, const Buf *prompts) {
    const Options *o = d->o;
    for (int i = 0; i < d->n_files; i += 2) TRY(add_replay(d, i));
    if (o->bench.replay) return OK;
    TRY(prompts->n > 0 ? add_prompts(d, prompts) : add_nothing(d));
    if (d->n_work == 0)
        return status_error(QUILL_USAGE, "--prompt-lines %s: a prompt a line expected, found none", o->bench.prompts);
    return OK;
}

// ---- printing -------------------------------------------------------------------------------------------------------

static double acceptance(const DraftCounts *c) {
    return c->n_drafted ? (double)c->n_accepted / (double)c->n_drafted : 0;
}

// null for 0, which means not measured.
static json_t *real_or_null(double v) { return v > 0 ? json_real(v) : json_null(); }

static const char *figure(double v, char out[24]) {
    snprintf(out, 24, v > 0 ? "%.2f" : "-", v);
    return out;
}

static json_t *json_of(const Drafts *d) {
    json_t *list = json_array();
    for (int i = 0; i < d->n_results; i++) {
        const DraftsResult *r = &d->results[i];
        jsonio_append(list, json_pack("{s:o, s:i, s:i, s:i, s:I, s:I, s:f, s:o, s:o, s:o, s:o}", "work",
                                      jsonio_text(str_of(r->name)), "texts", r->n_texts, "texts_changed", r->n_other,
                                      "tokens", r->n_tokens, "drafted", (json_int_t)r->drafts.n_drafted, "accepted",
                                      (json_int_t)r->drafts.n_accepted, "tokens_per_step",
                                      draft_counts_per_step(&r->drafts), "tok_s_without", real_or_null(r->rates[PLAIN]),
                                      "tok_s_with", real_or_null(r->rates[DRAFTED]), "gain",
                                      real_or_null(r->gains[DRAFTED]), "gain_bound", real_or_null(r->gains[ORACLE])));
    }
    return json_pack("{s:s, s:o, s:i, s:s, s:o}", "speculate", d->o->engine.speculate, "model",
                     jsonio_text(str_of(gguf_name(d->e.gguf))), "threads", threads_count(d->e.pool), "isa",
                     d->e.be->isa, "results", list);
}

static void print_rows(const Drafts *d, const char *between, const char *head, const char *tail, Buf *out) {
    for (int i = 0; i < d->n_results; i++) {
        const DraftsResult *r = &d->results[i];
        char name[80], plain[24], drafted[24], gain[24], bound[24];
        snprintf(name, sizeof name, *head ? "%-24s" : "%s", r->name);
        buf_printf(out, "%s%s%s%6d%s%7lld%s%5.1f%%%s%6.2f%s%8s%s%8s%s%5s%s%5s%s%3d of %d%s\n", head, name, between,
                   r->n_tokens, between, (long long)r->drafts.n_drafted, between, 100 * acceptance(&r->drafts), between,
                   draft_counts_per_step(&r->drafts), between, figure(r->rates[PLAIN], plain), between,
                   figure(r->rates[DRAFTED], drafted), between, figure(r->gains[DRAFTED], gain), between,
                   figure(r->gains[ORACLE], bound), between, r->n_other, r->n_texts, tail);
    }
}

// Appends ",2.31", or an empty cell for 0, which means not measured.
static void put_cell(Buf *out, double v) {
    buf_str(out, ",");
    if (v > 0) buf_printf(out, "%.2f", v);
}

// The columns are the keys of the JSON, with the same numbers.
static void print_csv(const Drafts *d, Buf *out) {
    buf_str(out, "work,texts,texts_changed,tokens,drafted,accepted,tokens_per_step,tok_s_without,tok_s_with,gain,"
                 "gain_bound\n");
    for (int i = 0; i < d->n_results; i++) {
        const DraftsResult *r = &d->results[i];
        const char *quote = strpbrk(r->name, ",\"") ? "\"" : "";
        buf_str(out, quote);
        for (const char *at = r->name; *at; at++) buf_printf(out, "%s%c", *at == '"' ? "\"" : "", *at);
        buf_printf(out, "%s,%d,%d,%d,%lld,%lld", quote, r->n_texts, r->n_other, r->n_tokens,
                   (long long)r->drafts.n_drafted, (long long)r->drafts.n_accepted);
        buf_printf(out, ",%.2f", draft_counts_per_step(&r->drafts));
        put_cell(out, r->rates[PLAIN]);
        put_cell(out, r->rates[DRAFTED]);
        put_cell(out, r->gains[DRAFTED]);
        put_cell(out, r->gains[ORACLE]);
        buf_str(out, "\n");
    }
}

static const char *const titles =
    "work%stokens%sdrafted%saccepted%stokens/step%stok/s without%stok/s with%sgain%sof 8 rows at most%stexts changed";

static Status print(const Drafts *d) {
    const char *format = d->o->bench.output;
    bool md = strcmp(format, "md") == 0;
    Buf out = {0};
    if (strcmp(format, "json") == 0) {
        json_t *all = json_of(d);
        jsonio_print(all, JSON_INDENT(2) | JSON_REAL_PRECISION(6), &out);
        buf_str(&out, "\n");
        json_decref(all);
    } else if (strcmp(format, "csv") == 0) print_csv(d, &out);
    else {
        const char *b = md ? " | " : ", ";
        if (md) buf_str(&out, "| ");
        buf_printf(&out, titles, b, b, b, b, b, b, b, b, b);
        buf_str(&out, md ? " |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n" : "\n");
        print_rows(d, md ? " | " : "  ", md ? "| " : "", md ? " |" : "", &out);
    }
    return output_buf(&out);
}

// ---- the mode -------------------------------------------------------------------------------------------------------

// An upper limit of the context that the texts need: one token for each byte, since they are not encoded yet.
static int context_needed(const Drafts *d, const Buf *prompts) {
    enum { TEMPLATE = 512, MOST = 1 << 20 };
    size_t most = prompts->n + TEMPLATE + (size_t)cli_largest(&d->o->bench.gen);
    for (int i = 0; i < d->n_files; i += 2) {
        size_t n = d->files[i].n + d->files[i + 1].n + 2;
        if (n > most) most = n;
    }
    return most < MOST ? (int)most : MOST;
}

static Status run_all(Drafts *d) {
    int n_seqs = d->o->bench.sequences;
    d->results = mem_alloc((size_t)d->n_work * sizeof *d->results);
    if (n_seqs > 1 && !d->o->bench.replay) return measure(d, 0, d->n_work);
    for (int i = 0; i < d->n_work; i++) TRY(measure(d, i, i + 1));
    return OK;
}

static void close_drafts(Drafts *d) {
    for (int i = 0; i < d->n_work; i++) {
        sequence_end(&d->e.kv, &d->work[i].seq);
        free(d->work[i].forced);
        free(d->work[i].said);
    }
    free(d->work);
    free(d->results);
    engine_close(&d->e);
}

Status bench_drafts(const Options *o) {
    Drafts d = {.o = o, .sampling = sampler_defaults(), .progress = progress_new(o->answer.quiet)};
    Buf prompts = {0};
    d.sampling.seed = o->answer.seed_given ? o->answer.sampling.seed : 1;
    EngineNeeds needs = {.need_tokenizer = true, .n_seqs = o->bench.sequences, .pooled = true};
    Status st = o->bench.prompts ? file_read(o->bench.prompts, &prompts) : OK;
    if (!st.code) st = read_replays(&d);
    needs.n_ctx = context_needed(&d, &prompts);
    EngineConfig config = o->engine;
    config.threads = int_max(0, o->bench.threads.at[0]);
    if (!st.code) st = engine_open(&d.e, &config, needs);
    if (!st.code) {
        engine_use_hugepages(&d.e);
        st = add_works(&d, &prompts);
        if (!st.code) st = run_all(&d);
        progress_erase(&d.progress);
        if (!st.code) st = print(&d);
        close_drafts(&d);
    }
    for (int i = 0; i < d.n_files; i++) buf_free(&d.files[i]);
    free(d.files);
    buf_free(&prompts);
    return st;
}
