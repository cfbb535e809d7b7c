// answer/answer.c: see answer/answer.h.
#include "answer/answer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/extract.h"
#include "answer/form.h"
#include "answer/prepare.h"
#include "answer/report.h"
#include "base/note.h"
#include "base/output.h"
#include "base/signals.h"
#include "term/terminal.h"

// ---- writing --------------------------------------------------------------------------------------------------------

static void put(Answer *a, const char *bytes, size_t n) {
    if (a->config->no_stream) buf_append(&a->kept, bytes, n);
    else if (!a->failed.code) a->failed = output_write(bytes, n, &a->gone);
}

static void write_out(Answer *a, const char *bytes, size_t n) {
    if (n > 0) a->line_open = bytes[n - 1] != '\n';
    put(a, bytes, n);
}

// Writes a mark around thoughts: an escape sequence with colour, a separate line without.
static void show_mark(Answer *a, const char *sequence, const char *line) {
    Buf out = {0};
    if (a->dim) screen_mark(&a->screen, sequence, &out);
    else screen_plain(&a->screen, str_of(line), &out);
    if (a->dim) put(a, out.data, out.n); // an escape sequence does not change line_open
    else write_out(a, out.data, out.n);
    buf_free(&out);
}

static void put_kept(Answer *a) {
    if (!a->failed.code) a->failed = output_write(a->kept.data, a->kept.n, &a->gone);
    a->kept.n = 0;
}

static void end_thought(Answer *a) {
    if (a->in_thought) show_mark(a, "\033[0m", "\n</think>");
    a->in_thought = false;
}

static void show_text(Answer *a, bool thought, Str text) {
    Buf out = {0};
    if (thought) screen_plain(&a->screen, text, &out);
    else screen_text(&a->screen, text, &out);
    write_out(a, out.data, out.n);
    buf_free(&out);
}

// Prints the answer or the thoughts from byte `begin` on, unless they are printed at the end (JSON, --extract).
static void show(Answer *a, bool thought, size_t begin) {
    const Buf *part = thought ? &a->thinking : &a->answer;
    size_t n = part->n - begin;
    if (n == 0) return;
    buf_append(&a->text, part->data + begin, n);
    if (a->config->json || a->config->jsonl || a->config->extract || (thought && !a->show_thoughts)) return;
    if (thought && !a->in_thought) show_mark(a, "\033[2m", "<think>\n");
    if (!thought && a->in_thought) end_thought(a), show_text(a, true, str_of("\n\n"));
    a->in_thought = thought;
    show_text(a, thought, (Str){part->data + begin, n});
}

// Called at a marker: shows all bytes that were held back, because no stop string or character continues after it.
static void show_held(Answer *a) {
    size_t answer = a->answer.n, thinking = a->thinking.n;
    text_stream_end(&a->thoughts, &a->thinking);
    show(a, true, thinking);
    if (!a->stream.stopped) text_stream_end(&a->stream, &a->answer);
    show(a, false, answer);
}

// Keeps a part of the answer for call_format_read, with marks between CALL_HIDDEN and CALL_SHOWN.
static void keep_said(Answer *a, const Part *p) {
    static const char hidden = (char)CALL_HIDDEN, shown = (char)CALL_SHOWN;
    if (!a->calls || p->kind == PART_THOUGHT) return;
    if (p->kind != PART_SAID) buf_append(&a->said, &hidden, 1);
    buf_append(&a->said, p->bytes.data, p->bytes.n);
    if (p->kind != PART_SAID) buf_append(&a->said, &shown, 1);
}

// Removes the stop string that has ended the answer from what call_format_read gets.
static void cut_said(Answer *a) {
    size_t n = a->stream.n_cut;
    if (n > a->said.n) return;
    for (size_t i = a->said.n - n; i < a->said.n; i++)
        if (call_is_hidden(a->said.data[i])) return;
    a->said.n -= n;
}

