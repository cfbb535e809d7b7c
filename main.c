// main.c: parses the command line, runs the mode that it names, and reports its error: a message on stderr and an exit
// code.
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "answer/option_files.h"
#include "answer/prompt.h"
#include "base/guard.h"
#include "base/jsonio.h"
#include "base/signals.h"
#include "base/streams.h"
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

static Status run_prompt(Options *o, Str prompt, bool given, bool chat) {
    if (!given && !chat)
        return status_error(QUILL_USAGE, "no prompt: words, -p, -f or a pipe on stdin expected; %s",
                            o->prompt.no_stdin ? "--no-stdin reads no pipe" : "-i chats line by line");
    TRY(chat ? cli_check_chat(o) : cli_check_prompt(o));
    if (!chat) return complete_run(&o->engine, &o->answer, prompt);
    o->answer.no_newline = false; // the next turn begins on a new line
    return repl_run(o, given ? prompt : (Str){0});
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
    buf_append(&prompt, "", 0);                                 // data is not NULL
    if (!st.code) st = run_prompt(o, str_of_buf(&prompt), given, chat);
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
    Status st = streams_open();
    if (!st.code) st = cli_parse(argc, argv, &o, &stop);
    if (!st.code && stop) print_page(&o);
    else if (!st.code) st = dispatch(&o);
    if (!st.code) st = streams_flush();
    Status lost = guard_lost(); // results from a damaged model file are void, whatever the mode returned
    if (lost.code && st.code < 128) st = lost;
    if (st.message[0]) print_failure(&o, &st);
    cli_free(&o);
    if (st.code == 128 + SIGINT) end_by_sigint();
    return st.code;
}
