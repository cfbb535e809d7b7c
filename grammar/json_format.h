// grammar/json_format.h: regular expressions (grammar/regex.h) for JSON Schema's `format` keyword.
#ifndef QUILL_JSON_FORMAT_H
#define QUILL_JSON_FORMAT_H

const char *json_format_regex(const char *format); // NULL: an unknown format
extern const char json_format_names[];             // the known formats, for messages

#endif
