// cli/help.c: see cli/help.h.
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "base/paragraph.h"
#include "cpu/backend.h"
#include "files/builtin.h"
#include "gpu/cuda.h"

enum { HELP_COLUMN = 26, SHORT_COLUMN = 31 };

const char *const cli_groups[N_GROUPS] = {
    [G_MODEL] = "Model",
    [G_PROMPT] = "Prompt",
    [G_LENGTH] = "Length",
    [G_SAMPLING] = "Sampling (a model's file may have other defaults)",
    [G_SPEED] = "Speed",
    [G_KV] = "KV cache",
    [G_BATCH] = "Batch",
    [G_BENCH] = "Benchmark",
    [G_FORM] = "Form of the answer",
    [G_LOOK] = "Look",
    [G_CONFIG] = "Configuration",
    [G_QUANTIZE] = "Quantization",
    [G_SEARCH] = "Several candidates",
};

const ExitCode cli_exit_codes[] = {
    {"0", "done"},
    {"1", "internal error; kv diff: the files differ"},
    {"2", "usage"},
    {"3", "model or device unusable"},
    {"4", "out of memory"},
    {"5", "prompt longer than the context"},
    {"6", "I/O"},
    {"7", "answer cut before it was complete, or nothing for --extract"},
    {"129", "interrupted by SIGHUP"},
    {"130", "interrupted by SIGINT"},
    {"143", "interrupted by SIGTERM"},
};
const int cli_n_exit_codes = ARRAY_LEN(cli_exit_codes);

