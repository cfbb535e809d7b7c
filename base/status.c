// base/status.c: see base/status.h.
#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

Status status_error(int code, const char *format, ...) {
    Status st = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(st.message, sizeof st.message, format, args);
    va_end(args);
    for (char *c = st.message; *c; c++) { // a file name must not carry escape sequences to a terminal
        bool c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 && (unsigned char)c[1] < 0xa0;
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
        if (c1) c[0] = c[1] = '?';
    }
    return st;
}

void status_append(Status *st, const char *lines) {
    size_t at = strlen(st->message), n = strlen(lines);
    if (n > 0 && lines[n - 1] == '\n') n--;
    snprintf(st->message + at, sizeof st->message - at, "\n%.*s", (int)n, lines);
}
