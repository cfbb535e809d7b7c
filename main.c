// main.c: parses the command line, runs the mode that it names, and reports its error: a message on stderr and an exit
// code.
#define _GNU_SOURCE // fopencookie
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "answer/option_files.h"
#include "answer/prompt.h"
#include "base/guard.h"
#include "base/jsonio.h"
#include "base/signals.h"
#include "batch/batch.h"
#include "bench/bench.h"
#include "blend/chunk.h"
#include "chat/commands.h"
#include "chat/repl.h"
#include "cli/check.h"
#include "cli/cli.h"
#include "cli/completions.h"
#include "cli/config.h"
#include "cli/help.h"
#include "cli/man.h"
#include "cli/values.h"
#include "complete.h"
#include "hub/models.h"
#include "kv/kv.h"
#include "kv/transfer.h"
#include "look/look.h"
#include "quantize/plan.h"
#include "quantize/quantize.h"

// Whether no words, -p or -f FILE are part of the prompt.
static bool only_stdin(const PromptConfig *p) {
    for (int i = 0; i < p->n_parts; i++)
        if (!p->parts[i].file || strcmp(p->parts[i].file, "-") != 0) return false;
    return true;
}

// `quill` without a mode: answers a prompt, or chats: with -i, or if there is no prompt and stdin and stdout are
// terminals.
static Status answer_or_chat(Options *o) {
    Buf prompt = {0};
    bool given = false, chat = o->chat.interactive && !o->chat.single_turn;
    if (chat) o->prompt.no_stdin = true; // stdin has the lines of the chat
    if (o->engine.dry_run) return complete_run(&o->engine, &o->answer, (Str){"", 0});
    Status st = prompt_read(&o->prompt, &prompt, &given);
    if (!given && !o->chat.single_turn && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) chat = true;
    if (prompt.n == 0 && only_stdin(&o->prompt)) given = false; // as of a program that found nothing
    if (!st.code && !given && !chat)
        st = status_error(QUILL_USAGE, "no prompt: words, -p, -f or a pipe on stdin expected; %s",
                          o->prompt.no_stdin ? "--no-stdin reads no pipe" : "-i chats line by line");
    if (!st.code) st = chat ? cli_check_chat(o) : cli_check_prompt(o);
    buf_append(&prompt, "", 0);
    if (chat) o->answer.no_newline = false; // the next turn begins on a new line
    if (!st.code && chat) st = repl_run(o, (Str){given ? prompt.data : NULL, prompt.n});
    else if (!st.code) st = complete_run(&o->engine, &o->answer, str_of_buf(&prompt));
    buf_free(&prompt);
    return st;
}

static Status read_option_files(Options *o) {
    char *text;
    for (;;) {
        TRY(option_files_next(&o->answer, &text));
        if (!text) return OK;
        cli_keep(o, text);
    }
}

static Status dispatch(Options *o) {
    TRY(models_resolve(o));
    if (!o->engine.dry_run) TRY(read_option_files(o));
    switch (o->mode) {
    case MODE_RUN: return answer_or_chat(o);
    case MODE_BATCH: return batch_run(o);
    case MODE_BENCH: return bench_run(o);
    case MODE_PERPLEXITY: return look_perplexity(o);
    case MODE_INSPECT: return look_inspect(o);
    case MODE_TOKENIZE: return look_tokenize(o);
    case MODE_TEMPLATE: return look_template(o);
    case MODE_LOGITS: return look_logits(o);
    case MODE_PREFILL: return transfer_prefill(o);
    case MODE_DECODE: return transfer_decode(o);
    case MODE_KV: return kv_run(o);
    case MODE_QUANTIZE: return quantize_run(o);
    case MODE_PULL: return models_pull(o);
    case MODE_MODELS: return models_run(o);
    case MODE_CHUNK: return chunk_run(o);
    default: assert(!"unknown mode"); return OK;
    }
}

