// cli/llama.c: see cli/llama.h.
#include "cli/llama.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"

#define NO_SUCH_SAMPLER                                                                                                \
    "quill does not have this sampler; it has --temp, --top-k, --top-p, --min-p, --xtc-probability and penalties"
#define NO_ADDRESS "quill fetches by repository: -hf USER/REPO:TYPE, or -hf USER/REPO:FILE"
#define NO_TOKEN "all users can see a token on the command line: set HF_TOKEN, or write it to $HF_HOME/token"
#define ONE_GPU "quill uses one GPU; -ngl sets the number of layers on it"

static const LlamaOption options[] = {
    // the same meaning, or quill's default
    {"--jinja", LLAMA_FLAG, NULL, NULL},
    {"--no-display-prompt", LLAMA_FLAG, NULL, NULL},
    {"--display-prompt", LLAMA_FLAG, "--echo", NULL},
    {"--no-warmup --warmup", LLAMA_FLAG, NULL, NULL},
    {"-fa --flash-attn", LLAMA_SWITCH, NULL, NULL},
    {"--mmap --no-context-shift --no-escape --no-mmproj", LLAMA_FLAG, NULL, NULL},
    {"--log-disable --no-perf --perf --simple-io", LLAMA_FLAG, NULL, NULL},
    {"-st", LLAMA_FLAG, "--single-turn", NULL},
    {"-cnv --conversation -if --interactive-first", LLAMA_FLAG, "--interactive", NULL},
    {"--model-draft", LLAMA_VALUE, "--speculate", NULL},
    {"--draft --draft-n", LLAMA_VALUE, "--draft-max", NULL},
    {"--draft-n-min", LLAMA_VALUE, "--draft-min", NULL},
    {"--verbose-prompt", LLAMA_FLAG, "--dump-prompt", NULL},
    // a similar meaning
    {"-no-cnv --no-conversation -no-conversation", LLAMA_FLAG, "--raw",
     "taken as --raw; control tokens in the prompt need --parse-special, escapes like \\n need -e"},
    {"-b --batch-size", LLAMA_VALUE, NULL, "-ub alone sets the rows of a step"},
    {"-tb --threads-batch", LLAMA_VALUE, NULL, "-t sets the threads of both phases"},
    {"--keep", LLAMA_VALUE, NULL, "--evict sinks,sink=N keeps the first N tokens of a text that outgrows the context"},
    {"-mli --multiline-input", LLAMA_FLAG, NULL, "\"\"\" begins and ends a message of several lines"},
    {"--prompt-cache", LLAMA_VALUE, NULL, "--kv-dir DIR keeps the KV cache of prompts"},
    {"--prompt-cache-all --prompt-cache-ro", LLAMA_FLAG, NULL, NULL},
    {"--samplers --sampler-seq --sampling-seq", LLAMA_VALUE, NULL,
     "the order is fixed: penalties, top-k, typical, top-p, min-p, xtc, temperature"},
    {"--chat-template-kwargs", LLAMA_VALUE, NULL, "quill passes only --think on|off|low|medium|high to a template"},
    {"--reasoning-budget", LLAMA_VALUE, NULL, "quill has no limit for thoughts, only --think on|off|low|medium|high"},
    {"--reasoning-effort", LLAMA_VALUE, NULL, "--think takes on, off, low, medium and high"},
    {"--reasoning-format", LLAMA_VALUE, NULL, "--think show|hide says whether thoughts are printed"},
    // no counterpart: ignored, with a note
    {"--mirostat --mirostat-lr --mirostat-ent --top-nsigma --top-n-sigma", LLAMA_VALUE, NULL, NO_SUCH_SAMPLER},
    {"--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --dynatemp-range "
     "--dynatemp-exp",
     LLAMA_VALUE, NULL, NO_SUCH_SAMPLER},
    {"--prio --prio-batch --poll --numa -C --cpu-mask", LLAMA_VALUE, NULL, "nice and taskset do that"},
    {"-sm --split-mode -mg --main-gpu -ts --tensor-split -dev", LLAMA_VALUE, NULL, ONE_GPU},
    {"-ot --override-tensor", LLAMA_VALUE, NULL, ONE_GPU},
    {"-nkvo --no-kv-offload", LLAMA_FLAG, NULL, ONE_GPU},
    {"-kvo --kv-offload --swa-full --repack -nr --no-repack", LLAMA_FLAG, NULL, NULL},
    {"-cb --cont-batching -nocb --no-cont-batching", LLAMA_FLAG, NULL, NULL},
    {"-fit --fit", LLAMA_SWITCH, NULL, NULL},
    {"-np --parallel", LLAMA_VALUE, NULL, "quill batch answers many prompts at once"},
    {"--log-file", LLAMA_VALUE, NULL, "all messages go to stderr: 2>FILE keeps them"},
    {"-ngld --gpu-layers-draft --n-gpu-layers-draft", LLAMA_VALUE, NULL, "the draft model runs on the CPU"},
    {"-ctkd --cache-type-k-draft -ctvd --cache-type-v-draft", LLAMA_VALUE, NULL,
     "-ctk and -ctv set the types of the model's KV cache alone"},
    {"-dt --defrag-thold -lv --verbosity --log-verbosity", LLAMA_VALUE, NULL, NULL},
    // refused by llama_meaning
    {"-hff --hf-file -mu --model-url", LLAMA_VALUE, NULL, NULL},
    {"-hft --hf-token", LLAMA_VALUE, NULL, NULL},
};

