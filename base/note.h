// base/note.h: notes: lines on stderr about what a run did differently than expected, or about what the user can do.
// They are not printed with -q.
#ifndef QUILL_NOTE_H
#define QUILL_NOTE_H

#include <stdbool.h>

// Prints "quill: note: ", the text and a newline to stderr, unless `quiet`. The text is one sentence without a full
// stop at its end.
void note_print(bool quiet, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
