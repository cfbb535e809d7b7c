// cli/llama.h: options of llama-cli that are not in quill's table, so that command lines of model cards work unchanged.
//
// An option with the same meaning, or whose effect nobody would miss, is accepted silently; one that does something
// else or nothing is accepted with a note. Options that change the answer in a way that quill cannot are not in this
// list: they are unknown options.
#ifndef QUILL_CLI_LLAMA_H
#define QUILL_CLI_LLAMA_H

#include "base/base.h"

typedef enum {
    LLAMA_FLAG,   // no value follows
    LLAMA_VALUE,  // a value follows
    LLAMA_SWITCH, // on, off, auto, 0 or 1 may follow
} LlamaValue;

typedef struct {
    const char *names; // separated by spaces
    LlamaValue value;
    const char *flag; // quill's option with the same meaning; NULL: none
    const char *note; // NULL: no note
} LlamaOption;

// The meaning of an option with its value.
typedef struct {
    const char *flag, *value; // quill's option and its value; NULL: none
    const char *note;         // NULL: none
    const char *refused;      // why quill refuses the option, and what to do instead; NULL: it is accepted
} LlamaMeaning;

const LlamaOption *llama_find(const char *flag); // NULL: not one of these
LlamaMeaning llama_meaning(const LlamaOption *l, const char *value);

#endif
