// cli/cli.c: the table of options, and what walks it: parsing and the did-you-mean (see cli.h); cli/help.c prints it.
#define _GNU_SOURCE
#include "cli/table.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "files/builtin.h"
#include "cli/llama.h"
#include "cli/config.h"
#include "formats/types.h"

// ---- the table ------------------------------------------------------------------------------------------------------

#define M(mode) (1u << MODE_##mode)
enum {
    PROMPT = M(RUN) | M(PREFILL),                                     // modes that take a prompt
    ANSWER = M(RUN) | M(DECODE) | M(BATCH),                           // modes that generate
    TEXT_IN = PROMPT | M(TOKENIZE) | M(LOGITS) | M(PERPLEXITY),       // modes that read text
    COMPUTE = PROMPT | ANSWER | M(BENCH) | M(LOGITS) | M(PERPLEXITY), // modes that run a model
    EVERY = TEXT_IN | COMPUTE | M(INSPECT) | M(TEMPLATE) | M(KV),
    FILES = EVERY & ~M(KV), // modes that open a model
};
#define AT(field) offsetof(Options, field)

// clang-format off
const Option cli_options[] = {
    // names (short first, hidden aliases last), argument, modes, group, kind, where, least, most, default, help
    {"-m --model", "FILE", FILES, G_MODEL, TEXT, AT(model), 0, 0, NULL, "model: GGUF, or llama2.c .bin with its tokenizer.bin (environment: QUILL_MODEL); builtin, the default, is the one in the binary (--version names it)"},
    {"-z --tokenizer", "FILE", FILES, G_MODEL, TEXT, AT(tokenizer), 0, 0, NULL, "tokenizer.bin of a llama2.c model; found by itself when it lies beside it"},
    {"--no-mmap", NULL, FILES, G_MODEL, FLAG, AT(no_mmap), 0, 0, NULL, "read the model into memory instead of mapping it"},
    {"--mlock", NULL, COMPUTE, G_MODEL, FLAG, AT(mlock), 0, 0, NULL, "keep the model's pages in memory (as far as the system allows)"},
    {"--check-tensors", NULL, PROMPT | ANSWER | M(INSPECT) | M(PERPLEXITY) | M(LOGITS), G_MODEL, FLAG, AT(check_tensors), 0, 0, NULL, "read every weight first and refuse what is not finite"},

    {"-p --prompt", "TEXT", TEXT_IN, G_PROMPT, PROMPT_TEXT, 0, 0, 0, NULL, "the prompt; words without a flag are the same; may be repeated"},
    {"-f --file", "FILE", M(BATCH), G_PROMPT, INPUT, AT(file), 0, 0, NULL, "the jobs from a file instead of stdin; the same as a word without a flag"},
    {"-f --file", "FILE", M(TEMPLATE), G_PROMPT, INPUT, AT(file), 0, 0, NULL, "the messages from a file instead of stdin"},
    {"-f --file", "FILE", TEXT_IN, G_PROMPT, PROMPT_FILE, 0, 0, 0, NULL, "text from a file, byte for byte; - is stdin; may be repeated"},
    {"-sys --system-prompt", "TEXT", PROMPT | M(BATCH), G_PROMPT, TEXT, AT(system), 0, 0, NULL, "a system message (models with a chat template)"},
    {"-sysf --system-prompt-file", "FILE", PROMPT | M(BATCH), G_PROMPT, TEXT, AT(system_file), 0, 0, NULL, "the same from a file"},
    {"-e --escape", NULL, TEXT_IN, G_PROMPT, FLAG, AT(escape), 0, 0, NULL, "\\n \\t \\r \\\\ \\' \\\" \\xHH mean what they mean in C in -p and words"},
    {"--raw", NULL, PROMPT | ANSWER, G_PROMPT, FLAG, AT(raw), 0, 0, NULL, "complete the bare text, whatever template the model carries"},
    {"--chat", NULL, PROMPT | M(DECODE), G_PROMPT, FLAG, AT(chat), 0, 0, NULL, "insist on the model's chat template"},
    {"--single-turn", NULL, M(RUN), G_PROMPT, FLAG, AT(single_turn), 0, 0, NULL, "one answer and exit, also where there is a terminal and -i"},
    {"-i --interactive", NULL, M(RUN), G_PROMPT, FLAG, AT(interactive), 0, 0, NULL, "chat line by line; a prompt given is the first turn"},
    {"--continue", NULL, M(RUN), G_PROMPT, FLAG, AT(resume), 0, 0, NULL, "begin with the last conversation that was saved with this model (a chat goes on saving it)"},
    {"--load", "FILE", M(RUN), G_PROMPT, TEXT, AT(load), 0, 0, NULL, "begin with a conversation that /save wrote: a chat, or one answer to the prompt; settings in it hold for a chat, where no flag says otherwise"},
    {"--autosave", NULL, M(RUN), G_PROMPT, FLAG, AT(autosave), 0, 0, NULL, "save a chat after each turn, in $XDG_STATE_HOME/quill/conversations (~/.local/state/quill/conversations)"},
    {"--no-history", NULL, M(RUN), G_PROMPT, FLAG, AT(no_history), 0, 0, NULL, "keep nothing of what is typed into a chat for later sessions (environment: QUILL_HISTORY names the file, empty: none)"},
    {"--parse-special", NULL, TEXT_IN, G_PROMPT, FLAG, AT(parse_special), 0, 0, NULL, "recognise control tokens in raw text"},
    {"--no-stdin", NULL, TEXT_IN, G_PROMPT, FLAG, AT(no_stdin), 0, 0, NULL, "never read stdin"},
    {"--tokens", "ID,ID,...", M(LOGITS), G_PROMPT, TEXT, AT(tokens), 0, 0, NULL, "token ids instead of text"},
    {"--ids", NULL, M(TOKENIZE), G_PROMPT, FLAG, AT(ids), 0, 0, NULL, "print the ids alone, separated by spaces"},
    {"--no-bos", NULL, M(LOGITS) | M(PERPLEXITY), G_PROMPT, FLAG, AT(no_bos), 0, 0, NULL, "do not put the beginning token in front of text"},
    {"--no-bos", NULL, M(TOKENIZE), G_PROMPT, FLAG, AT(no_bos), 0, 0, NULL, "no beginning token in front of the text, and no end token after it"},
    {"--chat-template", "NAME", PROMPT | ANSWER | M(TEMPLATE), G_PROMPT, TEXT, AT(chat_template), 0, 0, NULL, "one of quill's own templates instead of the model's: chatml, llama2, llama3, mistral-v7, gemma, ... (a wrong name lists them)"},
    {"--chat-template-file", "FILE", PROMPT | ANSWER | M(TEMPLATE), G_PROMPT, TEXT, AT(chat_template_file), 0, 0, NULL, "the same from a file, in Jinja"},
    {"--think", "on|off|show|hide", PROMPT | ANSWER | M(TEMPLATE), G_PROMPT, CHOICE, AT(think), 0, 0, NULL, "on, off: whether a model is to think, where its template lets one choose; show, hide: whether its thoughts are printed (otherwise: on a terminal and in JSON)"},
    {"--bos", "TEXT", M(TEMPLATE), G_PROMPT, TEXT, AT(bos), 0, 0, NULL, "what bos_token says, instead of the model's"},
    {"--eos", "TEXT", M(TEMPLATE), G_PROMPT, TEXT, AT(eos), 0, 0, NULL, "the same for eos_token"},
    {"--now", "TIME", M(TEMPLATE), G_PROMPT, TEXT, AT(now), 0, 0, NULL, "the time that strftime_now gives, as 2026-01-02T03:04:05"},
    {"--no-generation-prompt", NULL, M(TEMPLATE), G_PROMPT, FLAG, AT(no_generation_prompt), 0, 0, NULL, "without the beginning of the assistant's answer"},

    {"-n --predict --n-predict --max-tokens --max-completion-tokens", "N", ANSWER, G_LENGTH, INT, AT(predict), -1, INT_MAX, "-1", "tokens to generate; -1: until the end or a full context"},
    {"-c --ctx-size", "N", M(PERPLEXITY), G_LENGTH, INT, AT(ctx_size), 0, (1 << 30) - 1, "0", "tokens of a chunk; 0: 512, or what the model was trained for if that is less"},
    {"-c --ctx-size", "N", PROMPT | ANSWER | M(LOGITS), G_LENGTH, INT, AT(ctx_size), 0, (1 << 30) - 1, "0", "context in tokens; 0: the model's, if it fits into memory"},
    {"--ignore-eos", NULL, ANSWER, G_LENGTH, FLAG, AT(ignore_eos), 0, 0, NULL, "never generate an end-of-generation token"},
    {"-r --stop --reverse-prompt", "TEXT", ANSWER, G_LENGTH, STOPS, AT(stop), 0, 0, NULL, "stop before this text; may be repeated"},

    {"--temp --temperature", "T", ANSWER, G_SAMPLING, REAL, AT(sampling.temp), 0, 1000, "0.8", "temperature; 0 is greedy"},
    {"--top-k", "N", ANSWER, G_SAMPLING, INT, AT(sampling.top_k), 0, INT_MAX, "40", "only the N most likely tokens; 0: all"},
    {"--top-p", "P", ANSWER, G_SAMPLING, REAL, AT(sampling.top_p), 0, 1, "0.95", "only the most likely tokens that make up P; 1: off"},
    {"--min-p", "P", ANSWER, G_SAMPLING, REAL, AT(sampling.min_p), 0, 1, "0.05", "only tokens at least P times as likely as the first; 0: off"},
    {"--typical --typical-p", "P", ANSWER, G_SAMPLING, REAL, AT(sampling.typical), 0, 1, "1", "locally typical sampling; 1: off"},
    {"--repeat-penalty", "X", ANSWER, G_SAMPLING, REAL, AT(sampling.repeat_penalty), 0.001, 1000, "1", "divide the logits of recent tokens by X; 1: off"},
    {"--repeat-last-n", "N", ANSWER, G_SAMPLING, INT, AT(sampling.repeat_last_n), -1, INT_MAX, "64", "tokens that the penalties look at; -1: all"},
    {"--presence-penalty", "X", ANSWER, G_SAMPLING, REAL, AT(sampling.presence_penalty), -100, 100, "0", "subtracted once from tokens that occurred"},
    {"--frequency-penalty", "X", ANSWER, G_SAMPLING, REAL, AT(sampling.frequency_penalty), -100, 100, "0", "subtracted for each time they occurred"},
    {"--logit-bias", "ID+B|ID-B", ANSWER, G_SAMPLING, BIAS, AT(sampling.bias), 0, 0, NULL, "added to a token's logit (ID-inf forbids it); may be repeated"},
    {"-s --seed", "N", ANSWER, G_SAMPLING, SEED, AT(sampling.seed), 0, 0, "-1", "seed of the random numbers; -1: from the system, shown by -v and --json"},
    {"--greedy", NULL, ANSWER, G_SAMPLING, FLAG, AT(sampling.greedy), 0, 0, NULL, "always the most likely token"},

    {"-t --threads", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench_threads), -1, 1024, "0", "threads, every test with each number; 0 or -1: one for each physical core"},
    {"-t --threads", "N", COMPUTE & ~M(BENCH), G_SPEED, INT, AT(threads), -1, 1024, "0", "threads; 0 or -1: one for each physical core"},
    {"-ngl --gpu-layers --n-gpu-layers", "auto|all|N", COMPUTE, G_SPEED, LAYERS, AT(gpu_layers), 0, INT_MAX, "auto", "the last N layers on the GPU; auto: as many as fit"},
    {"--device", "auto|cuda|cpu", COMPUTE, G_SPEED, CHOICE, AT(device), 0, 0, "auto", "where to compute; auto: on a GPU, where there is one and the model is not small (environment: QUILL_DEVICE)"},
    {"--isa", "auto|scalar|portable|avx2|avx512|amx", COMPUTE, G_SPEED, CHOICE, AT(isa), 0, 0, "auto", "CPU kernels; scalar is the reference"},
    {"-ub --ubatch-size", "N", COMPUTE, G_SPEED, INT, AT(ubatch), 1, 65536, NULL, "rows in one step: the prefill chunk and the batch's budget (512 on the CPU, 2048 on a GPU)"},
    {"-ctk --cache-type-k", "auto|f32|f16|bf16|fp8|q8_0|q4_0|kivi2", COMPUTE, G_SPEED, KVTYPE, AT(type_k), 0, 0, "auto", "how the KV cache stores keys; auto: f16, and f32 for models in F32; fp8, q8_0, q4_0 and kivi2 (2 bits) take less memory and round"},
    {"-ctv --cache-type-v", "auto|f32|f16|bf16|fp8|q8_0|q4_0|kivi2", COMPUTE, G_SPEED, KVTYPE, AT(type_v), 0, 0, "auto", "how the KV cache stores values"},
    {"--kv-rotate", NULL, COMPUTE, G_SPEED, FLAG, AT(kv_rotate), 0, 0, NULL, "turn keys and queries by a Hadamard matrix, so that keys round less in few bits"},
    {"--deterministic", NULL, COMPUTE, G_SPEED, FLAG, AT(deterministic), 0, 0, NULL, "the same bits whatever is computed together, on any number of threads: one order of sums on the CPU's fast kernels; slower (docs/performance.md)"},

    {"--kv-layout", "contiguous|paged", COMPUTE & ~M(BATCH), G_KV, LAYOUT, AT(paged), 0, 0, "contiguous", "one block a sequence, or many"},
    {"--kv-block", "N", COMPUTE, G_KV, INT, AT(kv_block), 1, 65536, "32", "slots in a block of the paged layout, of a batch and of --kv-dir"},
    {"--kv-mem", "SIZE", COMPUTE, G_KV, SIZE, AT(kv_mem), 0, 0x1p62, "0", "the most memory the KV cache may take; 0: what the context needs"},
    {"--kv-dir", "DIR[,size=8G]", M(RUN) | M(BATCH), G_KV, STORE, AT(kv_dir), 0, 0x1p62, NULL, "keep the KV cache of prompts there, in files of at most that size together, and begin where an earlier run's prompt was the same"},
    {"--evict", "POLICY", M(RUN) | M(PERPLEXITY), G_KV, TEXT, AT(evict), 0, 0, NULL, "what a full cache gives up, so that text goes on: sinks,sink=4,window=1024; shift; h2o,heavy=512,recent=512; or behind a long prompt: snapkv,cap=2048,window=32"},
    {"--kv-error", NULL, M(PERPLEXITY), G_KV, FLAG, AT(kv_error), 0, 0, NULL, "how far attention over this cache is from attention in float64 over all of the text, layer by layer, each from the same input"},
    {"--context-shift", NULL, M(RUN), G_KV, FLAG, AT(context_shift), 0, 0, NULL, "when a chat fills the context, leave its oldest turns out, and say so"},
    {"--kv-out", "FILE", M(PREFILL), G_KV, TEXT, AT(kv_out), 0, 0, NULL, "where the KV goes: a file, which appears whole or not at all, a pipe, or - for stdout"},
    {"--kv-out", "FILE", M(KV), G_KV, TEXT, AT(kv_out), 0, 0, NULL, "cut: where the rest goes; - for stdout"},
    {"--kv-in", "FILE", M(DECODE), G_KV, TEXT, AT(kv_in), 0, 0, NULL, "the KV of quill prefill or of a chat's /save --kv; - for stdin"},
    {"-n", "N", M(KV), G_KV, INT, AT(predict), 1, INT_MAX, NULL, "cut: tokens to keep"},
    {"--tolerance", "R", M(KV), G_KV, REAL, AT(tolerance), 0, 1e9, "0", "diff: the relative L2 distance of a layer's K or V up to which they count as the same; over it, and where tokens or shapes differ, the exit code is 1"},

    {"-np --parallel", "N", M(BATCH), G_BATCH, INT, AT(parallel), 1, 4096, "64", "sequences at once, at most; memory and the jobs decide how many they are"},
    {"--keep-order", NULL, M(BATCH), G_BATCH, FLAG, AT(keep_order), 0, 0, NULL, "answers in the order of the jobs, not as they finish"},
    {"--rate", "R", M(BATCH), G_BATCH, REAL, AT(rate), 0, 1e6, "0", "replay arrivals: R jobs a second on average, at random times (by --seed); 0: as they can be read"},
    {"--slo", "ttft=MS,tpot=MS", M(BATCH), G_BATCH, TEXT, AT(slo), 0, 0, NULL, "the latencies to keep, in milliseconds; at the end stderr says how many jobs a second kept them (goodput)"},
    {"--resume", "FILE", M(BATCH), G_BATCH, TEXT, AT(resume_file), 0, 0, NULL, "go on with a run that was cut: FILE has its answers, their jobs are skipped, and new answers are appended to it instead of stdout"},
    {"--static", NULL, M(BATCH), G_BATCH, FLAG, AT(static_batches), 0, 0, NULL, "batches of -np jobs, each run to its end before the next begins; for comparison"},

    {"-p --n-prompt", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench_prompt), 0, INT_MAX, "512", "prompt tokens of the prefill tests; 0: no such test; ranges too: 128-512+128, 1-8*2"},
    {"-n --n-gen", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench_gen), 0, INT_MAX, "128", "tokens of the decode tests; 0: no such test"},
    {"-d --n-depth", "N,N,...", M(BENCH), G_BENCH, INTS, AT(bench_depth), 0, INT_MAX, "0", "tokens that are in the context before a test begins"},
    {"--sequences -np --parallel", "N", M(BENCH), G_BENCH, INT, AT(bench_sequences), 1, 4096, "1", "sequences at once"},
    {"-r --repetitions", "N", M(BENCH), G_BENCH, INT, AT(bench_reps), 1, 100000, "5", "repetitions; the median is shown"},
    {"--shape", "NAME|k=v,...", M(BENCH), G_BENCH, TEXT, AT(shape), 0, 0, NULL, "a random model: 1.1b, 1b, 8b or dim=..,layers=..,heads=..,kv_heads=..,ffn=..,vocab=.."},
    {"--type", "TYPE", M(BENCH), G_BENCH, TEXT, AT(type), 0, 0, "Q8_0", "type of its matrices"},
    {"-s --seed", "N", M(BENCH), G_BENCH, SEED, AT(sampling.seed), 0, 0, "-1", "seed of its weights; -1: 1"},
    {"--save", "FILE", M(BENCH), G_BENCH, TEXT, AT(save), 0, 0, NULL, "write the random model as GGUF"},
    {"-o --output", "table|json|csv|md", M(BENCH), G_BENCH, CHOICE, AT(output), 0, 0, "table", "format of the results"},
    {"--roofline", NULL, M(BENCH), G_BENCH, FLAG, AT(roofline), 0, 0, NULL, "measure this machine's ceilings and store them"},

    {"-v --verbose", NULL, PROMPT | ANSWER | M(LOGITS) | M(PERPLEXITY), G_LOOK, FLAG, AT(verbose), 0, 0, NULL, "say on stderr what was done and how fast"},
    {"-q --quiet", NULL, COMPUTE, G_LOOK, FLAG, AT(quiet), 0, 0, NULL, "errors alone on stderr: no notes, no progress"},
    {"--color -co", "auto|always|never", ANSWER, G_LOOK, COLOR, AT(color), 0, 0, "auto", "colour of the chat's prompt and of thoughts (NO_COLOR is honoured)"},
    {"--markdown", "on|off|auto", M(RUN) | M(DECODE), G_LOOK, CHOICE, AT(markdown), 0, 0, "auto", "show bold, lists, headings and code of a chat model's answer on a terminal; auto: where it has colour"},
    {"--echo", NULL, M(RUN), G_LOOK, FLAG, AT(echo), 0, 0, NULL, "print the prompt before the answer"},
    {"--no-newline", NULL, M(RUN) | M(DECODE), G_LOOK, FLAG, AT(no_newline), 0, 0, NULL, "no newline behind an answer that does not end in one"},
    {"--no-stream", NULL, M(RUN) | M(DECODE), G_LOOK, FLAG, AT(no_stream), 0, 0, NULL, "write the answer in one piece when it is complete, so that answers of several processes do not mix"},
    {"--special -sp", NULL, ANSWER, G_LOOK, FLAG, AT(special), 0, 0, NULL, "print control tokens too"},
    {"--json", NULL, M(RUN) | M(DECODE) | M(INSPECT) | M(PERPLEXITY), G_LOOK, FLAG, AT(json), 0, 0, NULL, "one JSON object instead of text"},
    {"--jsonl", NULL, M(RUN) | M(DECODE), G_LOOK, FLAG, AT(jsonl), 0, 0, NULL, "one JSON object a token as it comes, then the same object"},
    {"--logprobs", "N", ANSWER, G_LOOK, INT, AT(logprobs), 0, 1000, NULL, "log-probabilities of each token and the N likeliest, in JSON"},
    {"--dump-prompt", NULL, PROMPT, G_LOOK, FLAG, AT(dump_prompt), 0, 0, NULL, "show the rendered prompt on stderr"},
    {"--dump-tokens", NULL, PROMPT, G_LOOK, FLAG, AT(dump_tokens), 0, 0, NULL, "show the prompt's tokens on stderr"},
    {"--dry-run", NULL, M(RUN) | M(BATCH), G_LOOK, FLAG, AT(dry_run), 0, 0, NULL, "show the memory budget on stderr and stop"},
    {"--preset", "NAME", EVERY, G_CONFIG, TEXT, AT(preset), 0, 0, NULL, "the options of section [NAME] of the config file"},
    {"--no-config", NULL, EVERY, G_CONFIG, FLAG, AT(no_config), 0, 0, NULL, "do not read the configuration file"},
    {"--show-config", NULL, EVERY, G_CONFIG, FLAG, AT(show_config), 0, 0, NULL, "print the options that apply, where each comes from, and stop"},
    {"-h --help", NULL, EVERY, G_LOOK, HELP, 0, 0, 0, NULL, "-h: the common options; --help: all of them"},
    {"--version", NULL, EVERY, G_LOOK, VERSION, 0, 0, 0, NULL, "version, compiler, kernels, built-in model"},
    {"--man", NULL, M(RUN), G_LOOK, MAN, 0, 0, 0, NULL, "the man page: quill --man | man -l -"},
    {"--completions", "bash|zsh|fish", M(RUN), G_LOOK, COMPLETIONS, 0, 0, 0, NULL, "a script that has the shell complete these options"},
};
// clang-format on
const int cli_n_options = ARRAY_LEN(cli_options);

