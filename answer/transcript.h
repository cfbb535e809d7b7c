// answer/transcript.h: reads and writes a saved conversation: {"messages": [{"role", "content"}...], "settings":
// {"temp": 0.5,
// ...}}. Other keys are ignored.
//
// The file is not trusted: the first wrong message is reported by its number, and roles other than system, user and
// assistant are refused.
#ifndef QUILL_TRANSCRIPT_H
#define QUILL_TRANSCRIPT_H

#include "answer/messages.h"
#include "base/jsonio.h"

// Reads the messages. name: of the file, for error messages. raw: there is no template, so a system message is an
// error. QUILL_USAGE: not a conversation; *out is empty. Call messages_free.
Status transcript_read(const char *name, Str json, bool raw, MessageList *out);
// Calls `take` for each entry of "settings" with the value as a command line has it; for a list first with "default",
// then with each text of the list. The strings are valid during the call. json: a text that transcript_read accepted.
void transcript_settings(Str json, void (*take)(void *arg, const char *name, const char *value), void *arg);
json_t *transcript_settings_json(Str json); // the object "settings"; NULL: there is none. The caller drops it
// Writes {"model", "settings", "messages"} as JSON. settings: steals the reference; NULL: none. QUILL_IO.
Status transcript_write(const char *path, const char *model, json_t *settings, const MessageList *messages);

#endif
