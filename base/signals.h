// base/signals.h: SIGINT and SIGTERM as a flag that the loops look at between two steps, and writes and reads that
// wait.
//
// The one piece of global state: a handler has nobody to ask. A second signal of the same kind kills at once, unless
// signals_catch_two asks for it. SIGINT
// that is ignored at the start stays so, as nohup and a shell's & have it; a chat on a terminal hears it all the same.
#ifndef QUILL_SIGNALS_H
#define QUILL_SIGNALS_H

void signals_catch(void);     // from here on they set the flag; a SIGINT that it holds is forgotten, a SIGTERM never
void signals_catch_two(void); // the same, and the second signal is caught too; a third kills
int signals_caught(void);     // the signal, 0: none
int signals_times(void);      // how many were caught since signals_catch
void signals_release(void);   // from here on they kill as usual; the flag stays

// While a line is edited: SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT and SIGWINCH arrive as bytes, each its number, on
// the descriptor returned (not blocking), so that one poll waits for keys and for them. After
// signals_unwatch they do what they usually do.
int signals_watch(void);
void signals_unwatch(void);

#endif
