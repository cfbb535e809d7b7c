// answer/call_format.h: the syntax in which a model family writes tool calls: chosen by the chat template, written as
// grammar rules, and parsed from an answer.
//
// A format is a set of patterns in answer/call_format.c. A section of an answer has one or more calls:
//   <tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>
#ifndef QUILL_CALL_FORMAT_H
#define QUILL_CALL_FORMAT_H

#include "answer/tools.h"
#include "grammar/rules.h"
#include "tokenizer.h"

typedef struct CallFormat CallFormat;

const CallFormat *call_format_find(Str template); // template: its source; NULL: no known format in it
const char *call_format_name(const CallFormat *f);
void call_format_names(Buf *out); // "hermes, llama3, ..."

// Adds rules for an answer with these tools: free text, calls, or both, as tools->choice says. Text is unconstrained
// until a call begins. *expr: the expression of the whole. QUILL_USAGE: the parameters of a tool are not a supported
// schema.
Status call_format_rules(const CallFormat *f, const Tools *tools, const Tokenizer *t, Rules *r, int *expr);

enum { CALL_HIDDEN = 0xff, CALL_SHOWN = 0xfe }; // bytes of `said` in front of and after each mark
static inline bool call_is_hidden(char c) { return (unsigned char)c == CALL_HIDDEN || (unsigned char)c == CALL_SHOWN; }

// Parses the calls in Answer.said. Returns a list as OpenAI has it, {"id","type","function":{"name","arguments"}} with
// the arguments as a string of JSON; NULL: no calls. Appends the text outside the calls, without marks, to `rest`.
json_t *call_format_read(const CallFormat *f, const Tools *tools, Str said, Buf *rest);

#endif
