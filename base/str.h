// base/str.h: a view of bytes (Str), and bytes that grow (Buf).
#ifndef QUILL_STR_H
#define QUILL_STR_H

#include <stdbool.h>
#include <stddef.h>

// A view of bytes that it does not own; not NUL-terminated.
typedef struct {
    const char *data;
    size_t n;
} Str;

static inline Str str_of(const char *c_string) { return (Str){c_string, __builtin_strlen(c_string)}; }
bool str_eq(Str a, Str b);
bool str_is(Str a, const char *c_string);
bool str_has_prefix(Str a, const char *c_string);
bool str_has_suffix(Str a, const char *c_string);
Str str_trim(Str s);       // without the white space (isspace) at both ends
bool str_is_yes(Str s);    // "y" or "yes" in any case, between white space
int str_hex_digit(char c); // 0..15; -1: not a hexadecimal digit
// Appends a name to the text in list[0..size), ", " between it and what is there. A name that does not fit is cut off.
void str_list(char *list, size_t size, const char *name);

// Growable bytes, always NUL-terminated once something was appended. Start from (Buf){0}; the owner calls buf_free.
typedef struct {
    char *data;
    size_t n, cap;
} Buf;

void buf_append(Buf *b, const void *bytes, size_t n);
void buf_str(Buf *b, const char *c_string);
void buf_printf(Buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_reserve(Buf *b, size_t n); // makes room for n more bytes and a NUL; appends nothing
void buf_drop(Buf *b, size_t n);    // removes the first n bytes, n <= b->n
void buf_free(Buf *b);
static inline Str str_of_buf(const Buf *b) { return (Str){b->data, b->n}; } // valid until the next change of b

#endif
