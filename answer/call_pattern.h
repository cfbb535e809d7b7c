// answer/call_pattern.h: a format of calls as patterns, which answer/call_format.c writes as rules and
// answer/call_read.c reads back.
//
// A pattern is text with marks between \1 and \1, which are control tokens in most vocabularies, and
//   %n  the tool's name          %a  its arguments, a JSON object     %p  its arguments, each as `param` has it
//   %k  an argument's name       %i  an id of nine letters and digits %c  a number
//   %f  a word                   %s  a space or none                  %l  a line's end or none
//   %w  any white space          %( ... %)  all of that or nothing
// The value of an argument follows `param`, up to the text `end`: a string as it is, other values in JSON.
#ifndef QUILL_CALL_PATTERN_H
#define QUILL_CALL_PATTERN_H

#include <string.h>

#include "base/base.h"

enum { CALL_LONGEST_KEY = 250 }; // bytes of an argument's name in a format with `param`

struct CallFormat {
    const char *name;
    const char *sign, *also;                   // texts that such a template contains
    const char *lead;                          // in front of `open`, where an answer has to begin with a call
    const char *open, *call, *between, *close; // a section; between NULL: it has one call
    const char *param, *end, *after;
    bool starts; // a section is a whole answer: text never turns into a call
    bool again;  // sections may follow each other
};

// The bytes at the beginning of a section that tell it from text: `open` up to its first mark's end or the first %.
static inline Str call_pattern_trigger(const struct CallFormat *f) {
    size_t n = 0;
    const char *s = f->open;
    if (*s == '\1') n = (size_t)(strchr(s + 1, '\1') - s) + 1;
    else n = strcspn(s, "\1%");
    return (Str){s, n};
}

// The length of a group's inside, whose %( is in front of s; groups may lie in it.
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