// Shows the parts that think_next can decide. True: a stop string has ended the answer.
static bool show_parts(Answer *a) {
    for (Part p; !a->stream.stopped && think_next(&a->think, &p);) {
        bool thought = p.kind == PART_THOUGHT;
        size_t begin = thought ? a->thinking.n : a->answer.n;
        keep_said(a, &p);
        if (p.kind == PART_MARKER) show_held(a), buf_append(&a->text, p.bytes.data, p.bytes.n);
        else if (p.kind != PART_HIDDEN)
            text_stream_add(thought ? &a->thoughts : &a->stream, p.bytes.data, p.bytes.n,
                            thought ? &a->thinking : &a->answer);
        if (p.kind != PART_MARKER) show(a, thought, begin);
        if (a->stream.stopped) cut_said(a);
    }
    return a->stream.stopped;
}

static void write_json(Answer *a, json_t *object) {
    Buf line = {0};
    jsonio_line(object, &line);
    write_out(a, line.data, line.n);
    buf_free(&line);
}

// ---- a token --------------------------------------------------------------------------------------------------------

// A token as JSON: {"id","piece","bytes"} and, with --logprobs N, "logprob" and the N likeliest tokens as "top".
static json_t *token_json(const Answer *a, int token, const TokenOdds *odds, bool fresh) {
    json_t *j = json_object();
    jsonio_put_token(j, token, engine_piece(a->e, token, fresh));
    if (!odds) return j;
    jsonio_put(j, "logprob", jsonio_number(odds->own, 6));
    json_t *list = json_array();
    for (int i = 0; i < answer_n_top(a->e, a->config); i++) {
        json_t *one = json_object();
        jsonio_put_token(one, odds->top[i].id, engine_piece(a->e, odds->top[i].id, fresh));
        jsonio_put(one, "logprob", jsonio_number(odds->top[i].logprob, 6));
        jsonio_append(list, one);
    }
    jsonio_put(j, "top", list);
    return j;
}

static bool thinks(const AnswerConfig *config, const char *how) {
    return config->think && strcmp(config->think, how) == 0;
}

static Str since(const Buf *b, size_t begin) {
    return b->n > begin ? (Str){b->data + begin, b->n - begin} : str_of("");
}

// Writes the --jsonl line of the last token: the object of the token, and the text shown since the previous line.
static void write_line(Answer *a) {
    if (!a->line) return;
    jsonio_put(a->line, "text", jsonio_text(since(&a->answer, a->n_in_lines)));
    if (a->show_thoughts && a->thinking.n > a->n_thought_in_lines)
        jsonio_put(a->line, "thinking", jsonio_text(since(&a->thinking, a->n_thought_in_lines)));
    write_json(a, a->line);
    a->line = NULL;
    a->n_in_lines = a->answer.n;
    a->n_thought_in_lines = a->thinking.n;
}

static bool holds_back(const Answer *a) {
    return a->think.held.n > a->think.n_given || a->thoughts.held.n > 0 || a->stream.held.n > 0;
}

// Whether nobody wants to know log-probabilities.
static bool is_blind(const AnswerConfig *config) { return config->logprobs < 0; }

int answer_n_top(const Engine *e, const AnswerConfig *config) { return int_min(config->logprobs, e->model.c.n_vocab); }

bool answer_hides(const Engine *e, const AnswerConfig *config, int token) {
    bool control = token < tokenizer_n(e->tok) && tokenizer_is_control(e->tok, token);
    return (tokenizer_is_eog(e->tok, token) || control) && !config->special;
}

static void open_output(Answer *a) {
    const AnswerConfig *config = a->config;
    bool json = config->json || config->jsonl, terminal = isatty(STDOUT_FILENO);
    a->stream = (TextStream){.stop = config->stop, .n_stop = config->n_stop, .whole = json || terminal};
    a->thoughts = (TextStream){.whole = a->stream.whole};
    a->show_thoughts = thinks(config, "show") || ((json || terminal) && !thinks(config, "hide"));
    a->dim = terminal_color(config->color, STDOUT_FILENO);
    a->screen = json || !terminal ? screen_none() : screen_open(STDOUT_FILENO, config->markdown, config->color);
    if (config->logprobs >= 0) a->tokens = json_array();
}

