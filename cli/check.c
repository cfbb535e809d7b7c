// cli/check.c: see cli/check.h.
#include "cli/check.h"

#include <assert.h>
#include <string.h>

#include "answer/candidates.h"
#include "answer/tools.h"
#include "cli/values.h"
#include "files/builtin.h"
#include "formats/types.h"
#include "policy/drafters.h"

#define RAW_SYSTEM "-sys: raw text has no system message; put it into the prompt, or leave --raw out"
#define NO_EVICT "--evict: a single answer expected, found --beams or --best-of, whose texts share a KV cache"
#define NO_CHAT                                                                                                        \
    "--beams, --best-of: one prompt or a batch expected, found a chat, which shows its answer while it is generated; " \
    "leave -i out"
#define CHAT_JSON "-i: a chat has no JSON form; leave --json out, or give one prompt without -i"

#define FORMS "--json-schema --json-schema-file --json-object --regex --choice --grammar --grammar-file"
#define DRAWING "--temp --top-k --top-p --min-p --typical --xtc-probability"
#define OF_BEAMS "--beams --length-penalty --early-stopping"

const CliConflict cli_conflicts[] = {
    {"--raw", "--chat", false, NULL},
    {"-m", "-hf", false, NULL},
    {"-sys", "-sysf", false, NULL},
    {"--raw", "-sys", false, RAW_SYSTEM},
    {"--raw", "-sysf", false, RAW_SYSTEM},
    {"--chat-template", "--chat-template-file", false, NULL},
    {"--raw", "--tools", false, "--raw and --tools: one of them expected, found both; the template writes the tools"},
    {"--raw", "--chat-template --chat-template-file", false, NULL},
    {"-v", "-q", false, NULL},
    {"--json", "-i", false, CHAT_JSON},
    {"--jsonl", "-i", false, CHAT_JSON},
    {"--json", "--jsonl", true, NULL}, // --jsonl ends with the object of --json
    {"--load", "--continue", false, NULL},
    {"--ids", "--json", false, NULL},
    {"--names", "--json", false, NULL},
    {"--extract", "--json", false, NULL},
    {"--extract", "--jsonl", false, NULL},
    {"--extract", "-i", false, "-i: a chat shows whole answers; leave --extract out, or give one prompt without -i"},
    {"--extract", "--tools", false,
     "--extract and --tools: one of them expected, found both; calls of tools are no part of an answer's text"},
    {"--extract", "--echo", false,
     "--extract and --echo: one of them expected, found both; --extract prints a part of the answer alone"},
    {"--evict", "--kv-dir", false,
     "--evict and --kv-dir: one of them expected, found both; --kv-dir needs the whole KV cache, and --evict frees "
     "parts"},
    {FORMS, FORMS " --tools", false, NULL},
    {"--beams", "--best-of", false, NULL},
    {OF_BEAMS, DRAWING " --best-of --chunk --evict -i", true, NULL}, // values that are not the defaults are checked
    {"--best-of", "--greedy --chunk", true, NULL},                   // in candidates_check: --best-of 1 may be greedy
    {"--beams", "--evict", false, NO_EVICT},
    {"--best-of", "--evict", false, NO_EVICT},
    {"--beams", "-i", false, NO_CHAT},
    {"--best-of", "-i", false, NO_CHAT},
    {"--evict", "--speculate", false,
     "--evict and --speculate: one of them expected, found both; slots freed for a wrong guess could not be restored"},
    {"--roofline", "--speculate", false, NULL},
    {"--ops", "--roofline", false, NULL},
    {"--ops", "--speculate", false, NULL},
    {"--replay", "--prompt-lines", false, NULL},
    {"--kl-base", "--kl", false, NULL},
    {"--kv-error", "--imatrix-out", false, NULL},
    {"--greedy", "--temp", true, NULL},
    {"--device", "-ngl", true, NULL},           // --device cuda -ngl 10
    {"--evict", "--context-shift", true, NULL}, // cli_check_chat reports it
    {"--evict", "--chunk", true, NULL},         // check_needs reports it
};
const int cli_n_conflicts = ARRAY_LEN(cli_conflicts);

// Whether an option of cli_conflicts was given. It may be a flag, a text, or a number above 0 without a default.
static bool is_given(const Options *o, const char *flag) {
    const Option *row = cli_find(flag, 1u << o->mode);
    if (!row) return false;
    bool text = row->kind == TEXT || row->kind == CHOICE || row->kind == INPUT || row->kind == TEXT_FILE;
    assert(row->kind == FLAG || row->kind == STORE || ((text || row->kind == INT) && !row->fallback));
    const void *at = (const char *)o + row->at;
    if (row->kind == INT) return *(const int *)at > 0;
    return row->kind == FLAG ? *(const bool *)at : *(const void *const *)at != NULL;
}

