// chat/repl.h: the main loop of a chat: reads lines (term/lines.h), runs commands (chat/commands.h) and turns
// (chat/conversation.h).
#ifndef QUILL_REPL_H
#define QUILL_REPL_H

#include "cli/options.h"

// Runs a chat until its input ends. first: the first message; data NULL: none. /set changes o->answer. EOF, Ctrl-D and
// /exit return OK on a terminal, otherwise the code of the first failed command or answer, whose message was printed;
// Ctrl-C twice on an empty line returns 130.
Status repl_run(Options *o, Str first);

#endif
