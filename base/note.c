// base/note.c: see base/note.h.
#include "base/note.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/control.h"

void note_print(bool quiet, const char *format, ...) {
    if (quiet) return;
    char text[4096]; // longer notes are cut
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    control_replace(text);
    fprintf(stderr, "quill: note: %s\n", text); // one call, so that another thread's output does not divide the line
}
