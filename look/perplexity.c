// look/perplexity.c: `quill perplexity`: how well a model predicts a text.
#include "look/look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/report.h"
#include "base/output.h"
#include "base/signals.h"
#include "look/all_logits.h"
#include "look/text.h"

typedef struct {
    Engine *e;
    const int *chunk; // (n) the tokens whose logits come
    int n;
    double *nll; // (LOOK_SLICE) of the slice at hand
    const float *logits;
    int first;
    double sum, sum_squares; // over all scored tokens
    int n_scored;
    double *parts, part; // parts[i]: -log of tokens [i, i + 1) PART; of those of the part at hand
    KvError compare;
} Score;

enum { PART = 1000 }; // tokens of a point of the curve

// -log softmax(logits)[next token] of one row.
static void score_row(void *arg, int task, int thread) {
    (void)thread;
    Score *s = arg;
    int n_vocab = s->e->model.c.n_vocab, next = s->first + task + 1;
    if (next >= s->n) return;
    const float *row = s->logits + (size_t)task * (size_t)n_vocab;
    float most = row[0];
    for (int i = 1; i < n_vocab; i++) most = fmaxf(most, row[i]);
    double sum = 0;
    for (int i = 0; i < n_vocab; i++) sum += (double)expf(row[i] - most);
    s->nll[task] = log(sum) + (double)most - (double)row[s->chunk[next]];
}

static bool score_slice(void *arg, const float *logits, int first, int n) {
    Score *s = arg;
    s->logits = logits;
    s->first = first;
    threads_run(s->e->pool, score_row, s, n);
    for (int i = 0; i < n && first + i + 1 < s->n; i++) {
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

// Scores the text chunk by chunk; the tokens of a chunk see only their own chunk. Where --evict goes on without end,
// the text is one chunk.
static Status score_text(Engine *e, const Options *o, const int *ids, int n, Score *s) {
    double nll[LOOK_SLICE];
    int bos = !o->look.no_bos && tokenizer_add_bos(e->tok) ? tokenizer_bos(e->tok) : -1, n_bos = bos >= 0;
    int step = (e->evict && evict_endless(e->evict) ? int_max(n + n_bos, 3) : e->shape.n_ctx) - n_bos;
    if (step < 2) return status_error(QUILL_USAGE, "-c: a context of at least 3 expected, found %d", e->shape.n_ctx);
    if (n + n_bos < 2)
        return status_error(QUILL_USAGE, "quill perplexity: a text of at least 2 tokens expected, found %d", n);
    *s = (Score){.e = e, .nll = nll};
    if (o->look.kv_error) TRY(kverror_new(&s->compare, e, int_min(step, n) + n_bos));
    int *chunk = mem_alloc((size_t)(step + n_bos) * sizeof *chunk);
    s->chunk = chunk;
    double shown = clock_now();
    for (int at = 0; at < n && isfinite(s->sum) && !signals_caught(); at += step) {
        int n_text = int_min(step, n - at);
        if (n_bos) chunk[0] = bos;
        memcpy(chunk + n_bos, ids + at, (size_t)n_text * sizeof *chunk);
        s->n = n_text + n_bos;
        look_all_logits(e, chunk, s->n, o->look.kv_error ? &s->compare : NULL, score_slice, s);
        if (clock_now() - shown < 1) continue;
        shown = clock_now();
        char line[64];
        snprintf(line, sizeof line, "perplexity %.4f,", exp(s->sum / int_max(1, s->n_scored)));
        progress_show(&e->progress, line, at + n_text, n);
    }
    progress_erase(&e->progress);
    s->nll = NULL;
    s->chunk = NULL;
    free(chunk);
    TRY(engine_fault(e));
    if (signals_caught()) return (Status){.code = 128 + signals_caught()};
    return isfinite(s->sum) ? OK : engine_no_logit(e, s->n_scored, "");
}

static void score_json(json_t *j, const Options *o, const Engine *e, const Score *s) {
    json_t *curve = json_array(), *errors = json_array();
    for (int i = 0; i < s->n_scored / PART; i++) {
        json_t *point = json_object();
        jsonio_put(point, "tokens", json_integer((i + 1) * PART));
        jsonio_put(point, "perplexity", jsonio_number(exp(s->parts[i] / PART), 6));
        jsonio_append(curve, point);
    }
    jsonio_put(j, "curve", curve);
    for (int i = 0; o->look.kv_error && i < e->model.c.n_layers; i++)
        jsonio_append(errors, jsonio_number(kverror_of(&s->compare, i), 8));
    if (o->look.kv_error) jsonio_share(j, "attention_error", errors);
    json_decref(errors);
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
        jsonio_line(j, &out);
    } else {
        buf_printf(&out, "tokens %d  nll %.6f  perplexity %.4f +- %.4f\n", s->n_scored, mean, perplexity,
                   perplexity * error);
        for (int i = 0; o->look.kv_error && i < e->model.c.n_layers; i++)
            buf_printf(&out, "layer %d  attention error %.3e\n", i, kverror_of(&s->compare, i));
    }
    if (o->answer.verbose) fprintf(stderr, "%d tokens in %.3f s, %.1f tok/s\n", s->n_scored, seconds, n / seconds);
    bool gone = false;
    Status st = output_write(out.data, out.n, &gone);
    buf_free(&out);
    return st;
}

Status look_perplexity(const Options *o) {
    Engine e;
    int *ids = NULL, n = 0;
    TRY(engine_open(&e, &o->engine, (EngineNeeds){.need_tokenizer = true, .max_out = LOOK_SLICE, .ctx_of_use = 512}));
    Score s = {0};
    Status st = look_text_tokens(o, e.tok, false, &ids, &n);
    double start = clock_now();
    if (!st.code && o->answer.verbose) report_before(&e, &o->answer, NULL);
    signals_catch();
    if (!st.code) st = score_text(&e, o, ids, n, &s);
    if (!st.code) st = print_score(o, &e, &s, clock_now() - start);
    kverror_free(&s.compare);
    free(s.parts);
    free(ids);
    engine_close(&e);
    return st;
}