// Prints o->page to stdout.
static void print_page(const Options *o) {
    switch (o->page) {
    case PAGE_SHORT_HELP: cli_short_help(o->mode); break;
    case PAGE_HELP: cli_help(o->mode); break;
    case PAGE_VERSION: cli_version(); break;
    case PAGE_MAN: cli_man(commands_describe); break;
    case PAGE_COMPLETIONS: cli_completions(o->shell, plan_type_list()); break;
    default: break;
    }
}

// Opens /dev/null in place of each standard stream that is closed, so that no file opened later becomes one of them.
// Reading stdin and writing to stdout fail, as they did when the streams were closed.
static Status fill_streams(void) {
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDWR};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            return status_error(QUILL_INTERNAL,
                                "a standard stream is closed, and /dev/null cannot be opened in its place: %s; start "
                                "quill with stdin, stdout and stderr open",
                                strerror(errno));
    return OK;
}

static ssize_t put_out(void *cookie, const char *bytes, size_t n) {
    return fd_write_all((int)(intptr_t)cookie, bytes, n).code ? 0 : (ssize_t)n;
}

// A stdio stream that writes with fd_write_all, as answers do: it waits for room in a non-blocking descriptor.
static FILE *open_stream(int fd, int buffering) {
    FILE *f = fopencookie((void *)(intptr_t)fd, "w", (cookie_io_functions_t){.write = put_out});
    if (!f) mem_refused(BUFSIZ);
    setvbuf(f, NULL, buffering, BUFSIZ);
    return f;
}

// Flushes stdout. QUILL_IO: this or an earlier write has failed. A closed pipe (EPIPE) is no error.
static Status flush_stdout(void) {
    bool failed = ferror(stdout);
    if (fflush(stdout) != 0) failed = true;
    return failed && errno != EPIPE ? status_error(QUILL_IO, "stdout: %s", strerror(errno)) : OK;
}

// If QUILL_MODEL or the configuration file named the model, a message about the model begins with that source. The
// sources of options that nobody typed come behind the first line.
static void print_failure(const Options *o, const Status *st) {
    bool name_source = o->model_from && str_has_prefix(str_of(st->message), o->engine.model);
    size_t first = strcspn(st->message, "\n");
    Buf sources = {0};
    if (!name_source) config_sources(o, (Str){st->message, first}, &sources);
    fprintf(stderr, "quill: %s%s%.*s%s%s\n", name_source ? o->model_from : "", name_source ? ": " : "", (int)first,
            st->message, sources.n ? sources.data : "", st->message + first);
    buf_free(&sources);
}

// After SIGINT quill has written what it had, and ends by the signal: a shell whose Ctrl-C this was then ends its loop
// or script, as it does not after an exit code. Both are 130 in `$?`. Returns if the signal is ignored, or does
// nothing, as in the first process of a container.
static void end_by_sigint(void) {
    fflush(stdout);
    signals_release();
    raise(SIGINT);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // writing to a closed pipe fails with EPIPE, which prints no message
    signal(SIGXFSZ, SIG_IGN); // writing past ulimit -f fails with EFBIG
    jsonio_start();
    Options o = {0};
    bool stop = false;
    Status st = fill_streams();
    stdout = open_stream(STDOUT_FILENO, _IOFBF);
    stderr = open_stream(STDERR_FILENO, _IONBF);
    if (!st.code) st = cli_parse(argc, argv, &o, &stop);
    if (!st.code && stop) print_page(&o);
    else if (!st.code) st = dispatch(&o);
    if (!st.code) st = flush_stdout();
    Status lost = guard_lost(); // results from a damaged model file are void, whatever the mode returned
    if (lost.code && st.code < 128) st = lost;
    if (st.message[0]) print_failure(&o, &st);
    cli_free(&o);
    if (st.code == 128 + SIGINT) end_by_sigint();
    return st.code;
}
