// cli/hints.h: suggestions for mistyped options, and notes if a prompt looks like a command.
#ifndef QUILL_HINTS_H
#define QUILL_HINTS_H

#include "cli/table.h"

// The option of this mode that a mistyped flag probably means; false: none is near enough.
bool cli_meant(const char *flag, Mode m, char meant[32]);
// Appends a note if a text looks like the name of a file, or a prompt like a command of another program or a mistyped
// mode. first: the first argument; words: those of the text.
void cli_hint(Mode m, const char *first, int n_words, const char *const *words, Buf *notes);

#endif
