// answer/tools.h: reads the definitions of the tools that an answer may call, JSON in OpenAI's format.
//
//   [{"type": "function", "function": {"name": "get_weather", "description": "...", "parameters": {a JSON schema}}}]
//
// An object without "type" and "function" is read as the function object.
#ifndef QUILL_TOOLS_H
#define QUILL_TOOLS_H

#include <jansson.h>

#include "answer/answer_config.h"
#include "base/base.h"

enum {
    TOOLS_MOST = 128,
    TOOLS_LONGEST_NAME = 64, // of letters, digits, _ - and .
};

typedef struct {
    const char *name;
    json_t *parameters; // a JSON schema; NULL: none
} Tool;

typedef enum {
    TOOLS_AUTO,     // text, calls, or both
    TOOLS_NONE,     // no call
    TOOLS_REQUIRED, // one or more calls, and no text
    TOOLS_ONE,      // one call of the tool `one`
} ToolsChoice;

typedef struct {
    json_t *json; // the list, each with "type" and "function"; NULL: no tools
    Tool *all;    // (n)
    int n, one;   // one: index of the tool for TOOLS_ONE
    ToolsChoice choice;
} Tools;

// Reads the tools and the choice of --tools or of a batch job. Without tools out->json is NULL. QUILL_USAGE: wrong
// definitions; the message has line and column, or the number of the tool. Call tools_free after an error too.
Status tools_read(const AnswerTools *given, Tools *out);
bool tools_given(const AnswerTools *given);
void tools_free(Tools *t);
// Appends a key that distinguishes these tools from others, for the cache of grammars.
void tools_describe(const Tools *t, Buf *out);
const Tool *tools_find(const Tools *t, Str name); // NULL: none

#endif
