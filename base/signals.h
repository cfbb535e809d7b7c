// base/signals.h: SIGINT, SIGTERM and SIGHUP as a flag; the loops check it between two steps, base/fd.h while it waits.
//
// The flag is global, since a signal handler gets no argument. The second signal of the same kind kills the process at
// once, unless signals_catch_two was called. A second SIGHUP does not: a terminal that is closed sends two. A signal
// that is ignored at the start (nohup, a shell's &) stays ignored, except SIGINT while a line is edited on a terminal
// (signals_watch).
#ifndef QUILL_SIGNALS_H
#define QUILL_SIGNALS_H

#include <stdbool.h>

#include "base/status.h"

void signals_catch(void);    // makes the signals set the flag. Clears an earlier SIGINT, never the others
int signals_caught(void);    // number of the signal that was caught, 0: none
bool signals_came(void);     // whether one was caught
Status signals_status(void); // the Status of work that a signal ended: 128 + its number, no message
bool signals_ends(void);     // whether one was caught that ends the program, not only an answer: SIGTERM or SIGHUP
int signals_times(void);     // how many were caught since signals_catch
void signals_release(void);  // makes the signals kill the process again; the flag keeps its value
// Like signals_catch, but the second signal is caught too; a third kills. The handler of the second one writes `said`
// to stderr at once, whatever the process is doing; NULL: nothing. The text must outlive signals_release.
void signals_catch_two(const char *said);
// From now on a SIGINT, SIGTERM or SIGHUP that kills the process calls `clean` before, whether or not an earlier one
// was caught. `clean` may only do what a signal handler may do.
void signals_before_kill(void (*clean)(void));
// Between signals_hold(true) and signals_hold(false) no such signal kills: it waits for the end. For a few system calls
// that `clean` must find done or not begun.
void signals_hold(bool hold);

// Keeps these signals away from the calling thread, so that the main thread handles all of them. Called by threads of
// work: after a stop, any thread may take a signal, while the main thread goes on.
void signals_leave(void);

// While a line is edited: SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT and SIGWINCH write their number as one byte to a
// pipe, so that one poll waits for keys and signals. Returns the pipe's reading end, which does not block; -1: there is
// no pipe. signals_unwatch restores the default actions.
int signals_watch(void);
void signals_unwatch(void);

#endif
