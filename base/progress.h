// base/progress.h: a line on stderr that shows the progress of a long operation and is erased at its end.
//
// It is shown only on a terminal that can erase it (not with TERM=dumb), and not under -q.
#ifndef QUILL_PROGRESS_H
#define QUILL_PROGRESS_H

#include <stdbool.h>

typedef struct {
    bool on;    // stderr is a terminal that can show and erase the line
    bool shown; // the line is on the screen now
} Progress;

Progress progress_new(bool quiet);
void progress_show(Progress *p, const char *what, double done, double all); // "load  42%"; all 0: no percentage
void progress_erase(Progress *p);

#endif
