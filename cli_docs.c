// cli_docs.c: the man page and the completions of bash, zsh and fish, from the option table (cli_table.h).
//
// Said is what --help says: rows without a help text are left out.
#include "cli_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"

// ---- what both need -------------------------------------------------------------------------------------------------

static bool is_shown(const Option *o) { return o->help; }
static bool is_of(const Option *o, int m) { return is_shown(o) && o->modes & 1u << m; }
// As its words; others take text.
static bool takes_files(int m) {
    return m == MODE_BENCH || m == MODE_INSPECT || m == MODE_BATCH || m == MODE_DECODE || m == MODE_KV;
}

typedef struct {
    char c;
    const char *as;
} Escape;

static void put(const char *text, size_t n, const Escape *escapes) {
    for (size_t i = 0; i < n && text[i]; i++) {
        const Escape *e = escapes;
        while (e->c && e->c != text[i]) e++;
        if (e->c) fputs(e->as, stdout);
        else putchar(text[i]);
    }
}

static void put_all(const char *text, const Escape *escapes) { put(text, strlen(text), escapes); }

// What follows a flag, for a shell.
typedef enum { VALUE_NONE, VALUE_ANY, VALUE_FILE, VALUE_DIR, VALUE_WORDS } ArgKind;

// Walks an argument of the form a|b|N: copies the next word that is meant as it stands, NULL after the last.
static const char *next_word(const char *arg, char word[32]) {
    while (*arg) {
        size_t n = strcspn(arg, "|"), plain = 0;
        while (plain < n && (islower((unsigned char)arg[plain]) || isdigit((unsigned char)arg[plain]) ||
                             (plain && strchr("_-", arg[plain]))))
            plain++;
        snprintf(word, 32, "%.*s", (int)n, arg);
        arg += n + (arg[n] == '|');
        if (plain == n) return arg;
    }
    return NULL;
}

static ArgKind value_of(const Option *o) {
    char word[32];
    if (!o->arg) return VALUE_NONE;
    if (strncmp(o->arg, "FILE", 4) == 0) return VALUE_FILE;
    if (strncmp(o->arg, "DIR", 3) == 0) return VALUE_DIR;
    return next_word(o->arg, word) ? VALUE_WORDS : VALUE_ANY;
}

static void put_words(const char *arg) {
    char word[32];
    const char *between = "";
    for (const char *at = arg; (at = next_word(at, word)); between = " ") printf("%s%s", between, word);
}

static void put_modes(void) {
    const char *between = "";
    for (int m = MODE_RUN + 1; m < N_MODES; m++) printf("%s%s", between, cli_modes[m]), between = " ";
}

// ---- man ------------------------------------------------------------------------------------------------------------

static const Escape roff[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'"', "\\(dq"},
                              {'^', "\\(ha"}, {'~', "\\(ti"}, {'`', "\\(ga"},  {0, NULL}};

static const struct {
    const char *name, *help;
} environment[] =
    {
        {"QUILL_MODEL", "the model where no -m names one"},
        {"QUILL_DEVICE", "the device where no --device names one"},
        {"QUILL_GPU_TRY", "GPU kernels that nobody has timed yet: few (5 to 16 rows on the matrix unit), early (a "
                          "kernel begins before the last one has ended; sm_90), or few,early"},
        {"NO_COLOR", "not empty: no colour, unless --color always asks for it"},
        {"TERM", "dumb: no colour, no progress"},
        {"XDG_CACHE_HOME, HOME", "where the cache lies (see FILES)"},
        {"XDG_STATE_HOME", "where the chat's history lies (see FILES)"},
},
  files[] = {
      {"$XDG_CACHE_HOME/quill/roofline.json",
       "this machine's ceilings, from quill bench --roofline; ~/.cache stands in "
       "for an unset XDG_CACHE_HOME"},
      {"$XDG_STATE_HOME/quill/history",
       "what was typed in chats; ~/.local/state stands in for an unset XDG_STATE_HOME"},
      {"DIR/*.kv", "what --kv-dir keeps: blocks of KV cache, with the prompts' tokens in them; rm is safe at any time"},
};

