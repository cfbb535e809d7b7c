// answer/answer_config.h: what a user may choose about an answer: its conversation, length, sampling and printing. /set
// in a chat and the keys of a batch job change a copy of it.
#ifndef QUILL_ANSWER_CONFIG_H
#define QUILL_ANSWER_CONFIG_H

#include <stddef.h>

#include "base/str.h"
#include "sampling.h"

// A file that an option names. answer/option_files.h reads its text once, before the first answer.
typedef struct {
    const char *path; // NULL: none. The first field: where only the name matters, an option is read as a TEXT
    Str text;         // data NULL: not read yet
} OptionFile;

// The form of an answer; at most one may be given.
typedef struct {
    const char *schema; // JSON Schema
    OptionFile schema_file;
    bool object; // any JSON object
    const char *regex, *choice, *grammar;
    OptionFile grammar_file;
} AnswerForm;

// The tools that an answer may call (answer/tools.h).
typedef struct {
    OptionFile file;    // the definitions in JSON (--tools)
    const char *text;   // the same as a batch job has them; used if there is no file
    const char *choice; // auto, none, required or the name of a tool; NULL: auto
} AnswerTools;

// The bit of AnswerConfig.sampling_given for the number at this offset of SamplerParams.
static inline uint32_t sampling_bit(size_t at) { return (uint32_t)1 << (at / sizeof(float)); }

typedef struct {
    // the conversation
    const char *system, *system_file; // the system message, or the path of a file with it
    bool system_usual; // it is the configuration file's: a model without a template leaves it out, without an error
    const char *chat_template, *chat_template_file; // a name of answer/builtin_templates.h; a path
    // on, off: enable_thinking of the template; low, medium, high: its reasoning_effort and the like, and
    // enable_thinking is on; show, hide: print thoughts;
    // NULL: the defaults
    const char *think;
    bool raw;           // use no template, even if the model has one
    bool chat;          // a model without a template is an error
    bool parse_special; // control tokens are recognised in raw text
    const char *load;   // file of a saved conversation to continue; NULL: none
    bool continue_last; // continue the conversation with this model that was saved last, and save it
    bool autosave;      // save a new conversation
    bool context_shift; // a chat drops its oldest turns when the context is full
    // chunks of text before the prompt (blend/blender.h)
    const char **chunks; // (n_chunks) files
    int n_chunks;
    const char *chunk_split; // text at which a file is cut into chunks; NULL: a file is one chunk
    bool blend_error;        // compare the K and V of the blended prompt with those of a prefill
    const char *blend;       // which tokens are recomputed (blend/plan.h); NULL: BLEND_DEFAULT
    // length
    int predict; // the most tokens; -1: until the model ends the answer or the context is full
    bool ignore_eos;
    const char **stop; // (n_stop) texts that end the answer
    int n_stop;
    // sampling
    SamplerParams sampling;
    uint32_t sampling_given; // sampling_bit of each number of `sampling` that was chosen by the user
    bool seed_given;         // sampling.seed was
    // several candidates
    int beams;                  // width of a beam search; 0: none
    float length_penalty;       // exponent of the length in the scores of the search
    const char *early_stopping; // when the search ends: false, true, never
    int best_of;                // number of samples of which the likeliest is the answer; 0: none
    AnswerForm form;
    AnswerTools tools;
    // printing
    bool echo, special, no_newline, no_stream;
    bool json, jsonl;
    bool extract;                 // print only the first code block or JSON value
    int logprobs;                 // number of likeliest tokens in JSON for each token; -1: no log-probabilities
    const char *color, *markdown; // auto, always, never; auto, on, off
    bool dump_tokens, dump_prompt;
    bool verbose, quiet;
} AnswerConfig;

#endif
