// cli/docs.h: what quill says of its options: help, the man page, completions; what a wrong option was meant to be.
#ifndef QUILL_CLI_DOCS_H
#define QUILL_CLI_DOCS_H

#include "cli/table.h"

#define QUILL_VERSION "0.1.0"
#define QUILL_DATE "2026-11-22" // of that version, for the man page

// ---- what the table does not say ------------------------------------------------------------------------------------

typedef struct {
    const char *usage, *what, *examples; // what: its first sentence is the brief; examples: two spaces, a line each
    const char *common;                  // the flags that the short help has, separated by spaces
} About;
typedef struct {
    const char *code, *what;
} ExitCode;
extern const About cli_about[N_MODES];
void cli_brief(Mode m, char brief[256]); // the first sentence, without its full stop, as one line
extern const ExitCode cli_exit_codes[];
extern const int cli_n_exit_codes;
extern const char *const cli_groups[N_GROUPS];

// Text to stdout with some characters written otherwise; the list ends with {0, NULL}.
typedef struct {
    char c;
    const char *as;
} CliEscape;
void cli_put(const char *text, const CliEscape *escapes);

// ---- to stdout ------------------------------------------------------------------------------------------------------

void cli_help(Mode m);       // every option
void cli_short_help(Mode m); // the common ones: at most 30 lines
void cli_version(void);
// roff, for man(1). The chat's commands come from their own table: describe(i, shown) returns the help of the i-th and
// writes "/read FILE" into `shown`; NULL: there are no more.
typedef const char *(*CliCommands)(int i, char shown[64]);
void cli_man(CliCommands describe);
void cli_completions(const char *shell); // bash, zsh, fish

void cli_print(const Options *o, CliCommands describe); // the page that the arguments asked for, to stdout

// ---- what was meant -------------------------------------------------------------------------------------------------

// The option of this mode that an unknown one was meant to be; false: none comes near.
bool cli_meant(const char *flag, Mode m, char meant[32]);
// Appends a line for stderr where a prompt looks like a command: the words of the prompt, of which the first may be the
// first argument.
void cli_hint(const char *first, int n_words, const char *const *words, Buf *notes);

#endif
