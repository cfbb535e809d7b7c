// chat/settings.h: options that a chat can change while it runs (/set): sampling, length, verbose, markdown.
#ifndef QUILL_SETTINGS_H
#define QUILL_SETTINGS_H

#include <jansson.h>

#include "answer/answer_config.h"
#include "base/base.h"

typedef struct {
    AnswerConfig *config; // changed by settings_set
    char **texts;         // (n_texts) values and texts of files that `config` points into
    int n_texts;
} Settings;

// Sets an option, and reads the file that it names. Errors as cli_chat_set; QUILL_IO: the file. After an error, forms
// and tools are as before.
Status settings_set(Settings *s, const char *name, const char *value);
// Prints a setting on stderr, or all settings if the name is empty. QUILL_USAGE: unknown name.
Status settings_show(const Settings *s, const char *name);
// The settings of sampling and length, as transcript_settings reads them. A random seed is left out.
json_t *settings_json(const AnswerConfig *config);
// Applies the settings of a saved conversation. A file with settings resets forms, tools and a seed that it does not
// have: settings_json leaves them out if they are not set. given: settings that differ from their defaults came from
// flags and are not replaced. Reports settings that cannot be applied on stderr, with `file` in front.
void settings_load(Settings *s, const char *file, Str json, bool given);
void settings_free(Settings *s);

#endif
