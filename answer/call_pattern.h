// answer/call_pattern.h: patterns that describe a format of tool calls. answer/call_format.c turns them into grammar
// rules, answer/call_read.c parses answers with them.
//
// A pattern is text with marks between \1 and \1, which are control tokens in most vocabularies, and
//   %n  name of the tool         %a  arguments, a JSON object         %p  arguments, each in the form of `param`
//   %k  name of an argument      %i  an id of nine letters and digits %c  a number
//   %f  a word                   %s  optional space                   %l  optional newline
//   %w  any white space          %( ... %)  an optional group
// The value of an argument stands between `param` and `end`: a string without quotes, other values in JSON.
#ifndef QUILL_CALL_PATTERN_H
#define QUILL_CALL_PATTERN_H

#include <string.h>

#include "base/base.h"

enum { CALL_LONGEST_KEY = 250 }; // bytes of an argument's name in a format with `param`

struct CallFormat {
    const char *name;
    const char *sign, *also;                   // texts in every template of this format; also NULL: `sign` is enough
    const char *lead;                          // optional text before `open` in an answer that must begin with a call
    const char *open, *call, *between, *close; // a section; between NULL: a section has one call
    const char *param, *end;                   // an argument of %p: `param`, the value, `end`, an optional newline
    // Not NULL: arguments of %p are `param` and the value, with `join` between them. Strings stand between quotes of
    // this kind, or are JSON; all other values are JSON or like Python's, with such strings inside.
    const char *join, *quote;
    bool starts; // a call is the whole answer, never after text
    bool again;  // several sections may follow each other
};

// Bytes that the name of an argument lacks: they end it.
static inline const char *call_pattern_ends(const struct CallFormat *f) { return f->join ? "<>\"\n:=" : "<>\"\n"; }

// The bytes that announce a section in text: the first mark if `open` begins with one, otherwise `open` up to the first
// mark or placeholder.
static inline Str call_pattern_trigger(const struct CallFormat *f) {
    size_t n = 0;
    const char *s = f->open;
    if (*s == '\1') n = (size_t)(strchr(s + 1, '\1') - s) + 1;
    else n = strcspn(s, "\1%");
    return (Str){s, n};
}

// A text of a pattern that is a single mark, or has none, without the \1.
static inline Str call_pattern_unmarked(Str text) {
    return text.n && text.data[0] == '\1' ? (Str){text.data + 1, text.n - 2} : text;
}

// The length of the group at s, from after its %( to its %). Groups may be nested.
static inline size_t call_pattern_group(const char *s) {
    size_t n = 0;
    for (int open = 1; s[n]; n++) {
        if (s[n] != '%') continue;
        open += s[n + 1] == '(' ? 1 : s[n + 1] == ')' ? -1 : 0;
        if (open == 0) break;
    }
    return n;
}

#endif
