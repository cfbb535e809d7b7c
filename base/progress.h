// base/progress.h: a line on stderr that comes and goes while something long runs.
//
// It shows on a terminal alone, and there only where it can be erased again: not under -q, not where TERM is dumb.
#ifndef QUILL_PROGRESS_H
#define QUILL_PROGRESS_H

#include <stdbool.h>

typedef struct {
    bool on;    // there is a terminal that can show it
    bool shown; // the line is there now
} Progress;

Progress progress_new(bool quiet);
void progress_show(Progress *p, const char *what, double done, double all); // "load  42%"; all 0: no percentage
void progress_erase(Progress *p);

#endif
