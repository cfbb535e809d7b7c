// cli/config.h: options from a file: $XDG_CONFIG_HOME/quill/config, with ~/.config in place of an unset
// XDG_CONFIG_HOME.
//
//   # what holds for every run
//   model = ~/models/qwen3.gguf
//   threads = 4
//
//   [commit]
//   prompt = Write a commit message for this diff.
//   temp = 0.2
//
// An option a line, by a long name of the table without its dashes; on or off for one that takes no value. A line that
// begins with # is a comment, and so is what follows a blank and a #; "..." around a value keeps blanks and #. ~/ is
// the home directory where a path is expected. What stands in front of the first [name] holds always, a section for
// --preset NAME. An option that a mode does not have is passed over there. The prompt's own options belong into
// sections.
//
// The command line comes first, then the environment, the preset, the file's beginning, the table's default.
#ifndef QUILL_CONFIG_H
#define QUILL_CONFIG_H

#include "cli/values.h"

// Who has given an option its value, from the weakest to the strongest.
typedef enum { BY_DEFAULT, BY_FILE, BY_PRESET, BY_ENVIRONMENT, BY_FLAG } Giver;

typedef struct {
    Giver by;
    int line; // of the file
} Origin;

// Sets what the file says and nobody stronger has said. origins: (cli_n_options) of the options as they are, kept up to
// date. QUILL_USAGE: a line that cannot be, with the file's name and the line's number; --preset NAME without such a
// section. QUILL_IO: the file is there and cannot be read.
Status config_apply(Options *o, Origin *origins);
// "QUILL_MODEL", "the command line", "FILE:12", appended.
void config_origin(const Option *row, const Origin *origin, Buf *out);
// What applies, in the file's own form, and where it comes from: --show-config, to stdout.
void config_show(const Options *o, const Origin *origins);

#endif
