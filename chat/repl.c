// chat/repl.c: see chat/repl.h.
#define _GNU_SOURCE
#include "chat/repl.h"

#include <signal.h>
#include <unistd.h>

#include "answer/report.h"
#include "answer/saved.h"
#include "base/signals.h"
#include "chat/commands.h"
#include "term/lines.h"
#include "term/terminal.h"

// Saves the conversation. A failure is reported once, turns autosave off, and does not end the chat.
static void autosave(Chat *c) {
    Status st = commands_autosave(c);
    if (!st.code) return;
    Status told = status_error(st.code, "%.900s; the conversation is not saved any more", st.message);
    conversation_report(c->talk, &told);
    c->autosave = false;
}

// On a terminal a second Ctrl-C does not end the chat while an answer or a command still ends.
static void catch_signals(const Lines *lines) {
    if (lines_terminal(lines)) signals_catch_two("\nquill: stopping after this step; Ctrl-C again ends the chat\n");
    else signals_catch();
}

static Status loop(Chat *c, Lines *lines, Str first) {
    Buf message = {0};
    bool end = false;
    catch_signals(lines);
    Status st = first.data ? conversation_say(c->talk, first) : OK;
    for (;;) {
        autosave(c);
        if (st.code == 128 + SIGINT && lines_terminal(lines)) st = OK; // Ctrl-C ends only the answer
        if (st.code || c->leave) break;
        st = lines_read(lines, &message, &end);
        if (st.code || end) break;
        catch_signals(lines);
        Str text = {message.data, message.n};
        if (lines_terminal(lines) && !lines_quoted(lines) && commands_hint(text)) continue;
        if (lines_quoted(lines) || !commands_run(c, text, &text, &st)) st = commands_say(c, text);
        if (!st.code && signals_caught()) st.code = 128 + signals_caught(); // in a command, or after the last step
    }
    buf_free(&message);
    if (st.code == 128 + SIGPIPE) st = OK;                             // a closed pipe is no error
    if (!st.code && !lines_terminal(lines)) st.code = c->talk->failed; // its message was printed already
    return st;
}

// Loads the conversation that --load or --continue names; -sys replaces its system message. Puts the files of --chunk
// in front of the first message.
static Status begin(Chat *c, const Options *o) {
    char *path = NULL;
    c->autosave = o->answer.autosave || o->answer.continue_last;
    Status st = saved_choose(&o->answer, gguf_name(c->talk->e->gguf), &path);
    if (!st.code && path) {
        Buf system = {0};
        c->own.mark = saved_mark(path);
        const Message *given = conversation_last(c->talk, "system");
        if (given) buf_append(&system, given->text.data, given->text.n);
        st = commands_load(c, path, true);
        if (!st.code && given) st = conversation_system(c->talk, str_of_buf(&system));
        buf_free(&system);
    }
    for (int i = 0; i < o->answer.n_chunks && !st.code; i++) st = conversation_chunk(c->talk, o->answer.chunks[i]);
    c->saved[0] = c->talk->messages.n; // autosave does not write the loaded messages again
    if (o->answer.continue_last && !st.code) c->own.path = path;
    else free(path);
    return st;
}

static void greet(const Conversation *t, const Options *o) {
    if (o->answer.verbose) report_before(t->e, &o->answer, chat_template_name(t->template));
    if (o->answer.quiet || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return;
    Str name = str_of(t->e->model.c.name[0] ? t->e->model.c.name : gguf_name(t->e->gguf));
    Buf shown = {0}; // escaped: the name comes from the model file
    utf8_escape(&shown, name.data, name.n);
    screen_note("%s, context %d; /help lists commands, Ctrl-D leaves", shown.data, t->e->shape.n_ctx);
    buf_free(&shown);
}

Status repl_run(Options *o, Str first) {
    Engine e;
    Conversation talk;
    TRY(engine_open(&e, &o->engine, (EngineNeeds){.need_tokenizer = true, .whole = true}));
    if (e.evict && !engine_endless(&e)) {
        engine_close(&e);
        return status_error(QUILL_USAGE,
                            "--evict snapkv: one prompt expected, found a chat; sinks, shift and h2o go on in one");
    }
    Status st = conversation_open(&talk, &e, &o->answer);
    Chat c = {.talk = &talk, .config = &o->answer, .settings = {.config = &o->answer}};
    if (!st.code) st = begin(&c, o);
    if (!st.code) {
        Lines *lines = lines_open(&(LinesSetup){.color = terminal_color(o->answer.color, STDERR_FILENO),
                                                .no_history = o->chat.no_history,
                                                .complete = commands_complete});
        c.lines = lines;
        talk.refuses = !lines_terminal(lines);
        greet(&talk, o);
        st = loop(&c, lines, first);
        signals_release();
        lines_close(lines);
    }
    commands_free(&c);
    conversation_close(&talk);
    engine_close(&e);
    return st;
}