const char *const cli_modes[N_MODES] = {
    [MODE_RUN] = "",
    [MODE_BENCH] = "bench",
    [MODE_PERPLEXITY] = "perplexity",
    [MODE_INSPECT] = "inspect",
    [MODE_TOKENIZE] = "tokenize",
    [MODE_LOGITS] = "logits",
    [MODE_BATCH] = "batch",
    [MODE_PREFILL] = "prefill",
    [MODE_DECODE] = "decode",
    [MODE_KV] = "kv",
    [MODE_TEMPLATE] = "template",
};

const char *cli_mode_name(Mode m) { return m == MODE_RUN ? "quill" : cli_modes[m]; }

// ---- looking up -----------------------------------------------------------------------------------------------------

const char *cli_next_name(const char *names, char name[32]) {
    while (*names == ' ') names++;
    if (!*names) return NULL;
    size_t n = strcspn(names, " ");
    snprintf(name, 32, "%.*s", (int)n, names);
    return names + n;
}

static bool has_name(const Option *o, const char *flag) {
    char name[32];
    for (const char *at = o->names; (at = cli_next_name(at, name));)
        if (strcmp(name, flag) == 0) return true;
    return false;
}

const Option *cli_find(const char *flag, unsigned modes) {
    for (int i = 0; i < cli_n_options; i++)
        if (cli_options[i].modes & modes && has_name(&cli_options[i], flag)) return &cli_options[i];
    return NULL;
}

