// cli/cli.c: see cli/cli.h.
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/check.h"
#include "cli/config.h"
#include "cli/hints.h"
#include "cli/llama.h"
#include "sampler.h"

// ---- looking up -----------------------------------------------------------------------------------------------------

// Copies the flag without its =value, and with `-` for `_` in long names.
static void flag_name(const char *arg, char name[64]) {
    size_t n = strcspn(arg, "=");
    if (n > 63) n = 63;
    memcpy(name, arg, n);
    name[n] = 0;
    if (arg[0] == '-' && arg[1] == '-')
        for (size_t i = 2; i < n; i++)
            if (name[i] == '_') name[i] = '-';
}

// `written`: the name of another program, which means the flag; otherwise the flag itself.
static Status unknown_flag(const char *flag, const char *written, Mode m) {
    bool same = strcmp(flag, written) == 0;
    if (cli_find(flag, MODES_ALL)) {
        Buf where = {0};
        for (int other = 0; other < N_MODES; other++)
            if (cli_find(flag, 1u << other))
                buf_printf(&where, "%s%s%s", where.n ? ", " : "", other ? "quill " : "", cli_mode_name((Mode)other));
        Status st =
            status_error(QUILL_USAGE, "%s%s%s%s: not an option of %s%s; it belongs to %s", written, same ? "" : " (",
                         same ? "" : flag, same ? "" : ")", m ? "quill " : "", cli_mode_name(m), where.data);
        buf_free(&where);
        return st;
    }
    char meant[32];
    if (cli_meant(flag, m, meant))
        return status_error(QUILL_USAGE, "%s: unknown option; did you mean %s?", flag, meant);
    return status_error(QUILL_USAGE,
                        "%s: unknown option; quill%s%s --help lists all options; words after -- are not "
                        "options",
                        flag, m ? " " : "", cli_modes[m]);
}

// ---- the arguments --------------------------------------------------------------------------------------------------

typedef struct {
    int argc, next;
    char **argv;
    bool words_only; // after --
    bool goes_on;    // the next words are appended to the text of the last -p
    Buf notes;       // for stderr, unless -q is given
    Buf words;       // joined by single spaces
    const char **word;
    int n_words;
} Args;

// The page that a flag prints instead of running the mode.
static CliPage page_of(const Option *o, const char *flag) {
    switch (o->kind) {
    case HELP: return flag[1] == '-' ? PAGE_HELP : PAGE_SHORT_HELP;
    case VERSION: return PAGE_VERSION;
    case MAN: return PAGE_MAN;
    case COMPLETIONS: return PAGE_COMPLETIONS;
    default: return PAGE_NONE;
    }
}

// Parses --color, whose value may be missing: then it is auto. A word that is nearly a value is no prompt.
static Status parse_color(Args *a, Options *out, const Option *o) {
    static const char *const values[] = {"auto", "always", "never"};
    const char *next = a->next < a->argc ? a->argv[a->next] : "";
    bool value = cli_is_choice("on|off", next) || cli_is_choice(o->arg, next);
    Nearest nearest = {.word = next};
    for (size_t i = 0; i < ARRAY_LEN(values) && !value && *next; i++) nearest_try(&nearest, values[i]);
    if (nearest_found(&nearest))
        return status_error(QUILL_USAGE, "--color: %s expected, found \"%.40s\"; did you mean %s?", o->arg, next,
                            nearest_found(&nearest));
    a->next += value;
    a->goes_on = false;
    cli_origin(out, o)->by = BY_FLAG;
    return cli_set_value(o, "--color", value ? next : "auto", out);
}

