// answer/call_format.h: how a model's family writes calls of tools, by its chat template; calls as rules, and read
// back.
//
// A format is a row of patterns in answer/call_format.c. A section of an answer has one or several calls:
//   <tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>
#ifndef QUILL_CALL_FORMAT_H
#define QUILL_CALL_FORMAT_H

#include "answer/tools.h"
#include "grammar/rules.h"
#include "tokenizer.h"

typedef struct CallFormat CallFormat;

const CallFormat *call_format_find(Str template); // by the template's source; NULL: it shows no format that is known
const char *call_format_name(const CallFormat *f);
void call_format_names(Buf *out); // "hermes, llama3, ..."

// What an answer may say that has these tools: text that is free until a call begins, and calls, as tools->choice wants
// them. QUILL_USAGE: a tool's parameters are no schema that is supported.
Status call_format_rules(const CallFormat *f, const Tools *tools, const Tokenizer *t, Rules *r, int *expr);

enum { CALL_HIDDEN = 0xff, CALL_SHOWN = 0xfe }; // bytes of `said` around marks that are no part of the text

// The calls in what an answer said: OpenAI's list of {"id","type","function":{"name","arguments"}}, arguments as a text
// of JSON; NULL: there are none. rest: the text besides, without marks.
json_t *call_format_read(const CallFormat *f, const Tools *tools, Str said, Buf *rest);

#endif