const About cli_about[N_MODES] = {
    [MODE_RUN] = {"quill [options] [PROMPT...]",
                  "Runs a language model: one answer to a prompt, or a chat on a terminal.\n"
                  "Words, -p, -f and a pipe on stdin are the prompt. stdout carries the answer and\n"
                  "nothing else.",
                  "  quill --raw \"Once upon a time\"\n"
                  "  git diff | quill -m qwen3.gguf \"Write a commit message\"\n"
                  "  quill -m qwen3.gguf --json --temp 0 \"Why is the sky blue?\" | jq -r .text\n"
                  "  quill -m qwen3.gguf -f letter.txt -p \"What does he want?\"\n",
                  "-m -f -sys --raw -n -c --temp --seed --json -i -t --preset -v -q"},
    [MODE_BENCH] = {"quill bench [options] [MODEL]", "Measures how fast a model runs here once it is warm.",
                    "  quill bench -m model.gguf -p 512 -n 64\n"
                    "  quill bench --shape 1.1b --type Q4_K -o json\n"
                    "  quill bench -m model.gguf -p 128,512 -t 1,2\n"
                    "  quill bench --roofline\n",
                    "-m -p -n -d -t -r --sequences --shape --type -o -ngl -ctk -ctv"},
    [MODE_PERPLEXITY] = {"quill perplexity [options] [-f FILE]",
                         "Measures how well a model predicts a text. The text is cut into chunks (-c),\n"
                         "each preceded by the beginning token if the model uses one; every token but the\n"
                         "first of a chunk is scored. With --evict the whole text is one chunk, -c is the\n"
                         "number of slots in the cache, and snapkv takes half of a chunk for the prompt.",
                         "  quill perplexity -m model.gguf -f wiki.test.raw -c 512\n"
                         "  quill perplexity -m model.gguf -f text -ctk q4_0 -ctv q4_0 --kv-error\n"
                         "  quill perplexity -m model.gguf -f text -c 2k --evict sinks --json | jq .curve\n"
                         "  quill perplexity -m model.gguf -f text --kl-base logits\n"
                         "  quill perplexity -m model.gguf -f text --kl logits\n",
                         "-m -f -c -ctk -ctv --evict --json -t -v"},
    [MODE_INSPECT] = {"quill inspect [options] [MODEL]",
                      "Shows the contents of a model file and the cost of running it.",
                      "  quill inspect model.gguf\n  quill inspect --json model.gguf | jq .config\n",
                      "-m --json --check-tensors"},
    [MODE_TOKENIZE] =
        {"quill tokenize [options] [TEXT...]", "Shows the tokens of a text, one per line, with id and piece.",
         "  quill tokenize -m model.gguf \"Hello world\"\n  quill tokenize -m model.gguf --ids -f text.txt\n",
         "-m -p -f --ids --no-bos --parse-special"},
    [MODE_TEMPLATE] = {"quill template [options] [MODEL] <MESSAGES.json",
                       "Renders a conversation with a chat template. The input is a JSON array of\n"
                       "messages, or an object with \"messages\", \"tools\" and other variables.",
                       "  echo '[{\"role\":\"user\",\"content\":\"hi\"}]' | quill template -m model.gguf\n"
                       "  quill template --chat-template-file t.jinja --bos \"<s>\" <messages.json\n",
                       "-m -f --chat-template --chat-template-file --no-generation-prompt --think"},
    [MODE_QUANTIZE] = {"quill quantize [options] IN OUT TYPE",
                       "Writes a model with smaller weights. IN is any model that quill reads, OUT a\n"
                       "GGUF file, TYPE a type for all matrices (Q8_0, Q5_K, Q4_0, F16, ...) or a mix\n"
                       "of types (Q4_K_M, Q5_K_M, ...). A wrong TYPE lists them all. IQ1, IQ2 and IQ3\n"
                       "cannot be written. Metadata, tokenizer and chat template are kept.",
                       "  quill quantize model.gguf small.gguf Q4_K_M\n"
                       "  quill quantize model.gguf small.gguf Q5_0 --tensor 'output.weight=Q8_0'\n"
                       "  quill quantize --dry-run model.gguf small.gguf Q3_K_M\n",
                       "--tensor --imatrix --prune --prune-by --dry-run -t -q"},
    [MODE_PULL] = {"quill pull [options] USER/REPO[:TYPE]",
                   "Fetches a model from the Hugging Face Hub into the cache that other tools share,\n"
                   "and prints its path. TYPE is one of the repository's GGUF types, a file, or\n"
                   "safetensors; without it Q4_K_M, else Q8_0, else safetensors. An interrupted\n"
                   "transfer continues at the next call. HF_TOKEN gives access to private models.",
                   "  quill pull Qwen/Qwen3-0.6B-GGUF\n"
                   "  quill pull Qwen/Qwen3-8B-GGUF:Q5_K_M\n",
                   "--offline -q"},
    [MODE_MODELS] = {"quill models [options] [rm NAME...]",
                     "Lists the models in the Hugging Face cache; rm removes models, after a question.\n"
                     "-m accepts the names, and user/repo alone if only one model matches.",
                     "  quill models\n"
                     "  quill models rm -y Qwen/Qwen3-0.6B-GGUF\n",
                     "--json --names -y"},
    [MODE_BATCH] = {"quill batch [options] [FILE]",
                    "Answers many prompts at once. Jobs are read from FILE or stdin while others run;\n"
                    "an answer is written as soon as it is complete. Jobs and answers are JSON\n"
                    "objects, one per line. A job is {\"id\",\"prompt\"} or {\"id\",\"messages\"}, with any\n"
                    "option of length and sampling as a key, or a line of an OpenAI batch file.",
                    "  echo '{\"id\":1,\"prompt\":\"Once upon a time\",\"max_tokens\":50}' | quill batch\n"
                    "  quill batch -m model.gguf --keep-order jobs.jsonl >out.jsonl\n"
                    "  quill batch -m model.gguf --resume out.jsonl jobs.jsonl\n"
                    "  quill batch --rate 4 --slo ttft=500,tpot=50 -v jobs.jsonl >out.jsonl\n",
                    "-m -n --temp --seed --keep-order --resume -np --kv-dir -v -q"},
    [MODE_LOGITS] = {"quill logits [options] --tokens ID,ID,... > FILE",
                     "Writes the logits after every token to stdout. They are raw float32, (n_tokens,\n"
                     "n_vocab). -ub sets how many rows are computed at a time.",
                     "  quill logits -m model.gguf --tokens 1,2,3 > logits.f32\n"
                     "  quill logits -m model.gguf -ub 1 -p \"Once upon a time\" > logits.f32\n",
                     "-m --tokens -p -f --no-bos -ub"},
    [MODE_PREFILL] = {"quill prefill [options] --kv-out FILE|- [PROMPT...]",
                      "Computes a prompt and writes its KV cache, chunk by chunk as it is ready.\n"
                      "The prompt is given as for quill itself; quill decode answers it, in another\n"
                      "process or on another machine, with the same model.",
                      "  quill prefill -m model.gguf -f long.txt --kv-out long.kv\n"
                      "  quill prefill -f long.txt --kv-out - | ssh host quill decode --kv-in -\n",
                      "-m -p -f -sys --kv-out -c -ctk -ctv -t -v"},
    [MODE_DECODE] = {"quill decode [options] --kv-in FILE|- [MODEL]",
                     "Answers a prompt that quill prefill has computed. The answer has the same bytes\n"
                     "as that of one process. KV of another model and a damaged or incomplete stream\n"
                     "are refused before anything is printed.",
                     "  quill decode -m model.gguf --kv-in long.kv\n"
                     "  quill decode -m model.gguf --kv-in long.kv --seed 2 --temp 1\n",
                     "-m --kv-in -n -c --temp --seed --json -t -v"},
    [MODE_CHUNK] = {"quill chunk add [options] --kv-dir DIR FILE...",
                    "Computes the KV of texts before they are used. Each file is one text, or is cut\n"
                    "into texts by --chunk-split. quill --chunk FILE with the same --kv-dir loads the\n"
                    "KV (docs/blend.md). Without this mode it is computed on first use.",
                    "  quill chunk add -m model.gguf --kv-dir cache notes.txt rules.txt\n"
                    "  quill -m model.gguf --kv-dir cache --chunk notes.txt \"Who paid?\"\n",
                    "-m --kv-dir --chunk-split -c -ctk -ctv -t -q"},
    [MODE_KV] = {"quill kv info|check|cut|diff|list|remove [options] FILE...",
                 "Examines KV files. info shows their contents, check reads every byte, cut keeps\n"
                 "the first tokens of one, diff shows where two differ and by how much. - is\n"
                 "stdin. All but cut also read files of --kv-dir; list shows the files of such a\n"
                 "directory, remove deletes some of them.",
                 "  quill kv info long.kv\n"
                 "  quill kv cut -n 100 --kv-out short.kv long.kv\n"
                 "  quill kv diff --tolerance 0.01 a.kv b.kv\n"
                 "  quill kv list cache\n",
                 "-n --kv-out --tolerance --json"},
};