// Text of its own paragraph, in short lines; a full stop in front would make a line a request.
static void man_text(const char *text) {
    size_t column = 0;
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (column) printf(column + n < 68 ? " " : "\n");
        column = column && column + n < 68 ? column + 1 : 0;
        if (column == 0 && *text == '.') printf("\\&");
        put(text, n, roff);
        column += n;
        text += n + (text[n] != 0);
    }
    printf("\n");
}

static void man_item(const char *name, const char *help) {
    printf(".TP\n\\fB");
    put_all(name, roff);
    printf("\\fR\n");
    man_text(help);
}

static void man_option(const Option *o) {
    char name[32];
    const char *between = ".TP\n";
    for (const char *at = o->names; (at = next_name(at, name)); between = ", ") {
        printf("%s\\fB", between);
        put_all(name, roff);
        printf("\\fR");
    }
    if (o->arg) {
        printf(" \\fI");
        put_all(o->arg, roff);
        printf("\\fR");
    }
    printf("\n");
    Buf text = {0};
    buf_str(&text, o->help);
    if (o->fallback) buf_printf(&text, " (default %s)", o->fallback);
    unsigned everywhere = 0;
    for (int m = 0; m < N_MODES; m++) everywhere |= 1u << m;
    const char *of = ". Of ";
    for (int m = 0; m < N_MODES; m++) {
        if (o->modes == everywhere || !is_of(o, m)) continue;
        buf_printf(&text, "%squill%s%s", of, m ? " " : "", cli_modes[m]);
        of = ", ";
    }
    buf_str(&text, ".");
    man_text(text.data);
    buf_free(&text);
}

static void man_options(void) {
    printf(".SH OPTIONS\nNumbers take k, M and G (1024 each); _ is \\- in long names; \\-\\-opt=value works;\n"
           "\\-\\- ends options.\n");
    for (int group = 0; group < N_GROUPS; group++) {
        bool titled = false;
        for (int i = 0; i < cli_n_options; i++) {
            if (cli_options[i].group != (Group)group || !is_shown(&cli_options[i])) continue;
            if (!titled) printf(".SS %s\n", cli_groups[group]);
            titled = true;
            man_option(&cli_options[i]);
        }
    }
}

static void man_modes(void) {
    printf(".SH MODES\nA mode is the first argument, exactly; behind \\-\\- it is a word of the prompt.\n");
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        printf(".TP\n\\fBquill %s\\fR\n", cli_modes[m]);
        man_text(cli_about[m].what);
    }
}

// Their lines without the two spaces in front.
static void man_examples(const char *at) {
    while (*at) {
        size_t n = strcspn(at, "\n");
        put(at + 2, n - 2, roff);
        printf("\n");
        at += n + 1;
    }
}

void cli_man(void) {
    printf(".\\\" Written by quill --man\n.TH QUILL 1 %s \"quill %s\" \"User Commands\"\n", QUILL_DATE, QUILL_VERSION);
    printf(".SH NAME\nquill \\- runs language models from the shell\n.SH SYNOPSIS\n");
    for (int m = 0; m < N_MODES; m++) {
        printf("%s.B ", m ? ".br\n" : "");
        put_all(cli_about[m].usage, roff);
        printf("\n");
    }
    printf(".SH DESCRIPTION\n");
    man_text(cli_about[MODE_RUN].what);
    man_modes();
    man_options();
    printf(".SH CHAT COMMANDS\nIn a chat, a line that is one of these is for quill and not for the model.\n");
    char shown[64];
    const char *what;
    for (int i = 0; (what = commands_describe(i, shown)); i++) man_item(shown, what);
    printf(".SH EXIT STATUS\nA failure is one line on stderr: what, where, expected, found, what to do.\n");
    for (int i = 0; i < cli_n_exit_codes; i++) man_item(cli_exit_codes[i].code, cli_exit_codes[i].what);
    printf(".SH ENVIRONMENT\nAn option comes before the environment.\n");
    for (size_t i = 0; i < ARRAY_LEN(environment); i++) man_item(environment[i].name, environment[i].help);
    printf(".SH FILES\n");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) man_item(files[i].name, files[i].help);
    printf(".SH EXAMPLES\n.EX\n");
    for (int m = 0; m < N_MODES; m++) man_examples(cli_about[m].examples);
    printf(".EE\n");
}

