// grammar/chars.h: sets of characters (CharRanges in a Buf) and numbers, for the parsers of regexes and GBNF.
#ifndef QUILL_CHARS_H
#define QUILL_CHARS_H

#include "grammar/rules.h"

void chars_add(Buf *set, uint32_t first, uint32_t last);
bool chars_set(char letter, Buf *set); // adds the ASCII class d, w, s, D, W or S; false: any other letter
// Appends the ranges of `other` to `set`; with `not` the ranges of all characters that are not in `other`.
void chars_append(Buf *set, Buf *other, bool not );
// Reads a decimal number at text.data[*at] and advances *at past it. A number above `most` may come out as any number
// above `most`.
int chars_number(Str text, size_t *at, int most);
static inline int chars_count(const Buf *set) { return (int)(set->n / sizeof(CharRange)); }

#endif
