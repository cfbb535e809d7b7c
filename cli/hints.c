// cli/hints.c: see cli/hints.h.
#include "cli/hints.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

// ---- options --------------------------------------------------------------------------------------------------------

// Names that other programs use, and quill's option.
static const char *const habits[][2] = {
    {"-V", "--version"},
    {"-?", "--help"},
    {"-H", "--help"},
    {"--usage", "--help"},
    {"--system", "-sys"},
    {"--max-length", "--predict"},
    {"--tokens", "--predict"},
    {"--num-predict", "-n"},
    {"--num-ctx", "--ctx-size"},
    {"--context", "--ctx-size"},
    {"--model-path", "-m"},
    {"--stream", "--no-stream"},
    {"--format", "--json"},
    {"--input", "--file"},
    {"--random-seed", "--seed"},
    {"--silent", "--quiet"},
    {"--schema", "--json-schema"},
    {"--verbose-prompt", "--dump-prompt"},
    {"--config", "--preset"},
    {"--temprature", "--temp"},
    {"--print-config", "--show-config"},
    {"--no-color", "--color never"},
    {"--no-colour", "--color never"},
};

static bool from_habit(const char *flag, Mode m, char meant[32]) {
    char name[32];
    for (size_t i = 0; i < ARRAY_LEN(habits); i++) {
        cli_next_name(habits[i][1], name); // a value may follow
        if (strcmp(flag, habits[i][0]) != 0 || !cli_find(name, 1u << m)) continue;
        snprintf(meant, 32, "%s", habits[i][1]);
        return true;
    }
    return false;
}

static const char *bare(const char *flag) { return flag + strspn(flag, "-"); }

typedef struct {
    const char *flag;
    size_t n;        // letters of the flag, without its dashes
    Nearest nearest; // the nearest long name, without dashes
    Nearest shorts;  // the nearest short name
    char begins[32]; // a name that begins with the flag's letters
    int n_begin;     // how many such names there are
    char same[32];   // the name that differs only in dashes or case
} OptionSearch;

static void compare(OptionSearch *s, const char *name) {
    const char *word = bare(s->flag);
    if (strcasecmp(word, bare(name)) == 0) snprintf(s->same, sizeof s->same, "%s", name);
    if (name[1] != '-') {
        nearest_try(&s->shorts, name);
        return;
    }
    nearest_try(&s->nearest, name + 2);
    if (s->n < 3 || strncmp(word, name + 2, s->n) != 0) return;
    snprintf(s->begins, sizeof s->begins, "%s", name);
    s->n_begin++;
}

bool cli_meant(const char *flag, Mode m, char meant[32]) {
    OptionSearch s = {.flag = flag, .n = strlen(bare(flag)), .nearest = {.word = bare(flag)}, .shorts = {.word = flag}};
    char name[32];
    if (from_habit(flag, m, meant)) return true;
    for (int i = 0; i < cli_n_options; i++) {
        if (!(cli_options[i].modes & 1u << m) || !cli_options[i].help) continue;
        for (const char *at = cli_options[i].names; (at = cli_next_name(at, name));) compare(&s, name);
    }
    const char *near = nearest_found(&s.nearest);
    // Not for flags of one letter, since all of them are near each other.
    const char *near_short = s.n >= 2 && flag[1] != '-' ? nearest_found(&s.shorts) : NULL;
    if (s.same[0]) snprintf(meant, 32, "%s", s.same);
    else if (s.n_begin == 1) snprintf(meant, 32, "%s", s.begins);
    else if (near) snprintf(meant, 32, "--%.29s", near);
    else if (near_short) snprintf(meant, 32, "%s", near_short);
    else return false;
    return true;
}

// ---- words ----------------------------------------------------------------------------------------------------------

// Commands of similar programs. A prompt of `least` to `most` words that begins with one is probably meant as a
// command.
static const struct {
    const char *word;
    int least, most;
    const char *instead;
} commands[] = {
    {"help", 1, 1, "quill -h is the short help, quill --help all of it"},
    {"version", 1, 1, "quill --version shows the version"},
    {"list", 1, 1, "quill models lists the models in the cache"},
    {"ls", 1, 1, "quill models lists the models in the cache"},
    {"ps", 1, 1, "quill has no server"},
    {"serve", 1, 2, "quill has no server; quill batch answers many prompts"},
    {"server", 1, 1, "quill has no server; quill batch answers many prompts"},
    {"chat", 1, 1, "quill without a prompt starts a chat on a terminal; quill -i starts one anywhere"},
    {"run", 2, 4, "-m or -hf names the model: quill -hf USER/REPO \"prompt\""},
    {"push", 2, 2, "quill does not upload models"},
    {"show", 2, 2, "quill inspect -m FILE shows the contents of a model"},
    {"rm", 2, 2, "quill models rm NAME removes a model from the cache"},
    {"create", 2, 2, "a preset of the configuration file holds a prompt and options: quill --preset NAME"},
    {"benchmark", 1, 2, "quill bench measures speed"},
    {"embedding", 1, 2, "quill has no embeddings"},
};

static const char *known_command(const char *word, int n) {
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcasecmp(word, commands[i].word) == 0 && n >= commands[i].least && n <= commands[i].most)
            return commands[i].instead;
    return NULL;
}

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// The mode that a mistyped word probably means, stored in *nearest; NULL: none, or the word is probably part of a
// prompt. Before other words than a file it is one if it is long: prompts begin with words like "match" and "full".
static const char *nearly_mode(const char *word, int n, const char *second, Nearest *nearest) {
    enum { MOST_WORDS = 4, LONG = 6 };
    *nearest = (Nearest){.word = word};
    bool text = n > 1 && !is_file(second);
    if (strlen(word) < 4 || (text && (n > MOST_WORDS || strlen(word) < LONG))) return NULL;
    for (int m = MODE_RUN + 1; m < N_MODES; m++) nearest_try(nearest, cli_modes[m]);
    return nearest_found(nearest);
}

// Adds a note if the text is a single word that names a mode or a file; options may precede it. False: it names
// neither.
static bool hint_only_word(Mode m, const char *word, Buf *notes) {
    bool mode = m == MODE_RUN && cli_find_mode(word) != MODE_RUN;
    if (mode)
        buf_printf(notes, "quill: note: \"%s\" is taken as a prompt; a mode is the first word: quill %s ...\n", word,
                   word);
    else if (is_file(word))
        buf_printf(notes, "quill: note: \"%.200s\" is taken as %s; -f reads the file of this name\n", word,
                   1u << m & MODES_PROMPT ? "a prompt" : "the text");
    else return false;
    return true;
}

void cli_hint(Mode m, const char *first, int n_words, const char *const *words, Buf *notes) {
    if (n_words == 0 || !(1u << m & MODES_TEXT) || (n_words == 1 && hint_only_word(m, words[0], notes))) return;
    if (m != MODE_RUN || first != words[0]) return; // after an option it is meant as a prompt
    Nearest nearest;
    const char *instead = known_command(first, n_words);
    const char *mode = instead ? NULL : nearly_mode(first, n_words, n_words > 1 ? words[1] : "", &nearest);
    if (instead) buf_printf(notes, "quill: note: \"%.40s\" is taken as a prompt; %s\n", first, instead);
    if (mode) buf_printf(notes, "quill: note: \"%.40s\" is taken as a prompt; did you mean quill %s?\n", first, mode);
}
