// answer/saved.h: saved conversations: the one that a run continues (--load, --continue), and the folder of --autosave.
//
// --autosave writes to $XDG_STATE_HOME/quill/conversations/DATE-TIME-MODEL.json (in ~/.local/state if that variable is
// not set). The folder is readable by its owner only. --continue takes the file with the model's name that was written
// last. answer/transcript.h describes the format.
#ifndef QUILL_SAVED_H
#define QUILL_SAVED_H

#include <sys/types.h>
#include <time.h>

#include "answer/chat_template.h"

// The state of a file when it was read or written.
typedef struct {
    ino_t inode;
    off_t size;
    struct timespec written;
} SavedMark;

// A new file for a conversation with `model`, a name or a path. The file is created empty, which reserves its name:
// several chats may begin in the same second. The caller frees *path. QUILL_IO: the folder or the file cannot be made.
Status saved_new(const char *model, char **path);
SavedMark saved_mark(const char *path); // take it before the file is read, or after it was written
// Whether another program has written the file since `mark`. False: the file was removed.
bool saved_changed(const char *path, const SavedMark *mark);
// The file of --load, otherwise the one that --continue finds; NULL: neither was given. The caller frees *path.
// QUILL_USAGE: --continue, and no conversation with the model was saved. QUILL_IO: as saved_new.
Status saved_choose(const AnswerConfig *config, const char *model, char **path);
// The messages of the saved conversation that `config` names (none without --load and --continue), then the prompt.
// system: replaces the system message unless system.data is NULL. Free *out with transcript_free. Errors as
// saved_choose and transcript_read.
Status saved_prompt(const AnswerConfig *config, const char *model, bool raw, Str system, Str prompt, Message **out,
                    int *n);

#endif
