// chat/settings.h: the options that a chat can change while it runs: sampling, length, verbose, markdown.
#ifndef QUILL_SETTINGS_H
#define QUILL_SETTINGS_H

#include <jansson.h>

#include "answer/answer_config.h"
#include "base/base.h"

typedef struct {
    AnswerConfig *config; // written by settings_set
    char **texts;         // (n_texts) that config points to
    int n_texts;
} Settings;

// Errors as cli_chat_set's.
Status settings_set(Settings *s, const char *name, const char *value);
// Prints a setting on stderr; all of them if the name is empty. QUILL_USAGE: there is none of that name.
Status settings_show(const Settings *s, const char *name);
// Sampling and length, as transcript_settings takes them; a random seed is left out.
json_t *settings_json(const AnswerConfig *config);
// Applies the settings in the JSON of a saved conversation. `given`: a setting that differs from its default was set by
// a flag and stays. What cannot be set is reported on stderr, with `file` in front.
void settings_load(Settings *s, const char *file, Str json, bool given);
void settings_free(Settings *s);

#endif