// The flag without its =value, `_` turned into `-` in long names.
static void flag_name(const char *arg, char name[64]) {
    size_t n = strcspn(arg, "=");
    if (n > 63) n = 63;
    memcpy(name, arg, n);
    name[n] = 0;
    if (arg[0] == '-' && arg[1] == '-')
        for (size_t i = 2; i < n; i++)
            if (name[i] == '_') name[i] = '-';
}

static Status unknown_flag(const char *flag, Mode m) {
    if (cli_find(flag, EVERY)) {
        Buf where = {0};
        for (int other = 0; other < N_MODES; other++)
            if (cli_find(flag, 1u << other))
                buf_printf(&where, "%s%s%s", where.n ? ", " : "", other ? "quill " : "", cli_mode_name((Mode)other));
        Status st = status_error(QUILL_USAGE, "%s: not an option of %s%s; it belongs to %s", flag, m ? "quill " : "",
                                 cli_mode_name(m), where.data);
        buf_free(&where);
        return st;
    }
    char meant[32];
    if (cli_meant(flag, m, meant))
        return status_error(QUILL_USAGE, "%s: unknown option; did you mean %s?", flag, meant);
    return status_error(QUILL_USAGE, "%s: unknown option; %s%s -h lists them, and words after -- are taken as they are",
                        flag, m ? "quill " : "", cli_mode_name(m));
}

