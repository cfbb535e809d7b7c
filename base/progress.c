// base/progress.c: see base/progress.h.
#include "base/progress.h"

#include "base/fd.h"

#include <stdio.h>
#include <unistd.h>

Progress progress_new(bool quiet) { return (Progress){.on = !quiet && fd_is_capable_terminal(STDERR_FILENO)}; }

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
