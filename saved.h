// saved.h: conversations in files: which one a run begins with, and where those lie that a chat saves by itself.
//
// --autosave writes $XDG_STATE_HOME/quill/conversations/DATE-TIME-MODEL.json (~/.local/state without that variable),
// for its owner alone; the last one written with a model's name is the one that --continue means. The form is
// transcript.h's.
#ifndef QUILL_SAVED_H
#define QUILL_SAVED_H

#include "chat.h"

bool saved_dir(char *out, size_t cap); // made if missing; false: there is no such place
// A name that no file has, for a conversation with the model, whose name may be a path. The caller frees it. QUILL_IO.
Status saved_new(const char *model, char **path);
// What --load or --continue names; NULL: neither was given. The caller frees it. QUILL_USAGE: both were, or no
// conversation with the model has been saved.
Status saved_choose(const Options *o, const char *model, char **path);
// The messages of a prompt: those of the conversation that the options name, the system message given (data NULL: the
// conversation's own), the prompt. transcript_free's. Errors as saved_choose's and transcript_read's.
Status saved_prompt(const Options *o, const char *model, bool raw, Str system, Str prompt, Message **out, int *n);

#endif