// ---- values ---------------------------------------------------------------------------------------------------------

// A whole number with an optional k, M or G (1024 each). False: not one, or too large for 64 bits.
static bool parse_whole(const char *s, int64_t *out) {
    const char *digits = s + (*s == '-' || *s == '+');
    if (!isdigit((unsigned char)*digits)) return false;
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno == ERANGE) return false;
    int64_t unit = *end == 'k' || *end == 'K' ? 1024 : *end == 'm' || *end == 'M' ? 1 << 20 : 1;
    if (*end == 'g' || *end == 'G') unit = 1 << 30;
    if (unit > 1) end++;
    return *end == 0 && !__builtin_mul_overflow((int64_t)v, unit, out);
}

// A plain decimal number: no hexadecimal, no inf, no NaN.
static bool parse_real(const char *s, double *out) {
    if (!*s || s[strspn(s, "+-.0123456789eE")]) return false;
    char *end;
    *out = strtod(s, &end);
    return *end == 0 && end != s && isfinite(*out);
}

static Status bad_value(const char *flag, const char *value, const char *allowed) {
    return status_error(QUILL_USAGE, "%s: %s expected, found \"%.200s\"", flag, allowed, value);
}

static Status number_out_of_range(const Option *o, const char *flag, const char *value) {
    char allowed[160];
    const char *kind = o->kind == REAL   ? "a number"
                       : o->kind == SIZE ? "a size (bytes, or with k, M, G)"
                       : o->kind == INTS ? "whole numbers or ranges, as 16,32 or 1-8*2,"
                                         : "a whole number";
    if (o->kind == SIZE) snprintf(allowed, sizeof allowed, "%s", kind);
    else if (o->kind == INT || o->kind == INTS)
        snprintf(allowed, sizeof allowed, "%s from %.0f to %.0f", kind, o->least, o->most);
    else snprintf(allowed, sizeof allowed, "%s from %g to %g", kind, o->least, o->most);
    if (o->fallback)
        snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), " (default %s)", o->fallback);
    return bad_value(flag, value, allowed);
}