static Status check_conflict(const Options *o, const CliConflict *c) {
    char a[32], b[32];
    for (const char *at = c->a; (at = cli_next_name(at, a));)
        for (const char *other = c->b; is_given(o, a) && (other = cli_next_name(other, b));) {
            if (strcmp(a, b) == 0 || !is_given(o, b)) continue;
            if (c->message) return status_error(QUILL_USAGE, "%s", c->message);
            return status_error(QUILL_USAGE, "%s and %s: one of them expected, found both", a, b);
        }
    return OK;
}

static Status check_conflicts(const Options *o) {
    for (int i = 0; i < cli_n_conflicts; i++)
        if (!cli_conflicts[i].allowed_together) TRY(check_conflict(o, &cli_conflicts[i]));
    return OK;
}

static bool is_stdin(const char *path) { return path && strcmp(path, "-") == 0; }

static bool names_stdin(const PromptConfig *p) {
    for (int i = 0; i < p->n_parts; i++)
        if (is_stdin(p->parts[i].file)) return true;
    return false;
}

// Options whose file is stdin. The prompt is not read from there then; if the run needs stdin, that is an error.
static Status check_stdin_files(Options *o) {
    const AnswerConfig *a = &o->answer;
    const struct {
        const char *flag, *path;
    } files[] = {{"-sysf", a->system_file},
                 {"--chat-template-file", a->chat_template_file},
                 {"--json-schema-file", a->form.schema_file.path},
                 {"--grammar-file", a->form.grammar_file.path},
                 {"--tools", a->tools.file.path}};
    const char *first = NULL, *other = o->chat.interactive       ? "the chat"
                                       : names_stdin(&o->prompt) ? "-f -"
                                       : is_stdin(o->kv.in)      ? "--kv-in -"
                                                                 : NULL;
    bool jobs = o->mode == MODE_BATCH || o->mode == MODE_TEMPLATE;
    if (jobs && (!o->input || is_stdin(o->input))) other = o->mode == MODE_BATCH ? "the jobs" : "the messages";
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        if (!is_stdin(files[i].path)) continue;
        if (first) other = first;
        first = files[i].flag;
    }
    for (int i = 0; i < a->n_chunks; i++) {
        if (!is_stdin(a->chunks[i])) continue;
        if (first) other = first;
        first = "--chunk";
    }
    if (first && other)
        return status_error(QUILL_USAGE, "%s -: a file expected, found stdin, which is taken by %s", first, other);
    if (first && o->prompt.no_stdin && !cli_is_usual(o, "--no-stdin"))
        return status_error(QUILL_USAGE, "--no-stdin and %s -: one of them expected, found both", first);
    if (first) o->prompt.no_stdin = true;
    return OK;
}

// Options that read stdin.
static Status check_stdin(Options *o) {
    bool asked = o->chat.interactive || names_stdin(&o->prompt);
    if (o->prompt.no_stdin && asked && cli_is_usual(o, "--no-stdin")) o->prompt.no_stdin = false;
    if (o->prompt.no_stdin && names_stdin(&o->prompt))
        return status_error(QUILL_USAGE, "--no-stdin and -f -: one of them expected, found both");
    if (o->prompt.no_stdin && o->chat.interactive)
        return status_error(QUILL_USAGE,
                            "--no-stdin and -i: one of them expected, found both; a chat's lines come from "
                            "stdin");
    if (o->chat.interactive && names_stdin(&o->prompt))
        return status_error(QUILL_USAGE,
                            "-i and -f -: one of them expected, found both; a chat's lines come from stdin");
    if (is_stdin(o->answer.load))
        return status_error(QUILL_USAGE, "--load: a file expected, found -; stdin may hold the prompt");
    return check_stdin_files(o);
}

// Options that choose the device.
static Status check_device(const EngineConfig *e) {
    bool cpu = e->device && strcmp(e->device, "cpu") == 0, cuda = e->device && strcmp(e->device, "cuda") == 0;
    if (cpu && e->gpu_layers > 0)
        return status_error(QUILL_USAGE,
                            "-ngl and --device cpu: one of them expected, found both; -ngl puts layers on a GPU");
    if (e->deterministic && e->gpu_layers != 0 && (cuda || e->gpu_layers > 0))
        return status_error(QUILL_USAGE,
                            "%s and --deterministic: one of them expected, found both; --deterministic "
                            "works only on the CPU",
                            cuda ? "--device cuda" : "-ngl");
    return OK;
}

