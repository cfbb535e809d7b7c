// commands.h: what a line that begins with / does: one table of commands.
#ifndef QUILL_COMMANDS_H
#define QUILL_COMMANDS_H

#include "conversation.h"

typedef struct {
    Conversation *talk;
    Options *o;    // what /set writes
    Buf beginning; // of the next message: what /read has read
    char **texts;  // (n_texts) of /set, which the options point to
    int n_texts;
    char *file; // that the conversation was loaded from or saved to; NULL: none
    bool leave;
    bool io_failed; // a command could not read or write its file
} Chat;

// Does what the line asks for. False: it is no command but a message, *text (of which // and a space before a slash
// give one slash). *st is what ends the chat; errors of a command are said on stderr and end nothing.
bool commands_run(Chat *c, Str line, Str *text, Status *st);
// Complete of lines.h: commands, names to set, files. `arg` is not looked at.
bool commands_complete(void *arg, Str before, size_t *from, Buf *words);
const char *commands_describe(int i, char shown[64]); // "/read FILE" and its help; NULL: there are no more
void commands_free(Chat *c);

#endif
