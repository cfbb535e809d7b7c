// grammar/json_text.h: makes rules for JSON strings, literals and constant values.
#ifndef QUILL_JSON_TEXT_H
#define QUILL_JSON_TEXT_H

#include <jansson.h>

#include "grammar/rules.h"

// A character of these ranges as it is written in a JSON string, itself or an escape. A RegexWriter.
int json_text_ranges(Rules *r, const CharRange *ranges, int n, void *arg);
int json_text_char(Rules *r); // any character except NUL, in every spelling; no unpaired surrogates
int json_text_value(Rules *r, const json_t *value); // this value, without spaces
int json_text_quoted(Rules *r, int content);        // `content` in quotes
int json_text_literal(Rules *r, const char *text);
// A quoted key that is none of these names (UTF-8).
int json_text_other_key(Rules *r, const Str *names, int n);

#endif