static bool is_bench_without_work(const Options *o) {
    bool tests = cli_largest(&o->bench.prompt) > 0 || cli_largest(&o->bench.gen) > 0;
    return !tests && !o->bench.save && !o->bench.roofline;
}

// With --ops and --speculate, lists would give several tables.
static Status check_one_number(const char *flag, const IntList *list, const char *with) {
    if (list->n <= 1) return OK;
    return status_error(QUILL_USAGE, "%s: one number expected with %s, found %d", flag, with, list->n);
}

// --ops times a single step, of one number of threads.
static Status check_ops(const Options *o) {
    const char *of_tests = !cli_is_usual(o, "-p") ? "-p" : !cli_is_usual(o, "-n") ? "-n" : NULL;
    if (of_tests)
        return status_error(QUILL_USAGE,
                            "%s: a bench without --ops expected with it; --ops times one step, of --sequences rows "
                            "after -d tokens",
                            of_tests);
    return check_one_number("-t", &o->bench.threads, "--ops");
}

// bench measures exactly one thing. --shape overrides QUILL_MODEL, and --roofline the built-in model.
static Status check_bench(const Options *o) {
    const char *model = o->hub.repo ? o->hub.repo : o->engine.model;
    if (o->bench.shape && model && !o->model_from)
        return status_error(QUILL_USAGE, "--shape and %s: a random model or a file expected, found both", model);
    if (!type_by_name(o->bench.type))
        return status_error(QUILL_USAGE, "--type: one of %s expected, \"%s\" found", type_name_list(), o->bench.type);
    const char *of_shape = !cli_is_usual(o, "--type") ? "--type" : !cli_is_usual(o, "--seed") ? "--seed" : NULL;
    if (!o->bench.shape && of_shape)
        return status_error(QUILL_USAGE, "%s: --shape expected with it, found none; it is of a random model", of_shape);
    if (!o->bench.shape && o->bench.save)
        return status_error(QUILL_USAGE, "--save: --shape expected with it, found none; it writes a random model");
    if (!o->bench.shape && !model && !o->bench.roofline && !builtin_there())
        return status_error(QUILL_USAGE, "bench: nothing to measure: -m FILE, --shape NAME or --roofline expected");
    if ((o->bench.replay || o->bench.prompts) && !o->engine.speculate)
        return status_error(QUILL_USAGE, "%s: --speculate expected with it, found none",
                            o->bench.replay ? "--replay" : "--prompt-lines");
    if (o->engine.speculate && !o->bench.replay && o->bench.gen.at[0] < 2)
        return status_error(QUILL_USAGE, "-n: two tokens or more expected with --speculate, found %d",
                            o->bench.gen.at[0]);
    if (o->engine.speculate && o->bench.shape)
        return status_error(QUILL_USAGE, "--speculate and --shape: a model with a vocabulary expected, found a random "
                                         "one; -m FILE names it");
    if (o->bench.replay && (o->bench.n_files == 0 || o->bench.n_files % 2))
        return status_error(QUILL_USAGE, "--replay: pairs of files OLD NEW expected, found %d file%s", o->bench.n_files,
                            o->bench.n_files == 1 ? "" : "s");
    if (o->bench.ops) TRY(check_ops(o));
    if (o->engine.speculate) TRY(check_one_number("-t", &o->bench.threads, "--speculate"));
    if (o->engine.speculate) TRY(check_one_number("-n", &o->bench.gen, "--speculate"));
    if (is_bench_without_work(o)) return status_error(QUILL_USAGE, "bench: -p 0 and -n 0 leave nothing to measure");
    return OK;
}

// Options of beams and best-of: each candidate needs a row in every step.
static Status check_candidates(const Options *o) {
    if (o->mode != MODE_RUN && o->mode != MODE_BATCH) return OK;
    const AnswerConfig *a = &o->answer;
    TRY(candidates_check(a, 1, a->n_chunks, true));
    if (o->mode == MODE_RUN && !a->beams && (a->length_penalty != 1 || strcmp(a->early_stopping, "false") != 0))
        return status_error(QUILL_USAGE, "%s: --beams N expected beside it, found none",
                            a->length_penalty != 1 ? "--length-penalty" : "--early-stopping");
    if (o->engine.ubatch > 0 && o->answer.beams > o->engine.ubatch)
        return status_error(QUILL_USAGE, "--beams %d: at most the %d rows of a step (-ub) expected", o->answer.beams,
                            o->engine.ubatch);
    if (o->mode == MODE_BATCH && o->answer.beams > o->batch.parallel)
        return status_error(QUILL_USAGE, "--beams %d: at most the %d sequences at once (-np) expected", o->answer.beams,
                            o->batch.parallel);
    return OK;
}

