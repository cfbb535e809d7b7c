// term/line_keys.h: keys that work on one line of a message of several lines; libedit's own work on the whole message.
#ifndef QUILL_LINE_KEYS_H
#define QUILL_LINE_KEYS_H

#include <histedit.h>
#include <stdbool.h>

// Whether vi's keys are used. Then ESC ends insert mode, and the rest of an escape sequence is a command.
bool line_keys_vi(EditLine *el);
// Adds the functions quill-up, quill-down, quill-line-start, quill-line-end, quill-kill-before and quill-kill-after.
void line_keys_add(EditLine *el);
// Binds the arrows, Ctrl-A, Ctrl-E, and keys that the functions use. For emacs mode.
void line_keys_bind_emacs(EditLine *el);

#endif
