// repl.c: see repl.h.
#define _GNU_SOURCE
#include "repl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complete.h"
#include "prompt.h"
#include "report.h"
#include "signals.h"

typedef struct {
    const Options *o;
    Engine e;
    ChatTemplate *form;
    SamplerParams sampling;
    LogitBias *bias;
    Message *messages; // (n_messages) their texts are ours
    int n_messages;
    Sequence seq;  // what the cache holds, carried from turn to turn
    Buf said;      // the bytes that seq.tokens stand for
    bool terminal; // stdin is one: show a prompt
    bool answered; // an answer went out before
} Chat;

static void add_message(Chat *c, const char *role, Str text) {
    c->messages = mem_resize(c->messages, (size_t)(c->n_messages + 1) * sizeof *c->messages);
    c->messages[c->n_messages++] = (Message){role, {mem_copy(text.data, text.n), text.n}};
}

static void drop_message(Chat *c) { free((void *)c->messages[--c->n_messages].text.data); }

// ---- a turn ---------------------------------------------------------------------------------------------------------

// The tokens of the whole conversation. Text that begins with the bytes that the cache stands for keeps their tokens,
// because what a model has sampled need not be how its text would be encoded.
static Status conversation_tokens(const Chat *c, const Rendered *text, int **ids, int *n) {
    bool goes_on =
        c->form && c->said.n > 0 && c->said.n < text->text.n && memcmp(c->said.data, text->text.data, c->said.n) == 0;
    if (!goes_on) return chat_encode(c->e.tok, text, true, ids, n);
    size_t at = c->said.n;
    Rendered rest = {.text = {text->text.data + at, text->text.n - at, 0},
                     .trusted = {text->trusted.data + at, text->trusted.n - at, 0}};
    int *more, n_more, n_old = c->seq.n_tokens;
    TRY(chat_encode(c->e.tok, &rest, false, &more, &n_more));
    *ids = mem_alloc((size_t)(n_old + n_more) * sizeof **ids);
    memcpy(*ids, c->seq.tokens, (size_t)n_old * sizeof **ids);
    memcpy(*ids + n_old, more, (size_t)n_more * sizeof **ids);
    *n = n_old + n_more;
    free(more);
    return OK;
}

// Keeps the part of the cache that the new tokens share and appends the rest of them.
static void go_on_from_cache(Chat *c, const int *ids, int n) {
    int same = 0;
    while (same < c->seq.n_cached && same < n - 1 && c->seq.tokens[same] == ids[same]) same++;
    kv_truncate(&c->e.kv, &c->seq, same);
    sequence_push(&c->seq, ids + same, n - same);
}

static Status run_turn(Chat *c, const Rendered *text, bool fresh) {
    Request r = {.seq = c->seq, .sampling = c->sampling, .max_new = c->o->predict, .emit = answer_emit};
    Answer a;
    bool gone = false;
    if (c->answered && !isatty(STDOUT_FILENO)) TRY(output_write("\n", 1, &gone));
    c->answered = true;
    answer_start(&a, &c->e, c->o, fresh);
    r.arg = &a;
    signals_catch();
    scheduler_add(c->e.sched, &r);
    engine_run(&c->e);
    Status st = answer_finish(&a, &r);
    if (!st.code && signals_caught() == SIGTERM) st.code = 128 + SIGTERM; // came after the last step
    c->seq = r.seq;
    add_message(c, "assistant", (Str){a.text.data ? a.text.data : "", a.text.n});
    c->said.n = 0;
    buf_append(&c->said, text->text.data, text->text.n);
    for (int i = r.n_prompt; i < r.seq.n_tokens; i++) {
        Str piece = engine_piece(&c->e, r.seq.tokens[i], false);
        buf_append(&c->said, piece.data, piece.n);
    }
    if (c->o->verbose) report_turn(&c->e, &r);
    if (a.gone) st = (Status){.code = 128 + SIGPIPE};
    if (r.finish == FINISH_CONTEXT)
        fprintf(stderr,
                "quill: the context of %d tokens is full and the answer ends there; start again with a larger "
                "-c to go on\n",
                c->e.shape.n_ctx);
    answer_free(&a);
    timeline_free(&r.time);
    return st;
}

// Says one thing to the model and prints its answer. A turn that does not fit leaves the conversation as it was.
static Status turn(Chat *c, Str line) {
    add_message(c, "user", line);
    Rendered text = {0};
    int *ids = NULL, n = 0;
    Status st = chat_render(c->form, c->messages, c->n_messages, true, &text);
    if (!c->form && c->o->parse_special && text.text.n) memset(text.trusted.data, 1, text.text.n);
    if (!st.code) st = conversation_tokens(c, &text, &ids, &n);
    if (!st.code && n > c->e.shape.n_ctx)
        st =
            status_error(QUILL_CONTEXT,
                         "the conversation would have %d tokens, the context %d; say something shorter, or start again "
                         "with -c %d",
                         n, c->e.shape.n_ctx, (n + 1023) / 1024 * 1024);
    if (st.code) {
        drop_message(c);
        // A pipe cannot say it shorter, or otherwise than the template wants it.
        bool goes_on = c->terminal || (st.code != QUILL_CONTEXT && st.code != QUILL_MODEL);
        if (goes_on) {
            fprintf(stderr, "quill: %s\n", st.message);
            st = OK;
        }
    } else {
        answer_dump(&c->e, c->o, &text, ids, n);
        go_on_from_cache(c, ids, n);
        st = run_turn(c, &text, text.text.n == 0);
    }
    free(ids);
    rendered_free(&text);
    return st;
}

