// answer/transcript.h: a saved conversation, read back: {"messages": [{"role", "content"}...]}, and
// "settings": {"temp": 0.5, ...}; other keys are left alone.
//
// The file is anybody's: what is no conversation is refused by its place, and only roles of ours come out of it.
#ifndef QUILL_TRANSCRIPT_H
#define QUILL_TRANSCRIPT_H

#include "answer/chat_template.h"

// Reads the n messages of the JSON; `name` stands in messages, `raw`: there is no template, so no system message.
// QUILL_USAGE: no conversation; *out is NULL then.
Status transcript_read(const char *name, Str json, bool raw, Message **out, int *n);
// Calls `take` for each entry of "settings", with the value as it would be written on a command line; for a list first
// with "default", then with each of its texts. The strings are valid during the call only. `json` is a text that
// transcript_read has accepted.
void transcript_settings(Str json, void (*take)(void *arg, const char *name, const char *value), void *arg);
void transcript_free(Message *m, int n); // with their texts

#endif
