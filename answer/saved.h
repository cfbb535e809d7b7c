// answer/saved.h: saved conversations: the one that a run continues (--load, --continue), and the folder of --autosave.
//
// --autosave writes to $XDG_STATE_HOME/quill/conversations/DATE-TIME-MODEL.json (in ~/.local/state if that variable is
// not set). The folder is readable by its owner only. --continue takes the file with the model's name that was written
// last. The run saves its conversation in that file. answer/transcript.h describes the format.
#ifndef QUILL_SAVED_H
#define QUILL_SAVED_H

#include <sys/types.h>
#include <time.h>

#include "answer/messages.h"
#include "base/jsonio.h"

// The state of a file when it was read or written.
typedef struct {
    ino_t inode;
    off_t size;
    struct timespec written;
} SavedMark;

// The file of a conversation that is saved.
typedef struct {
    char *path;     // NULL: none yet
    SavedMark mark; // when it was read or written last
} SavedFile;

// What a single answer continues, and the prompt.
typedef struct {
    MessageList messages; // the prompt is the last
    SavedFile file;       // of --continue
    json_t *settings;     // of this file; NULL: none
} SavedTalk;

SavedMark saved_mark(const char *path); // take it before the file is read, or after it was written
// Whether another program has written the file since `mark`. False: the file was removed.
bool saved_changed(const char *path, const SavedMark *mark);
// The file of --load, otherwise the one that --continue finds; NULL: neither was given. The caller frees *path.
// QUILL_USAGE: --continue, and no conversation with the model was saved. QUILL_IO: the directory cannot be made.
Status saved_choose(const AnswerConfig *config, const char *model, char **path);
// The messages of the saved conversation that `config` names (none without --load and --continue), then the prompt.
// system: replaces the system message unless system.data is NULL. Free *out with saved_talk_free, also after an error.
// Errors as saved_choose and transcript_read.
Status saved_prompt(const AnswerConfig *config, const char *model, bool raw, Str system, Str prompt, SavedTalk *out);
void saved_talk_free(SavedTalk *t);

// Writes the messages to the file. If there is none yet, or another program has written to it, a new one is made, and
// its name is reserved: several runs may save in the same second. model: a name or a path. settings: as
// transcript_write. *left: the path of the file that is left as it is; NULL: none; the caller frees it. QUILL_IO: the
// folder or the file cannot be made or written.
Status saved_write(SavedFile *f, const char *model, json_t *settings, const MessageList *messages, char **left);
// Saves a single answer: appends it to `t` and writes all messages with the settings that the file had. Notes on stderr
// if the conversation moves to another file, unless config->quiet. QUILL_IO.
Status saved_answer(const AnswerConfig *config, const char *model, SavedTalk *t, Str answer);

#endif
