// look/perplexity.c: `quill perplexity`: how well a model predicts a text.
#include "look/look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "answer/report.h"
#include "base/file.h"
#include "base/log_sum_exp.h"
#include "base/note.h"
#include "base/output.h"
#include "base/signals.h"
#include "cli/outputs.h"
#include "look/activations.h"
#include "look/all_logits.h"
#include "look/kl.h"
#include "look/kverror.h"
#include "look/text.h"

typedef struct {
    Engine *e;
    const int *chunk; // (n) tokens of the current chunk
    int n;
    double *nll; // (LOOK_SLICE) -log of the probabilities of the current slice
    const float *logits;
    int first;
    double sum, sum_squares; // over all scored tokens
    int n_scored;
    double *parts, part; // parts[i]: sum of -log over scored tokens [i, i + 1) PART; part: the sum of the current part
    int n_chunks;
    KvError compare;
    Activations activations;
    KlRun kl;
    Status written; // result of writing --kl-base
    KlSummary far;  // result of --kl
} Score;

enum { PART = 1000 }; // scored tokens for each point of the JSON curve

// -log softmax(logits)[next token] of one row.
static void score_row(void *arg, int task, int thread) {
    (void)thread;
    Score *s = arg;
    int n_vocab = s->e->model.c.n_vocab, next = s->first + task + 1;
    if (next >= s->n) return;
    const float *row = s->logits + (size_t)task * (size_t)n_vocab;
    if (s->kl.base) kl_compare(&s->kl, s->n_scored + task, row);
    s->nll[task] = log_sum_exp(row, n_vocab) - (double)row[s->chunk[next]];
}

static bool score_slice(void *arg, const float *logits, int first, int n) {
    Score *s = arg;
    s->logits = logits;
    s->first = first;
    threads_run(s->e->pool, score_row, s, n);
    for (int i = 0; i < n && first + i + 1 < s->n; i++) {
        if (s->kl.out.path) s->written = kl_put(&s->kl, logits + (size_t)i * (size_t)s->e->model.c.n_vocab);
        if (s->written.code) return false;
        s->sum += s->nll[i];
        s->sum_squares += s->nll[i] * s->nll[i];
        s->part += s->nll[i];
        if (++s->n_scored % PART) continue;
        s->parts = mem_resize(s->parts, (size_t)(s->n_scored / PART) * sizeof *s->parts);
        s->parts[s->n_scored / PART - 1] = s->part;
        s->part = 0;
    }
    return true;
}

// Opens what the options ask for: measurements in the layers, and the file of --kl-base or --kl.
static Status open_extras(const Options *o, const int *ids, int n, int step, int n_bos, Score *s) {
    int n_rows = n - (n + step - 1) / step * (1 - n_bos), n_vocab = s->e->model.c.n_vocab;
    uint64_t hash = XXH3_64bits_withSeed(ids, (size_t)n * sizeof *ids, (uint64_t)step * 2 + (uint64_t)n_bos);
    if (o->look.kv_error) TRY(kverror_new(&s->compare, s->e, int_min(step, n) + n_bos));
    if (o->look.imatrix_out) TRY(activations_new(&s->activations, s->e));
    if (o->look.kl_base) TRY(kl_write(&s->kl, o->look.kl_base, n_vocab, n_rows, hash));
    if (o->look.kl) TRY(kl_open(&s->kl, o->look.kl, n_vocab, n_rows, hash));
    return OK;
}