void answer_begin(Answer *a, Engine *e, const AnswerSetup *setup) {
    const AnswerConfig *config = setup->config;
    Str template = chat_template_source(setup->template, tools_given(&config->tools));
    *a = (Answer){.e = e, .config = config, .fresh = setup->fresh, .rates = config->best_of > 0};
    open_output(a);
    if (!config->special) a->think = think_begin(template, setup->prompt);
    if (tools_given(&config->tools)) a->calls = call_format_find(template);
    bool chat = template.n > 0 && !config->special;
    if (!chat && config->markdown && strcmp(config->markdown, "on") != 0)
        a->screen.markdown = false; // text without a template is seldom Markdown
    buf_append(&a->answer, setup->echo.data, setup->echo.n);
    a->echo_open = setup->template && setup->echo.n > 0 && setup->echo.data[setup->echo.n - 1] != '\n';
    show(a, false, 0);
    a->n_echo = a->text.n;
}

static void end_echo(Answer *a) {
    size_t n = a->answer.n;
    if (!a->echo_open) return;
    buf_str(&a->answer, "\n");
    show(a, false, n);
    a->n_echo = a->text.n;
    a->echo_open = false;
}

Finish answer_add(Answer *a, int token, const TokenOdds *odds) {
    bool hidden = answer_hides(a->e, a->config, token), fresh = a->fresh;
    Str piece = engine_piece(a->e, token, fresh);
    if (!hidden) a->fresh = false;
    write_line(a);
    end_echo(a);
    think_add(&a->think, piece.data, piece.n, hidden);
    bool stopped = show_parts(a);
    if (a->tokens || a->config->jsonl) {
        json_t *j = token_json(a, token, odds, fresh);
        if (a->tokens) jsonio_append(a->tokens, json_incref(j));
        if (a->config->jsonl) a->line = json_copy(j);
        // If bytes are held back, the line waits for the next token or the end of the answer, and then has their text.
        if (!holds_back(a)) write_line(a);
        json_decref(j);
    }
    if (a->gone || a->failed.code || stopped) return FINISH_STOP;
    return tokenizer_is_eog(a->e->tok, token) ? FINISH_EOG : RUNNING;
}

static Finish emit(Request *r, int token, const float *logits) {
    Answer *a = r->arg;
    bool blind = is_blind(a->config);
    if (blind && !a->rates) return answer_add(a, token, NULL);
    int n = int_max(0, answer_n_top(a->e, a->config));
    TokenLogprob *top = mem_alloc((size_t)n * sizeof *top + 1);
    TokenOdds odds = {sampler_logprobs(a->e->sampler, logits, token, top, n), top};
    a->logprob += (double)odds.own;
    Finish finish = answer_add(a, token, blind ? NULL : &odds);
    free(top);
    return finish;
}

void answer_ask(Answer *a, Request *r) {
    r->max_new = a->config->predict;
    r->emit = emit;
    r->blind = is_blind(a->config) && !a->rates;
    r->arg = a;
}

// ---- the end --------------------------------------------------------------------------------------------------------

// Parses the calls in the answer. The prompt was made of the same text of tools, so reading it cannot fail here.
static void find_calls(Answer *a) {
    Tools tools;
    if (!a->calls || a->found) return;
    Status st = tools_read(&a->config->tools, &tools);
    assert(!st.code);
    (void)st;
    a->found = call_format_read(a->calls, &tools, since(&a->said, 0), &a->besides);
    tools_free(&tools);
}

void answer_end(Answer *a) {
    think_end(&a->think);
    show_parts(a);
    show_held(a);
    find_calls(a);
    write_line(a);
    end_thought(a);
    Buf out = {0};
    screen_end(&a->screen, &out);
    write_out(a, out.data, out.n);
    buf_free(&out);
}

size_t answer_n_cut(const Answer *a) {
    return a->stream.stopped ? a->stream.n_cut + a->think.held.n - a->think.n_given : 0;
}

Str answer_text(const Answer *a) { return since(a->found ? &a->besides : &a->answer, 0); }

const char *answer_finish_name(const Answer *a, Finish f, bool cut) {
    return a->found && (f == FINISH_EOG || (f == FINISH_STOP && !cut)) ? "tool_calls" : finish_name(f);
}

void answer_put_rest(const Answer *a, json_t *object) {
    if (a->show_thoughts && a->thinking.n) jsonio_put(object, "thinking", jsonio_text(since(&a->thinking, 0)));
    if (a->found) jsonio_share(object, "tool_calls", a->found);
    if (a->tokens) jsonio_share(object, "tokens", a->tokens);
}

