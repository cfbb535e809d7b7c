// term/lines.h: one message at a time, from a terminal with editing and history, or from a plain stream.
//
// A terminal that can edit has libedit: arrows, Emacs or ~/.editrc's keys, history over sessions (term/recall.h),
// Ctrl-R, Tab, and pastes that stay one message however many lines they have. Text between """ and """ is one message,
// on a terminal and in a stream. On a terminal a message also continues after a line that ends in \, and after a key
// that inserts a line end. Every other line of a stream is a message.
#ifndef QUILL_LINES_H
#define QUILL_LINES_H

#include "base/base.h"

typedef struct Lines Lines;

// What Tab offers for the text before the cursor: appends the words that may stand from byte *from on, each with a NUL
// after it. False: Tab is a character here.
typedef bool Complete(void *arg, Str before, size_t *from, Buf *words);

typedef struct {
    bool color;      // of the prompt
    bool no_history; // the history file is neither read nor written
    Complete *complete;
    void *arg;
} LinesSetup;

Lines *lines_open(const LinesSetup *setup);
// The next message, without its end. *end: there is none, and the Status says why: OK (end of input, Ctrl-D),
// QUILL_IO, or 128 + the signal's number (SIGINT: Ctrl-C twice where nothing was typed).
Status lines_read(Lines *l, Buf *message, bool *end);
bool lines_quoted(const Lines *l);   // it stood between """ and """: text, whatever it begins with
bool lines_terminal(const Lines *l); // somebody types
// Asks a question on the terminal. True: the answer begins with y. Enter, Ctrl-C and Ctrl-D mean no.
bool lines_ask(Lines *l, const char *question);
void lines_close(Lines *l); // NULL is fine

#endif