// ---- bash -----------------------------------------------------------------------------------------------------------

// The flags of a row as a pattern of `case`, behind `before`.
static void bash_names(const Option *o, const char *before) {
    char name[32];
    for (const char *at = o->names; (at = next_name(at, name)); before = " | ") printf("%s%s", before, name);
}

// One line for all options of this mode that the same kind of value follows.
static void bash_case(int m, ArgKind value, const char *what) {
    const char *before = "        ";
    for (int i = 0; i < cli_n_options; i++) {
        if (!is_of(&cli_options[i], m) || value_of(&cli_options[i]) != value) continue;
        bash_names(&cli_options[i], before);
        before = " | ";
    }
    if (before[1] == '|') printf(") what=%s ;;\n", what);
}

static void bash_words(const Option *o) {
    bash_names(o, "        ");
    printf(") what='");
    put_words(o->arg);
    printf("' ;;\n");
}

static void bash_mode(int m) {
    char name[32];
    printf("    %s)\n        options='", m ? cli_modes[m] : "''");
    for (int i = 0; i < cli_n_options; i++)
        for (const char *at = cli_options[i].names; is_of(&cli_options[i], m) && (at = next_name(at, name));)
            printf("%s ", name);
    printf("'\n        words=%s\n        case $before in\n", takes_files(m) ? "@file" : "@none");
    bash_case(m, VALUE_ANY, "@none");
    bash_case(m, VALUE_FILE, "@file");
    bash_case(m, VALUE_DIR, "@dir");
    for (int i = 0; i < cli_n_options; i++)
        if (is_of(&cli_options[i], m) && value_of(&cli_options[i]) == VALUE_WORDS) bash_words(&cli_options[i]);
    printf("        esac ;;\n");
}

static void bash_completions(void) {
    printf("# bash completion for quill; written by quill --completions bash\n"
           "_quill() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} mode='' modes='");
    put_modes();
    printf("'\n"
           "    local options='' words='' what='' i\n"
           "    [[ $COMP_CWORD -gt 1 && \" $modes \" == *\" ${COMP_WORDS[1]} \"* ]] && mode=${COMP_WORDS[1]}\n"
           "    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]} # --opt=value comes as three words\n"
           "    [[ $cur == = ]] && cur=\n"
           "    COMPREPLY=()\n"
           "    case $mode in\n");
    for (int m = 0; m < N_MODES; m++) bash_mode(m);
    printf("    esac\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        [[ ${COMP_WORDS[i]} == -- ]] && options='' what=$words modes=''\n"
           "    done\n"
           "    if [[ -z $what && $cur == -* ]]; then\n"
           "        what=$options\n"
           "    elif [[ -z $what ]]; then\n"
           "        what=$words\n"
           "        [[ $COMP_CWORD -eq 1 ]] && what=$modes\n"
           "    fi\n"
           "    case $what in\n"
           "    @none) ;;\n"
           "    @file)\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
           "    @dir)\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
           "    *) mapfile -t COMPREPLY < <(compgen -W \"$what\" -- \"$cur\") ;;\n"
           "    esac\n"
           "}\n"
           "complete -F _quill quill\n");
}

// ---- zsh ------------------------------------------------------------------------------------------------------------

// Inside of '...' and of the [help] of an _arguments specification.
static const Escape zsh[] = {{'\'', "'\\''"}, {'\\', "\\\\"}, {'[', "\\["}, {']', "\\]"}, {':', "\\:"}, {0, NULL}};

// '(-m --model)'{-m,--model=}'[help]:FILE:_files'
static void zsh_option(const Option *o) {
    char name[32];
    bool repeats = o->kind == STOPS || o->kind == BIAS;
    bool many = strchr(o->names, ' ') != NULL;
    const char *between = "";
    printf("            ");
    if (repeats) printf("'*'");
    else printf("'(%s)'", o->names);
    if (many) printf("{");
    for (const char *at = o->names; (at = next_name(at, name)); between = ",")
        printf("%s%s%s", between, name, o->arg && name[1] == '-' ? "=" : "");
    printf("%s'[", many ? "}" : "");
    put_all(o->help, zsh);
    printf("]");
    if (o->arg) {
        printf(":");
        put_all(o->arg, zsh);
        printf(":");
    }
    ArgKind value = value_of(o);
    if (value == VALUE_FILE) printf("_files");
    if (value == VALUE_DIR) printf("_files -/");
    if (value == VALUE_WORDS) printf("("), put_words(o->arg), printf(")");
    printf("' \\\n");
}

