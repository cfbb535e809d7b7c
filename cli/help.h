// cli/help.h: prints -h, --help and --version for 80 columns, from the option table and the descriptions of modes.
#ifndef QUILL_HELP_H
#define QUILL_HELP_H

#include "cli/table.h"

#define QUILL_VERSION "0.1.0"
#define QUILL_DATE "2026-11-22" // of that version, for the man page

// ---- texts that are not in the option table; the man page and the completions have them, too ------------------------

typedef struct {
    const char *usage, *what,
        *examples;      // the first sentence of `what` is the brief; examples are indented by two spaces
    const char *common; // the flags of the short help, separated by spaces
} About;
typedef struct {
    const char *code, *what;
} ExitCode;
extern const About cli_about[N_MODES];
void cli_brief(Mode m, char brief[256]); // the first sentence of `what`, without its full stop, as one line
extern const ExitCode cli_exit_codes[];  // (cli_n_exit_codes)
extern const int cli_n_exit_codes;
extern const char *const cli_groups[N_GROUPS]; // titles

// ---- to stdout ------------------------------------------------------------------------------------------------------

void cli_help(Mode m);       // --help: every option
void cli_short_help(Mode m); // -h: the common options, in at most 30 lines
void cli_version(void);

#endif
