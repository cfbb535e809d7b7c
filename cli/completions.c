// cli/completions.c: see cli/completions.h.
#include "cli/completions.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "answer/builtin_templates.h"
#include "cli/escape.h"
#include "cli/help.h"

// ---- for all shells ------------------------------------------------------------------------------------------------

static bool is_of(const Option *o, int m) { return o->help && o->modes & 1u << m; }
// Modes whose words are files; in other modes they are text.
static bool takes_files(int m) {
    return m == MODE_BENCH || m == MODE_INSPECT || m == MODE_BATCH || m == MODE_DECODE || m == MODE_KV ||
           m == MODE_CHUNK || m == MODE_QUANTIZE;
}
static bool takes_names(int m) { return m == MODE_MODELS || m == MODE_PULL; } // names of models in the cache

// What kind of value follows a flag.
typedef enum {
    VALUE_NONE,
    VALUE_ANY,
    VALUE_FILE,
    VALUE_MODEL,
    VALUE_DRAFT,
    VALUE_DIR,
    VALUE_PRESET,
    VALUE_WORDS
} ArgKind;

// Walks an argument of the form a|b|N: copies the next literal word (a, b) and returns where to go on; NULL: no more.
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

static bool takes_template(const Option *o) { return strcmp(o->names, "--chat-template") == 0; }

static ArgKind value_of(const Option *o) {
    char word[32];
    if (!o->arg) return VALUE_NONE;
    if (takes_template(o)) return VALUE_WORDS;
    if (strcmp(o->names, "-m --model") == 0) return VALUE_MODEL;
    if (strstr(o->arg, "|FILE")) return VALUE_DRAFT; // words, or a model
    if (strcmp(o->names, "--preset") == 0) return VALUE_PRESET;
    if (strncmp(o->arg, "FILE", 4) == 0) return VALUE_FILE;
    if (strncmp(o->arg, "DIR", 3) == 0) return VALUE_DIR;
    return next_word(o->arg, word) ? VALUE_WORDS : VALUE_ANY;
}

// Prints a list "a, b, c" without its commas.
static void put_list(const char *names) {
    for (; *names; names++)
        if (*names != ',') putchar(*names);
}

// Prints the words that may follow an option, separated by spaces.
static void put_words(const Option *o) {
    char word[32];
    const char *between = "";
    Buf names = {0};
    if (takes_template(o)) builtin_templates_names(&names);
    if (names.n) put_list(names.data);
    for (const char *at = o->arg; !names.n && (at = next_word(at, word)); between = " ") printf("%s%s", between, word);
    buf_free(&names);
}

// The verbs that may follow a mode's word; NULL: none.
static const char *const verbs[N_MODES] = {
    [MODE_KV] = "info check cut diff list remove",
    [MODE_MODELS] = "list rm",
    [MODE_CHUNK] = "add",
};

// The shell command that prints the names of the sections of the configuration file.
#define SECTIONS "sed -nE 's/^[[:blank:]]*\\[[[:blank:]]*([^]]*[^][:blank:]])[[:blank:]]*\\].*/\\1/p' "

static void put_modes(void) {
    const char *between = "";
    for (int m = MODE_RUN + 1; m < N_MODES; m++) printf("%s%s", between, cli_modes[m]), between = " ";
}

// ---- bash -----------------------------------------------------------------------------------------------------------

// Prints the flags of a row as a pattern of `case`, after `before`.
static void bash_names(const Option *o, const char *before) {
    char name[32];
    for (const char *at = o->names; (at = cli_next_name(at, name)); before = " | ") printf("%s%s", before, name);
}

// Prints one `case` line for all options of this mode that take this kind of value.
static void bash_case(int m, ArgKind value, const char *what) {
    const char *before = "        ";
    for (int i = 0; i < cli_n_options; i++) {
        if (!is_of(&cli_options[i], m) || value_of(&cli_options[i]) != value) continue;
        bash_names(&cli_options[i], before);
        before = " | ";
    }
    if (before[1] == '|') printf(") what=%s ;;\n", what);
}

// Prints the `case` lines of the options of this mode that take one of some words.
static void bash_words(int m, ArgKind value, const char *what) {
    for (int i = 0; i < cli_n_options; i++) {
        if (!is_of(&cli_options[i], m) || value_of(&cli_options[i]) != value) continue;
        bash_names(&cli_options[i], "        ");
        printf(") what=%s", what);
        put_words(&cli_options[i]);
        printf("' ;;\n");
    }
}

