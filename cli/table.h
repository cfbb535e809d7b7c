// cli/table.h: the rows of the option table, for the files that walk it: cli.c parses, cli/help.c explains, cli/man.c
// writes the man page, cli/completions.c the shells' completions.
#ifndef QUILL_CLI_TABLE_H
#define QUILL_CLI_TABLE_H

#include "cli/cli.h"

typedef enum {
    FLAG,        // bool, set to true
    INT,         // int, 4k and 2M suffixes (k = 1024)
    INTS,        // IntList
    SIZE,        // size_t, the same suffixes
    REAL,        // float
    TEXT,        // const char *, argv's own
    INPUT,       // the same, once
    PROMPT_TEXT, // a piece of Options.parts
    PROMPT_FILE, // the same, the name of a file
    COLOR,       // a CHOICE whose value may be missing
    CHOICE,      // const char *, one of the words of `arg`
    STOPS,       // Options.stop, n_stop
    BIAS,        // Options.sampling.bias, n_bias
    SEED,        // uint64_t and seed_given
    KVTYPE,      // int, a TYPE_ of types.h
    LAYERS,      // int: -1 auto, INT_MAX all
    LAYOUT,      // bool paged
    STORE,       // Options.kv_dir, kv_dir_size
    HELP,
    VERSION,
    MAN,
    COMPLETIONS,
} Kind;

typedef enum {
    G_MODEL,
    G_PROMPT,
    G_LENGTH,
    G_SAMPLING,
    G_SPEED,
    G_KV,
    G_BATCH,
    G_BENCH,
    G_LOOK,
    G_CONFIG,
    N_GROUPS
} Group;

typedef struct {
    const char *names; // separated by spaces; the first short and the first long one are shown
    const char *arg;   // what follows; NULL: nothing does; of a CHOICE all that is allowed, a|b|c
    unsigned modes;    // 1 << Mode
    Group group;
    Kind kind;
    size_t at;            // offset into Options
    double least, most;   // INT, SIZE, REAL, LAYERS
    const char *fallback; // the default, as one would write it; NULL: zero of the kind
    const char *help;     // NULL: the flag works and --help leaves it out
} Option;

extern const Option cli_options[];
extern const int cli_n_options;
extern const char *const cli_modes[N_MODES]; // the word that chooses a mode; "" for MODE_RUN

// The row that has this flag, in one of these modes (1 << Mode); NULL: none has.
const Option *cli_find(const char *flag, unsigned modes);
// Puts a piece of the prompt before the at-th; the row is -p's or -f's.
Status cli_add_part(const Option *o, const char *value, int at, Options *out);
void cli_keep(Options *o, char *text); // owned by the options from here on

// Walks the names of a row: copies the next one and returns where to go on, NULL after the last.
const char *cli_next_name(const char *names, char name[32]);

// ---- what was meant: cli/hints.c ----
// The option of this mode that an unknown one was meant to be; false: none comes near.
bool cli_meant(const char *flag, Mode m, char meant[32]);
// Appends a line for stderr where a prompt looks like a command: the words of the prompt, of which the first may be the
// first argument.
void cli_hint(const char *first, int n_words, const char *const *words, Buf *notes);

// ---- what a chat may set while it runs: sampling and length, by long names without their dashes ----
bool cli_settable(const Option *o);      // in a chat, and by a line of a batch
bool cli_chat_settable(const Option *o); // also verbose and markdown, which only a chat can change
void cli_long_name(const Option *o, char name[32]);
// Same ranges and errors as the flag; on and off for a flag without a value; "default" goes back. A stop text must live
// as long as the Options. QUILL_USAGE: no such name (with a did-you-mean), or a bad value; nothing has changed then.
Status cli_set(Options *out, const char *name, const char *value);
// The option that cli_set would set, by any of its names without dashes. QUILL_USAGE as there.
Status cli_chat_option(const char *name, const char *value, const Option **out);
// The option that a field of a batch's line sets, by any of its names; NULL: none of that name. cli_set_option takes
// what it returned, and `name` for messages.
const Option *cli_job_option(const char *name);
Status cli_set_option(const Option *o, const char *name, const char *value, Options *out);
void cli_value(const Option *o, const Options *values, Buf *out); // as one would write it; "none" for an empty list

// ---- what the table does not say: cli/help.c ----
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

// All to stdout.
void cli_help(Mode m);       // every option
void cli_short_help(Mode m); // the common ones: at most 30 lines
void cli_version(void);
void cli_man(void);                      // roff, for man(1)
void cli_completions(const char *shell); // bash, zsh, fish

#endif
