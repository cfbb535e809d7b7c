// answer/tools.h: the tools that an answer may call: their definitions, as OpenAI has them in JSON.
//
//   [{"type": "function", "function": {"name": "get_weather", "description": "...", "parameters": {a JSON schema}}}]
//
// An object without "type" and "function" is taken as a function itself.
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
    json_t *parameters; // a schema; NULL: there are none
} Tool;

typedef enum {
    TOOLS_AUTO,     // text, calls, or both
    TOOLS_NONE,     // no call
    TOOLS_REQUIRED, // one call or several, and no text
    TOOLS_ONE,      // one call of the tool `one`
} ToolsChoice;

typedef struct {
    json_t *json; // the list, each with "type" and "function"; NULL: no tools
    Tool *all;    // (n)
    int n, one;
    ToolsChoice choice;
} Tools;

// Reads --tools and --tool-choice, or those of a job. Without tools out->json is NULL. QUILL_USAGE: what is wrong, with
// line and column or the tool's number; QUILL_IO: the file. tools_free is due in any case.
Status tools_read(const AnswerTools *given, Tools *out);
bool tools_given(const AnswerTools *given);
void tools_free(Tools *t);
// Appends what tells these tools from others, for the name of a grammar.
void tools_describe(const Tools *t, Buf *out);
const Tool *tools_find(const Tools *t, Str name); // NULL: none

#endif
