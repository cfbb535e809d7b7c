// repl.h: a chat, line by line: a plain loop that works on any terminal and in a pipe.
//
// The conversation's KV stays in the cache; a turn computes only what is new. Nothing is ever dropped silently: a turn
// that no longer fits is refused and the conversation stays as it was.
#ifndef QUILL_REPL_H
#define QUILL_REPL_H

#include "options.h"

// `first` is the first turn if first.data is not NULL. EOF and /exit end with OK, Ctrl-C twice with 130.
Status repl_run(const Options *o, Str first);

#endif