// Whether one of the words between the commas of a list is this one.
static bool lists(const char *list, const char *word) {
    size_t n = strlen(word);
    while (strncmp(list, word, n) != 0 || (list[n] != 0 && list[n] != ',')) {
        const char *comma = strchr(list, ',');
        if (!comma) return false;
        list = comma + 1;
    }
    return true;
}

// Whether this part of --speculate names a draft model, or is "mtp" alone. Words of a list are no file's name.
static bool is_model(const char *name) {
    return *name && !lists(name, DRAFTERS_NGRAM) && (!lists(name, DRAFTERS_MTP) || strcmp(name, DRAFTERS_MTP) == 0);
}

// Options of speculation.
static Status check_speculation(const Options *o) {
    const EngineConfig *e = &o->engine;
    const char *model = e->speculate ? drafters_model(e->speculate) : NULL;
    if (model && !is_model(model))
        return status_error(QUILL_USAGE,
                            "--speculate: ngram, mtp, a draft model's FILE, ngram,mtp or ngram,FILE expected, "
                            "found \"%s\"",
                            e->speculate);
    if (e->draft_min > e->draft_max)
        return status_error(QUILL_USAGE, "--draft-min %d and --draft-max %d: a minimum up to the maximum expected",
                            e->draft_min, e->draft_max);
    static const char *const partners[] = {"--draft-max", "--draft-min", "--draft-p-min"};
    for (size_t i = 0; i < ARRAY_LEN(partners) && !e->speculate; i++)
        if (cli_find(partners[i], 1u << o->mode) && !cli_is_usual(o, partners[i]))
            return status_error(QUILL_USAGE, "%s: --speculate expected with it, found none", partners[i]);
    return OK;
}

// Options that a mode or another option requires.
static Status check_needs(const Options *o) {
    if (o->answer.n_chunks > 0 && o->engine.evict)
        return status_error(QUILL_USAGE,
                            "--evict and --chunk: one of them expected, found both; --chunk needs the whole KV cache, "
                            "and --evict frees parts");
    if (o->mode == MODE_RUN && o->answer.logprobs >= 0 && !o->answer.json && !o->answer.jsonl)
        return status_error(
            QUILL_USAGE, "--logprobs: --json or --jsonl expected with it, found none; only JSON has log-probabilities");
    if (o->mode == MODE_LOGITS && o->look.tokens && o->prompt.n_parts)
        return status_error(QUILL_USAGE, "--tokens and a text: one of them expected, found both");
    if (o->mode == MODE_QUANTIZE && !o->quantize.prune && !cli_is_usual(o, "--prune-by"))
        return status_error(QUILL_USAGE, "--prune-by: --prune expected with it, found none");
    if (o->quantize.prune && strcmp(o->quantize.by, "wanda") == 0 && !o->quantize.imatrix)
        return status_error(QUILL_USAGE, "--prune-by wanda: activation norms from --imatrix FILE expected, found none");
    if (o->mode == MODE_PREFILL && !o->kv.out)
        return status_error(QUILL_USAGE, "quill prefill: --kv-out FILE expected, found nothing; - is stdout");
    if (o->mode == MODE_DECODE && !o->kv.in)
        return status_error(QUILL_USAGE, "quill decode: --kv-in FILE expected, found nothing; - is stdin");
    if (o->mode == MODE_PULL || o->mode == MODE_MODELS || o->hub.repo) return OK;
    bool bare = o->mode == MODE_KV || o->answer.chat_template || o->answer.chat_template_file;
    if (o->mode == MODE_BENCH) return check_bench(o);
    if (!o->engine.model && !builtin_there() && !(bare && o->mode != MODE_RUN))
        return status_error(QUILL_USAGE,
                            "no model: give one with -m FILE or set QUILL_MODEL; %s%s -h shows all options",
                            o->mode ? "quill " : "", cli_mode_name(o->mode));
    return OK;
}

