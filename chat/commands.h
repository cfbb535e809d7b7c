// chat/commands.h: the commands of a chat: lines that begin with /.
#ifndef QUILL_COMMANDS_H
#define QUILL_COMMANDS_H

#include "answer/saved.h"
#include "chat/conversation.h"
#include "chat/settings.h"
#include "term/lines.h"

typedef struct {
    Conversation *talk;
    AnswerConfig *config; // changed by /set
    Settings settings;
    Lines *lines;   // asks questions; NULL: nobody can be asked
    Buf beginning;  // text that /read has put in front of the next message
    char *file;     // the file that the conversation was loaded from or saved to; NULL: none
    bool has_kv;    // its KV cache was loaded from or saved to FILE.kv
    bool autosave;  // write the conversation to `own` after each turn
    SavedFile own;  // the file of autosave; none until the first turn
    int saved[2];   // number of messages and of turns at the last autosave
    bool leave;     // /exit was called
} Chat;

// Sends a message, after the text that /read has put in front of it; if the message is not taken, that text stays.
Status commands_say(Chat *c, Str text);
// Runs the command in the line. False: the line is not a command but the message *text, in which // or a space and /
// at the beginning have become one slash. *st: an error that ends the chat; other errors of a command go to stderr.
bool commands_run(Chat *c, Str line, Str *text, Status *st);
// Complete of term/lines.h: completes commands, names of settings and files. `arg` is not used.
bool commands_complete(void *arg, Str before, size_t *from, Buf *words);
// Prints a hint if the line is exit, quit, bye, :q, help or ? alone: how to leave, or where the help is. False: the
// line is another one.
bool commands_hint(Str line);
// Loads a conversation: /load, --load, --continue. given: settings that differ from their defaults came from flags and
// are not replaced.
Status commands_load(Chat *c, const char *path, bool given);
Status commands_autosave(Chat *c); // writes the conversation if autosave is on and it has changed; QUILL_IO
const char *commands_describe(int i, char shown[64]); // "/read FILE" and its help; NULL: there are no more
void commands_free(Chat *c);

#endif
