// grammar/cursor.h: a place in a text that is being parsed, and the first error: for the parsers of regexes and GBNF.
#ifndef QUILL_CURSOR_H
#define QUILL_CURSOR_H

#include "base/base.h"

enum {
    CURSOR_DEEPEST = 200,         // the deepest nesting of groups
    CURSOR_MOST_REPEATS = 100000, // the largest count of a repetition
};

typedef struct {
    Str text;
    size_t at;
    int depth;     // of groups
    bool lines;    // errors name the line, and show a word of it in place of one character
    Status failed; // after an error the text counts as read
} Cursor;

// Sets c->failed to an error at the byte `at`, unless there is one already; returns false.
bool cursor_fail(Cursor *c, size_t at, const char *expected);
bool cursor_more(const Cursor *c);            // no error, and not at the end
int cursor_peek(const Cursor *c);             // the next byte; -1: none
bool cursor_eat(Cursor *c, const char *word); // moves past the word; false: another text follows
bool cursor_count(Cursor *c, int *n);         // reads the count of a repetition; false: no digit follows, or an error
bool cursor_nest(Cursor *c, size_t begin);    // enters a group that began at `begin`; false: too deep. Undo: c->depth--
bool cursor_range(const Cursor *c);           // in a class: a - follows, and a character after it
bool cursor_char(Cursor *c, uint32_t *out);   // reads one character of UTF-8

#endif
