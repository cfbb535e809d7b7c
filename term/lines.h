// term/lines.h: one message at a time, from a terminal with editing and history, or from a plain stream.
//
// On a capable terminal libedit edits the line: arrow keys, Emacs keys or those of ~/.editrc, a history over sessions
// (term/recall.h), Ctrl-R, Tab, and pastes of several lines as one message. Text between """ and """ is one message, on
// a terminal and in a stream. On a terminal a message also continues after a line that ends in \, and after a key that
// inserts a line end. Every other line of a stream is a message.
#ifndef QUILL_LINES_H
#define QUILL_LINES_H

#include "base/base.h"

typedef struct Lines Lines;

// Completion with Tab: appends the words that may replace the text before the cursor from byte *from on, each followed
// by a NUL. False: there is nothing to complete, and Tab inserts a tab character.
typedef bool Complete(void *arg, Str before, size_t *from, Buf *words);

typedef struct {
    bool color;      // of the prompt
    bool no_history; // the history file is neither read nor written
    Complete *complete;
    void *arg;
} LinesSetup;

Lines *lines_open(const LinesSetup *setup);
// Reads the next message, without its line end. *end: there is no message, and the Status says why: OK (end of input,
// Ctrl-D), QUILL_IO, or 128 + the signal's number (SIGINT: Ctrl-C was pressed twice on an empty line).
Status lines_read(Lines *l, Buf *message, bool *end);
bool lines_quoted(const Lines *l);   // the last message was between """ and """: it is text even if it begins with /
bool lines_terminal(const Lines *l); // stdin is a terminal
// Asks a question on the terminal. True: the answer is y or yes. Enter, Ctrl-C and Ctrl-D mean no.
bool lines_ask(Lines *l, const char *question);
void lines_close(Lines *l); // NULL is fine

#endif
