// kv/transfer.c: see kv/transfer.h.
#define _GNU_SOURCE
#include "kv/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/answer.h"
#include "answer/file_sampling.h"
#include "answer/prepare.h"
#include "answer/prompt.h"
#include "answer/report.h"
#include "base/note.h"
#include "base/signals.h"
#include "cli/outputs.h"
#include "kv/kvfile.h"

// ---- prefill --------------------------------------------------------------------------------------------------------

typedef struct {
    Engine *e;
    Request *r;
    KvWriter w;
    float *logits; // (n_vocab) the logits after the last token
    Status failed; // the first error
} Sending;

// Keeps the first error and ends the computation.
static void stop_on_error(Sending *s, Status st) {
    if (!st.code || s->failed.code) return;
    s->failed = st;
    scheduler_interrupt(s->e->sched);
}

static void send_step(void *arg) {
    Sending *s = arg;
    if (!s->failed.code) stop_on_error(s, kvfile_send(&s->w, s->e, s->r->seq));
}

// Request.emit: keeps the logits and ignores the token: the decoding process draws it.
static Finish keep_logits(Request *r, int token, const float *logits) {
    (void)token;
    Sending *s = r->arg;
    memcpy(s->logits, logits, (size_t)s->e->model.c.n_vocab * sizeof *logits);
    return FINISH_STOP;
}

static Status finish_sending(Sending *s) {
    const Request *r = s->r;
    if (!s->failed.code && r->finish == FINISH_INTERRUPT && signals_caught()) return signals_status();
    if (!s->failed.code && r->finish == FINISH_BROKEN) TRY(engine_fault(s->e));
    if (!s->failed.code && r->finish == FINISH_BROKEN) return engine_no_logit(s->e, r->n_prompt, "");
    stop_on_error(s, s->failed.code ? OK : kvfile_end(&s->w, s->e, s->r->seq, s->logits));
    return s->failed;
}

static Status compute_and_send(const Options *o, Engine *e, Request *r, int fd) {
    Sending s = {.e = e, .r = r, .w = {.fd = fd}};
    s.logits = mem_alloc((size_t)e->model.c.n_vocab * sizeof *s.logits);
    r->sampling = (SamplerParams){.greedy = true, .repeat_penalty = 1};
    r->max_new = 1; // one token, for the logits
    r->emit = keep_logits;
    r->arg = &s;
    if (o->answer.verbose) report_before(e, &o->answer, NULL);
    signals_catch();
    stop_on_error(&s, kvfile_begin(&s.w, e, r->seq, r->seq->n_tokens));
    if (!s.failed.code) {
        e->on_step = send_step;
        e->step_arg = &s;
        scheduler_add(e->sched, r);
        engine_run(e);
        e->on_step = NULL;
    }
    Status st = finish_sending(&s);
    signals_release();
    r->n_new = 0;
    if (o->answer.verbose && !st.code) report_after(e, r);
    kvwriter_free(&s.w);
    free(s.logits);
    return s.w.pipe_closed ? (Status){.code = 128 + SIGPIPE} : st;
}

static Status compute_to(const Options *o, Engine *e, Request *r) {
    TempFile out;
    TRY(kvfile_create(o->kv.out, &out));
    return tempfile_publish(&out, compute_and_send(o, e, r, out.fd));
}

static Status prefill(const Options *o, Engine *e, Str prompt) {
    Sequence seq = {0};
    Request r = {.seq = &seq};
    ChatTemplate *template;
    Rendered text = {0};
    Status st = chat_template_choose(e->gguf, e->tok, &o->answer, &template);
    if (!st.code) st = answer_prepare(e, &o->answer, prompt, template, &text, r.seq);
    if (!st.code) st = compute_to(o, e, &r);
    sequence_end(&e->kv, &seq);
    timeline_free(&r.time);
    rendered_free(&text);
    chat_template_free(template);
    return st.code == 128 + SIGPIPE ? OK : st; // a closed pipe is no error
}