// Offers quantize's types as the third word that is neither an option nor an option's value.
static void bash_type(int m, const char *types) {
    const char *before = "            ";
    printf("        n=0\n"
           "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
           "            case ${COMP_WORDS[i]} in\n");
    for (int i = 0; i < cli_n_options; i++)
        if (is_of(&cli_options[i], m) && cli_options[i].arg) bash_names(&cli_options[i], before), before = " | ";
    printf(") i=$((i + 1)); [[ ${COMP_WORDS[i]} == = ]] && i=$((i + 1)) ;;\n"
           "            -*) ;;\n"
           "            *) n=$((n + 1)) ;;\n"
           "            esac\n"
           "        done\n"
           "        [[ $n -ge 2 ]] && words='");
    put_list(types);
    printf("'\n");
}

static void bash_mode(int m, const char *types) {
    char name[32];
    printf("    %s)\n        options='", m ? cli_modes[m] : "''");
    for (int i = 0; i < cli_n_options; i++)
        for (const char *at = cli_options[i].names; is_of(&cli_options[i], m) && (at = cli_next_name(at, name));)
            printf("%s ", name);
    printf("'\n        words=%s\n", takes_files(m) ? "@file" : takes_names(m) ? "@name" : "@none");
    if (m == MODE_MODELS || m == MODE_CHUNK)
        printf("        [[ \" ${COMP_WORDS[*]:2:COMP_CWORD-2} \" == *\" %s \"* ]] || words='%s'\n",
               m == MODE_MODELS ? "rm" : "add", verbs[m]);
    if (m == MODE_KV) {
        printf("        [[ \" ${COMP_WORDS[*]:2:COMP_CWORD-2} \" =~ \\ (");
        for (const char *c = verbs[m]; *c; c++) putchar(*c == ' ' ? '|' : *c);
        printf(")\\  ]] || words='%s'\n", verbs[m]);
    }
    if (m == MODE_QUANTIZE) bash_type(m, types);
    printf("        case $before in\n");
    bash_case(m, VALUE_ANY, "@none");
    bash_case(m, VALUE_FILE, "@file");
    bash_case(m, VALUE_MODEL, "@model");
    bash_case(m, VALUE_DIR, "@dir");
    bash_case(m, VALUE_PRESET, "@preset");
    bash_words(m, VALUE_WORDS, "'");
    bash_words(m, VALUE_DRAFT, "@draft words='builtin ");
    printf("        esac ;;\n");
}

// The functions that offer names of models and files. Names of models are file names of others: nothing expands them,
// as compgen -W would. They contain a colon: bash splits them into three words and replaces only the last one, and with
// -o filenames it would put a backslash before the colon.
static void bash_names_of_models(void) {
    printf("# Prints the lines of stdin that begin with $1, quoted for the command line, without their beginning $2.\n"
           "_quill_matching() {\n"
           "    local one quoted\n"
           "    while IFS= read -r one; do\n"
           "        printf -v quoted %%q \"$one\"\n"
           "        [[ $cur == [\\'\\\"]* && $quoted != \"$one\" ]] && continue # cannot be quoted in quotes\n"
           "        [[ $quoted == \"$1\"* ]] && printf '%%s\\n' \"${quoted#\"$2\"}\"\n"
           "    done\n"
           "}\n"
           "_quill_names() {\n"
           "    local cut=\n"
           "    [[ $whole == [\\'\\\"]* ]] || cut=${whole%%\"${whole##*:}\"}\n"
           "    _quill_matching \"${whole#[\\'\\\"]}\" \"$cut\" < <(\"${COMP_WORDS[0]}\" models --names 2>/dev/null)\n"
           "}\n"
           "_quill_names_and_files() {\n"
           "    local one files\n"
           "    mapfile -t COMPREPLY < <(_quill_names)\n"
           "    [[ ${#COMPREPLY[@]} -gt 0 && $whole != \"$cur\" ]] && return\n"
           "    mapfile -t files < <(compgen -f -- \"$cur\")\n"
           "    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        COMPREPLY=(\"${files[@]}\")\n"
           "        return\n"
           "    fi\n"
           "    for one in \"${files[@]}\"; do\n"
           "        [[ -d $one ]] && one+=/\n"
           "        printf -v one %%q \"$one\"\n"
           "        COMPREPLY+=(\"$one\")\n"
           "    done\n"
           "}\n");
}

// In bash and zsh.
static void presets_function(const char *print_begin, const char *print_end) {
    printf("_quill_presets() {\n"
           "    local folder=$XDG_CONFIG_HOME\n"
           "    [[ $folder == /* ]] || folder=$HOME/.config\n"
           "    %s" SECTIONS "\"$folder/quill/config\" 2>/dev/null%s\n"
           "}\n",
           print_begin, print_end);
}