// Parses an option of llama-cli that quill's table does not have: applies its counterpart, with a note if its meaning
// differs.
static Status parse_theirs(Args *a, Options *out, const LlamaOption *l, const char *flag, const char *value) {
    const char *next = a->next < a->argc ? a->argv[a->next] : NULL;
    bool takes =
        l->value == LLAMA_VALUE || (l->value == LLAMA_SWITCH && next && cli_is_choice("on|off|auto|0|1", next));
    if (!value && l->value == LLAMA_VALUE && !next)
        return status_error(QUILL_USAGE, "%s: needs a value, found the end of the line", flag);
    if (!value && takes) value = next, a->next++;
    LlamaMeaning means = llama_meaning(l, value ? value : "");
    a->goes_on = false;
    if (means.refused) return status_error(QUILL_USAGE, "%s: %s", flag, means.refused);
    if (means.note) buf_printf(&a->notes, "quill: note: %s: %s\n", flag, means.note);
    if (!means.flag) return OK;
    const Option *o = cli_find(means.flag, 1u << out->mode);
    if (!o) return unknown_flag(means.flag, flag, out->mode);
    cli_origin(out, o)->by = BY_FLAG;
    return cli_set_value(o, flag, means.value, out);
}

// Parses one flag with its value. *stop: a flag such as --help has set Options.page and ends the parse.
static Status parse_flag(Args *a, Options *out, bool *stop) {
    const char *arg = a->argv[a->next++], *equals = strchr(arg, '=');
    char flag[64];
    flag_name(arg, flag);
    const Option *o = cli_find(flag, 1u << out->mode);
    const LlamaOption *theirs = o ? NULL : llama_find(flag);
    if (theirs) return parse_theirs(a, out, theirs, flag, equals ? equals + 1 : NULL);
    if (!o) return unknown_flag(flag, flag, out->mode);
    if (o->kind == COLOR && !equals) return parse_color(a, out, o);
    bool off = o->kind == FLAG && equals && strcmp(equals, "=off") == 0; // overrides the configuration file
    if (!o->arg && equals && !off && (o->kind != FLAG || strcmp(equals, "=on") != 0))
        return status_error(QUILL_USAGE, "%s: %s expected, found \"%.200s\"", flag,
                            o->kind == FLAG ? "on, off or no value" : "no value", equals + 1);
    const char *value = equals ? equals + 1 : NULL;
    if (o->arg && !value) {
        if (a->next == a->argc)
            return status_error(QUILL_USAGE, "%s: needs a value (%s), found the end of the line", flag, o->arg);
        value = a->argv[a->next++];
        char name[64];
        flag_name(value, name);
        if (value[0] == '-' && cli_find(name, 1u << out->mode))
            return status_error(QUILL_USAGE,
                                "%s: needs a value (%s), found the option %s; write %s=%s if that is the value", flag,
                                o->arg, name, flag, value);
    }
    if (o->kind == COMPLETIONS && !cli_is_choice(o->arg, value)) return cli_bad_value(flag, value, o->arg);
    a->goes_on = o->kind == PROMPT_TEXT;
    cli_origin(out, o)->by = BY_FLAG;
    if (off) return cli_set_default(o, flag, out);
    out->page = page_of(o, flag);
    if (out->page == PAGE_COMPLETIONS) out->shell = value;
    *stop = out->page != PAGE_NONE;
    return *stop ? OK : cli_set_value(o, flag, value, out);
}

static void extend(PromptPart *part, const char *word) {
    Buf text = {0};
    buf_printf(&text, "%s %s", part->text, word);
    free(part->text);
    part->text = text.data;
}

static void add_word(Args *a, const char *word, Options *out) {
    if (a->goes_on) { // quill -p Tell me a story
        extend(&out->prompt.parts[out->prompt.n_parts - 1], word);
        return;
    }
    if (a->n_words) buf_str(&a->words, " ");
    a->word = mem_resize(a->word, (size_t)(a->n_words + 1) * sizeof *a->word);
    a->word[a->n_words++] = word;
    buf_str(&a->words, word);
}

static Status parse_args(Args *a, Options *out, bool *stop) {
    while (a->next < a->argc && !*stop) {
        const char *arg = a->argv[a->next];
        bool in = strcmp(arg, "-") == 0 && MODES_TEXT & 1u << out->mode;
        if (in && !a->words_only) {
            TRY(cli_add_part(cli_find("-f", 1u << out->mode), arg, out->prompt.n_parts, out));
            a->goes_on = false;
            a->next++;
        } else if (a->words_only || arg[0] != '-' || arg[1] == 0) {
            add_word(a, arg, out);
            a->next++;
        } else if (strcmp(arg, "--") == 0) {
            a->words_only = true;
            a->next++;
        } else TRY(parse_flag(a, out, stop));
    }
    return OK;
}

