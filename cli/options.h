// cli/options.h: the values of all options, in one struct for every mode.
//
// A mode gets the whole struct. Lower layers get only their part: EngineConfig, AnswerConfig or PromptConfig.
#ifndef QUILL_OPTIONS_H
#define QUILL_OPTIONS_H

#include "answer/answer_config.h"
#include "answer/prompt.h"
#include "engine_config.h"

typedef enum {
    MODE_RUN,
    MODE_BENCH,
    MODE_PERPLEXITY,
    MODE_INSPECT,
    MODE_TOKENIZE,
    MODE_LOGITS,
    MODE_BATCH,
    MODE_PREFILL,
    MODE_DECODE,
    MODE_KV,
    MODE_TEMPLATE,
    MODE_QUANTIZE,
    MODE_PULL,
    MODE_MODELS,
    MODE_CHUNK,
    N_MODES
} Mode;

// The page that is printed instead of running a mode.
typedef enum {
    PAGE_NONE,
    PAGE_SHORT_HELP,
    PAGE_HELP,
    PAGE_VERSION,
    PAGE_MAN,
    PAGE_COMPLETIONS,
} CliPage;

// Where an option's value comes from, from the lowest to the highest precedence.
typedef enum { BY_DEFAULT, BY_FILE, BY_PRESET, BY_ENVIRONMENT, BY_FLAG } Giver;

typedef struct {
    Giver by;
    int line;   // of the file; 0: several lines
    bool alone; // an empty value has turned a list off: weaker sources add nothing to it
} Origin;

// A list of whole numbers, given as 16,32 or 1-8*2.
typedef struct {
    int n, at[64];
    bool added; // a flag has set the list: the next flag appends to it
} IntList;

typedef struct {
    Mode mode;
    Origin *origins; // (cli_n_options) where the value of each option comes from
    CliPage page;
    const char *shell; // for PAGE_COMPLETIONS
    EngineConfig engine;
    AnswerConfig answer;
    PromptConfig prompt;
    const char *input;      // batch, template: the file to read; NULL: stdin
    const char *model_from; // "QUILL_MODEL" or "FILE:LINE" if that named the model; NULL: an argument did, or nothing
    struct {
        bool interactive, single_turn;
        bool no_history; // the history file is neither read nor written
    } chat;
    struct {
        int parallel;    // sequences at once, at most
        float rate;      // arrivals a second; 0: all at once
        const char *slo; // "ttft=500,tpot=50", milliseconds
        bool keep_order, static_batches;
        const char *resume; // file with earlier answers, whose jobs are skipped, and to append to; NULL: stdout
    } batch;
    struct {
        bool ids, no_bos;            // tokenize; no_bos: logits and perplexity too
        const char *tokens;          // logits: "1,2,3"
        bool kv_error;               // perplexity
        const char *imatrix_out;     // perplexity: FILE
        const char *kl_base, *kl;    // perplexity: FILE of logits to write, or to compare with
        const char *bos, *eos, *now; // template: texts; 2026-01-02T03:04:05
        bool no_generation_prompt;   // template
    } look;
    struct {
        const char *in, *out; // decode; prefill and cut: a path, - for stdin and stdout
        const char **words;   // (n_words) a verb, and files
        int n_words;
        int n_tokens;    // cut
        float tolerance; // diff
    } kv;
    struct {
        const char *repo;   // -hf: "user/repo:TYPE"; NULL: engine.model names the model
        const char **words; // (n_words) pull: the name; models: a verb, and names
        int n_words;
        bool offline;    // make no requests
        bool yes, names; // models: remove without asking; list only names
    } hub;
    struct {
        const char *out, *type; // the words OUT and TYPE
        const char *tensors;    // "PATTERN=TYPE,..."
        const char *imatrix;    // FILE
        const char *prune, *by; // "2:4", "0.5"; "magnitude", "wanda"
    } quantize;
    struct {
        IntList prompt, gen, depth, threads;
        int reps, sequences;
        const char *shape, *type, *save, *output; // "1.1b", "Q4_K", FILE, table|json|csv|md
        bool ops;                                 // time each operation separately
        bool roofline;
        bool replay;         // the files are pairs of texts: before and after an edit
        const char *prompts; // FILE of prompts, one per line, for --speculate
        const char **files;  // (n_files)
        int n_files;
    } bench;
    // the configuration file
    const char *preset; // NULL: none
    bool no_config, show_config;
    int n_preset_parts; // how many pieces of the prompt, the first ones, come from the preset
    char **kept;        // (n_kept) texts that the fields above point into, owned
    int n_kept;
} Options;

#endif
