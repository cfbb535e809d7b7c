// look/look.c: tokenize, logits and perplexity: text or ids in, figures out.
#include "look/look.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/chat.h"
#include "look/kverror.h"
#include "answer/output.h"
#include "answer/prompt.h"
#include "answer/report.h"
#include "base/signals.h"

// Reads the mode's text and encodes it. add_bos as in chat_encode.
static Status text_tokens(const Options *o, const Tokenizer *t, bool add_bos, int **ids, int *n) {
    Buf text = {0};
    bool given;
    Status st = prompt_read(&o->prompt, &text, &given);
    if (!st.code && !given) st = status_error(QUILL_USAGE, "a text expected: words, -p, -f or a pipe on stdin");
    Rendered r = {0};
    if (!st.code) {
        rendered_add(&r, text.data, text.n, o->answer.parse_special);
        st = chat_encode(t, &r, add_bos, ids, n);
    }
    rendered_free(&r);
    buf_free(&text);
    return st;
}

// ---- tokenize -------------------------------------------------------------------------------------------------------

static Status print_tokens(const Options *o, const Tokenizer *t, const int *ids, int n) {
    Buf out = {0};
    bool gone = false;
    Status st = OK;
    for (int i = 0; i < n && !st.code && !gone; i++) {
        if (o->look.ids) buf_printf(&out, "%s%d", i ? " " : "", ids[i]);
        else {
            Str piece = tokenizer_piece(t, ids[i]);
            buf_printf(&out, "%d\t", ids[i]);
            utf8_escape(&out, piece.data, piece.n);
            buf_str(&out, "\n");
        }
        if (out.n > 1 << 16) st = output_write(out.data, out.n, &gone), out.n = 0;
    }
    if (o->look.ids) buf_str(&out, "\n");
    if (!st.code) st = output_write(out.data, out.n, &gone);
    buf_free(&out);
    return st;
}

Status tokenize_run(const Options *o) {
    Gguf *g;
    Tokenizer *t = NULL;
    int *ids = NULL, n = 0;
    TRY(engine_file_open(&o->engine, &g));
    Status st = engine_file_tokenizer(g, &t);
    if (!st.code) st = text_tokens(o, t, !o->look.no_bos && tokenizer_add_bos(t), &ids, &n);
    int eos = st.code || o->look.no_bos || !tokenizer_add_eos(t) ? -1 : tokenizer_eos(t);
    if (eos >= 0 && (n == 0 || ids[n - 1] != eos)) {
        ids = mem_resize(ids, (size_t)(n + 1) * sizeof *ids);
        ids[n++] = eos;
    }
    if (!st.code) st = print_tokens(o, t, ids, n);
    free(ids);
    tokenizer_free(t);
    gguf_close(g);
    return st;
}

// ---- every row's logits ---------------------------------------------------------------------------------------------

enum { SLICE = 32 }; // rows of logits held at once: a vocabulary of 150,000 makes 19 MB of them

// Takes the logits (n, n_vocab) of rows [first, first + n); false: enough.
typedef bool TakeSlice(void *arg, const float *logits, int first, int n);

static Batch new_batch(int max_rows) {
    int *rows = mem_alloc((size_t)max_rows * 4 * sizeof *rows);
    return (Batch){.n_seqs = 1,
                   .token = rows,
                   .pos = rows + max_rows,
                   .slot = rows + 2 * max_rows,
                   .seq = rows + 3 * max_rows}; // seq stays 0
}

// Puts the next tokens of seq into the batch, as many as the engine takes and the cache has room for. Of what --evict
// does behind a prompt, the first half of the tokens is the prompt.
static bool next_rows(Engine *e, Sequence *seq, Batch *b) {
    int n_prompt = seq->n_tokens / 2, border = seq->n_cached < n_prompt && e->evict ? n_prompt : seq->n_tokens;
    b->n_rows = int_min(scheduler_max_rows(e->sched), border - seq->n_cached);
    if (e->evict) b->n_rows = int_min(b->n_rows, evict_room(e->evict, seq, n_prompt));
    int slot = sequence_slots(seq);
    if (b->n_rows < 1 || !kvcache_reserve(&e->kv, seq, slot + b->n_rows)) return false;
    if (e->evict) b->probe = evict_probe(e->evict, seq, n_prompt, b->n_rows);
    b->max_blocks = seq->n_blocks;
    b->block_table = mem_resize(b->block_table, (size_t)b->max_blocks * sizeof *b->block_table);
    b->window_table = mem_resize(b->window_table, (size_t)b->max_blocks * sizeof *b->window_table);
    for (int kind = 0; kind < KV_KINDS; kind++)
        kvcache_table(&e->kv, seq, kind, kind == KV_WINDOW ? b->window_table : b->block_table);
    for (int i = 0; i < b->n_rows; i++) {
        b->pos[i] = seq->n_cached + i;
        b->token[i] = seq->tokens[b->pos[i]];
        b->slot[i] = slot + i;
    }
    return true;
}

