// chat/commands.c: see chat/commands.h.
#define _GNU_SOURCE
#include "chat/commands.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tempfile.h"
#include "cli/table.h"
#include "cli/values.h"
#include "term/programs.h"
#include "term/screen.h"
#include "term/terminal.h"
#include "term/wrap.h"

typedef struct {
    const char *names; // separated by spaces; the first is shown
    const char *arg;   // NULL: takes none
    // Returns an error of the command; an error that ends the chat goes to *end.
    Status (*run)(Chat *c, const char *arg, Status *end);
    const char *help;
} Command;

static Status usage(const char *name, const char *expected) {
    return status_error(QUILL_USAGE, "/%s: %s expected, found nothing", name, expected);
}

// ---- the chat -------------------------------------------------------------------------------------------------------

static Status leave(Chat *c, const char *arg, Status *end) {
    (void)arg, (void)end;
    c->leave = true;
    return OK;
}

// Another conversation begins: the next autosave writes a new file.
static void forget_own(Chat *c) {
    free(c->own.path);
    c->own.path = NULL;
}

// The same for /save, which needs a name again and asks before it overwrites.
static void forget_file(Chat *c) {
    free(c->file);
    c->file = NULL;
    c->has_kv = false;
}

static Status clear(Chat *c, const char *arg, Status *end) {
    (void)arg, (void)end;
    conversation_clear(c->talk);
    forget_own(c);
    forget_file(c);
    c->beginning.n = 0;
    return OK;
}

static Status regen(Chat *c, const char *arg, Status *end) {
    (void)arg;
    if (!conversation_last(c->talk, "user"))
        return status_error(QUILL_USAGE, "/regen: a message to answer expected, found none");
    *end = conversation_answer_again(c->talk);
    return OK;
}

static Status undo(Chat *c, const char *arg, Status *end) {
    (void)arg, (void)end;
    if (c->beginning.n > 0) {
        fprintf(stderr, "removed: the %zu bytes that /read put in front of the next message\n", c->beginning.n);
        c->beginning.n = 0;
        return OK;
    }
    const Message *last = conversation_last(c->talk, "user");
    if (!last) return status_error(QUILL_USAGE, "/undo: a message to remove expected, found none");
    Buf shown = {0};
    utf8_escape(&shown, last->text.data, utf8_whole(last->text.data, last->text.n < 60 ? last->text.n : 60));
    fprintf(stderr, "removed: %s%s\n", shown.data, last->text.n > 60 ? "..." : "");
    buf_free(&shown);
    conversation_undo(c->talk);
    return OK;
}

Status commands_say(Chat *c, Str text) {
    if (c->beginning.n == 0) return text.n ? conversation_say(c->talk, text) : OK;
    int before = c->talk->messages.n;
    Buf whole = {0};
    buf_append(&whole, c->beginning.data, c->beginning.n);
    if (text.n) buf_str(&whole, "\n\n");
    buf_append(&whole, text.data, text.n);
    Status st = conversation_say(c->talk, str_of_buf(&whole));
    if (c->talk->messages.n > before) c->beginning.n = 0;
    else screen_note("the %zu bytes of /read stay in front of the next message; /undo removes them", c->beginning.n);
    buf_free(&whole);
    return st;
}

// Whether two messages are equal but for a line feed at the end, which an editor adds or removes.
static bool is_same(Str a, Str b) {
    if (str_has_suffix(a, "\n")) a.n--;
    if (str_has_suffix(b, "\n")) b.n--;
    return str_eq(a, b);
}

static Status edit(Chat *c, const char *arg, Status *end) {
    bool fresh = strcmp(arg, "new") == 0;
    if (*arg && !fresh) return status_error(QUILL_USAGE, "/edit: new or nothing expected, found \"%.100s\"", arg);
    const Message *last = fresh ? NULL : conversation_last(c->talk, "user");
    Buf text = {0};
    buf_append(&text, last ? last->text.data : "", last ? last->text.n : 0);
    Status st = programs_edit(&text);
    bool same = last && is_same(str_of_buf(&text), (Str){last->text.data, last->text.n});
    if (!st.code && (same || text.n == 0))
        fprintf(stderr, "%s: nothing is sent\n", same ? "the message is unchanged" : "an empty message");
    else if (!st.code)
        *end = last ? conversation_say_instead(c->talk, str_of_buf(&text)) : commands_say(c, str_of_buf(&text));
    buf_free(&text);
    return st;
}