// "8", "1-8", "128-512+128" or "1-8*2" of a list, up to *end.
static bool parse_range(const Option *o, const char *s, size_t n, IntList *out) {
    char part[64], *dash, *step;
    int64_t first, last, by = 1;
    if (n >= sizeof part) return false;
    snprintf(part, sizeof part, "%.*s", (int)n, s);
    if ((dash = strchr(part + 1, '-')) != NULL) *dash++ = 0;
    bool times = dash && strchr(dash, '*');
    if (dash && (step = strpbrk(dash, "+*")) != NULL) {
        *step++ = 0;
        if (!parse_whole(step, &by) || by < 1 + times) return false;
    }
    if (!parse_whole(part, &first) || (dash && !parse_whole(dash, &last))) return false;
    if (!dash) last = first;
    if ((double)first < o->least || (double)last > o->most || last < first || (times && first < 1)) return false;
    for (int64_t i = first; i <= last; i = times ? i * by : i + by) {
        if (out->n == ARRAY_LEN(out->at)) return false;
        out->at[out->n++] = (int)i;
    }
    return true;
}

static Status parse_list(const Option *o, const char *flag, const char *value, IntList *out) {
    IntList list = {.n = out->added ? out->n : 0, .added = true};
    memcpy(list.at, out->at, sizeof list.at);
    for (const char *at = value;; at++) {
        size_t n = strcspn(at, ",");
        if (!parse_range(o, at, n, &list)) return number_out_of_range(o, flag, value);
        at += n;
        if (!*at) break;
    }
    *out = list;
    return OK;
}

// One of the words of "a|b|c".
static bool is_choice(const char *choices, const char *value) {
    size_t n = strlen(value);
    for (const char *at = choices;; at++) {
        size_t len = strcspn(at, "|");
        if (len == n && memcmp(at, value, n) == 0) return true;
        at += len;
        if (!*at) return false;
    }
}

static Status parse_kv_type(const Option *o, const char *flag, const char *value, int *out) {
    if (!is_choice(o->arg, value)) return bad_value(flag, value, o->arg);
    const TypeInfo *t = type_by_name(value);
    if (strcmp(value, "fp8") == 0) *out = TYPE_FP8;
    else if (strcmp(value, "kivi2") == 0) *out = TYPE_KIVI2;
    else *out = t ? t->id : KV_TYPE_AUTO;
    return OK;
}

static Status parse_layers(const char *flag, const char *value, int *out) {
    int64_t n;
    if (strcmp(value, "auto") == 0) *out = -1;
    else if (strcmp(value, "all") == 0) *out = INT_MAX;
    else if (parse_whole(value, &n) && n >= -1 && n <= INT_MAX) *out = (int)n;
    else return bad_value(flag, value, "auto, all or a whole number");
    return OK;
}

// ID+B, ID-B, and ID-inf, which forbids a token.
static Status parse_bias(const char *flag, const char *value, SamplerParams *s) {
    char *end;
    errno = 0;
    long id = isdigit((unsigned char)*value) ? strtol(value, &end, 10) : -1;
    double bias = 0;
    bool good = id >= 0 && id <= INT_MAX && errno == 0 && (*end == '+' || *end == '-');
    if (good && strcmp(end, "-inf") == 0) bias = -INFINITY;
    else good = good && parse_real(end, &bias) && fabs(bias) <= 1e6;
    if (!good) return bad_value(flag, value, "a token id and a number with its sign, as 15043+1.5 or 15043-inf,");
    LogitBias *all = mem_resize((void *)s->bias, (size_t)(s->n_bias + 1) * sizeof *all);
    all[s->n_bias++] = (LogitBias){(int)id, (float)bias};
    s->bias = all;
    return OK;
}

static Status parse_seed(const char *flag, const char *value, Options *out) {
    char *end;
    errno = 0;
    out->seed_given = strcmp(value, "-1") != 0;
    if (!out->seed_given) return OK;
    long long v = isdigit((unsigned char)*value) ? strtoll(value, &end, 10) : -1;
    if (v < 0 || *end || errno == ERANGE) // more than that has no place in a JSON integer
        return bad_value(flag, value, "a whole number from 0 to 9223372036854775807, or -1 for a random one,");
    out->sampling.seed = (uint64_t)v;
    return OK;
}

static void draw_seed(Options *o) {
    if (getrandom(&o->sampling.seed, sizeof o->sampling.seed, 0) < 0) o->sampling.seed = (uint64_t)(clock_now() * 1e9);
    o->sampling.seed &= 0xffffffff; // short enough to type again
}

static Status parse_stop(const char *flag, const char *value, Options *out) {
    if (!*value) return bad_value(flag, value, "a text of at least one byte");
    out->stop = mem_resize(out->stop, (size_t)(out->n_stop + 1) * sizeof *out->stop);
    out->stop[out->n_stop++] = value;
    return OK;
}

// DIR, or DIR,size=N.
static Status parse_store(const Option *o, const char *flag, const char *value, Options *out) {
    static const char key[] = ",size=";
    const char *comma = strrchr(value, ',');
    bool sized = comma && strncmp(comma, key, strlen(key)) == 0;
    int64_t size = 8ll << 30;
    if (sized && (!parse_whole(comma + strlen(key), &size) || size < 1 || (double)size > o->most))
        return bad_value(flag, value, "a directory and a size from 1, as cache,size=8G,");
    size_t n = sized ? (size_t)(comma - value) : strlen(value);
    if (n == 0) return bad_value(flag, value, "a directory");
    free((void *)out->kv_dir);
    out->kv_dir = mem_copy(value, n);
    out->kv_dir_size = (size_t)size;
    return OK;
}

static void add_part(Options *out, int at, PromptPart part) {
    out->parts = mem_resize(out->parts, (size_t)(out->n_parts + 1) * sizeof *out->parts);
    memmove(out->parts + at + 1, out->parts + at, (size_t)(out->n_parts++ - at) * sizeof *out->parts);
    out->parts[at] = part;
}

Status cli_add_part(const Option *o, const char *value, int at, Options *out) {
    bool file = o->kind == PROMPT_FILE;
    add_part(out, at, (PromptPart){file ? NULL : mem_copy(value, strlen(value)), file ? value : NULL});
    return OK;
}

void cli_keep(Options *o, char *text) {
    o->kept = mem_resize(o->kept, (size_t)(o->n_kept + 1) * sizeof *o->kept);
    o->kept[o->n_kept++] = text;
}

static Status set_input(const char *flag, const char *value, const char **at) {
    if (*at)
        return status_error(QUILL_USAGE, "%s: one file expected, found \"%.200s\" and \"%.200s\"", flag, *at, value);
    *at = value;
    return OK;
}

