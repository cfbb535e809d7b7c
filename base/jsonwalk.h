// base/jsonwalk.h: JSON read value by value, without a tree: for files whose lists have hundreds of thousands of
// entries. jansson (base/jsonio.h) reads all others.
//
//   JsonWalk w = jsonwalk_start(text);
//   Str key, raw;
//   if (jsonwalk_enter(&w, '{'))
//       while (jsonwalk_member(&w, &key))
//           if (str_is(key, "n")) jsonwalk_int(&w, &n); else jsonwalk_skip(&w, &raw);
//   if (w.error) ...                                    // at byte w.at - text.data
//
// After an error every function returns false and changes nothing. A caller that reads a whole document calls
// jsonwalk_ended at its end.
#ifndef QUILL_JSONWALK_H
#define QUILL_JSONWALK_H

#include <stdint.h>

#include "base/str.h"

typedef struct {
    const char *at, *end;
    const char *error; // what was expected at `at`; NULL: no error yet
    bool first;        // the next value is the first of its object or array
    Buf key;           // memory for keys with escapes
} JsonWalk;

JsonWalk jsonwalk_start(Str text); // the caller keeps the text alive
void jsonwalk_free(JsonWalk *w);
bool jsonwalk_is(JsonWalk *w, char first); // whether the next value begins with this: { [ " t f n
// Enters the object or array that comes next; `bracket` is { or [.
bool jsonwalk_enter(JsonWalk *w, char bracket);
// Reads the next member's key; its value comes next. False: the object has ended, or an error. The key is valid until
// the next call of jsonwalk_member.
bool jsonwalk_member(JsonWalk *w, Str *key);
bool jsonwalk_element(JsonWalk *w); // true: another value of the array comes; false: it has ended, or an error

// Reads the next value, a string: appends it to `out` with its escapes decoded, as UTF-8.
bool jsonwalk_string(JsonWalk *w, Buf *out);
bool jsonwalk_int(JsonWalk *w, int64_t *out); // a whole number
// Skips any value; *raw is its text, in which only the nesting of brackets was checked.
bool jsonwalk_skip(JsonWalk *w, Str *raw);
bool jsonwalk_ended(JsonWalk *w); // nothing but white space is left

#endif