static void bash_completions(const char *types) {
    printf("# bash completion for quill; written by quill --completions bash\n");
    bash_names_of_models();
    presets_function("", "");
    printf("_quill() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} at=$COMP_CWORD before whole mode='' modes='");
    put_modes();
    printf("'\n"
           "    local options='' words='' what='' i n\n"
           "    [[ $COMP_CWORD -gt 1 && \" $modes \" == *\" ${COMP_WORDS[1]} \"* ]] && mode=${COMP_WORDS[1]}\n"
           "    [[ $cur == = ]] && cur=\n"
           "    whole=$cur\n"
           "    if [[ $at -gt 1 && $cur == : ]]; then # a word with a colon comes as two or three\n"
           "        at=$((at - 1)) whole=${COMP_WORDS[COMP_CWORD - 1]}:\n"
           "    elif [[ $at -gt 2 && ${COMP_WORDS[at - 1]} == : ]]; then\n"
           "        at=$((at - 2)) whole=${COMP_WORDS[COMP_CWORD - 2]}:$cur\n"
           "    fi\n"
           "    before=${COMP_WORDS[at - 1]}\n"
           "    [[ $before == = ]] && before=${COMP_WORDS[at - 2]} # --opt=value comes as three words\n"
           "    COMPREPLY=()\n"
           "    case $mode in\n");
    for (int m = 0; m < N_MODES; m++) bash_mode(m, types);
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
           "    [[ $whole != \"$cur\" && $what != @model && $what != @draft && $what != @name ]] && what=@none\n"
           "    case $what in\n"
           "    @none) ;;\n"
           "    @file)\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
           "    @model) _quill_names_and_files ;;\n"
           "    @draft)\n"
           "        _quill_names_and_files\n"
           "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W \"$words\" -- \"$whole\") ;;\n"
           "    @name) mapfile -t COMPREPLY < <(_quill_names) ;;\n"
           "    @preset) mapfile -t COMPREPLY < <(_quill_matching \"${cur#[\\'\\\"]}\" '' < <(_quill_presets)) ;;\n"
           "    @dir)\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
           "    *) mapfile -t COMPREPLY < <(compgen -W \"$what\" -- \"$cur\") ;;\n"
           "    esac\n"
           "}\n"
           "complete -F _quill quill\n");
}

// ---- zsh ------------------------------------------------------------------------------------------------------------

// Escapes for text inside '...' and inside the [help] of an _arguments specification.
static const CliEscape zsh[] = {{'\'', "'\\''"}, {'\\', "\\\\"}, {'[', "\\["}, {']', "\\]"}, {':', "\\:"}, {0, NULL}};

// '(-m --model)'{-m,--model=}'[help]:FILE:_files'
static void zsh_option(const Option *o) {
    char name[32];
    bool repeats = o->kind == STOPS || o->kind == BIAS || o->kind == FILES;
    bool many = strchr(o->names, ' ') != NULL;
    const char *between = "";
    printf("            ");
    if (repeats) printf("'*'");
    else printf("'(%s)'", o->names);
    if (many) printf("{");
    for (const char *at = o->names; (at = cli_next_name(at, name)); between = ",")
        printf("%s%s%s", between, name, o->arg && name[1] == '-' ? "=" : "");
    printf("%s'[", many ? "}" : "");
    cli_put(o->help, zsh);
    printf("]");
    if (o->arg) {
        printf(":");
        cli_put(o->arg, zsh);
        printf(":");
    }
    ArgKind value = value_of(o);
    if (value == VALUE_FILE) printf("_files");
    if (value == VALUE_MODEL) printf("_quill_models_and_files");
    if (value == VALUE_DRAFT) printf("{compadd builtin "), put_words(o), printf("; _quill_models_and_files}");
    if (value == VALUE_DIR) printf("_files -/");
    if (value == VALUE_PRESET) printf("_quill_presets");
    if (value == VALUE_WORDS) printf("("), put_words(o), printf(")");
    printf("' \\\n");
}

static void zsh_mode(int m, const char *types) {
    printf("    %s)\n        _arguments \\\n", m ? cli_modes[m] : "''");
    for (int i = 0; i < cli_n_options; i++)
        if (is_of(&cli_options[i], m)) zsh_option(&cli_options[i]);
    if (m == MODE_RUN) printf("            '1:mode or prompt:(($modes))' \\\n");
    if (verbs[m]) printf("            '1:what:(%s)' \\\n", verbs[m]);
    if (m == MODE_QUANTIZE) {
        printf("            '1:model:_files' '2:file:_files' '3:type:(");
        put_list(types);
        printf(")' \\\n");
    }
    printf("            '*:%s' ;;\n", takes_files(m)   ? "file:_files"
                                      : takes_names(m) ? "model:_quill_models"
                                                       : "text:");
}