static Status score_chunks(const Options *o, const int *ids, int n, int step, int bos, Score *s) {
    Engine *e = s->e;
    double nll[LOOK_SLICE], shown = clock_now();
    int n_bos = bos >= 0;
    int *chunk = mem_alloc((size_t)(step + n_bos) * sizeof *chunk);
    Watch watch = o->look.imatrix_out ? activations_watch(&s->activations) : kverror_watch(&s->compare);
    s->chunk = chunk;
    s->nll = nll;
    for (int at = 0; at < n && isfinite(s->sum) && !s->written.code && !signals_caught(); at += step) {
        int n_text = int_min(step, n - at);
        if (n_bos) chunk[0] = bos;
        memcpy(chunk + n_bos, ids + at, (size_t)n_text * sizeof *chunk);
        s->n = n_text + n_bos;
        s->n_chunks++;
        look_all_logits(e, chunk, s->n, o->look.imatrix_out || o->look.kv_error ? &watch : NULL, score_slice, s);
        if (clock_now() - shown < 1) continue;
        shown = clock_now();
        char line[64];
        snprintf(line, sizeof line, "perplexity %.4f,", exp(s->sum / int_max(1, s->n_scored)));
        progress_show(&e->progress, line, at + n_text, n);
    }
    progress_erase(&e->progress);
    free(chunk);
    TRY(engine_fault(e));
    TRY(s->written);
    if (signals_caught()) return signals_status();
    return isfinite(s->sum) ? OK : engine_no_logit(e, s->n_scored, "");
}

// The name of the first file that is read, without its folders.
static const char *text_name(const Options *o) {
    for (int i = 0; i < o->prompt.n_parts; i++) {
        const char *name = o->prompt.parts[i].file;
        if (name) return file_base(name);
    }
    return "text";
}

// Scores the text chunk by chunk; the tokens of a chunk see only their own chunk. With an --evict policy that has no
// end, the whole text is one chunk.
static Status score_text(Engine *e, const Options *o, const int *ids, int n, Score *s) {
    int bos = !o->look.no_bos && tokenizer_add_bos(e->tok) ? tokenizer_bos(e->tok) : -1, n_bos = bos >= 0;
    int step = (e->evict && evict_endless(e->evict) ? int_max(n + n_bos, 3) : e->shape.n_ctx) - n_bos;
    if (step < 2) return status_error(QUILL_USAGE, "-c: a context of at least 3 expected, found %d", e->shape.n_ctx);
    if (n + n_bos < 2)
        return status_error(QUILL_USAGE, "quill perplexity: a text of at least 2 tokens expected, found %d", n);
    *s = (Score){.e = e};
    TRY(open_extras(o, ids, n, step, n_bos, s));
    Status st = score_chunks(o, ids, n, step, bos, s);
    if (s->kl.base && !st.code) s->far = kl_summary(&s->kl, s->n_scored);
    if (s->kl.n_rows) st = kl_end(&s->kl, st);
    if (o->look.imatrix_out && !st.code)
        st = activations_save(&s->activations, o->look.imatrix_out, text_name(o), s->n_chunks, e->shape.n_ctx);
    return st;
}

// v with 6 significant digits; null if it is not finite. Divergences and the errors of layers may be far below 1.
static json_t *small_number(double v) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", v);
    return isfinite(v) ? json_real(strtod(text, NULL)) : json_null();
}

static void kl_json(json_t *j, const KlSummary *k) {
    json_t *kl = json_object();
    jsonio_put(kl, "mean", small_number(k->mean));
    jsonio_put(kl, "error", small_number(k->error));
    jsonio_put(kl, "median", small_number(k->median));
    jsonio_put(kl, "p99", small_number(k->p99));
    jsonio_put(kl, "max", small_number(k->most));
    jsonio_put(j, "kl", kl);
    jsonio_put(j, "same_top", jsonio_number(k->same, 6));
}

