// cli/options.h: what the command line asked for, one struct for every mode.
#ifndef QUILL_OPTIONS_H
#define QUILL_OPTIONS_H

#include "sampler.h"
#include "base/base.h"

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
    N_MODES
} Mode;

enum { KV_TYPE_AUTO = -1 };

// A piece of the prompt.
typedef struct {
    char *text;       // owned; NULL: the piece is a file
    const char *file; // a path, or - for stdin
} PromptPart;

// Whole numbers to try one after the other: 16,32 or 1-8*2.
typedef struct {
    int n, at[64];
    bool added; // a flag has begun the list: the next one goes on with it
} IntList;

typedef struct {
    Mode mode;
    // model
    const char *model;      // NULL or "builtin": the one in the binary (builtin.h)
    const char *model_from; // who has named it, QUILL_MODEL or FILE:LINE, where no argument has; otherwise NULL
    const char *tokenizer;  // -z
    bool no_mmap, mlock, check_tensors;
    // prompt
    PromptPart *parts; // (n_parts) words, -p and -f, in the order in which they make up the prompt
    int n_parts;
    int n_preset_parts; // of them, the first ones, which a preset has given
    const char *file;   // batch, template: the file to read; NULL: stdin
    const char *system, *system_file;
    const char *chat_template, *chat_template_file; // a name of chat_templates.c; a path
    const char *think; // on, off: the template's enable_thinking; show, hide: what is printed; NULL: left to them
    bool escape, raw, chat, parse_special, no_stdin, interactive, single_turn, echo, special;
    // chat
    const char *load;            // the saved conversation that the run begins with; NULL: none
    bool resume, autosave;       // --continue: begin with the last one; save each turn
    bool no_history;             // do not read or write the history file
    const char *markdown;        // on, off, auto: show Markdown on a terminal
    bool no_bos, ids;            // tokenize
    const char *tokens;          // logits: "1,2,3"
    const char *bos, *eos, *now; // template: texts; 2026-01-02T03:04:05
    bool no_generation_prompt;
    // length
    int predict;  // -n; -1: until the end or a full context
    int ctx_size; // -c; 0: the model's, if it fits
    bool ignore_eos;
    const char **stop;
    int n_stop;
    // sampling
    SamplerParams sampling;
    bool seed_given;
    // speed
    int threads; // 0: physical cores
    const char *device, *isa;
    int ubatch;
    bool deterministic;
    int type_k, type_v; // TYPE_ of types.h, or KV_TYPE_AUTO: f16, and f32 for a model in F32
    bool kv_rotate;     // KvPool.rotate
    int gpu_layers;     // -1: auto
    // KV
    bool paged;
    int kv_block;
    size_t kv_mem;      // 0: what the context needs
    const char *kv_dir; // NULL: none
    size_t kv_dir_size; // bytes
    bool context_shift;
    bool shift_is_usual; // the configuration says so, for chats: a single prompt passes it over
    const char *evict;   // evict.h; NULL: a full context ends the answer
    // batch
    int parallel;    // sequences at once, at most
    float rate;      // arrivals a second; 0: all at once
    const char *slo; // "ttft=500,tpot=50", milliseconds
    bool keep_order, static_batches;
    const char *resume_file;    // answers to skip and to append to; NULL: stdout has all
    const char *kv_in, *kv_out; // decode, prefill: a path, - for stdin and stdout
    const char **words;         // (n_words) kv: what to do, and files
    int n_words;
    float tolerance; // kv diff
    // look
    bool no_newline, no_stream; // the answer's end; all of it at once
    bool verbose, quiet, json, jsonl, dump_tokens, dump_prompt, dry_run;
    int logprobs;      // -1: off
    const char *color; // auto, always, never
    bool kv_error;     // perplexity
    // bench
    IntList bench_prompt, bench_gen, bench_depth, bench_threads;
    int bench_reps, bench_sequences;
    const char *shape, *type, *save, *output; // "1.1b", "Q4_K", FILE, table|json|csv|md
    bool roofline;
    // configuration
    const char *preset; // NULL: none
    bool no_config, show_config;
    char **kept; // (n_kept) texts that the fields above point into, owned
    int n_kept;
} Options;

#endif
