// base/status.c: see base/status.h.
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/control.h"

Status status_error(int code, const char *format, ...) {
    Status st = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(st.message, sizeof st.message, format, args);
    va_end(args);
    control_replace(st.message);
    return st;
}

void status_append(Status *st, const char *lines) {
    size_t at = strlen(st->message), n = strlen(lines);
    if (n > 0 && lines[n - 1] == '\n') n--;
    snprintf(st->message + at, sizeof st->message - at, "\n%.*s", (int)n, lines);
}
