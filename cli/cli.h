// cli/cli.h: the command line, parsed into one struct.
//
// Each row of the table in cli/table.c holds an option's flags, modes, type, range, default and help. Parsing, --help
// and did-you-mean walk the same table.
#ifndef QUILL_CLI_H
#define QUILL_CLI_H

#include "cli/docs.h"

// What the parse decided: go on; or stop with exit code 0 when cli_print has printed o->page; or a QUILL_USAGE.
Status cli_parse(int argc, char **argv, Options *o, bool *stop);
void cli_free(Options *o);

#endif