Status answer_broken(const Engine *e, const Request *r) {
    TRY(engine_fault(e));
    if (r->finish != FINISH_BROKEN) return OK;
    if (r->no_logit) return engine_no_logit(e, r->seq->n_tokens, ", --logit-bias may forbid all tokens");
    return status_error(QUILL_MODEL,
                        "an allowed token expected after %d tokens, found none: the options of sampling forbid all of "
                        "them; allow one (--logit-bias, --ignore-eos)",
                        r->seq->n_tokens);
}

// --extract: prints a part of the answer. QUILL_CUT: it has no such part.
static Status put_extract(Answer *a) {
    Str part = extract_first(answer_text(a));
    if (part.data) write_out(a, part.data, part.n);
    return part.data ? OK
                     : status_error(QUILL_CUT, "--extract: a code block or a JSON value expected in the answer, found "
                                               "neither; without --extract the whole answer is printed");
}

Status answer_finish(Answer *a, const Request *r) {
    answer_end(a);
    return answer_write(a, r, NULL);
}

Status answer_write(Answer *a, const Request *r, const json_t *more) {
    Status none = OK;
    const char *key;
    json_t *value;
    if (a->config->extract) none = put_extract(a);
    if (a->config->json || a->config->jsonl) {
        bool cut = form_complete(r).code == QUILL_CUT;
        json_t *j = report_json(a->e, a->config, r, answer_finish_name(a, r->finish, cut), answer_text(a));
        answer_put_rest(a, j);
        json_object_foreach((json_t *)more, key, value) jsonio_share(j, key, value);
        write_json(a, j);
    } else if (a->line_open && !a->config->no_newline) write_out(a, "\n", 1);
    put_kept(a);
    if (!a->show_thoughts && a->thinking.n && !a->answer.n)
        note_print(a->config->quiet, "the model wrote thoughts but no answer; --think show prints the thoughts");
    if (a->failed.code) return a->failed;
    TRY(engine_fault(a->e));
    if (!a->gone) TRY(form_complete(r));
    TRY(answer_broken(a->e, r));
    if (r->finish == FINISH_INTERRUPT && signals_caught()) return signals_status();
    return none;
}

void answer_free(Answer *a) {
    think_free(&a->think);
    screen_free(&a->screen);
    text_stream_free(&a->stream);
    text_stream_free(&a->thoughts);
    buf_free(&a->text);
    buf_free(&a->answer);
    buf_free(&a->thinking);
    buf_free(&a->kept);
    buf_free(&a->said);
    buf_free(&a->besides);
    json_decref(a->found);
    json_decref(a->tokens);
    json_decref(a->line);
}

// ---- one answer -----------------------------------------------------------------------------------------------------

void answer_note_full(const Engine *e, const AnswerConfig *config, const ChatTemplate *template) {
    if (!template && !config->verbose) return;
    note_print(config->quiet, "the context of %d tokens is full, so the answer ends here; a larger %s gives more",
               e->shape.n_ctx, engine_context_option(e));
}

Str answer_history(const Answer *a) { return (Str){a->text.n ? a->text.data + a->n_echo : "", a->text.n - a->n_echo}; }

Status answer_run(Engine *e, const AnswerSetup *setup, Request *r, Buf *history) {
    const AnswerConfig *config = setup->config;
    LogitBias *bias = NULL;
    TRY(answer_sampling(e, config, &r->sampling, &bias));
    Status st = form_constrain(e, setup, r);
    if (st.code) {
        free(bias);
        return st;
    }
    if (config->verbose) report_before(e, config, chat_template_name(setup->template));
    Answer a;
    answer_begin(&a, e, setup);
    answer_ask(&a, r);
    signals_catch();
    scheduler_add(e->sched, r);
    engine_run(e);
    form_settle(r, answer_n_cut(&a));
    st = answer_finish(&a, r);
    form_drop(e, r);
    engine_keep(e, r->seq);
    signals_release();
    if (r->finish == FINISH_CONTEXT) answer_note_full(e, config, setup->template);
    if (config->verbose) report_after(e, r);
    Str said = answer_history(&a);
    if (history) buf_append(history, said.data, said.n);
    answer_free(&a);
    free(bias);
    return st;
}
