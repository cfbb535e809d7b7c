// cli_help.c: --help and --version, from the option table; what each mode is for. Plain text for 80 columns, to stdout.
#include "cli_table.h"

#include <stdio.h>
#include <string.h>

#include "builtin.h"
#include "cuda.h"
#include "paragraph.h"

enum { HELP_COLUMN = 26 };

const char *const cli_groups[N_GROUPS] = {
    [G_MODEL] = "Model", [G_PROMPT] = "Prompt",        [G_LENGTH] = "Length", [G_SAMPLING] = "Sampling",
    [G_SPEED] = "Speed", [G_KV] = "KV cache",          [G_BATCH] = "Batch",   [G_BENCH] = "Benchmark",
    [G_LOOK] = "Look",   [G_CONFIG] = "Configuration",
};

const ExitCode cli_exit_codes[] = {
    {"0", "done"},
    {"1", "internal error; kv diff: the files differ"},
    {"2", "usage"},
    {"3", "model or device unusable"},
    {"4", "out of memory"},
    {"5", "prompt longer than the context"},
    {"6", "I/O"},
    {"130", "interrupted by SIGINT"},
    {"143", "interrupted by SIGTERM"},
};
const int cli_n_exit_codes = ARRAY_LEN(cli_exit_codes);

const About cli_about[N_MODES] = {
    [MODE_RUN] = {"quill [options] [PROMPT...]",
                  "Runs a language model: one answer to a prompt, or a chat on a terminal.\n"
                  "Words, -p, -f and a pipe on stdin are the prompt. stdout carries the answer and\n"
                  "nothing else.",
                  "  quill \"Once upon a time\"\n"
                  "  git diff | quill -m qwen3.gguf \"Write a commit message\"\n"
                  "  quill -m qwen3.gguf --json --temp 0 \"Why is the sky blue?\" | jq -r .text\n"
                  "  quill -m qwen3.gguf\n"},
    [MODE_BENCH] = {"quill bench [options] [MODEL]", "Measures how fast a model runs here once it is warm.",
                    "  quill bench -m model.gguf -p 512 -n 64\n"
                    "  quill bench --shape 1.1b --type Q4_K -o json\n"
                    "  quill bench --roofline\n"},
    [MODE_PERPLEXITY] = {"quill perplexity [options] [-f FILE]",
                         "How well a model predicts a text. The text is cut into chunks (-c), each with\n"
                         "the beginning token in front where the model wants one; every token but the\n"
                         "first of a chunk is scored. With --evict the text is one chunk, however long, -c\n"
                         "the slots of the cache, and snapkv takes half of a chunk for the prompt.",
                         "  quill perplexity -m model.gguf -f wiki.test.raw -c 512\n"
                         "  quill perplexity -m model.gguf -f text -ctk q4_0 -ctv q4_0 --kv-error\n"
                         "  quill perplexity -m model.gguf -f text --evict sinks --json | jq .curve\n"},
    [MODE_INSPECT] = {"quill inspect [options] [MODEL]", "What is in a model file, and what it will cost to run.",
                      "  quill inspect model.gguf\n  quill inspect --json model.gguf | jq .config\n"},
    [MODE_TOKENIZE] =
        {"quill tokenize [options] [TEXT...]", "Text to tokens: a line a token, its id and its piece.",
         "  quill tokenize -m model.gguf \"Hello world\"\n  quill tokenize -m model.gguf --ids -f text.txt\n"},
    [MODE_TEMPLATE] = {"quill template [options] [MODEL] <MESSAGES.json",
                       "What a chat template makes of a conversation: a JSON array of messages, or an\n"
                       "object with \"messages\", \"tools\" and whatever else the template looks at.",
                       "  echo '[{\"role\":\"user\",\"content\":\"hi\"}]' | quill template -m model.gguf\n"
                       "  quill template --chat-template-file t.jinja --bos \"<s>\" <messages.json\n"},
    [MODE_BATCH] = {"quill batch [options] [FILE]",
                    "Many prompts at once: jobs in, answers out, a JSON object a line. Jobs are read\n"
                    "from FILE or stdin while others run; an answer is written as soon as it is there.\n"
                    "A line is {\"id\",\"prompt\"} or {\"id\",\"messages\"}, with any option of length and\n"
                    "sampling as a key, or one of OpenAI's batch files.",
                    "  echo '{\"id\":1,\"prompt\":\"Once upon a time\",\"max_tokens\":50}' | quill batch\n"
                    "  quill batch -m model.gguf --keep-order jobs.jsonl >out.jsonl\n"
                    "  quill batch --rate 4 --slo ttft=500,tpot=50 -v jobs.jsonl >out.jsonl\n"},
    [MODE_LOGITS] = {"quill logits [options] --tokens ID,ID,... > FILE",
                     "The logits after every token, as raw float32 (n_tokens, n_vocab) on stdout.\n"
                     "-ub decides how many rows are computed at a time.",
                     "  quill logits -m model.gguf --tokens 1,2,3 > logits.f32\n"
                     "  quill logits -m model.gguf -ub 1 -p \"Once upon a time\" > logits.f32\n"},
    [MODE_PREFILL] = {"quill prefill [options] --kv-out FILE|- [PROMPT...]",
                      "Computes a prompt and sends its KV cache on, chunk by chunk as it is ready.\n"
                      "The prompt is what it is for quill itself; quill decode answers it, in\n"
                      "another process or on another machine, with the same model.",
                      "  quill prefill -m model.gguf -f long.txt --kv-out long.kv\n"
                      "  quill prefill -f long.txt --kv-out - | ssh host quill decode --kv-in -\n"},
    [MODE_DECODE] = {"quill decode [options] --kv-in FILE|- [MODEL]",
                     "Answers a prompt that quill prefill has computed: byte for byte what one\n"
                     "process would have said. Another model, a damaged or a cut stream is refused\n"
                     "before anything is printed.",
                     "  quill decode -m model.gguf --kv-in long.kv\n"
                     "  quill decode -m model.gguf --kv-in long.kv --seed 2 --temp 1\n"},
    [MODE_KV] = {"quill kv info|check|cut|diff [options] FILE [FILE]",
                 "Looks into KV files: info shows what one holds, check reads every byte, cut\n"
                 "keeps the first tokens, diff says where two part and how far. - is stdin. All\n"
                 "but cut take a block of --kv-dir too.",
                 "  quill kv info long.kv\n"
                 "  quill kv cut -n 100 --kv-out short.kv long.kv\n"
                 "  quill kv diff --tolerance 0.01 a.kv b.kv\n"},
};