Status transfer_prefill(const Options *o) {
    Buf prompt = {0};
    bool given = false;
    Engine e;
    if (strcmp(o->kv.out, "-") != 0) TRY(outputs_check(o, "--kv-out", o->kv.out));
    Status st = prompt_read(&o->prompt, &prompt, &given);
    if (!st.code && !given)
        st = status_error(QUILL_USAGE, "quill prefill: a prompt expected: words, -p, -f or a pipe on stdin");
    if (!st.code) st = engine_open(&e, &o->engine, (EngineNeeds){.need_tokenizer = true, .whole = true});
    if (!st.code) {
        buf_append(&prompt, "", 0);
        st = prefill(o, &e, str_of_buf(&prompt));
        engine_close(&e);
    }
    buf_free(&prompt);
    return st;
}

// ---- decode ---------------------------------------------------------------------------------------------------------

static Status receive(const Options *o, Engine *e, Request *r, float *logits) {
    bool in = strcmp(o->kv.in, "-") == 0, has_logits;
    const char *name = in ? "stdin" : o->kv.in;
    int fd = in ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return status_error(QUILL_IO, "%.500s: cannot open: %s", name, strerror(errno));
    Status st = isatty(fd) ? status_error(QUILL_USAGE, "--kv-in: a file or a pipe expected, found a terminal")
                           : kvfile_receive(fd, name, e, r->seq, logits, &has_logits);
    if (!in) close(fd);
    if (st.code) return st;
    if (r->seq->n_tokens == 0)
        return status_error(QUILL_MODEL, "%.500s: at least one token expected, none found", name);
    if (has_logits) r->logits = logits;
    else if (r->seq->n_cached == r->seq->n_tokens) { // computes the last token again for its logits
        int last = r->seq->tokens[r->seq->n_tokens - 1];
        kvcache_truncate(&e->kv, r->seq, r->seq->n_tokens - 1);
        sequence_push(r->seq, &last, 1);
    }
    return OK;
}

// Appends the text of the tokens. False: nothing of it would be shown.
static bool tokens_text(const Engine *e, const Sequence *s, Buf *out) {
    bool shown = false;
    for (int i = 0; i < s->n_tokens; i++) {
        Str piece = engine_piece(e, s->tokens[i], i == 0);
        buf_append(out, piece.data, piece.n);
        shown = shown || (piece.n > 0 && !tokenizer_is_control(e->tok, s->tokens[i]));
    }
    return shown;
}

static Status decode(const Options *o, Engine *e) {
    AnswerConfig config = o->answer;
    Sequence seq = {0};
    Request r = {.seq = &seq};
    ChatTemplate *template;
    Buf given = {0};
    float *logits = mem_alloc((size_t)e->model.c.n_vocab * sizeof *logits);
    Status st = chat_template_choose(e->gguf, e->tok, &config, &template);
    if (!st.code) st = file_sampling_take(e->gguf, &config);
    if (!st.code) st = receive(o, e, &r, logits);
    if (!st.code) st = answer_fits(e, &config, r.seq->n_tokens);
    if (!st.code) {
        AnswerSetup setup = {.config = &config, .template = template};
        setup.fresh = !tokens_text(e, r.seq, &given) && !template;
        setup.prompt = str_of_buf(&given);
        st = answer_run(e, &setup, &r, NULL);
    }
    sequence_end(&e->kv, &seq);
    timeline_free(&r.time);
    buf_free(&given);
    free(logits);
    chat_template_free(template);
    return st;
}

Status transfer_decode(const Options *o) {
    Engine e;
    TRY(engine_open(&e, &o->engine, (EngineNeeds){.need_tokenizer = true, .whole = true}));
    struct stat in, file; // --kv-in may name stdin as /dev/stdin
    bool same = fstat(STDIN_FILENO, &in) == 0 && stat(o->kv.in, &file) == 0 && fd_same_file(&in, &file);
    bool used = same || strcmp(o->kv.in, "-") == 0 || o->prompt.no_stdin; // no_stdin: another file is stdin
    if (!used && prompt_is_waiting())
        note_print(o->answer.quiet,
                   "stdin is not read: decode answers the prompt in the KV file, so give the text to quill "
                   "prefill; </dev/null avoids this note");
    Status st = decode(o, &e);
    engine_close(&e);
    return st;
}