// Puts `value` where the row says. `flag` is what the user wrote, for messages.
static Status set_value(const Option *o, const char *flag, const char *value, Options *out) {
    void *at = (char *)out + o->at;
    int64_t n;
    double x;
    switch (o->kind) {
    case FLAG: *(bool *)at = true; return OK;
    case INT:
        if (!parse_whole(value, &n) || (double)n < o->least || (double)n > o->most)
            return number_out_of_range(o, flag, value);
        *(int *)at = (int)n;
        return OK;
    case INTS: return parse_list(o, flag, value, at);
    case SIZE:
        if (!parse_whole(value, &n) || (double)n < o->least || (double)n > o->most)
            return number_out_of_range(o, flag, value);
        *(size_t *)at = (size_t)n;
        return OK;
    case REAL:
        if (!parse_real(value, &x) || x < o->least || x > o->most) return number_out_of_range(o, flag, value);
        *(float *)at = (float)x;
        return OK;
    case TEXT: *(const char **)at = value; return OK;
    case INPUT: return set_input(flag, value, at);
    case PROMPT_TEXT:
    case PROMPT_FILE: return cli_add_part(o, value, out->n_parts, out);
    case CHOICE:
        if (!is_choice(o->arg, value)) return bad_value(flag, value, o->arg);
        *(const char **)at = value;
        return OK;
    case COLOR:
        if (!is_choice("on|off", value) && !is_choice(o->arg, value)) return bad_value(flag, value, o->arg);
        *(const char **)at = strcmp(value, "on") == 0 ? "always" : strcmp(value, "off") == 0 ? "never" : value;
        return OK;
    case LAYOUT:
        if (!is_choice(o->arg, value)) return bad_value(flag, value, o->arg);
        *(bool *)at = strcmp(value, "paged") == 0;
        return OK;
    case STOPS: return parse_stop(flag, value, out);
    case BIAS: return parse_bias(flag, value, &out->sampling);
    case SEED: return parse_seed(flag, value, out);
    case KVTYPE: return parse_kv_type(o, flag, value, at);
    case LAYERS: return parse_layers(flag, value, at);
    case STORE: return parse_store(o, flag, value, out);
    default: return OK;
    }
}

// ---- what a chat may set while it runs -----------------------------------------------------------------------------

bool cli_settable(const Option *o) {
    bool fixed = o->at == AT(ctx_size); // the KV cache has its size
    bool length = o->group == G_LENGTH || o->at == AT(context_shift);
    return o->modes & M(RUN) && !fixed && (length || o->group == G_SAMPLING);
}

void cli_long_name(const Option *o, char name[32]) {
    const char *at = cli_next_name(o->names, name);
    if (name[1] != '-') cli_next_name(at, name);
    memmove(name, name + 2, strlen(name + 2) + 1);
}

// As parse_kv_type reads it.
static void add_kv_type(int type, Buf *out) {
    const char *name = type == KV_TYPE_AUTO ? "auto"
                       : type == TYPE_FP8   ? "fp8"
                       : type == TYPE_KIVI2 ? "kivi2"
                                            : type_name(type);
    for (; *name; name++) buf_append(out, &(char){(char)tolower((unsigned char)*name)}, 1);
}

void cli_value(const Option *o, const Options *values, Buf *out) {
    const void *at = (const char *)values + o->at;
    const SamplerParams *s = &values->sampling;
    switch (o->kind) {
    case FLAG: buf_str(out, *(const bool *)at ? "on" : "off"); break;
    case INT: buf_printf(out, "%d", *(const int *)at); break;
    case INTS:
        for (int i = 0; i < ((const IntList *)at)->n; i++)
            buf_printf(out, "%s%d", i ? "," : "", ((const IntList *)at)->at[i]);
        break;
    case REAL: buf_printf(out, "%g", (double)*(const float *)at); break;
    case SIZE: buf_printf(out, "%zu", *(const size_t *)at); break;
    case TEXT:
    case INPUT:
    case COLOR:
    case CHOICE: buf_str(out, *(const char *const *)at ? *(const char *const *)at : ""); break;
    case KVTYPE: add_kv_type(*(const int *)at, out); break;
    case LAYOUT: buf_str(out, *(const bool *)at ? "paged" : "contiguous"); break;
    case LAYERS:
        if (*(const int *)at < 0 || *(const int *)at == INT_MAX) buf_str(out, *(const int *)at < 0 ? "auto" : "all");
        else buf_printf(out, "%d", *(const int *)at);
        break;
    case STORE: buf_printf(out, "%s,size=%zu", values->kv_dir, values->kv_dir_size); break;
    case SEED:
        if (values->seed_given) buf_printf(out, "%llu", (unsigned long long)s->seed);
        else buf_str(out, "-1");
        break;
    case STOPS:
        for (int i = 0; i < values->n_stop; i++) {
            buf_str(out, i ? " \"" : "\"");
            utf8_escape(out, values->stop[i], strlen(values->stop[i]));
            buf_str(out, "\"");
        }
        break;
    case BIAS:
        for (int i = 0; i < s->n_bias; i++)
            buf_printf(out, "%s%d%+g", i ? " " : "", s->bias[i].id, (double)s->bias[i].bias);
        break;
    default: break; // of another kind nothing is shown
    }
    if (!out->n) buf_str(out, "none");
}

static Status set_default(const Option *o, const char *name, Options *out) {
    if (o->kind == STOPS) out->n_stop = 0;
    else if (o->kind == BIAS) out->sampling.n_bias = 0;
    else if (o->kind == FLAG) *(bool *)((char *)out + o->at) = false;
    else return set_value(o, name, o->fallback, out);
    return OK;
}

static const Option *find_settable(const char *name, Mode m) {
    char flag[40];
    snprintf(flag, sizeof flag, "--%.32s", name);
    for (char *at = flag + 2; *at; at++)
        if (*at == '_') *at = '-';
    return cli_find(flag, 1u << m);
}

Status cli_set_option(const Option *o, const char *name, const char *value, Options *out) {
    if (strcmp(value, "default") == 0) TRY(set_default(o, name, out));
    else if (o->kind == FLAG && strcmp(value, "off") == 0) TRY(set_default(o, name, out));
    else if (o->kind == FLAG && strcmp(value, "on") != 0) return bad_value(name, value, "on or off");
    else TRY(set_value(o, name, value, out));
    if (o->kind == SEED && !out->seed_given) draw_seed(out);
    return OK;
}

const Option *cli_job_option(const char *name) {
    const Option *o = find_settable(name, MODE_BATCH);
    return o && cli_settable(o) ? o : NULL;
}

bool cli_chat_settable(const Option *o) {
    bool look = o->modes & M(RUN) && (o->at == AT(verbose) || o->at == AT(markdown));
    return look || cli_settable(o);
}

Status cli_chat_option(const char *name, const char *value, const Option **out) {
    char flag[40];
    snprintf(flag, sizeof flag, "-%.32s", name);
    const Option *o = find_settable(name, MODE_RUN);
    if (!o) o = cli_find(flag, 1u << MODE_RUN);
    *out = o;
    if (o && o->at == AT(ctx_size))
        return status_error(QUILL_USAGE, "%s: is fixed once the model is open; start again with -c %.40s", name,
                            *value ? value : "N");
    if (o && cli_chat_settable(o)) return OK;
    Nearest nearest = {.word = name};
    char known[32];
    for (int i = 0; i < cli_n_options; i++) {
        if (!cli_chat_settable(&cli_options[i])) continue;
        cli_long_name(&cli_options[i], known);
        nearest_try(&nearest, known);
    }
    const char *meant = nearest_found(&nearest);
    return status_error(QUILL_USAGE, "%.100s: nothing that can be set%s%s; /set lists what can", name,
                        meant ? "; did you mean " : "", meant ? meant : "");
}