// "  -n, --predict N"
static void print_names(const Option *o, char out[128]) {
    const char *first = o->names, *space = strchr(first, ' ');
    int n_first = space ? (int)(space - first) : (int)strlen(first);
    int at = first[1] == '-' ? snprintf(out, 128, "      ") : snprintf(out, 128, "  ");
    at += snprintf(out + at, 128 - (size_t)at, "%.*s", n_first, first);
    if (space && first[1] != '-')
        at += snprintf(out + at, 128 - (size_t)at, ", %.*s", (int)strcspn(space + 1, " "), space + 1);
    if (o->arg) snprintf(out + at, 128 - (size_t)at, " %s", o->arg);
}

// The help of what is named in the columns up to `at`.
static void print_wrapped(const char *text, int at) {
    if (at >= HELP_COLUMN) printf("\n"), at = 0;
    printf("%*s", HELP_COLUMN - at, "");
    paragraph_print(stdout, text, HELP_COLUMN, HELP_COLUMN);
}

void cli_brief(Mode m, char brief[256]) {
    const char *what = cli_about[m].what, *end = what;
    while (*end && !(*end == '.' && (end[1] == ' ' || end[1] == '\n'))) end++;
    snprintf(brief, 256, "%.*s", (int)(end - what) - (end[-1] == '.'), what);
    for (char *c = brief; *c; c++)
        if (*c == '\n') *c = ' ';
}

static void print_modes(void) {
    printf("\nOther modes (each has its -h)\n");
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        char brief[256];
        cli_brief((Mode)m, brief);
        print_wrapped(brief, printf("  quill %s", cli_modes[m]));
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
            char names[128], help[256];
            print_names(o, names);
            bool shown = o->fallback != NULL;
            snprintf(help, sizeof help, "%s%s%s%s", o->help, shown ? " (default " : "", shown ? o->fallback : "",
                     shown ? ")" : "");
            printf("%s", names);
            print_wrapped(help, (int)strlen(names) + 1 > HELP_COLUMN ? HELP_COLUMN : (int)strlen(names));
        }
    }
    printf("\nNumbers take k, M and G (1024 each); _ is - in long names; --opt=value works;\n"
           "-- ends options.\n");
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