static void score_json(json_t *j, const Options *o, const Engine *e, const Score *s) {
    json_t *curve = json_array(), *errors = o->look.kv_error ? json_array() : NULL;
    for (int i = 0; i < s->n_scored / PART; i++) {
        json_t *point = json_object();
        jsonio_put(point, "tokens", json_integer((i + 1) * PART));
        jsonio_put(point, "perplexity", jsonio_number(exp(s->parts[i] / PART), 6));
        jsonio_append(curve, point);
    }
    jsonio_put(j, "curve", curve);
    for (int i = 0; errors && i < e->model.c.n_layers; i++)
        jsonio_append(errors, small_number(kverror_of(&s->compare, i)));
    if (errors) jsonio_put(j, "attention_error", errors);
    jsonio_put(j, "type_k", json_string(type_name(e->shape.type_k)));
    jsonio_put(j, "type_v", json_string(type_name(e->shape.type_v)));
    jsonio_put(j, "slot_bytes", json_integer((json_int_t)kvshape_bytes_per_slot(&e->shape)));
}

static Status print_score(const Options *o, const Engine *e, const Score *s, double seconds) {
    double n = s->n_scored, mean = s->sum / n, variance = n > 1 ? (s->sum_squares - n * mean * mean) / (n - 1) : 0;
    double error = sqrt(fmax(0, variance) / n), perplexity = exp(mean);
    Buf out = {0};
    if (o->answer.json) {
        json_t *j = json_object();
        jsonio_put(j, "tokens", json_integer(s->n_scored));
        jsonio_put(j, "context", json_integer(e->shape.n_ctx));
        jsonio_put(j, "nll", jsonio_number(mean, 8));
        jsonio_put(j, "nll_error", jsonio_number(error, 8));
        jsonio_put(j, "perplexity", jsonio_number(perplexity, 6));
        jsonio_put(j, "perplexity_error", jsonio_number(perplexity * error, 6));
        jsonio_put(j, "seconds", jsonio_number(seconds, 3));
        jsonio_put(j, "model", jsonio_text(str_of(gguf_name(e->gguf))));
        score_json(j, o, e, s);
        if (o->look.kl) kl_json(j, &s->far);
        jsonio_line(j, &out);
    } else {
        buf_printf(&out, "tokens %d  nll %.6f  perplexity %.4f +- %.4f\n", s->n_scored, mean, perplexity,
                   perplexity * error);
        for (int i = 0; o->look.kv_error && i < e->model.c.n_layers; i++)
            buf_printf(&out, "layer %d  attention error %.3e\n", i, kverror_of(&s->compare, i));
        if (o->look.kl)
            buf_printf(&out, "kl mean %.6f +- %.6f  median %.6f  99%% %.6f  max %.6f  same top token %.2f%%\n",
                       s->far.mean, s->far.error, s->far.median, s->far.p99, s->far.most, 100 * s->far.same);
    }
    if (o->answer.verbose) fprintf(stderr, "%d tokens in %.3f s, %.1f tok/s\n", s->n_scored, seconds, n / seconds);
    return output_buf(&out);
}

Status look_perplexity(const Options *o) {
    Engine e;
    int *ids = NULL, n = 0;
    if (o->look.kl_base) TRY(outputs_check(o, "--kl-base", o->look.kl_base));
    if (o->look.imatrix_out) TRY(outputs_check(o, "--imatrix-out", o->look.imatrix_out));
    TRY(engine_open(&e, &o->engine, (EngineNeeds){.need_tokenizer = true, .max_out = LOOK_SLICE, .ctx_of_use = 512}));
    Score s = {0};
    Status st = look_text_tokens(o, e.tok, false, &ids, &n);
    double start = clock_now();
    if (!st.code && o->answer.verbose) report_before(&e, &o->answer, NULL);
    signals_catch();
    if (!st.code) st = score_text(&e, o, ids, n, &s);
    if (!st.code) st = print_score(o, &e, &s, clock_now() - start);
    else if (st.code >= 128 && s.n_scored > 0)
        note_print(o->answer.quiet, "stopped after %d of %d tokens, whose perplexity is %.4f", s.n_scored, n,
                   exp(s.sum / s.n_scored));
    kverror_free(&s.compare);
    activations_free(&s.activations);
    free(s.parts);
    free(ids);
    engine_close(&e);
    return st;
}
