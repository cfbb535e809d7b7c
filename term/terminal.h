// term/terminal.h: colours, width and modes of the terminal. The modes are changed for the line editor and restored
// however quill ends.
//
//   terminal_open(STDIN_FILENO, STDERR_FILENO);
//   terminal_lend(); ...a line is edited... terminal_give_back();
//
// If the process ends in between (a crash, SIGQUIT, exit), a handler restores the modes first. After SIGKILL, which
// cannot be caught, the terminal stays as it is.
#ifndef QUILL_TERMINAL_H
#define QUILL_TERMINAL_H

#include "base/base.h"

// Whether output to fd gets colours. `when` is always, never, or auto: fd_is_capable_terminal, and NO_COLOR is not set.
bool terminal_color(const char *when, int fd);
int terminal_columns(int fd); // its current width; 0: fd is no such terminal, or its width is unknown

// Stores the modes of `in`, which terminal_give_back restores. False: `in` is not a terminal.
bool terminal_open(int in, int out);
void terminal_lend(void);      // turns bracketed pastes on (ESC [200~ ... ESC [201~); the editor sets its own modes
void terminal_give_back(void); // restores the modes, turns bracketed pastes off; async-signal-safe
// Ctrl-Z: restores the modes, stops the process, and returns when it continues. The caller lends the terminal again.
void terminal_suspend(void);

#endif
