// base/jsonio.h: JSON by jansson, with quill's rules for failures.
//
// jsonio_start makes jansson allocate with mem_alloc: without memory the process ends with QUILL_MEMORY, and no object
// lacks a member. The other failures are bugs of the caller: a number that is not finite, a text that is not UTF-8,
// NULL as a value. The functions here then end the process with QUILL_INTERNAL, so that incomplete JSON is never
// written.
#ifndef QUILL_JSONIO_H
#define QUILL_JSONIO_H

#include <jansson.h>

#include "base/str.h"

void jsonio_start(void); // before any other call of jansson

// ---- writing --------------------------------------------------------------------------------------------------------

// These take over the reference to `value`, as jansson's _new functions do; jsonio_share adds a reference.
void jsonio_put(json_t *object, const char *key, json_t *value);
void jsonio_share(json_t *object, const char *key, json_t *value);
void jsonio_append(json_t *array, json_t *value);
void jsonio_put_token(json_t *object, int id, Str piece); // "id", "piece" and "bytes"
json_t *jsonio_text(Str bytes);                           // as a JSON string, invalid UTF-8 repaired
json_t *jsonio_number(double v, int digits);              // rounded; null if it is not finite
// Appends the output of json_dumps with these flags. Without JSON_REAL_PRECISION, reals have as few digits, 15 or more,
// as give the same numbers again.
void jsonio_print(const json_t *value, size_t flags, Buf *out);
void jsonio_line(json_t *object, Buf *out); // one line and its newline; drops the object

// ---- reading --------------------------------------------------------------------------------------------------------

// json_loadb over a text that may begin with a byte order mark, as some editors write it. NULL: *error says why.
json_t *jsonio_read(Str text, size_t flags, json_error_t *error);

#endif
