// cli/options.h: what the command line asked for, one struct for every mode.
//
// A mode gets all of it. What stands below the modes gets the part that it is about: EngineConfig, AnswerConfig or
// PromptConfig.
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

// What is printed instead of a run.
typedef enum {
    PAGE_NONE,
    PAGE_SHORT_HELP,
    PAGE_HELP,
    PAGE_VERSION,
    PAGE_MAN,
    PAGE_COMPLETIONS,
} CliPage;

// Whole numbers to try one after the other: 16,32 or 1-8*2.
typedef struct {
    int n, at[64];
    bool added; // a flag has set the list: the next flag appends to it
} IntList;

typedef struct {
    Mode mode;
    CliPage page;
    const char *shell; // of PAGE_COMPLETIONS
    EngineConfig engine;
    AnswerConfig answer;
    PromptConfig prompt;
    const char *input;      // batch, template: the file to read; NULL: stdin
    const char *model_from; // QUILL_MODEL or FILE:LINE, which has named the model; NULL: an argument, or nothing
    struct {
        bool interactive, single_turn;
        bool autosave;       // each turn is saved
        bool no_history;     // the history file is neither read nor written
        bool shift_is_usual; // context_shift comes from the configuration: a single prompt ignores it
    } chat;
    struct {
        int parallel;    // sequences at once, at most
        float rate;      // arrivals a second; 0: all at once
        const char *slo; // "ttft=500,tpot=50", milliseconds
        bool keep_order, static_batches;
        const char *resume; // file of answers to skip and to append to; NULL: stdout has all
    } batch;
    struct {
        bool ids, no_bos;            // tokenize; no_bos: logits and perplexity too
        const char *tokens;          // logits: "1,2,3"
        bool kv_error;               // perplexity
        const char *imatrix_out;     // perplexity: FILE
        const char *kl_base, *kl;    // perplexity: FILE of logits, to be written or compared with
        const char *bos, *eos, *now; // template: texts; 2026-01-02T03:04:05
        bool no_generation_prompt;   // template
    } look;
    struct {
        const char *in, *out; // decode; prefill and cut: a path, - for stdin and stdout
        const char **words;   // (n_words) what to do, and files
        int n_words;
        int n_tokens;    // cut
        float tolerance; // diff
    } kv;
    struct {
        const char *repo;   // -hf: "user/repo:TYPE"; NULL: engine.model names the model
        const char **words; // (n_words) pull: the name; models: what to do, and names
        int n_words;
        bool offline;    // no request
        bool yes, names; // models: remove without a question; the names alone
    } hub;
    struct {
        const char *out, *type; // the words behind the model
        const char *tensors;    // "PATTERN=TYPE,..."
        const char *imatrix;    // FILE
        const char *prune, *by; // "2:4", "0.5"; "magnitude", "wanda"
    } quantize;
    struct {
        IntList prompt, gen, depth, threads;
        int reps, sequences;
        const char *shape, *type, *save, *output; // "1.1b", "Q4_K", FILE, table|json|csv|md
        bool ops;                                 // each operation by itself
        bool roofline;
        bool replay;         // the files are texts before and after an edit
        const char *prompts; // FILE of prompts, one a line, for --speculate
        const char **files;  // (n_files)
        int n_files;
    } bench;
    // the configuration file
    const char *preset; // NULL: none
    bool no_config, show_config;
    int n_preset_parts; // pieces of the prompt that the preset has given: the first ones
    char **kept;        // (n_kept) texts that the fields above point into, owned
    int n_kept;
} Options;

#endif