static Status set_defaults(Options *out) {
    out->answer.sampling = sampler_defaults();
    out->answer.logprobs = -1;
    for (int i = 0; i < cli_n_options; i++) {
        const Option *o = &cli_options[i];
        if (o->fallback) TRY(cli_set_value(o, o->names, o->fallback, out));
        if (o->kind == INTS) ((IntList *)((char *)out + o->at))->added = false;
    }
    out->answer.sampling_given = 0;
    return OK;
}

// The origin of the value of the option with this flag; NULL: the mode does not have this option.
static Origin *origin_of(const char *flag, const Options *o) {
    const Option *row = cli_find(flag, 1u << o->mode);
    return row ? cli_origin(o, row) : NULL;
}

// Sets options from the environment that no flag has set.
static Status from_environment(Options *out) {
    const char *model = getenv("QUILL_MODEL"), *device = getenv("QUILL_DEVICE");
    Origin *of_model = origin_of("--model", out), *of_device = origin_of("--device", out);
    bool bare =
        out->mode == MODE_TEMPLATE && (out->answer.chat_template || out->answer.chat_template_file); // needs no model
    if (of_model && out->engine.model) of_model->by = BY_FLAG;                                       // a flag or a word
    else if (of_model && model && *model && !bare && !out->hub.repo) {
        out->engine.model = model;
        of_model->by = BY_ENVIRONMENT;
    }
    bool flagged = !of_device || of_device->by == BY_FLAG || out->engine.gpu_layers > 0; // -ngl chooses the GPU as well
    if (flagged || !device || !*device) return OK;
    of_device->by = BY_ENVIRONMENT;
    return cli_set_value(cli_find("--device", 1u << out->mode), "QUILL_DEVICE", device, out);
}

// Sets *at, the file of a mode that takes one, to the only word, unless a flag has named a file.
static Status set_file(const Args *a, Mode m, const char *what, const char *flag, const char **at) {
    if (a->n_words > 1 || (a->n_words && *at))
        return status_error(QUILL_USAGE, "quill %s: one %s expected, found \"%.200s\"%s%s%.200s", cli_mode_name(m),
                            what, a->words.data, *at ? " and " : "", *at ? flag : "", *at ? *at : "");
    if (a->n_words && !*a->word[0])
        return status_error(QUILL_USAGE, "quill %s: a %s expected, found an empty text", cli_mode_name(m), what);
    if (a->n_words) *at = a->word[0];
    const char *ending = m == MODE_TEMPLATE && a->n_words ? strrchr(*at, '.') : NULL;
    if (ending && (strcmp(ending, ".json") == 0 || strcmp(ending, ".jsonl") == 0))
        return status_error(QUILL_USAGE,
                            "quill template: a model expected, found \"%.200s\"; -f %.200s reads the messages from it",
                            *at, *at);
    if (m == MODE_DECODE && a->n_words && strcmp(*at, "builtin") != 0 && access(*at, F_OK) != 0)
        return status_error(QUILL_USAGE,
                            "quill decode: \"%.200s\": a model file expected, no such file found; decode answers the "
                            "prompt in the KV file, so give the question to quill prefill; or use quill --kv-dir DIR "
                            "-f TEXT \"question\", which keeps the text's KV cache",
                            *at);
    return OK;
}

static void give_words(Args *a, const char ***words, int *n) {
    *words = a->word;
    *n = a->n_words;
    a->word = NULL;
}

