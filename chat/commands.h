// chat/commands.h: what a line that begins with / does: one table of commands.
#ifndef QUILL_COMMANDS_H
#define QUILL_COMMANDS_H

#include "chat/conversation.h"
#include "chat/settings.h"
#include "term/lines.h"

typedef struct {
    Conversation *talk;
    AnswerConfig *config; // what /set writes
    Settings settings;
    Lines *lines;  // where questions are asked; NULL: nowhere
    Buf beginning; // of the next message: what /read has read
    char *file;    // that the conversation was loaded from or saved to; NULL: none
    bool autosave; // each turn is written to `own`
    char *own;     // the file of autosave; NULL until the first turn
    int saved[2];  // number of messages and of turns at the last autosave
    bool leave;
    bool io_failed; // a command could not read or write its file
} Chat;

// Does what the line asks for. False: it is no command but a message, *text (of which // and a space before a slash
// give one slash). *st is what ends the chat; errors of a command are said on stderr and end nothing.
bool commands_run(Chat *c, Str line, Str *text, Status *st);
// Complete of term/lines.h: commands, names to set, files. `arg` is not looked at.
bool commands_complete(void *arg, Str before, size_t *from, Buf *words);
// Prints a hint if the line is exit, quit, bye, :q, help or ? alone: how to leave, or where the help is. False: it is
// none of these.
bool commands_hint(Str line);
// /load, also for --load and --continue. `given`: a setting that differs from its default came from a flag and stays.
Status commands_load(Chat *c, const char *path, bool given);
Status commands_autosave(Chat *c); // writes the conversation if autosave is on and it has changed; QUILL_IO
const char *commands_describe(int i, char shown[64]); // "/read FILE" and its help; NULL: there are no more
void commands_free(Chat *c);

#endif
