// cli/check.h: checks which options may be used together.
#ifndef QUILL_CLI_CHECK_H
#define QUILL_CLI_CHECK_H

#include "cli/table.h"

// Options that conflict: each of `a` with each of `b`. Between the command line and the configuration file, the
// stronger one is used and the weaker one is ignored (cli/config.c). On one command line they are an error, unless
// allowed_together.
typedef struct {
    const char *a, *b; // names as messages show them, separated by spaces
    bool allowed_together;
    const char *message; // of the error; NULL: "A and B: one of them expected, found both"
} CliConflict;
extern const CliConflict cli_conflicts[];
extern const int cli_n_conflicts;

// Checks that involve several options. Options of the configuration file that need another one, which is missing, get
// their defaults. QUILL_USAGE: options that exclude each other, or a required option is missing.
Status cli_check_together(Options *o);
// Checks for a chat, and for a single prompt, once it is known which of them the run is. cli_check_chat
// also removes options that the configuration file sets for single prompts.
Status cli_check_chat(Options *o);
Status cli_check_prompt(const Options *o);

#endif
