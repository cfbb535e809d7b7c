// base/str.c: see base/str.h.
#include "base/str.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/sizes.h"

bool str_eq(Str a, Str b) { return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0); }
bool str_is(Str a, const char *c_string) { return str_eq(a, str_of(c_string)); }
bool str_has_prefix(Str a, const char *c_string) {
    size_t n = strlen(c_string);
    return a.n >= n && (n == 0 || memcmp(a.data, c_string, n) == 0);
}

bool str_has_suffix(Str a, const char *c_string) {
    size_t n = strlen(c_string);
    return a.n >= n && (n == 0 || memcmp(a.data + a.n - n, c_string, n) == 0);
}

bool str_is_yes(Str s) {
    s = str_trim(s);
    return (s.n == 1 || s.n == 3) && strncasecmp(s.data, "yes", s.n) == 0;
}

Str str_trim(Str s) {
    while (s.n > 0 && isspace((unsigned char)s.data[0])) s.data++, s.n--;
    while (s.n > 0 && isspace((unsigned char)s.data[s.n - 1])) s.n--;
    return s;
}

void str_list(char *list, size_t size, const char *name) {
    size_t n = strlen(list);
    snprintf(list + n, size - n, "%s%s", n ? ", " : "", name);
}

int str_hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

void buf_reserve(Buf *b, size_t n) {
    size_t need;
    if (!size_add(b->n, n, &need) || !size_add(need, 1, &need)) mem_refused(n);
    if (need <= b->cap) return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    b->data = mem_resize(b->data, cap);
    b->cap = cap;
}

void buf_append(Buf *b, const void *bytes, size_t n) {
    buf_reserve(b, n);
    if (n) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = 0;
}

void buf_str(Buf *b, const char *c_string) { buf_append(b, c_string, strlen(c_string)); }

void buf_printf(Buf *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    assert(n >= 0);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->n, (size_t)n + 1, format, again);
    va_end(again);
    b->n += (size_t)n;
}

void buf_drop(Buf *b, size_t n) {
    assert(n <= b->n);
    if (n == 0) return;
    memmove(b->data, b->data + n, b->n - n + 1); // includes the NUL
    b->n -= n;
}

void buf_free(Buf *b) {
    free(b->data);
    *b = (Buf){0};
}