static Status set_system(Chat *c, const char *arg, Status *end) {
    (void)end;
    const Conversation *t = c->talk;
    if (*arg) return conversation_system(c->talk, strcmp(arg, "\"\"") == 0 ? (Str){0} : str_of(arg));
    bool there = t->messages.n > 0 && strcmp(t->messages.at[0].role, "system") == 0;
    Buf shown = {0}; // escaped: it may come from a loaded file
    utf8_escape(&shown, there ? t->messages.at[0].text.data : "none", there ? t->messages.at[0].text.n : 4);
    fprintf(stderr, "system     %s\n", shown.data ? shown.data : "");
    buf_free(&shown);
    return OK;
}

// ---- settings -------------------------------------------------------------------------------------------------------

// Checks the settings that conversation_check names, and puts those back that held before if they are refused.
static Status check_forms(Chat *c, const AnswerConfig *before) {
    Status st = conversation_check(c->talk);
    if (!st.code) return OK;
    c->config->form = before->form;
    c->config->tools = before->tools;
    c->config->context_shift = before->context_shift;
    return st;
}

// Sets an option to a value that may have quotes, as in the configuration file: "" turns an option off, and the quotes
// around a stop string are not part of it.
static Status set_quoted(Chat *c, const char *name, const char *value) {
    const Option *row;
    TRY(cli_chat_option(name, value, &row));
    size_t n = strlen(value);
    bool quoted = n >= 2 && value[0] == '"' && value[n - 1] == '"';
    if (quoted && n == 2 && cli_can_be_off(row)) return settings_set(&c->settings, name, "default");
    if (!quoted || row->kind != STOPS) return settings_set(&c->settings, name, value);
    char *plain = mem_copy(value + 1, n - 2);
    Status st = settings_set(&c->settings, name, plain);
    free(plain);
    return st;
}

