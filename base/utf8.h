// base/utf8.h: UTF-8: where characters end, repair of invalid bytes, escapes.
#ifndef QUILL_UTF8_H
#define QUILL_UTF8_H

#include <stdint.h>

#include "base/str.h"

// Length of the character that starts at s (1..4), 0 if the n bytes there cannot start one, -1 if they are the
// beginning of one that is cut off.
int utf8_next(const char *s, size_t n);
// Like utf8_next; also stores the code point of the character in *code. Without a valid character *code keeps its
// value.
int utf8_read(const char *s, size_t n, uint32_t *code);
// Writes the bytes of a character and returns how many. Surrogates are written too. (jansson has a utf8_encode.)
int utf8_write(char out[4], uint32_t code);
// The length of the longest prefix of s that does not end inside a character; invalid bytes count as complete.
size_t utf8_whole(const char *s, size_t n);
// Whether Unicode calls the character white space (White_Space=yes).
bool utf8_is_space(uint32_t code);
// The text without the byte order mark (EF BB BF) that it may begin with.
Str utf8_without_mark(Str text);
// Appends s with every invalid byte replaced by U+FFFD.
void utf8_repair(Buf *out, const char *s, size_t n);
// Appends s as one readable line: \n \t \r \\ and \xNN for control and invalid bytes.
void utf8_escape(Buf *out, const char *s, size_t n);
// Appends s with the escapes of C strings replaced by the bytes they stand for; an unknown escape stays as it is.
void utf8_unescape(Buf *out, const char *s);

#endif
