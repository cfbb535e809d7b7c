// cli/config.h: options from a file: $XDG_CONFIG_HOME/quill/config, with ~/.config in place of an
// XDG_CONFIG_HOME that is unset or relative.
//
//   # what holds for every run
//   model = ~/models/qwen3.gguf
//   threads = 4
//
//   [commit]
//   prompt = Write a commit message for this diff.
//   temp = 0.2
//
// Each line sets one option, by a long name of the table without its dashes; the value of a flag is on or off. A
// comment begins with # at the beginning of a line or after a blank; quotes "..." around a value keep blanks and #. In
// a path ~/ is the home directory. Lines before the first [name] always apply, a section [NAME] applies with --preset
// NAME. A mode ignores options that it does not have. Options of the prompt are allowed only in sections.
//
// Precedence: the command line, the environment, the preset, the lines before the first section, the table's default.
#ifndef QUILL_CONFIG_H
#define QUILL_CONFIG_H

#include "cli/values.h"

// Sets the options of the file that no stronger source has set, and their o->origins. QUILL_USAGE: a wrong line (the
// message has the file's name and the line's number), or --preset NAME without such a section. QUILL_IO: the file
// exists and cannot be read.
Status config_apply(Options *o);
// Appends the name of an origin: "QUILL_MODEL", "the command line", "FILE:12".
void config_origin(const Option *row, const Origin *origin, Buf *out);
// Appends the origins of the options that a message names before its first semicolon and that nobody typed: "; --isa is
// from FILE:12".
void config_sources(const Options *o, Str message, Buf *out);
// --show-config: prints the options that apply, in the file's form, and where each value comes from, to stdout.
void config_show(const Options *o);

#endif
