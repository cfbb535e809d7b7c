// grammar/json_format.h: the formats of JSON Schema that are regular, as expressions (grammar/regex.h).
#ifndef QUILL_JSON_FORMAT_H
#define QUILL_JSON_FORMAT_H

const char *json_format_regex(const char *format); // NULL: none of them
extern const char json_format_names[];             // for messages

#endif