// Resets options of the configuration file that name an input of quill bench or quill logits, if the command line names
// another input or their partner is missing.
static void drop_lone_input(Options *o) {
    bool model = o->hub.repo || (o->engine.model && !o->model_from);
    if (model && cli_is_usual(o, "--shape")) o->bench.shape = NULL;
    if (!o->bench.shape && cli_is_usual(o, "--save")) o->bench.save = NULL;
    bool drafts = o->engine.speculate;
    if ((!drafts || o->bench.n_files == 0) && cli_is_usual(o, "--replay")) o->bench.replay = false;
    if (!drafts && cli_is_usual(o, "--prompt-lines")) o->bench.prompts = NULL;
    if (o->prompt.n_parts && cli_is_usual(o, "--tokens")) o->look.tokens = NULL;
}

// Resets options of the configuration file whose partner is missing.
static void drop_lone(Options *o) {
    AnswerConfig *a = &o->answer;
    EngineConfig *e = &o->engine;
    drop_lone_input(o);
    if (!e->model && cli_is_usual(o, "--no-mmap")) e->no_mmap = false; // the built-in model
    a->system_usual = cli_is_usual(o, "-sys") && cli_is_usual(o, "-sysf");
    if (!e->speculate && cli_is_usual(o, "--draft-min")) e->draft_min = 0;
    if (!e->speculate && cli_is_usual(o, "--draft-p-min")) e->draft_p_min = 0;
    if (o->mode == MODE_BATCH) return; // a job may have the other one
    if (!tools_given(&a->tools) && cli_is_usual(o, "--tool-choice")) a->tools.choice = NULL;
    if (!a->beams && cli_is_usual(o, "--length-penalty")) a->length_penalty = 1;
    if (!a->beams && cli_is_usual(o, "--early-stopping")) a->early_stopping = "false";
    if (!a->json && !a->jsonl && cli_is_usual(o, "--logprobs")) a->logprobs = -1;
    if (!o->quantize.prune && cli_is_usual(o, "--prune-by")) o->quantize.by = "magnitude";
}

Status cli_check_together(Options *o) {
    drop_lone(o);
    TRY(check_conflicts(o));
    TRY(check_stdin(o));
    TRY(check_device(&o->engine));
    TRY(check_candidates(o));
    TRY(check_speculation(o));
    return check_needs(o);
}

Status cli_check_chat(Options *o) {
    AnswerConfig *a = &o->answer;
    if (cli_is_usual(o, "--json") && cli_is_usual(o, "--jsonl")) a->json = a->jsonl = false;
    if (cli_is_usual(o, "--extract")) a->extract = false;
    if (cli_is_usual(o, "--beams") && cli_is_usual(o, "--best-of")) a->beams = a->best_of = 0;
    if (cli_is_usual(o, "--blend-error")) a->blend_error = false;
    if (a->echo && !cli_is_usual(o, "--echo"))
        return status_error(QUILL_USAGE,
                            "--echo: one prompt expected, found a chat; leave it out, or use --single-turn");
    if (o->answer.blend_error) return status_error(QUILL_USAGE, "--blend-error: one prompt expected, found a chat");
    if (candidates_wanted(&o->answer))
        return status_error(QUILL_USAGE, o->chat.interactive
                                             ? NO_CHAT
                                             : "--beams, --best-of: a prompt expected, found none; a chat shows its "
                                               "answer while it is generated");
    if (o->answer.json || o->answer.jsonl)
        return status_error(QUILL_USAGE, "--json: a prompt expected, found none; a chat has no JSON form");
    if (o->answer.extract)
        return status_error(QUILL_USAGE, "--extract: a prompt expected, found none; a chat shows whole answers");
    if (o->engine.evict && o->answer.context_shift)
        return status_error(QUILL_USAGE,
                            "--evict and --context-shift: one of them expected, found both; --evict frees single "
                            "tokens, --context-shift drops whole turns");
    return OK;
}

Status cli_check_prompt(const Options *o) {
    if (o->answer.context_shift && !cli_is_usual(o, "--context-shift"))
        return status_error(QUILL_USAGE,
                            "--context-shift: a chat expected, found one prompt; it drops the oldest turns of a chat: "
                            "leave it out, add -i, or use --evict, which frees tokens");
    const AnswerConfig *a = &o->answer;
    const char *wants = a->blend && !cli_is_usual(o, "--blend")               ? "--blend"
                        : a->chunk_split && !cli_is_usual(o, "--chunk-split") ? "--chunk-split"
                        : a->blend_error && !cli_is_usual(o, "--blend-error") ? "--blend-error"
                                                                              : NULL;
    if (wants && a->n_chunks == 0) return status_error(QUILL_USAGE, "%s: --chunk FILE expected, found none", wants);
    return OK;
}
