// cli/docs.h: documentation of the options: help, the man page, completions; suggestions for mistyped options.
#ifndef QUILL_CLI_DOCS_H
#define QUILL_CLI_DOCS_H

#include "cli/table.h"

#define QUILL_VERSION "0.1.0"
#define QUILL_DATE "2026-11-22" // of that version, for the man page

// ---- texts that are not in the option table -------------------------------------------------------------------------

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
extern const ExitCode cli_exit_codes[];
extern const int cli_n_exit_codes;
extern const char *const cli_groups[N_GROUPS];

// Prints text to stdout and replaces some characters; the list of escapes ends with {0, NULL}.
typedef struct {
    char c;
    const char *as;
} CliEscape;
void cli_put(const char *text, const CliEscape *escapes);

// ---- to stdout ------------------------------------------------------------------------------------------------------

void cli_help(Mode m);       // --help: every option
void cli_short_help(Mode m); // -h: the common options, in at most 30 lines
void cli_version(void);
// Prints the man page in roff. The chat's commands come from their own table: describe(i, shown) returns the help of
// command i and writes its form, as "/read FILE", into `shown`; NULL: there are no more.
typedef const char *(*CliCommands)(int i, char shown[64]);
void cli_man(CliCommands describe);
void cli_completions(const char *shell); // bash, zsh, fish

void cli_print(const Options *o, CliCommands describe); // prints o->page to stdout

// ---- suggestions ----------------------------------------------------------------------------------------------------

// The option of this mode that a mistyped flag probably means; false: none is near enough.
bool cli_meant(const char *flag, Mode m, char meant[32]);
// Appends a note if a prompt looks like a command of another program, a mistyped mode, or the name of a file. first:
// the first argument; words: those of the prompt.
void cli_hint(const char *first, int n_words, const char *const *words, Buf *notes);

#endif