// Words that other chats have behind /set.
static Status refuse_elsewhere(const char *name) {
    static const char *const words[][2] = {{"system", "/system TEXT sets the system message"},
                                           {"parameter", "leave the word out: /set NAME VALUE"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(name, words[i][0]) == 0)
            return status_error(QUILL_USAGE, "%s: not a setting; %s", name, words[i][1]);
    return OK;
}

static Status set(Chat *c, const char *arg, Status *end) {
    (void)end;
    char name[64];
    size_t n = strcspn(arg, " =\t");
    snprintf(name, sizeof name, "%.*s", (int)n, arg);
    TRY(refuse_elsewhere(name));
    const char *value = arg + n + strspn(arg + n, " =\t");
    if (!*value) return settings_show(&c->settings, name);
    AnswerConfig before = *c->config;
    TRY(set_quoted(c, name, value));
    bool no_tools = before.tools.file.path && !c->config->tools.file.path;
    if (no_tools) c->config->tools.choice = NULL; // nothing is left to choose from
    Status st = conversation_settings(c->talk);
    if (!st.code) st = check_forms(c, &before);
    if (!st.code) return OK;
    before.sampling.bias = c->config->sampling.bias; // the array may have moved
    c->config->sampling = before.sampling;           // for example without a bias for an unknown token
    c->config->sampling_given = before.sampling_given;
    TRY(conversation_settings(c->talk));
    return st;
}

static Status show(Chat *c, const char *arg, Status *end) {
    (void)arg;
    const Conversation *t = c->talk;
    const Engine *e = t->e;
    int n = 0;
    TRY(conversation_tokens(t, &n));
    Buf name = {0};
    utf8_escape(&name, gguf_name(e->gguf), strlen(gguf_name(e->gguf))); // it may have any bytes
    fprintf(stderr, "model      %s\ntemplate   %s\n", name.data, chat_template_name(t->template));
    buf_free(&name);
    Status st = set_system(c, "", end);
    fprintf(stderr, "context    %d of %d tokens, %d of them in the cache\n", n, e->shape.n_ctx,
            int_min(n, sequence_slots(&t->seq)));
    fprintf(stderr, "messages   %d", t->messages.n);
    if (t->n_left_out) fprintf(stderr, ", the oldest %d left out", t->n_left_out);
    fputc('\n', stderr);
    if (!st.code) st = settings_show(&c->settings, "");
    return st;
}

// ---- files ----------------------------------------------------------------------------------------------------------

// The path with ~/ replaced by the home directory, as a shell does. The caller frees it.
static char *path_of(const char *arg) {
    const char *home = getenv("HOME");
    Buf path = {0};
    if (strncmp(arg, "~/", 2) == 0 && home) buf_str(&path, home), arg++;
    buf_str(&path, arg);
    return path.data;
}

// Checks the name of a file to read. stdin (-) is refused: it has the lines of the chat.
static Status check_file(const char *name, const char *arg) {
    if (!*arg) return usage(name, "a file");
    if (strcmp(arg, "-") != 0) return OK;
    return status_error(QUILL_USAGE,
                        "/%s: a file expected, found -, but stdin has the lines of the chat; ./- names a file", name);
}

static Status read_text(Chat *c, const char *arg, Status *end) {
    (void)end;
    TRY(check_file("read", arg));
    size_t before = c->beginning.n;
    Buf text = {0};
    char *path = path_of(arg);
    Status st = file_read(path, &text);
    free(path);
    if (!st.code) {
        if (before) buf_str(&c->beginning, "\n\n");
        buf_append(&c->beginning, text.data, text.n);
        screen_note("%s: %zu bytes, the beginning of the next message; Enter alone sends it as it is", arg, text.n);
    }
    buf_free(&text);
    return st;
}

static Status add_chunks(Chat *c, const char *arg, Status *end) {
    (void)end;
    TRY(check_file("chunk", arg));
    char *path = path_of(arg);
    Status st = conversation_chunk(c->talk, path);
    free(path);
    return st;
}

// Divides the argument of /save or /load. *kv: whether it begins with --kv. *file: the file's name after that.
static Status without_kv(const char *command, const char *arg, bool *kv, const char **file) {
    *kv = strncmp(arg, "--kv", 4) == 0 && (arg[4] == ' ' || !arg[4]);
    *file = *kv ? arg + 4 + strspn(arg + 4, " ") : arg;
    if (strncmp(*file, "--", 2) != 0) return OK;
    return status_error(QUILL_USAGE, "/%s: --kv or a file expected, found %.100s; ./%.100s names a file", command,
                        *file, *file);
}

// Whether the conversation was loaded from this file, or saved to it.
static bool is_own(const Chat *c, const char *path) { return c->file && strcmp(c->file, path) == 0; }

// Appends the name of the file beside `path` that has the KV cache.
static void kv_name(const char *path, Buf *out) { buf_printf(out, "%s.kv", path); }

// Remembers the file of the conversation. Takes over `path`.
static void name_file(Chat *c, char *path) {
    if (!is_own(c, path)) c->has_kv = false;
    free(c->file);
    c->file = path;
}

// Refuses to overwrite a file that this chat neither loaded nor saved, unless the user on the terminal agrees. A device
// or a FIFO is written to, not replaced.
static Status check_overwrite(const Chat *c, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return OK;
    if (!S_ISREG(info.st_mode)) return tempfile_check(path);
    Buf question = {0};
    buf_str(&question, "overwrite ");
    utf8_escape(&question, path, strlen(path));
    buf_str(&question, "? [y/N] ");
    bool can_ask = c->lines && lines_terminal(c->lines) && isatty(STDERR_FILENO),
         yes = can_ask && lines_ask(c->lines, question.data);
    buf_free(&question);
    if (yes) return OK;
    if (can_ask) return status_error(QUILL_USAGE, "/save: %.500s: the file was not overwritten", path);
    return status_error(QUILL_USAGE,
                        "/save: %.500s: a new file expected, or the one that was loaded or saved before; this file "
                        "exists, so choose another name",
                        path);
}

static Status save(Chat *c, const char *arg, Status *end) {
    (void)end;
    bool kv;
    const char *name;
    TRY(without_kv("save", arg, &kv, &name));
    if (!*name && !c->file) return usage("save", "a file");
    if (strcmp(name, "-") == 0)
        return status_error(QUILL_USAGE,
                            "/save: a file expected, found -, but stdout has the answers; ./- names a file");
    char *path = *name ? path_of(name) : mem_copy(c->file, strlen(c->file));
    Buf beside = {0};
    kv_name(path, &beside);
    bool own = is_own(c, path);
    Status st = own ? OK : check_overwrite(c, path);
    if (!st.code && kv && !(own && c->has_kv)) st = check_overwrite(c, beside.data);
    bool known = c->own.path && !saved_changed(c->own.path, &c->own.mark);
    if (!st.code) st = conversation_save(c->talk, settings_json(c->config), path);
    if (known) c->own.mark = saved_mark(c->own.path); // it may be the file that was written now
    if (st.code) free(path);
    else {
        name_file(c, path);
        if (kv) st = conversation_save_kv(c->talk, beside.data);
        if (kv && !st.code) c->has_kv = true;
        if (!st.code) screen_note("%s: %d messages", path, c->talk->messages.n);
    }
    buf_free(&beside);
    return st;
}

// Applies the settings of a file whose conversation has been loaded.
static Status load_settings(Chat *c, const char *path, Str json, bool given) {
    AnswerConfig before = *c->config;
    settings_load(&c->settings, path, json, given);
    Status form = check_forms(c, &before);
    if (form.code) fprintf(stderr, "quill: %.500s: settings: %s\n", path, form.message);
    Status st = conversation_settings(c->talk);
    if (st.code != QUILL_USAGE) return st;
    c->config->sampling.n_bias = 0; // drops the biases: they are for tokens of another model
    Status again = conversation_settings(c->talk);
    return again.code ? again : st;
}

Status commands_load(Chat *c, const char *path, bool given) {
    Buf text = {0};
    Status st = file_read(path, &text);
    Str json = {text.data, text.n};
    if (!st.code) st = conversation_load(c->talk, path, json);
    if (!st.code) {
        name_file(c, mem_copy(path, strlen(path)));
        forget_own(c);
        st = load_settings(c, path, json, given);
    }
    buf_free(&text);
    if (!st.code && !c->config->quiet) screen_note("%s: %d messages", path, c->talk->messages.n);
    return st;
}

static Status load(Chat *c, const char *arg, Status *end) {
    (void)end;
    bool kv;
    const char *name;
    TRY(without_kv("load", arg, &kv, &name));
    TRY(check_file("load", name));
    char *path = path_of(name);
    Status st = commands_load(c, path, false);
    if (!st.code && kv) {
        Buf beside = {0};
        kv_name(path, &beside);
        st = conversation_load_kv(c->talk, beside.data);
        if (!st.code) c->has_kv = true;
        buf_free(&beside);
    }
    free(path);
    return st;
}

// ---- autosave -------------------------------------------------------------------------------------------------------

// Writes the conversation to the file of autosave, a new one if there is none yet.
static Status write_own(Chat *c) {
    bool named = c->own.path != NULL;
    char *left; // another chat has written to it
    const Conversation *talk = c->talk;
    TRY(saved_write(&c->own, gguf_name(talk->e->gguf), settings_json(c->config), &talk->messages, &left));
    bool tell = !c->config->quiet;
    if (tell && left)
        screen_note("quill: note: another chat has written %s; this chat leaves that file as it is and is saved in %s",
                    left, c->own.path);
    else if (tell && !named && c->lines && lines_terminal(c->lines))
        screen_note("saved after each turn: %s; --continue continues it", c->own.path);
    free(left);
    return OK;
}

Status commands_autosave(Chat *c) {
    int now[] = {c->talk->messages.n, c->talk->n_stats};
    if (!c->autosave || memcmp(now, c->saved, sizeof now) == 0) return OK;
    bool changed = c->own.path && saved_changed(c->own.path, &c->own.mark);
    bool empty = (!c->own.path || changed) && !conversation_last(c->talk, NULL); // a file begins with a message
    if (changed && empty) forget_own(c);
    if (empty) return OK;
    memcpy(c->saved, now, sizeof now);
    return write_own(c);
}

// ---- information ----------------------------------------------------------------------------------------------------

static Status stats(Chat *c, const char *arg, Status *end) {
    (void)arg, (void)end;
    fputs("turn    prompt    cached    answer      TTFT ms     tok/s  end\n", stderr);
    for (int i = 0; i < c->talk->n_stats; i++) {
        const TurnStats *s = &c->talk->stats[i];
        fprintf(stderr, "%4d  %8d  %8d  %8d  %11.2f  %8.2f  %s\n", i + 1, s->prompt, s->cached, s->said, s->ttft_ms,
                s->tps, finish_name(s->finish));
    }
    return OK;
}

static Status tokens(Chat *c, const char *arg, Status *end) {
    (void)arg, (void)end;
    int *ids, n = conversation_last_tokens(c->talk, &ids);
    if (!ids) return status_error(QUILL_USAGE, "/tokens: a message expected, found none");
    Buf line = {0};
    for (int i = 0; i < n; i++) {
        Str piece = engine_piece(c->talk->e, ids[i], false);
        line.n = 0;
        utf8_escape(&line, piece.data, piece.n);
        fprintf(stderr, "%d\t%s\n", ids[i], line.data);
    }
    buf_free(&line);
    free(ids);
    return OK;
}

static Status copy(Chat *c, const char *arg, Status *end) {
    (void)arg, (void)end;
    const char *how;
    Buf answer = {0};
    if (!conversation_last_said(c->talk, &answer))
        return status_error(QUILL_USAGE, "/copy: an answer expected, found none yet");
    Status st = programs_copy(str_of_buf(&answer), &how);
    if (!st.code) fprintf(stderr, "%zu bytes to the clipboard, by %s\n", answer.n, how);
    buf_free(&answer);
    return st;
}

// ---- the table ------------------------------------------------------------------------------------------------------

static Status help(Chat *c, const char *arg, Status *end);

static const Command commands[] = {
    {"help ?", NULL, help, "list commands and keys"},
    {"exit quit bye", NULL, leave, "end the chat, as Ctrl-D does"},
    {"clear", NULL, clear, "start a new conversation; the system message stays"},
    {"regen", NULL, regen, "generate another answer to the last message"},
    {"undo", NULL, undo, "remove the last message and its answer, or what /read has put in front of the next one"},
    {"edit", "[new]", edit, "change the last message, or write a new one, in $VISUAL or $EDITOR"},
    {"system", "[TEXT]", set_system, "show the system message, or set it to TEXT (\"\": none)"},
    {"set", "[NAME [VALUE]]", set,
     "set sampling, length, verbose, markdown by the names of the options; without a value: show it"},
    {"show", NULL, show, "show model, system message, context, settings"},
    {"read", "FILE", read_text, "put a file's text before the next message"},
    {"chunk", "FILE", add_chunks, "the same, with K and V that are computed once and stored (--chunk, --blend)"},
    {"save", "[--kv] [FILE]", save,
     "write conversation and settings as JSON (no name: to the last file); --kv: the KV cache too, as FILE.kv"},
    {"load", "[--kv] FILE", load, "continue a saved conversation with its settings; --kv: without computing it again"},
    {"stats", NULL, stats, "show tokens and times of each turn"},
    {"tokens", NULL, tokens, "show the tokens of the last message"},
    {"copy", NULL, copy, "copy the last answer, without thoughts, to the clipboard"},
};
enum { N_COMMANDS = ARRAY_LEN(commands) };

const char *commands_describe(int i, char shown[64]) {
    if (i >= N_COMMANDS) return NULL;
    const Command *c = &commands[i];
    snprintf(shown, 64, "/%.*s%s%s", (int)strcspn(c->names, " "), c->names, c->arg ? " " : "", c->arg ? c->arg : "");
    return c->help;
}

static const char *const keys[][2] = {
    {"Ctrl-J, Alt-Enter",
     "begin a new line; also Shift-Enter, if the terminal can report it, and a \\ at the end of a line"},
    {"\"\"\" to \"\"\"", "a message of many lines; a pasted text needs no quotes"},
    {"Ctrl-C", "stop the answer, or clear the typed text"},
    {"Ctrl-D", "leave"},
    {"Ctrl-R, Up", "search and show earlier messages; a message with a space in front is not stored"},
    {"Alt-Left, Alt-Right", "move by words; Ctrl-W, Alt-D and Ctrl-Delete delete a word"},
    {"Tab", "complete commands, settings, files"},
    {"//, a space and /", "text that begins with a slash"},
};

// Prints a name and its meaning: side by side, or one below the other on a narrow terminal.
static void print_row(const char *name, const char *what, int columns) {
    enum { LEFT = 23, NARROW = 60 };
    bool below = columns > 0 && columns < NARROW;
    Wrap w = {.columns = columns};
    Buf out = {0}, left = {0};
    buf_printf(&left, "%-*s", below ? 0 : LEFT, name);
    buf_str(&left, below ? "\n    " : "");
    wrap_text(&w, str_of_buf(&left), &out);
    wrap_hang(&w, below ? "    " : "                       ");
    wrap_text(&w, str_of(what), &out);
    wrap_text(&w, str_of("\n"), &out);
    fwrite(out.data, 1, out.n, stderr);
    buf_free(&left);
    buf_free(&out);
    wrap_free(&w);
}

static Status help(Chat *c, const char *arg, Status *end) {
    (void)c, (void)arg, (void)end;
    char shown[64];
    const char *what;
    int columns = terminal_columns(STDERR_FILENO);
    for (int i = 0; (what = commands_describe(i, shown)); i++) print_row(shown, what, columns);
    fputc('\n', stderr);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) print_row(keys[i][0], keys[i][1], columns);
    return OK;
}

