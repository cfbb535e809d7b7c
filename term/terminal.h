// term/terminal.h: the terminal's modes: lent to the line editor, given back on every way out.
//
//   terminal_open(STDIN_FILENO, STDERR_FILENO);
//   terminal_lend(); ...a line is edited... terminal_give_back();
//
// Where the process dies in between (a crash, SIGQUIT, exit) a handler gives the modes back first. A kill that cannot
// be caught leaves the terminal as it is, as with every other program.
#ifndef QUILL_TERMINAL_H
#define QUILL_TERMINAL_H

#include "base/base.h"

// Whether fd is a terminal that understands escape sequences; TERM=dumb does not.
bool terminal_is_capable(int fd);
// Whether output to fd gets colours. `when` is always, never, or auto: fd is such a terminal, and NO_COLOR is not set.
bool terminal_color(const char *when, int fd);
int terminal_columns(int fd); // its current width; 0: it is no such terminal, or its width is unknown

// Remembers the modes of `in` as they are to be given back. False: it is no terminal.
bool terminal_open(int in, int out);
void terminal_lend(void);      // pastes come in brackets (ESC [200~ ... ESC [201~); the editor sets its own modes
void terminal_give_back(void); // what terminal_open saw, and plain pastes; async-signal-safe, harmless twice
// Ctrl-Z: gives back, stops the process, and returns when it goes on. The editor sets its modes again.
void terminal_suspend(void);

#endif