// Uses the words that are not options. Depending on the mode they are the beginning of the prompt, a verb with files or
// names (kv, chunk, pull, models), files (bench --replay, quantize), or one file.
static Status use_words(Args *a, Options *out) {
    if (out->mode == MODE_KV || out->mode == MODE_CHUNK) give_words(a, &out->kv.words, &out->kv.n_words);
    else if (out->mode == MODE_PULL || out->mode == MODE_MODELS) give_words(a, &out->hub.words, &out->hub.n_words);
    else if (out->bench.replay) give_words(a, &out->bench.files, &out->bench.n_files);
    else if (out->mode == MODE_QUANTIZE) {
        if (out->show_config && a->n_words == 0) return OK;
        if (a->n_words != 3)
            return status_error(QUILL_USAGE, "quill quantize: IN OUT TYPE expected, found %d word%s", a->n_words,
                                a->n_words == 1 ? "" : "s");
        out->engine.model = a->word[0];
        out->quantize.out = a->word[1];
        out->quantize.type = a->word[2];
    } else if (out->mode == MODE_BATCH) {
        TRY(set_file(a, out->mode, "file of jobs", "-f ", &out->input));
        if (out->input) origin_of("-f", out)->by = BY_FLAG; // a flag or a word
    } else if (!(MODES_TEXT & 1u << out->mode)) return set_file(a, out->mode, "model", "-m ", &out->engine.model);
    else if (a->n_words) return cli_add_part(cli_find("-p", 1u << out->mode), a->words.data, 0, out);
    return OK;
}

// Sets options that the arguments have not set, from the environment and the configuration file.
static Status from_elsewhere(Options *o) {
    TRY(from_environment(o));
    TRY(config_apply(o));
    const Origin *model = origin_of("--model", o);
    if (model && o->engine.model && model->by != BY_FLAG && model->by != BY_DEFAULT) {
        Buf from = {0};
        config_origin(cli_find("--model", 1u << o->mode), model, &from);
        cli_keep(o, from.data);
        o->model_from = from.data;
    }
    return OK;
}

// Copies settings that several parts of the options need.
static void complete_parts(Options *o) {
    if (o->engine.threads < 0) o->engine.threads = 0;
    o->engine.verbose = o->answer.verbose;
    o->engine.quiet = o->prompt.quiet = o->answer.quiet;
    o->prompt.joins_stdin = (1u << o->mode) & MODES_PROMPT;
}

static Status parse(Args *a, Options *o, bool *stop) {
    TRY(set_defaults(o));
    TRY(parse_args(a, o, stop));
    if (*stop) return OK;
    TRY(use_words(a, o));
    TRY(from_elsewhere(o));
    if (o->show_config) {
        config_show(o);
        *stop = true;
        return OK;
    }
    TRY(cli_check_together(o));
    if (a->argc > 1 && !a->words_only) cli_hint(o->mode, a->argv[1], a->n_words, a->word, &a->notes);
    if (!o->answer.quiet && a->notes.n) fputs(a->notes.data, stderr);
    return OK;
}

Status cli_parse(int argc, char **argv, Options *o, bool *stop) {
    *o = (Options){0};
    *stop = false;
    Args a = {.argc = argc, .argv = argv, .next = 1};
    o->origins = mem_alloc((size_t)cli_n_options * sizeof *o->origins);
    if (argc > 1) o->mode = cli_find_mode(argv[1]);
    if (o->mode != MODE_RUN) a.next = 2;
    Status st = parse(&a, o, stop);
    complete_parts(o);
    if (!o->answer.seed_given) cli_draw_seed(&o->answer);
    buf_free(&a.words);
    buf_free(&a.notes);
    free(a.word);
    return st;
}

void cli_free(Options *o) {
    for (int i = 0; i < o->prompt.n_parts; i++) free(o->prompt.parts[i].text);
    free(o->prompt.parts);
    free((void *)o->answer.sampling.bias);
    free(o->answer.stop);
    free(o->answer.chunks);
    free((void *)o->engine.kv_dir);
    free(o->kv.words);
    free(o->hub.words);
    free(o->bench.files);
    free(o->origins);
    for (int i = 0; i < o->n_kept; i++) free(o->kept[i]);
    free(o->kept);
    *o = (Options){0};
}