// ---- lines ----------------------------------------------------------------------------------------------------------

static bool use_color(const Options *o) {
    if (strcmp(o->color, "always") == 0) return true;
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return strcmp(o->color, "auto") == 0 && isatty(STDERR_FILENO) && !(no && *no) &&
           !(term && strcmp(term, "dumb") == 0);
}

static void show_prompt(const Chat *c) {
    if (!c->terminal) return;
    fputs(use_color(c->o) ? "\033[1;32m>\033[0m " : "> ", stderr);
    fflush(stderr);
}

// The next line without its end. *end: there is none; then the Status says why (OK: end of input).
static Status next_line(const Chat *c, char **line, size_t *cap, Str *out, bool *end) {
    bool warned = false;
    *end = false;
    for (;;) {
        signals_catch();
        show_prompt(c);
        errno = 0;
        ssize_t n = getline(line, cap, stdin);
        if (n >= 0) {
            if (n > 0 && (*line)[n - 1] == '\n') n--;
            *out = (Str){*line, (size_t)n};
            return OK;
        }
        int signal = signals_caught();
        bool broken = ferror(stdin) && errno != EINTR;
        if (signal == SIGINT && c->terminal && !warned) {
            warned = true;
            fputs("\n(Ctrl-C again or Ctrl-D leaves)\n", stderr);
            clearerr(stdin);
            continue;
        }
        *end = true;
        if (c->terminal) fputc('\n', stderr);
        if (signal) return (Status){.code = 128 + signal};
        return broken ? status_error(QUILL_IO, "stdin: cannot read: %s", strerror(errno)) : OK;
    }
}

// Lines that begin with / and are one word are for us. True: *leave says whether to go.
static bool is_command(Str line, bool *leave) {
    *leave = str_is(line, "/exit") || str_is(line, "/quit") || str_is(line, "/bye");
    if (*leave) return true;
    if (line.n == 0 || line.data[0] != '/' || memchr(line.data, ' ', line.n)) return false;
    if (memchr(line.data + 1, '/', line.n - 1)) return false; // a path
    if (!str_is(line, "/help")) fprintf(stderr, "%.*s: no such command\n", (int)line.n, line.data);
    fputs("/help    this list\n/exit    leave, as Ctrl-D does\nCtrl-C   stops an answer\n", stderr);
    return true;
}

static Status loop(Chat *c, Str first) {
    char *line = NULL;
    size_t cap = 0;
    Status st = OK;
    Str text = first;
    bool end = false, leave = false;
    if (!first.data) st = next_line(c, &line, &cap, &text, &end);
    while (!st.code && !end) {
        if (!(text.data != first.data && is_command(text, &leave)) && (text.n > 0 || text.data == first.data))
            st = turn(c, text);
        if (st.code == 128 + SIGINT && c->terminal) st = OK; // stopped the answer, not the chat
        if (st.code || leave) break;
        st = next_line(c, &line, &cap, &text, &end);
    }
    free(line);
    return st.code == 128 + SIGPIPE ? OK : st; // nobody reads any more: that is a quiet end
}

static Status start(Chat *c) {
    TRY(answer_sampling(&c->e, c->o, &c->sampling, &c->bias));
    Buf system = {0};
    Status st = chat_choose(c->e.gguf, c->e.tok, c->o, &c->form);
    if (!st.code) st = prompt_system(c->o, &system);
    if (!st.code && system.data) add_message(c, "system", (Str){system.data, system.n});
    buf_free(&system);
    if (!st.code && c->o->verbose) report_before(&c->e, c->o, chat_name(c->form));
    if (!st.code && c->terminal && isatty(STDOUT_FILENO) && !c->o->quiet) {
        Str name = str_of(c->e.model.c.name[0] ? c->e.model.c.name : gguf_name(c->e.gguf));
        Buf shown = {0}; // the file chose the name
        utf8_escape(&shown, name.data, name.n);
        fprintf(stderr, "%s, context %d; /help lists commands, Ctrl-D leaves\n", shown.data, c->e.shape.n_ctx);
        buf_free(&shown);
    }
    return st;
}

Status repl_run(const Options *o, Str first) {
    Chat c = {.o = o, .terminal = isatty(STDIN_FILENO)};
    TRY(engine_open(&c.e, o, (EngineNeeds){.need_tokenizer = true}));
    Status st = start(&c);
    if (!st.code) st = loop(&c, first);
    signals_release();
    kv_release(&c.e.kv, &c.seq);
    sequence_free(&c.seq);
    while (c.n_messages) drop_message(&c);
    free(c.messages);
    chat_free(c.form);
    free(c.bias);
    buf_free(&c.said);
    engine_close(&c.e);
    return st;
}