const LlamaOption *llama_find(const char *flag) {
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (cli_has_name(options[i].names, flag)) return &options[i];
    return NULL;
}

// The effort that the value of --reasoning-effort or a template's reasoning_effort asks for; NULL: none that quill has.
static const char *effort_of(const LlamaOption *l, const char *value) {
    static const char *const efforts[] = {"low", "medium", "high"};
    if (cli_has_name(l->names, "--chat-template-kwargs")) {
        const char *key = strstr(value, "\"reasoning_effort\"");
        if (!key) return NULL;
        value = key + strlen("\"reasoning_effort\"");
        value += strspn(value, " :\"");
    } else if (!cli_has_name(l->names, "--reasoning-effort")) return NULL;
    for (size_t i = 0; i < ARRAY_LEN(efforts); i++)
        if (strncmp(value, efforts[i], strlen(efforts[i])) == 0 && !isalnum((unsigned char)value[strlen(efforts[i])]))
            return efforts[i];
    return NULL;
}

LlamaMeaning llama_meaning(const LlamaOption *l, const char *value) {
    LlamaMeaning means = {.flag = l->flag, .value = l->value == LLAMA_VALUE ? value : "", .note = l->note};
    bool zero = *value && strspn(value, "0.") == strlen(value);
    if (cli_has_name(l->names, "-hff")) means.refused = NO_ADDRESS;
    if (cli_has_name(l->names, "-hft")) means.refused = NO_TOKEN;
    // No note for a sampler that is turned off; options that switch thoughts become --think.
    if (l->note && strcmp(l->note, NO_SUCH_SAMPLER) == 0 && zero) means.note = NULL;
    const char *thinking = strstr(value, "\"enable_thinking\"");
    if (thinking) thinking += strlen("\"enable_thinking\"");
    bool off = (cli_has_name(l->names, "--reasoning-budget") && zero) ||
               (cli_has_name(l->names, "--chat-template-kwargs") && thinking &&
                str_has_prefix(str_of(thinking + strspn(thinking, " :")), "false"));
    off = off || (cli_has_name(l->names, "--reasoning-effort") && strcmp(value, "none") == 0);
    const char *effort = effort_of(l, value);
    if (off) means = (LlamaMeaning){.flag = "--think", .value = "off"};
    if (effort && !off) means = (LlamaMeaning){.flag = "--think", .value = effort};
    if (cli_has_name(l->names, "--reasoning-effort") && strcmp(value, "default") == 0) means.note = NULL;
    if (cli_has_name(l->names, "--reasoning-budget") && strcmp(value, "-1") == 0) means.note = NULL;
    if (cli_has_name(l->names, "-np") && strcmp(value, "1") == 0) means.note = NULL;
    return means;
}
