// jinja/text.h: Python's string methods for strings with a trust flag for each byte (jinja/value.h).
//
// Positions and lengths that a template sees count characters; an invalid byte counts as a character. Case, spaces and
// digits follow Unicode, one character at a time.
#ifndef QUILL_JINJA_TEXT_H
#define QUILL_JINJA_TEXT_H

#include "jinja/value.h"

// A string that is being built. Start from (TextOut){.h = heap}; text_done or text_drop frees it.
typedef struct {
    Heap *h;
    Buf bytes;
    Buf marks; // (bytes.n)
} TextOut;

void text_put(TextOut *o, MarkedText t);
void text_put_bytes(TextOut *o, const char *bytes, size_t n, bool trusted);
void text_put_str(TextOut *o, const char *c_string, bool trusted);
MarkedText text_done(TextOut *o); // returns the string, in the heap
void text_drop(TextOut *o);

int text_char(const char *s, size_t n, uint32_t *code); // returns its bytes; code above 0x10ffff: not UTF-8
int text_encode(char out[4], uint32_t code);            // returns the number of bytes
bool text_is_space(uint32_t code);                      // as Python's str.isspace
bool text_is_printable(uint32_t code);                  // nearly as Python's str.isprintable

MarkedText text_cut(MarkedText t, size_t at, size_t n); // bytes [at, at + n), as a view
bool text_trusted(MarkedText t);                        // whether all bytes are trusted
MarkedText text_concat(Heap *h, MarkedText a, MarkedText b);
MarkedText text_repeat(Heap *h, MarkedText t, int64_t n);
MarkedText text_strip(Heap *h, MarkedText t, const MarkedText *chars, bool left, bool right); // chars NULL: white space
MarkedText text_replace(Heap *h, MarkedText t, MarkedText old, MarkedText new, int64_t most); // most < 0: all
MarkedText text_escape(Heap *h, MarkedText t);                                                // & < > " ' for HTML
MarkedText text_indent(Heap *h, MarkedText t, MarkedText by, bool first, bool blank);
// `fill` is one byte; the padding has its trust. side: -1 aligns left, 0 centres, 1 aligns right.
MarkedText text_pad(Heap *h, MarkedText t, int64_t width, MarkedText fill, int side);

typedef enum { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP, CASE_FILTER_TITLE } TextCase;
MarkedText text_case(Heap *h, MarkedText t, TextCase to); // CASE_FILTER_TITLE: with the words of the filter title

// Whether the text is not empty and all characters are of this kind: "alpha", "digit", "alnum", "space", "lower",
// "upper".
bool text_is(Heap *h, MarkedText t, const char *kind);

Value text_split(Heap *h, MarkedText t, const MarkedText *separator, int64_t most,
                 bool from_right); // separator NULL: white space
Value text_lines(Heap *h, MarkedText t, bool keep_ends);
Value text_partition(Heap *h, MarkedText t, MarkedText separator, bool from_right);
int64_t text_find(Heap *h, MarkedText t, MarkedText part, bool from_right); // in characters; -1: nowhere
int64_t text_count(Heap *h, MarkedText t, MarkedText part);
int64_t text_count_words(Heap *h, MarkedText t); // runs of letters, digits and _, as \w+ of Python

// Python's t[from:to:step]; op_slice (jinja/ops.c) has already brought the bounds into range.
MarkedText text_slice(Heap *h, MarkedText t, int64_t from, int64_t to, int64_t step);

// Reads the digits of a width or a precision at i, and returns the offset after them. Fails above 10000.
size_t text_width(Heap *h, Str s, size_t i, int *out);

#endif
