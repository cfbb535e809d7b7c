// cli/llama.h: options of llama-cli that quill has no row for: command lines of model cards run as they are printed.
//
// What has the same meaning here, or none that could be missed, is taken in silence; what is taken and does something
// else, or nothing, comes with a note. An option that would change the answer in a way that quill cannot is not here:
// it is unknown.
#ifndef QUILL_CLI_LLAMA_H
#define QUILL_CLI_LLAMA_H

#include "base/base.h"

typedef enum {
    LLAMA_FLAG,   // nothing follows
    LLAMA_VALUE,  // a value
    LLAMA_SWITCH, // on, off, auto, 0 or 1, or nothing
} LlamaValue;

typedef struct {
    const char *names; // separated by spaces
    LlamaValue value;
    const char *flag; // the option of quill's that it stands for, with a value where it has one; NULL: none
    const char *note; // NULL: nothing is to be said
} LlamaOption;

// What one says, with its value.
typedef struct {
    const char *flag, *value; // an option of quill's and its value; NULL: none
    const char *note;         // NULL: none
    const char *refused;      // why it cannot be, and what to do; NULL: it can
} LlamaMeaning;

const LlamaOption *llama_find(const char *flag); // NULL: not one of these
LlamaMeaning llama_meaning(const LlamaOption *l, const char *value);

#endif