Status cli_set(Options *out, const char *name, const char *value) {
    const Option *o;
    TRY(cli_chat_option(name, value, &o));
    return cli_set_option(o, name, value, out);
}

// ---- the arguments --------------------------------------------------------------------------------------------------

typedef struct {
    int argc, next;
    char **argv;
    bool words_only; // after --
    bool goes_on;    // words here go on with the text of the -p before them
    Buf notes;       // for stderr, unless -q comes
    Origin *origins; // (cli_n_options) who has given each option its value
    Buf words;       // joined by single spaces
    const char **word;
    int n_words;
} Args;

// What a flag prints instead of a run. False: it asks for nothing of the kind.
static bool print_instead(const Option *o, const char *flag, Mode m, const char *value) {
    switch (o->kind) {
    case HELP:
        if (flag[1] == '-') cli_help(m);
        else cli_short_help(m);
        return true;
    case VERSION: cli_version(); return true;
    case MAN: cli_man(); return true;
    case COMPLETIONS: cli_completions(value); return true;
    default: return false;
    }
}

// The value of --color may be missing: that is auto.
static Status parse_color(Args *a, Options *out, const Option *o) {
    const char *next = a->next < a->argc ? a->argv[a->next] : "";
    bool value = is_choice("on|off", next) || is_choice(o->arg, next);
    a->next += value;
    a->goes_on = false;
    a->origins[o - cli_options].by = BY_FLAG;
    return set_value(o, "--color", value ? next : "auto", out);
}

// An option of llama-cli's that quill has not: what it means here, and a note where that is not the same.
static Status parse_theirs(Args *a, Options *out, const LlamaOption *l, const char *flag, const char *value) {
    const char *next = a->next < a->argc ? a->argv[a->next] : NULL;
    bool takes = l->value == LLAMA_VALUE || (l->value == LLAMA_SWITCH && next && is_choice("on|off|auto|0|1", next));
    if (!value && l->value == LLAMA_VALUE && !next)
        return status_error(QUILL_USAGE, "%s: needs a value, found the end of the line", flag);
    if (!value && takes) value = next, a->next++;
    LlamaMeaning means = llama_meaning(l, value ? value : "");
    a->goes_on = false;
    if (means.refused) return status_error(QUILL_USAGE, "%s: %s", flag, means.refused);
    if (means.note) buf_printf(&a->notes, "quill: note: %s: %s\n", flag, means.note);
    if (!means.flag) return OK;
    const Option *o = cli_find(means.flag, 1u << out->mode);
    if (!o) return OK; // of no use in this mode
    a->origins[o - cli_options].by = BY_FLAG;
    return set_value(o, flag, means.value, out);
}

// One flag with its value. *stop: it has printed what it was for, as --help does.
static Status parse_flag(Args *a, Options *out, bool *stop) {
    const char *arg = a->argv[a->next++], *equals = strchr(arg, '=');
    char flag[64];
    flag_name(arg, flag);
    const Option *o = cli_find(flag, 1u << out->mode);
    const LlamaOption *theirs = o ? NULL : llama_find(flag);
    if (theirs) return parse_theirs(a, out, theirs, flag, equals ? equals + 1 : NULL);
    if (!o) return unknown_flag(flag, out->mode);
    if (o->kind == COLOR && !equals) return parse_color(a, out, o);
    bool off = o->kind == FLAG && equals && strcmp(equals, "=off") == 0; // over the configuration
    if (!o->arg && equals && !off && (o->kind != FLAG || strcmp(equals, "=on") != 0))
        return status_error(QUILL_USAGE, "%s: takes no value but on and off, found \"%.200s\"", flag, equals + 1);
    const char *value = equals ? equals + 1 : NULL;
    if (o->arg && !value) {
        if (a->next == a->argc)
            return status_error(QUILL_USAGE, "%s: needs a value (%s), found the end of the line", flag, o->arg);
        value = a->argv[a->next++];
        char name[64];
        flag_name(value, name);
        if (value[0] == '-' && cli_find(name, 1u << out->mode))
            return status_error(QUILL_USAGE, "%s: needs a value (%s), found the option %s; %s=%s if that is the value",
                                flag, o->arg, name, flag, value);
    }
    if (o->kind == COMPLETIONS && !is_choice(o->arg, value)) return bad_value(flag, value, o->arg);
    a->goes_on = o->kind == PROMPT_TEXT;
    a->origins[o - cli_options].by = BY_FLAG;
    if (off) return set_default(o, flag, out);
    *stop = print_instead(o, flag, out->mode, value);
    return *stop ? OK : set_value(o, flag, value, out);
}

static void extend(PromptPart *part, const char *word) {
    Buf text = {0};
    buf_printf(&text, "%s %s", part->text, word);
    free(part->text);
    part->text = text.data;
}

