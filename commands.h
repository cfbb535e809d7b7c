// commands.h: what a line that begins with / does: one table of commands.
#ifndef QUILL_COMMANDS_H
#define QUILL_COMMANDS_H

#include "conversation.h"
#include "lines.h"
#include "settings.h"

typedef struct {
    Conversation *talk;
    Options *o; // what /set writes
    Settings settings;
    Lines *lines;  // whom to ask; NULL: nobody
    Buf beginning; // of the next message: what /read has read
    char *file;    // that the conversation was loaded from or saved to; NULL: none
    bool autosave; // each turn is written to
    char *own;     // this file, which has its name from the first turn on
    int saved[2];  // messages and turns when it was written
    bool leave;
    bool io_failed; // a command could not read or write its file
} Chat;

// Does what the line asks for. False: it is no command but a message, *text (of which // and a space before a slash
// give one slash). *st is what ends the chat; errors of a command are said on stderr and end nothing.
bool commands_run(Chat *c, Str line, Str *text, Status *st);
// Complete of lines.h: commands, names to set, files. `arg` is not looked at.
bool commands_complete(void *arg, Str before, size_t *from, Buf *words);
// Says how to leave, or where help is, to somebody who types exit, quit, help alone. False: the line is none of these.
bool commands_hint(Str line);
// What /load does, for --load and --continue: `given`: flags go before the file's settings.
Status commands_load(Chat *c, const char *path, bool given);
Status commands_autosave(Chat *c);                    // writes what has changed, if the chat saves by itself. QUILL_IO.
const char *commands_describe(int i, char shown[64]); // "/read FILE" and its help; NULL: there are no more
void commands_free(Chat *c);

#endif
