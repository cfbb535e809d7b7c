// base/progress.c: see base/progress.h.
#include "base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Progress progress_new(bool quiet) {
    const char *term = getenv("TERM");
    return (Progress){.on = !quiet && isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0)};
}

void progress_show(Progress *p, const char *what, double done, double all) {
    if (!p->on) return;
    p->shown = true;
    fprintf(stderr, "\r%s", what);
    if (all > 0) fprintf(stderr, " %3.0f%%", 100 * done / all);
    fputs("\033[K", stderr);
    fflush(stderr);
}

void progress_erase(Progress *p) {
    if (!p->shown) return;
    p->shown = false;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
