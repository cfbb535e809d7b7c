// cli/escape.c: see cli/escape.h.
#include "cli/escape.h"

#include <stdio.h>

void cli_put(const char *text, const CliEscape *escapes) {
    for (; *text; text++) {
        const CliEscape *e = escapes;
        while (e->c && e->c != *text) e++;
        if (e->c) fputs(e->as, stdout);
        else putchar(*text);
    }
}
