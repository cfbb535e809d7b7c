// answer/saved.h: conversations in files: the one that a run begins with, and the folder of autosave.
//
// --autosave writes to $XDG_STATE_HOME/quill/conversations/DATE-TIME-MODEL.json (in ~/.local/state if that variable is
// not set). The folder is readable by its owner only. --continue takes the file with the model's name that was written
// last. answer/transcript.h describes the format.
#ifndef QUILL_SAVED_H
#define QUILL_SAVED_H

#include "answer/chat_template.h"

bool saved_dir(char *out, size_t cap); // created if missing; false: it cannot be
// A new file name for a conversation with `model`, which may be a path. The caller frees it. QUILL_IO.
Status saved_new(const char *model, char **path);
// The file that --load names, or else the one that --continue finds; NULL: neither was given. The caller frees it.
// QUILL_USAGE: no conversation with the model has been saved.
Status saved_choose(const AnswerConfig *config, const char *model, char **path);
// The messages for one prompt: those of the conversation that `config` names, with `system` in place of its system
// message if system.data is not NULL, then the prompt. Free them with transcript_free. Errors: saved_choose's and
// transcript_read's.
Status saved_prompt(const AnswerConfig *config, const char *model, bool raw, Str system, Str prompt, Message **out,
                    int *n);

#endif
