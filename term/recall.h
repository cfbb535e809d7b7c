// term/recall.h: what was typed in earlier sessions: a file of one message a line, newest last, in C's escapes.
//
// It is $QUILL_HISTORY, which may be empty: nothing is remembered then. Without that variable it is `history` in
// dirs_state(); every session appends as it goes, so that two at once lose nothing. Where there is no such
// place, or it cannot be written, nothing is remembered and nothing is said.
#ifndef QUILL_RECALL_H
#define QUILL_RECALL_H

#include "base/base.h"

enum { RECALL_MAX = 1000 }; // messages that are kept

// Hands the remembered messages over, oldest first, RECALL_MAX at most.
void recall_each(void (*take)(void *arg, Str message), void *arg);
void recall_add(Str message);

// The file's own form: its text into messages, as above; a message into its line, appended.
void recall_parse(Str text, void (*take)(void *arg, Str message), void *arg);
void recall_line(Str message, Buf *out);

#endif