enum { NAMES = 128 };

// "  -n, --predict N"
static void print_names(const Option *o, char out[NAMES]) {
    const char *first = o->names, *space = strchr(first, ' ');
    int n_first = space ? (int)(space - first) : (int)strlen(first);
    int at = first[1] == '-' ? snprintf(out, NAMES, "      ") : snprintf(out, NAMES, "  ");
    at += snprintf(out + at, NAMES - (size_t)at, "%.*s", n_first, first);
    if (space && first[1] != '-')
        at += snprintf(out + at, NAMES - (size_t)at, ", %.*s", (int)strcspn(space + 1, " "), space + 1);
    if (o->arg) snprintf(out + at, NAMES - (size_t)at, " %s", o->arg);
}

// Prints a help text in columns from `column` on; the name before it has taken `at` columns.
static void print_wrapped(const char *text, int at, int column) {
    if (at >= column) printf("\n"), at = 0;
    printf("%*s", column - at, "");
    paragraph_print(stdout, text, column, column);
}

// n_help: bytes of the help that are shown; usual: the default, with (default ...) around it.
static void print_text(const Option *o, int n_help, const char *usual, int column) {
    char names[NAMES], help[256];
    print_names(o, names);
    snprintf(help, sizeof help, "%.*s%s", n_help, o->help, usual);
    printf("%s", names);
    print_wrapped(help, (int)strlen(names) + 1 > column ? column : (int)strlen(names), column);
}

static void print_option(const Option *o, int column) {
    char usual[64] = "";
    if (o->fallback) snprintf(usual, sizeof usual, " (default %s)", o->fallback);
    print_text(o, (int)strlen(o->help), usual, column);
}

void cli_brief(Mode m, char brief[256]) {
    const char *what = cli_about[m].what, *end = what;
    while (*end && !(*end == '.' && (end[1] == ' ' || end[1] == '\n'))) end++;
    snprintf(brief, 256, "%.*s", (int)(end - what) - (end[-1] == '.'), what);
    for (char *c = brief; *c; c++)
        if (*c == '\n') *c = ' ';
}

// ---- the short help -------------------------------------------------------------------------------------------------

