// grammar/json_format.h: regular expressions (grammar/regex.h) for JSON Schema's `format` keyword.
#ifndef QUILL_JSON_FORMAT_H
#define QUILL_JSON_FORMAT_H

const char *json_format_regex(const char *format); // NULL: another name, which restricts nothing

#endif