static void add_word(Args *a, const char *word, Options *out) {
    if (a->goes_on) { // quill -p Tell me a story
        extend(&out->parts[out->n_parts - 1], word);
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
        bool in = strcmp(arg, "-") == 0 && TEXT_IN & 1u << out->mode;
        if (in && !a->words_only) {
            add_part(out, out->n_parts, (PromptPart){.file = arg});
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

static void choose_mode(Args *a, Options *out) {
    const char *first = a->argc > 1 ? a->argv[1] : "";
    for (int m = MODE_RUN + 1; m < N_MODES; m++)
        if (strcmp(first, cli_modes[m]) == 0) {
            out->mode = (Mode)m;
            a->next = 2;
        }
}

static Status set_defaults(Options *out) {
    out->sampling = sampler_defaults();
    out->logprobs = -1;
    for (int i = 0; i < cli_n_options; i++) {
        const Option *o = &cli_options[i];
        if (o->fallback) TRY(set_value(o, o->names, o->fallback, out));
        if (o->kind == INTS) ((IntList *)((char *)out + o->at))->added = false;
    }
    return OK;
}

// Whose origin a row's value has: the row that has this flag in the mode at hand; NULL: none has.
static Origin *origin_of(const Args *a, const char *flag, const Options *o) {
    const Option *row = cli_find(flag, 1u << o->mode);
    return row ? &a->origins[row - cli_options] : NULL;
}

// The environment, for what no flag has said.
static Status from_environment(const Args *a, Options *out) {
    const char *model = getenv("QUILL_MODEL"), *device = getenv("QUILL_DEVICE");
    Origin *of_model = origin_of(a, "--model", out), *of_device = origin_of(a, "--device", out);
    bool bare = out->mode == MODE_TEMPLATE && (out->chat_template || out->chat_template_file); // needs no model
    if (of_model && out->model) of_model->by = BY_FLAG;                                        // or a word
    else if (of_model && model && *model && !bare) {
        out->model = model;
        of_model->by = BY_ENVIRONMENT;
    }
    bool flagged = !of_device || of_device->by == BY_FLAG || out->gpu_layers > 0; // layers for a GPU say where, too
    if (flagged || !device || !*device) return OK;
    of_device->by = BY_ENVIRONMENT;
    return set_value(cli_find("--device", 1u << out->mode), "QUILL_DEVICE", device, out);
}

// The one word of a mode that takes a file, in *at, where no flag has named one.
static Status place_file(const Args *a, Mode m, const char *what, const char *flag, const char **at) {
    if (a->n_words > 1 || (a->n_words && *at))
        return status_error(QUILL_USAGE, "quill %s: one %s expected, found \"%.200s\"%s%s%.200s", cli_mode_name(m),
                            what, a->words.data, *at ? " and " : "", *at ? flag : "", *at ? *at : "");
    if (a->n_words) *at = a->word[0];
    if (m == MODE_DECODE && a->n_words && strcmp(*at, "builtin") != 0 && access(*at, F_OK) != 0)
        return status_error(QUILL_USAGE,
                            "quill decode: \"%.200s\": a model file expected, no such file found; decode answers the "
                            "prompt that is in the KV file, so a question belongs into quill prefill's prompt; or ask "
                            "with quill --kv-dir DIR -f TEXT \"question\", which keeps the text's KV cache",
                            *at);
    return OK;
}

// The words are the beginning of the prompt; in `kv` what to do and the files; where no text is read a file's path.
static Status place_words(Args *a, Options *out) {
    if (out->mode == MODE_KV) {
        out->words = a->word;
        out->n_words = a->n_words;
        a->word = NULL;
        return OK;
    }
    if (out->mode == MODE_BATCH) return place_file(a, out->mode, "file of jobs", "-f ", &out->file);
    if (!(TEXT_IN & 1u << out->mode)) return place_file(a, out->mode, "model", "-m ", &out->model);
    if (a->n_words) add_part(out, 0, (PromptPart){.text = mem_copy(a->words.data, a->words.n)});
    return OK;
}

static bool names_stdin(const Options *o) {
    for (int i = 0; i < o->n_parts; i++)
        if (o->parts[i].file && strcmp(o->parts[i].file, "-") == 0) return true;
    return false;
}

// What no single row can see.
static Status check_together(const Options *o) {
    if (o->raw && o->chat) return status_error(QUILL_USAGE, "--raw and --chat: one of them expected, found both");
    if (o->system && o->system_file)
        return status_error(QUILL_USAGE, "-sys and -sysf: one of them expected, found both");
    if (o->raw && (o->system || o->system_file))
        return status_error(QUILL_USAGE,
                            "-sys: raw text has no system message; put it into the prompt, or leave --raw out");
    if (o->chat_template && o->chat_template_file)
        return status_error(QUILL_USAGE, "--chat-template and --chat-template-file: one of them expected, found both");
    if (o->raw && (o->chat_template || o->chat_template_file))
        return status_error(QUILL_USAGE, "--raw and --chat-template: one of them expected, found both");
    if (o->verbose && o->quiet) return status_error(QUILL_USAGE, "-v and -q: one of them expected, found both");
    if (o->mode == MODE_RUN && o->logprobs >= 0 && !o->json && !o->jsonl)
        return status_error(QUILL_USAGE, "--logprobs: is printed in JSON alone; add --json or --jsonl");
    if (o->interactive && (o->json || o->jsonl))
        return status_error(QUILL_USAGE,
                            "-i: a chat has no JSON form; leave --json out, or give one prompt without -i");
    if (o->no_stdin && names_stdin(o))
        return status_error(QUILL_USAGE, "--no-stdin and -f -: one of them expected, found both");
    if (o->interactive && names_stdin(o))
        return status_error(QUILL_USAGE,
                            "-i and -f -: one of them expected, found both; a chat's lines come from stdin");
    if (o->mode == MODE_LOGITS && o->tokens && o->n_parts)
        return status_error(QUILL_USAGE, "--tokens: ids or text expected, found both");
    if (o->mode == MODE_PREFILL && !o->kv_out)
        return status_error(QUILL_USAGE, "quill prefill: --kv-out FILE expected, found nothing; - is stdout");
    if (o->mode == MODE_DECODE && !o->kv_in)
        return status_error(QUILL_USAGE, "quill decode: --kv-in FILE expected, found nothing; - is stdin");
    bool bare = o->mode == MODE_BENCH || o->mode == MODE_KV || o->chat_template || o->chat_template_file;
    if (!o->model && !builtin_there() && !(bare && o->mode != MODE_RUN))
        return status_error(QUILL_USAGE,
                            "no model: give one with -m FILE or set QUILL_MODEL; %s%s -h shows all options",
                            o->mode ? "quill " : "", cli_mode_name(o->mode));
    return OK;
}

// What no argument has said, from the environment and the configuration.
static Status from_elsewhere(const Args *a, Options *o) {
    TRY(from_environment(a, o));
    TRY(config_apply(o, a->origins));
    const Origin *model = origin_of(a, "--model", o), *shift = origin_of(a, "--context-shift", o);
    if (model && o->model && model->by != BY_FLAG && model->by != BY_DEFAULT) {
        Buf from = {0};
        config_origin(cli_find("--model", 1u << o->mode), model, &from);
        cli_keep(o, from.data);
        o->model_from = from.data;
    }
    o->shift_is_usual = shift && shift->by != BY_FLAG;
    return OK;
}

Status cli_parse(int argc, char **argv, Options *o, bool *stop) {
    *o = (Options){0};
    *stop = false;
    Args a = {.argc = argc, .argv = argv, .next = 1};
    a.origins = mem_alloc((size_t)cli_n_options * sizeof *a.origins);
    choose_mode(&a, o);
    Status st = set_defaults(o);
    if (!st.code) st = parse_args(&a, o, stop);
    if (!st.code && !*stop) st = place_words(&a, o);
    if (!st.code && !*stop) st = from_elsewhere(&a, o);
    if (!st.code && !*stop && o->show_config) {
        config_show(o, a.origins);
        *stop = true;
    }
    if (!st.code && !*stop) st = check_together(o);
    if (!st.code && !*stop && o->mode == MODE_RUN && argc > 1) cli_hint(argv[1], a.n_words, a.word, &a.notes);
    if (!st.code && !*stop && !o->quiet && a.notes.n) fputs(a.notes.data, stderr);
    if (o->threads < 0) o->threads = 0;
    if (!o->seed_given) draw_seed(o);
    buf_free(&a.words);
    buf_free(&a.notes);
    free(a.word);
    free(a.origins);
    return st;
}

void cli_free(Options *o) {
    for (int i = 0; i < o->n_parts; i++) free(o->parts[i].text);
    free(o->parts);
    free((void *)o->sampling.bias);
    free(o->stop);
    free((void *)o->kv_dir);
    free(o->words);
    for (int i = 0; i < o->n_kept; i++) free(o->kept[i]);
    free(o->kept);
    *o = (Options){0};
}
