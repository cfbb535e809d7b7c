// cli/table.h: the option table, for the files that walk its rows.
#ifndef QUILL_CLI_TABLE_H
#define QUILL_CLI_TABLE_H

#include "base/base.h"
#include "cli/options.h"

typedef enum {
    FLAG,        // bool, set to true
    INT,         // int, 4k and 2M suffixes (k = 1024)
    INTS,        // IntList
    SIZE,        // size_t, the same suffixes
    REAL,        // float
    TEXT,        // const char *, points into argv
    INPUT,       // the same; may be given only once
    TEXT_FILE,   // OptionFile: the name of a file whose text answer/option_files.h reads
    PROMPT_TEXT, // a piece of PromptConfig.parts
    PROMPT_FILE, // the same, the name of a file
    COLOR,       // a CHOICE whose value is optional
    CHOICE,      // const char *, one of the words of `arg`
    STOPS,       // AnswerConfig.stop, n_stop
    FILES,       // AnswerConfig.chunks, n_chunks
    BIAS,        // AnswerConfig.sampling.bias, n_bias
    SEED,        // AnswerConfig.sampling.seed, seed_given
    KVTYPE,      // int, a TYPE_ of formats/types.h
    LAYERS,      // int: -1 auto, INT_MAX all
    LAYOUT,      // bool paged
    STORE,       // EngineConfig.kv_dir, kv_dir_size
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
    G_SEARCH,
    G_FORM,
    G_SPEED,
    G_KV,
    G_BATCH,
    G_BENCH,
    G_QUANTIZE,
    G_LOOK,
    G_CONFIG,
    N_GROUPS
} Group;

typedef struct {
    const char *names; // separated by spaces; the first short and the first long one are shown
    const char *arg;   // the name of the value; NULL: no value follows; for a CHOICE the allowed words, a|b|c
    unsigned modes;    // 1 << Mode
    Group group;
    Kind kind;
    size_t at;            // offset into Options
    double least, most;   // INT, SIZE, REAL, LAYERS
    const char *fallback; // the default, as a user would write it; NULL: zero of the kind
    const char *help;     // NULL: the flag works, but --help does not show it
} Option;

extern const Option cli_options[];
extern const int cli_n_options;
// The origin of the value of an option, which is a row of cli_options.
static inline Origin *cli_origin(const Options *o, const Option *row) { return &o->origins[row - cli_options]; }
extern const char *const cli_modes[N_MODES]; // the word that chooses a mode; "" for MODE_RUN

// Sets of modes, 1 << Mode each.
#define MODE_BIT(mode) (1u << MODE_##mode)
enum {
    MODES_PROMPT = MODE_BIT(RUN) | MODE_BIT(PREFILL),                                         // take a prompt
    MODES_ANSWER = MODE_BIT(RUN) | MODE_BIT(DECODE) | MODE_BIT(BATCH),                        // generate
    MODES_TEXT = MODES_PROMPT | MODE_BIT(TOKENIZE) | MODE_BIT(LOGITS) | MODE_BIT(PERPLEXITY), // read text
    MODES_COMPUTE = MODES_PROMPT | MODES_ANSWER | MODE_BIT(BENCH) | MODE_BIT(LOGITS) | MODE_BIT(PERPLEXITY) |
                    MODE_BIT(CHUNK), // run a model
    MODES_ALL = (1 << N_MODES) - 1,
    MODES_FILE = MODES_ALL & ~(MODE_BIT(KV) | MODE_BIT(QUANTIZE) | MODE_BIT(PULL) |
                               MODE_BIT(MODELS)), // open the model that -m names
};

const char *cli_mode_name(Mode m);    // "batch"; "quill" for MODE_RUN
Mode cli_find_mode(const char *word); // the mode that the word chooses; MODE_RUN: none

// The row with this flag in one of these modes (1 << Mode); NULL: there is none.
const Option *cli_find(const char *flag, unsigned modes);
// The row of a mode with this long name, given without dashes in front and with `_` or `-` between words; NULL: none.
const Option *cli_find_long(const char *name, unsigned modes);
bool cli_has_name(const char *names, const char *flag); // names: separated by spaces
// Walks the names of a row: copies the next one and returns where to go on, NULL after the last.
const char *cli_next_name(const char *names, char name[32]);
void cli_long_name(const Option *o, char name[32]); // without its dashes

// Whether an empty value turns the option off. A flag can so undo an option that the configuration file sets for all
// runs. Such an option has no default. Data to read or write, texts of forms and models are no such options: an empty
// value is a mistake there, for example a variable of a script that is not set.
bool cli_can_be_off(const Option *o);

// Options of sampling and length, which a chat's /set and the lines of a batch can set. Their values are in
// AnswerConfig.
bool cli_settable(const Option *o);
bool cli_job_settable(const Option *o);  // also beams and best-of, which a chat does not support
bool cli_chat_settable(const Option *o); // also verbose and markdown, which a job does not have

#endif
