// settings.h: what a chat may change while it runs, by the names of the options: sampling, length, verbose, markdown.
#ifndef QUILL_SETTINGS_H
#define QUILL_SETTINGS_H

#include <jansson.h>

#include "options.h"

typedef struct {
    Options *o;   // what is written to
    char **texts; // (n_texts) that the options point to
    int n_texts;
} Settings;

// Errors as cli_set's.
Status settings_set(Settings *s, const char *name, const char *value);
// A setting, or with an empty name all of them, on stderr. QUILL_USAGE: none of that name.
Status settings_show(const Settings *s, const char *name);
json_t *settings_json(const Options *o); // sampling and length, as transcript_settings takes it; not a random seed
// Sets what the JSON of a saved conversation says. With `given`, what differs from its default stays: a flag has said
// it. What cannot be set is told on stderr, with `file` in front.
void settings_load(Settings *s, const char *file, Str json, bool given);
void settings_free(Settings *s);

#endif