static void zsh_mode(int m) {
    printf("    %s)\n        _arguments \\\n", m ? cli_modes[m] : "''");
    for (int i = 0; i < cli_n_options; i++)
        if (is_of(&cli_options[i], m)) zsh_option(&cli_options[i]);
    if (m == MODE_RUN) printf("            '1:mode or prompt:(($modes))' \\\n");
    printf("            '*:%s' ;;\n", takes_files(m) ? "file:_files" : "text:");
}

static void zsh_completions(void) {
    printf("#compdef quill\n# zsh completion for quill; written by quill --completions zsh\n"
           "_quill() {\n"
           "    local mode=\n"
           "    local -a modes\n"
           "    modes=(\n");
    char brief[256];
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        cli_brief((Mode)m, brief);
        printf("        '%s:", cli_modes[m]);
        put(brief, strlen(brief), zsh);
        printf("'\n");
    }
    printf("    )\n"
           "    if ((CURRENT > 2)) && [[ -n ${(M)modes:#${words[2]}:*} ]]; then\n"
           "        mode=${words[2]}\n"
           "        shift words\n"
           "        ((CURRENT--))\n"
           "    fi\n"
           "    case $mode in\n");
    for (int m = 0; m < N_MODES; m++) zsh_mode(m);
    printf("    esac\n"
           "}\n"
           "_quill \"$@\"\n");
}

// ---- fish -----------------------------------------------------------------------------------------------------------

static const Escape fish[] = {{'\'', "\\'"}, {'\\', "\\\\"}, {0, NULL}};

// complete -c quill -n '__quill_in quill bench' -s m -l model -rF -d 'help'
static void fish_option(const Option *o) {
    char name[32];
    printf("complete -c quill -n '__quill_in");
    for (int m = 0; m < N_MODES; m++)
        if (is_of(o, m)) printf(" %s", mode_name((Mode)m));
    printf("'");
    for (const char *at = o->names; (at = next_name(at, name));)
        printf(" %s %s", name[1] == '-' ? "-l" : name[2] ? "-o" : "-s", name + (name[1] == '-' ? 2 : 1));
    ArgKind value = value_of(o);
    if (value == VALUE_ANY) printf(" -x");
    if (value == VALUE_FILE) printf(" -rF");
    if (value == VALUE_DIR) printf(" -xa '(__fish_complete_directories)'");
    if (value == VALUE_WORDS) printf(" -xa '"), put_words(o->arg), printf("'");
    printf(" -d '");
    put_all(o->help, fish);
    printf("'\n");
}

static void fish_completions(void) {
    printf("# fish completion for quill; written by quill --completions fish\n"
           "function __quill_in --description 'whether the command line is of one of these modes'\n"
           "    set -l mode quill\n"
           "    set -l words (commandline -opc)\n"
           "    contains -- \"$words[2]\" ");
    put_modes();
    printf("; and set mode $words[2]\n"
           "    contains -- $mode $argv\n"
           "end\n"
           "complete -c quill -f\n");
    char brief[256];
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        cli_brief((Mode)m, brief);
        printf("complete -c quill -n 'test (count (commandline -opc)) -eq 1' -a %s -d '", cli_modes[m]);
        put(brief, strlen(brief), fish);
        printf("'\n");
        if (takes_files(m)) printf("complete -c quill -n '__quill_in %s' -F\n", cli_modes[m]);
    }
    for (int i = 0; i < cli_n_options; i++)
        if (is_shown(&cli_options[i])) fish_option(&cli_options[i]);
}

void cli_completions(const char *shell) {
    if (strcmp(shell, "bash") == 0) bash_completions();
    else if (strcmp(shell, "zsh") == 0) zsh_completions();
    else fish_completions();
}