// The meaning of a default that is a number, which the help text gives after a semicolon: "0 or -1: one for each core".
// NULL: the help does not give it. *n: its length.
static const char *meaning(const Option *o, int *n) {
    const char *at = o->fallback && strspn(o->fallback, "-0123456789.") == strlen(o->fallback) ? o->help : NULL;
    while (at && (at = strstr(at, "; "))) {
        at += 2;
        size_t length = strlen(o->fallback);
        bool this = strncmp(at, o->fallback, length) == 0 && (at[length] == ':' || at[length] == ' ');
        const char *colon = this ? strstr(at, ": ") : NULL;
        if (!colon) continue;
        *n = (int)strcspn(colon + 2, ",;");
        return colon + 2;
    }
    return NULL;
}

// Length of the part of a help text that the short help shows: up to a ; or a bracket. If that is longer than `room`,
// it ends before a list, which a colon begins, or a comma.
static int essence(const Option *o, int room) {
    int n = (int)strcspn(o->help, ";");
    const char *bracket = strstr(o->help, " (");
    if (bracket && bracket - o->help < n) n = (int)(bracket - o->help);
    return n > room && (int)strcspn(o->help, ",") < n ? (int)strcspn(o->help, ",:") : n;
}

static void print_short_option(const Option *o) {
    enum { ROOM = PARAGRAPH_WIDTH - SHORT_COLUMN };
    char usual[64] = "";
    int n = 0;
    const char *means = meaning(o, &n);
    if (means) snprintf(usual, sizeof usual, " (default: %.*s)", n, means);
    if (o->fallback && (!means || essence(o, ROOM - (int)strlen(usual)) + (int)strlen(usual) > ROOM))
        snprintf(usual, sizeof usual, " (default %s)", o->fallback);
    print_text(o, essence(o, ROOM - (int)strlen(usual)), usual, SHORT_COLUMN);
}

static void print_mode_names(void) {
    Buf names = {0};
    buf_str(&names, "Modes:");
    for (int m = MODE_RUN + 1; m < N_MODES; m++) buf_printf(&names, "%s %s", m > 1 ? "," : "", cli_modes[m]);
    buf_str(&names, "; see quill MODE -h.");
    paragraph_print(stdout, names.data, 0, 0);
    buf_free(&names);
}

void cli_short_help(Mode m) {
    char flag[32];
    printf("Usage: %s\n\n%s\n\n%s\nCommon options\n", cli_about[m].usage, cli_about[m].what, cli_about[m].examples);
    for (const char *at = cli_about[m].common; (at = cli_next_name(at, flag));)
        print_short_option(cli_find(flag, 1u << m));
    printf("\n");
    if (m == MODE_RUN) print_mode_names();
    printf("quill%s%s --help lists all options%s.\n", m ? " " : "", cli_modes[m],
           m ? "" : ", quill --man | man -l - is the manual");
}

// ---- the whole help -------------------------------------------------------------------------------------------------

static void print_modes(void) {
    printf("\nOther modes (each has its -h and --help)\n");
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        char brief[256];
        cli_brief((Mode)m, brief);
        print_wrapped(brief, printf("  quill %s", cli_modes[m]), HELP_COLUMN);
    }
}

void cli_help(Mode m) {
    printf("Usage: %s\n\n%s\n", cli_about[m].usage, cli_about[m].what);
    if (m == MODE_RUN) print_modes();
    for (int group = 0; group < N_GROUPS; group++) {
        bool titled = false;
        for (int i = 0; i < cli_n_options; i++) {
            const Option *o = &cli_options[i];
            if (o->group != (Group)group || !(o->modes & 1u << m) || !o->help) continue;
            if (!titled) printf("\n%s\n", cli_groups[group]);
            titled = true;
            print_option(o, HELP_COLUMN);
        }
    }
    printf("\nNumbers take k, M and G (1024 each); _ is - in long names; --opt=value works,\n"
           "and --flag=off; -- ends options.\n");
    printf("\nExamples\n%s", cli_about[m].examples);
    if (m != MODE_RUN) return;
    printf("\nExit codes\n");
    for (int i = 0; i < cli_n_exit_codes; i++) printf("  %-5s%s\n", cli_exit_codes[i].code, cli_exit_codes[i].what);
}

void cli_version(void) {
    Buf cuda = {0};
    cuda_describe(&cuda);
    printf("quill %s\ncompiler: %s\nCPU: %s\nCUDA: %s\nmodel: %s\n", QUILL_VERSION,
#ifdef __clang__
           __VERSION__,
#else
           "gcc " __VERSION__,
#endif
           cpu_isa_list(), cuda.data, builtin_name());
    buf_free(&cuda);
}
