// base/note.c: see base/note.h.
#include "base/note.h"

#include <stdarg.h>
#include <stdio.h>

void note_print(bool quiet, const char *format, ...) {
    if (quiet) return;
    char text[4096]; // longer notes are cut
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++) { // as in status_error: file names must not carry escape sequences to a terminal
        bool c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 && (unsigned char)c[1] < 0xa0;
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
        if (c1) c[0] = c[1] = '?';
    }
    fprintf(stderr, "quill: note: %s\n", text); // one call, so that another thread's output does not divide the line
}
