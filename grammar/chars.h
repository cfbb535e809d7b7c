// grammar/chars.h: what both notations read alike: sets of characters, which are ranges in a Buf; numbers.
#ifndef QUILL_CHARS_H
#define QUILL_CHARS_H

#include "grammar/rules.h"

void chars_add(Buf *set, uint32_t first, uint32_t last);
bool chars_set(char letter, Buf *set); // d, w, s, D, W, S, of ASCII; false: none of them
// Appends the ranges of `other`, or of all characters that are not in it.
void chars_append(Buf *set, Buf *other, bool not );
// The number that digits from text.data[*at] on write, which *at passes; one above `most` is any number above it.
int chars_number(Str text, size_t *at, int most);
static inline int chars_count(const Buf *set) { return (int)(set->n / sizeof(CharRange)); }

#endif
