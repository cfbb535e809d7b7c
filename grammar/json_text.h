// grammar/json_text.h: texts of JSON as rules: strings, literals, any value.
#ifndef QUILL_JSON_TEXT_H
#define QUILL_JSON_TEXT_H

#include <jansson.h>

#include "grammar/rules.h"

// A character of these ranges as a JSON string holds it, in its usual form: itself, or an escape. A RegexWriter.
int json_text_ranges(Rules *r, const CharRange *ranges, int n, void *arg);
int json_text_char(Rules *r);       // any character but NUL, in any form; no half of a pair of surrogates
int json_text_plain_char(Rules *r); // any that stands for itself
int json_text_value(Rules *r, const json_t *value); // this value, without spaces
int json_text_quoted(Rules *r, int content);        // between quotes
int json_text_literal(Rules *r, const char *text);
// A key, in quotes, that is none of these names; the names are UTF-8.
int json_text_other_key(Rules *r, const Str *names, int n);

#endif
