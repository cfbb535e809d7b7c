// cli/cli.h: the command line: one table of options, parsed into one struct.
//
// Each row of the table in cli.c holds the flags, the modes it belongs to, type, range, default and help; parsing,
// --help and the did-you-mean walk the same table.
#ifndef QUILL_CLI_H
#define QUILL_CLI_H

#include "cli/options.h"

// What the parse decided: go on, or stop with exit code 0 after --help/--version printed to stdout, or a QUILL_USAGE.
Status cli_parse(int argc, char **argv, Options *o, bool *stop);
void cli_free(Options *o);
const char *cli_mode_name(Mode m);

#define QUILL_VERSION "0.1.0"
#define QUILL_DATE "2026-11-21" // of that version, for the man page

#endif