// Computes n tokens from an empty cache, as many rows at a time as the engine takes, and hands over all their
// logits. compare: NULL, or what is compared on the way.
static void all_logits(Engine *e, const int *ids, int n, KvError *compare, TakeSlice *take, void *arg) {
    Batch b = new_batch(scheduler_max_rows(e->sched));
    Watch watch = {0};
    if (compare) {
        watch = kverror_watch(compare);
        b.watch = &watch;
    }
    Sequence seq = {0};
    int rows[SLICE];
    bool more = true;
    sequence_push(&seq, ids, n);
    // n is within the context, or --evict makes room; and nobody else uses the cache
    for (; seq.n_cached < n && more && !signals_caught() && next_rows(e, &seq, &b); seq.n_cached += b.n_rows) {
        model_hidden(&e->model, &e->work, e->kv.pool, &b);
        for (int done = 0, n_slice; done < b.n_rows && more; done += n_slice) {
            n_slice = int_min(int_min(SLICE, e->work.max_out), b.n_rows - done);
            for (int i = 0; i < n_slice; i++) rows[i] = done + i;
            more = take(arg, model_logits(&e->model, &e->work, &b, rows, n_slice), seq.n_cached + done, n_slice);
        }
    }
    kvcache_release(&e->kv, &seq);
    sequence_free(&seq);
    free(b.token);
    free(b.block_table);
    free(b.window_table);
}

// ---- logits ---------------------------------------------------------------------------------------------------------

// "1,2,3"
static Status parse_ids(const char *text, int **out, int *n) {
    *out = NULL;
    *n = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long v = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (v < 0 || v > INT_MAX || errno || (*end && *end != ','))
            return status_error(QUILL_USAGE, "--tokens: ids as 1,2,3 expected, found \"%.100s\" at byte %td", at,
                                at - text);
        *out = mem_resize(*out, (size_t)(*n + 1) * sizeof **out);
        (*out)[(*n)++] = (int)v;
        at = end;
        if (!*at) return OK;
    }
}

typedef struct {
    int n_vocab;
    bool gone;
    Status st;
} LogitsOut;

static bool write_slice(void *arg, const float *logits, int first, int n) {
    (void)first;
    LogitsOut *out = arg;
    out->st = output_write(logits, (size_t)n * (size_t)out->n_vocab * sizeof *logits, &out->gone);
    return !out->st.code && !out->gone;
}

static Status check_ids(const Engine *e, const int *ids, int n) {
    for (int i = 0; i < n; i++)
        if (ids[i] >= e->model.c.n_vocab)
            return status_error(QUILL_USAGE, "--tokens: ids below %d expected, found %d", e->model.c.n_vocab, ids[i]);
    if (n > e->shape.n_ctx)
        return status_error(QUILL_CONTEXT, "the text has %d tokens, the context %d; -c %d fits", n, e->shape.n_ctx, n);
    return OK;
}

Status logits_run(const Options *o) {
    if (isatty(STDOUT_FILENO))
        return status_error(QUILL_USAGE,
                            "quill logits: writes raw float32; a file or a pipe on stdout expected, found a "
                            "terminal");
    int *ids = NULL, n = 0;
    Engine e;
    Status st = o->look.tokens ? parse_ids(o->look.tokens, &ids, &n) : OK;
    if (!st.code)
        st = engine_open(&e, &o->engine,
                         (EngineNeeds){.need_tokenizer = !o->look.tokens, .max_out = SLICE, .ctx_of_use = n});
    if (st.code) {
        free(ids);
        return st;
    }
    if (!o->look.tokens) st = text_tokens(o, e.tok, !o->look.no_bos, &ids, &n);
    if (!st.code) st = check_ids(&e, ids, n);
    if (!st.code) {
        if (o->answer.verbose) report_before(&e, &o->answer, NULL);
        LogitsOut out = {.n_vocab = e.model.c.n_vocab};
        all_logits(&e, ids, n, NULL, write_slice, &out);
        st = out.st;
        if (!st.code) st = engine_fault(&e);
    }
    free(ids);
    engine_close(&e);
    return st;
}

// ---- perplexity -----------------------------------------------------------------------------------------------------

typedef struct {
    Engine *e;
    const int *chunk; // (n) the tokens whose logits come
    int n;
    double *nll; // (SLICE) of the slice at hand
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
    double nll[SLICE];
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
        all_logits(e, chunk, s->n, o->look.kv_error ? &s->compare : NULL, score_slice, s);
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

Status perplexity_run(const Options *o) {
    Engine e;
    int *ids = NULL, n = 0;
    TRY(engine_open(&e, &o->engine, (EngineNeeds){.need_tokenizer = true, .max_out = SLICE, .ctx_of_use = 512}));
    Score s = {0};
    Status st = text_tokens(o, e.tok, false, &ids, &n);
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
