// cli/hints.h: suggestions for mistyped options, and notes if a prompt looks like a command.
#ifndef QUILL_HINTS_H
#define QUILL_HINTS_H

#include "cli/table.h"

// The option of this mode that a mistyped flag probably means; false: none is near enough.
bool cli_meant(const char *flag, Mode m, char meant[32]);
// Appends a note if a prompt looks like a command of another program, a mistyped mode, or the name of a file. first:
// the first argument; words: those of the prompt.
void cli_hint(const char *first, int n_words, const char *const *words, Buf *notes);

#endif
