// term/recall.h: the history file: the messages of earlier sessions, one a line, newest last, with C escapes.
//
// Its path is $QUILL_HISTORY; if that is empty, there is no history. Without the variable it is `history` in the
// directory of dirs_state. Every session appends each message at once, so that parallel sessions lose nothing. A
// history that cannot be read or written is silently left out.
#ifndef QUILL_RECALL_H
#define QUILL_RECALL_H

#include "base/base.h"

enum { RECALL_MAX = 1000 }; // messages that are kept in the file

// Calls `take` for each message of the file, oldest first, RECALL_MAX at most.
void recall_each(void (*take)(void *arg, Str message), void *arg);
void recall_add(Str message);

// The same for the text of such a file; the line of a message, appended to `out`.
void recall_parse(Str text, void (*take)(void *arg, Str message), void *arg);
void recall_line(Str message, Buf *out);

#endif
