// base/progress.c: see base/progress.h.
#include "base/progress.h"

#include "base/fd.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_COLUMNS = 10, USUAL_COLUMNS = 80, PERCENTAGE = 5, FREE_COLUMNS = 3 };

Progress progress_new(bool quiet) { return (Progress){.on = !quiet && fd_is_capable_terminal(STDERR_FILENO)}; }

// The columns that a line may take: a longer line would go on in the next row, which progress_erase leaves. The last
// ones stay free for the ^C that the terminal shows.
static int columns(void) {
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > LEAST_COLUMNS;
    return (known ? size.ws_col : USUAL_COLUMNS) - FREE_COLUMNS;
}

// The bytes of the text's first `most` characters.
static int first_characters(const char *text, int most) {
    int n = 0, characters = 0;
    for (; text[n]; n++) {
        bool begins = (text[n] & 0xc0) != 0x80; // not inside a UTF-8 character
        if (begins && characters++ == most) break;
    }
    return n;
}

void progress_show(Progress *p, const char *what, double done, double all) {
    if (!p->on) return;
    p->shown = true;
    int room = columns() - (all > 0 ? PERCENTAGE : 0);
    fprintf(stderr, "\r%.*s", first_characters(what, room), what);
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