static void zsh_completions(const char *types) {
    printf("#compdef quill\n# zsh completion for quill; written by quill --completions zsh\n"
           "_quill_models() {\n"
           "    local -a names\n"
           "    names=(${(f)\"$(quill models --names 2>/dev/null)\"})\n"
           "    compadd -a names\n"
           "}\n"
           "_quill_models_and_files() { _quill_models; _files }\n");
    presets_function("compadd -- ${(f)\"$(", ")\"}");
    printf("_quill() {\n"
           "    local mode=\n"
           "    local -a modes\n"
           "    modes=(\n");
    char brief[256];
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        cli_brief((Mode)m, brief);
        printf("        '%s:", cli_modes[m]);
        cli_put(brief, zsh);
        printf("'\n");
    }
    printf("    )\n"
           "    if ((CURRENT > 2)) && [[ -n ${(M)modes:#${words[2]}:*} ]]; then\n"
           "        mode=${words[2]}\n"
           "        shift words\n"
           "        ((CURRENT--))\n"
           "    fi\n"
           "    case $mode in\n");
    for (int m = 0; m < N_MODES; m++) zsh_mode(m, types);
    printf("    esac\n"
           "}\n"
           "_quill \"$@\"\n");
}

// ---- fish -----------------------------------------------------------------------------------------------------------

static const CliEscape fish[] = {{'\'', "\\'"}, {'\\', "\\\\"}, {0, NULL}};

// complete -c quill -n '__quill_in quill bench' -s m -l model -rF -d 'help'
static void fish_option(const Option *o) {
    char name[32];
    printf("complete -c quill -n '__quill_in");
    for (int m = 0; m < N_MODES; m++)
        if (is_of(o, m)) printf(" %s", cli_mode_name((Mode)m));
    printf("'");
    for (const char *at = o->names; (at = cli_next_name(at, name));)
        printf(" %s %s", name[1] == '-' ? "-l" : name[2] ? "-o" : "-s", name + (name[1] == '-' ? 2 : 1));
    ArgKind value = value_of(o);
    if (value == VALUE_ANY) printf(" -x");
    if (value == VALUE_FILE) printf(" -rF");
    if (value == VALUE_MODEL) printf(" -rFa '(quill models --names 2>/dev/null)'");
    if (value == VALUE_DRAFT) printf(" -rFa 'builtin "), put_words(o), printf(" (quill models --names 2>/dev/null)'");
    if (value == VALUE_DIR) printf(" -xa '(__fish_complete_directories)'");
    if (value == VALUE_PRESET) printf(" -xa '(__quill_presets)'");
    if (value == VALUE_WORDS) printf(" -xa '"), put_words(o), printf("'");
    printf(" -d '");
    cli_put(o->help, fish);
    printf("'\n");
}

static void fish_verbs(int m) {
    printf("complete -c quill -n '__quill_in %s; and not __fish_seen_subcommand_from %s' -xa '%s'\n", cli_modes[m],
           verbs[m], verbs[m]);
}

static void fish_completions(const char *types) {
    printf("# fish completion for quill; written by quill --completions fish\n"
           "function __quill_in --description 'whether the command line is of one of these modes'\n"
           "    set -l mode quill\n"
           "    set -l words (commandline -opc)\n"
           "    contains -- \"$words[2]\" ");
    put_modes();
    printf("; and set mode $words[2]\n"
           "    contains -- $mode $argv\n"
           "end\n"
           "function __quill_presets --description 'the sections of the configuration file'\n"
           "    set -l folder $XDG_CONFIG_HOME\n"
           "    string match -q '/*' -- \"$folder\"; or set folder $HOME/.config\n"
           "    " SECTIONS "$folder/quill/config 2>/dev/null\n"
           "end\n"
           "complete -c quill -f\n");
    char brief[256];
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        cli_brief((Mode)m, brief);
        printf("complete -c quill -n 'test (count (commandline -opc)) -eq 1' -a %s -d '", cli_modes[m]);
        cli_put(brief, fish);
        printf("'\n");
        if (!takes_files(m)) continue;
        printf("complete -c quill -n '__quill_in %s", cli_modes[m]);
        if (verbs[m]) printf("; and __fish_seen_subcommand_from %s", verbs[m]);
        printf("' -F\n");
    }
    printf("complete -c quill -n '__quill_in quantize; and test (count (commandline -opc)) -ge 4' -a '");
    put_list(types);
    printf("'\n");
    fish_verbs(MODE_KV);
    fish_verbs(MODE_CHUNK);
    fish_verbs(MODE_MODELS);
    printf("complete -c quill -n '__quill_in models; and __fish_seen_subcommand_from rm' -xa '(quill models --names "
           "2>/dev/null)'\n");
    for (int i = 0; i < cli_n_options; i++)
        if (cli_options[i].help) fish_option(&cli_options[i]);
}

void cli_completions(const char *shell, const char *types) {
    if (strcmp(shell, "bash") == 0) bash_completions(types);
    else if (strcmp(shell, "zsh") == 0) zsh_completions(types);
    else fish_completions(types);
}
