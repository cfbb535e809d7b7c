// cli/cli.h: parses the command line into one struct.
//
// Each row of the table in cli/table.c holds an option's flags, modes, type, range, default and help. Parsing, --help
// and did-you-mean walk the same table.
#ifndef QUILL_CLI_H
#define QUILL_CLI_H

#include "cli/options.h"

// Parses the arguments, the environment and the configuration file. *stop: nothing is to be run; the caller prints
// o->page and exits with code 0. QUILL_USAGE: the arguments are wrong.
Status cli_parse(int argc, char **argv, Options *o, bool *stop);
void cli_free(Options *o);

#endif
