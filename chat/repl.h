// chat/repl.h: a chat: messages by term/lines.h, commands by chat/commands.h, turns by chat/conversation.h.
#ifndef QUILL_REPL_H
#define QUILL_REPL_H

#include "cli/options.h"

// `first` is the first turn if first.data is not NULL; /set writes to the options. EOF, Ctrl-D and /exit end with OK,
// Ctrl-C twice where nothing is typed with 130.
Status repl_run(Options *o, Str first);

#endif