static const Command *find(const char *word, Nearest *nearest) {
    char name[32];
    for (int i = 0; i < N_COMMANDS; i++)
        for (const char *at = commands[i].names; (at = cli_next_name(at, name));) {
            if (strcmp(word, name) == 0) return &commands[i];
            if (name[1]) nearest_try(nearest, name); // skips "?", which is one edit away from every letter
        }
    return NULL;
}

static bool same_letters(const char *a, const char *b) {
    int count[256] = {0};
    for (; *a && *b; a++, b++) count[(unsigned char)*a]++, count[(unsigned char)*b]--;
    for (int i = 0; i < 256; i++)
        if (count[i]) return false;
    return *a == *b;
}

// The command that does what the word does in other chats; NULL: none.
static const char *elsewhere(const char *word) {
    static const char *const names[][2] = {{"new", "clear"},        {"reset", "clear"}, {"retry", "regen"},
                                           {"regenerate", "regen"}, {"info", "show"},   {"model", "show"},
                                           {"file", "read FILE"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(word, names[i][0]) == 0) return names[i][1];
    return NULL;
}

// The command that the word was probably meant to be: that of another chat, /set with a setting, the nearest by edit
// distance, one with the same letters in another order, or the first that begins with the word. NULL: none.
static const char *meant_by(const char *word, const Nearest *nearest, char name[40]) {
    const Option *setting;
    if (elsewhere(word)) return elsewhere(word);
    if (*word && word[1] && !cli_chat_option(word, "", &setting).code) {
        snprintf(name, 40, "set %.30s", word);
        return name;
    }
    if (nearest_found(nearest)) return nearest_found(nearest);
    for (int i = 0; i < N_COMMANDS; i++)
        for (const char *at = commands[i].names; (at = cli_next_name(at, name));)
            if (same_letters(word, name) || strncmp(word, name, strlen(word)) == 0) return name;
    return NULL;
}

static Status unknown(const char *word, const Nearest *nearest) {
    char name[40];
    const char *meant = meant_by(word, nearest, name);
    return status_error(QUILL_USAGE, "/%.100s: no such command; %s%s%s (// or a space in front makes it text)", word,
                        meant ? "did you mean /" : "/help lists them", meant ? meant : "", meant ? "?" : "");
}

static Status run_command(Chat *c, const char *word, const char *arg, Status *end) {
    Nearest nearest = {.word = word};
    const Command *command = find(word, &nearest);
    if (!command) return unknown(word, &nearest);
    if (*arg && !command->arg)
        return status_error(QUILL_USAGE, "/%s: nothing expected after it, found \"%.100s\"", word, arg);
    return command->run(c, arg, end);
}

bool commands_hint(Str line) {
    static const char *const words[][2] = {{"exit", "exit"}, {"quit", "exit"}, {"bye", "exit"},
                                           {":q", "exit"},   {"help", "help"}, {"?", "help"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(line, words[i][0])) {
            bool leaves = strcmp(words[i][1], "exit") == 0;
            screen_note("/%s %s; \"%s\" with a space in front is sent to the model", words[i][1],
                        leaves ? "ends the chat, as Ctrl-D does" : "lists the commands", words[i][0]);
            return true;
        }
    return false;
}

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?-_"

bool commands_run(Chat *c, Str line, Str *text, Status *st) {
    *st = OK;
    *text = line;
    bool escaped = str_has_prefix(line, "//") || str_has_prefix(line, " /");
    if (escaped) *text = (Str){line.data + 1, line.n - 1};
    if (escaped || line.n == 0 || line.data[0] != '/') return false;
    Buf copy = {0};
    buf_append(&copy, line.data + 1,
               line.n - 1 - str_has_suffix(line, "\r")); // a pipe may have lines that end in CR LF
    char *word = copy.data, *end = word + strcspn(word, " \t\n");
    bool named = strspn(word, NAME_CHARACTERS) == (size_t)(end - word); // /usr/bin or /* is text
    if (named) {
        char *arg = end + strspn(end, " \t\n"), *last = copy.data + copy.n;
        while (last > arg && strchr(" \t\n", last[-1])) *--last = 0;
        *end = 0;
        Status failed = run_command(c, word, arg, st);
        if (failed.code) conversation_report(c->talk, &failed);
    }
    buf_free(&copy);
    return named;
}

// ---- Tab ------------------------------------------------------------------------------------------------------------

static void offer(Buf *words, Str typed, const char *lead, const char *word, const char *tail) {
    Buf whole = {0};
    buf_printf(&whole, "%s%s%s", lead, word, tail);
    bool fits = whole.n >= typed.n && memcmp(whole.data, typed.data, typed.n) == 0;
    if (fits) buf_append(words, whole.data, whole.n + 1);
    buf_free(&whole);
}

static void offer_files(Buf *words, Str typed) {
    Buf dir = {0};
    const char *slash = memrchr(typed.data, '/', typed.n);
    buf_append(&dir, typed.data, slash ? (size_t)(slash + 1 - typed.data) : 0);
    char *path = path_of(dir.n ? dir.data : ".");
    struct dirent **files;
    int n = scandir(path, &files, NULL, alphasort);
    free(path);
    bool hidden = typed.n > dir.n && typed.data[dir.n] == '.';
    for (int i = 0; i < n; i++) {
        const struct dirent *f = files[i];
        if (f->d_name[0] != '.' || hidden) offer(words, typed, dir.data, f->d_name, f->d_type == DT_DIR ? "/" : "");
        free(files[i]);
    }
    if (n >= 0) free(files);
    buf_free(&dir);
}

// The offset of the file name in a command that takes one (a file name may have spaces); 0: another command.
static size_t file_from(Str line) {
    static const char *const lines[] = {"/read ", "/chunk ", "/save --kv ", "/load --kv ", "/save ", "/load "};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        if (str_has_prefix(line, lines[i])) return strlen(lines[i]);
    char name[32];
    int n = 0;
    Buf text = {0};
    buf_append(&text, line.data, line.n);
    const Option *option = sscanf(text.data, "/set %31s %n", name, &n) == 1 && text.data[n - 1] == ' '
                               ? cli_find_long(name, 1u << MODE_RUN)
                               : NULL;
    bool takes_file = option && cli_chat_settable(option) && option->arg && strcmp(option->arg, "FILE") == 0;
    buf_free(&text);
    return takes_file ? (size_t)n : 0;
}

bool commands_complete(void *arg, Str before, size_t *from, Buf *words) {
    (void)arg;
    char name[32];
    if (before.n == 0 || before.data[0] != '/') return false;
    const char *space = memchr(before.data, ' ', before.n), *last = memrchr(before.data, ' ', before.n);
    size_t file = file_from(before);
    *from = file ? file : last ? (size_t)(last + 1 - before.data) : 0;
    Str typed = {before.data + *from, before.n - *from};
    if (!space) {
        for (int i = 0; i < N_COMMANDS; i++)
            for (const char *at = commands[i].names; (at = cli_next_name(at, name));)
                offer(words, typed, "/", name, "");
    } else if (str_has_prefix(before, "/set ") && last == space) {
        for (int i = 0; i < cli_n_options; i++)
            if (cli_chat_settable(&cli_options[i]))
                cli_long_name(&cli_options[i], name), offer(words, typed, "", name, "");
    } else if (file) offer_files(words, typed);
    return true;
}

void commands_free(Chat *c) {
    settings_free(&c->settings);
    free(c->file);
    free(c->own.path);
    buf_free(&c->beginning);
}
