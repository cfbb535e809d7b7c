// answer/answer_config.h: what a user may choose about an answer: its conversation, length, sampling, and how it is
// printed. A chat's /set and the keys of a batch's jobs change a copy of it.
#ifndef QUILL_ANSWER_CONFIG_H
#define QUILL_ANSWER_CONFIG_H

#include "sampling.h"

// What an answer may say; one of these at most. A file's text is read when an answer begins.
typedef struct {
    const char *schema, *schema_file; // JSON Schema
    bool object;                      // any JSON object
    const char *regex, *choice, *grammar, *grammar_file;
} AnswerForm;

// The tools that an answer may call (answer/tools.h).
typedef struct {
    const char *file, *text; // their definitions in JSON; the text is a job's
    const char *choice;      // auto, none, required or a name; NULL: auto
} AnswerTools;

static inline bool answer_form_given(const AnswerForm *f) {
    return f->schema || f->schema_file || f->object || f->regex || f->choice || f->grammar || f->grammar_file;
}

typedef struct {
    // the conversation
    const char *system, *system_file;               // the system message, or the file that has it
    const char *chat_template, *chat_template_file; // a name of answer/builtin_templates.h; a path
    const char *think;  // on, off: the template's enable_thinking; show, hide: what is printed; NULL: left to them
    bool raw;           // no template, whatever the model carries
    bool chat;          // a model without a template is an error
    bool parse_special; // control tokens are recognised in raw text
    const char *load;   // a saved conversation that comes first; NULL: none
    bool continue_last; // the last one that was saved with this model comes first
    bool context_shift; // a chat leaves its oldest turns out when the context is full
    // chunks of text in front of the prompt (blend/blender.h)
    const char **chunks; // (n_chunks) files
    int n_chunks;
    const char *chunk_split; // where a file is cut into chunks; NULL: it is one
    bool blend_error;        // their K and V are compared with those of a prefill
    const char *blend;       // how they are used (blend/plan.h); NULL: BLEND_DEFAULT
    // length
    int predict; // tokens; -1: until the end or a full context
    bool ignore_eos;
    const char **stop; // (n_stop) texts that end the answer
    int n_stop;
    // sampling
    SamplerParams sampling;
    bool seed_given; // sampling.seed was chosen by the user
    // several candidates
    int beams;                  // of a beam search; 0: none
    float length_penalty;       // of its scores
    const char *early_stopping; // when it ends: false, true, never
    int best_of;                // samples of which the likeliest is the answer; 0: none
    AnswerForm form;
    AnswerTools tools;
    // printing
    bool echo, special, no_newline, no_stream;
    bool json, jsonl;
    bool extract;                 // the first code block or JSON value alone
    int logprobs;                 // the likeliest tokens that JSON has beside each token; -1: no log-probabilities
    const char *color, *markdown; // auto, always, never; auto, on, off
    bool dump_tokens, dump_prompt;
    bool verbose, quiet;
} AnswerConfig;

#endif
