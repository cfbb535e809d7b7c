// base/signals.h: SIGINT and SIGTERM as a flag; the loops check it between two steps, base/fd.h while it waits.
//
// The flag is global, since a signal handler gets no argument. The second signal of the same kind kills the process at
// once, unless signals_catch_two was called. A SIGINT that is ignored at the start (nohup, a shell's &) stays ignored,
// except while a line is edited on a terminal (signals_watch).
#ifndef QUILL_SIGNALS_H
#define QUILL_SIGNALS_H

void signals_catch(void);     // makes the signals set the flag. Clears an earlier SIGINT, never a SIGTERM
void signals_catch_two(void); // likewise, but the second signal is caught too; a third kills
int signals_caught(void);     // number of the signal that was caught, 0: none
int signals_times(void);      // how many were caught since signals_catch
void signals_release(void);   // makes the signals kill the process again; the flag keeps its value

// While a line is edited: SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT and SIGWINCH write their number as one byte to a
// pipe, so that one poll waits for keys and signals. Returns the pipe's reading end, which does not block; -1: there is
// no pipe. signals_unwatch restores the default actions.
int signals_watch(void);
void signals_unwatch(void);

#endif
