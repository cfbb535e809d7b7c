// cli/man.c: see cli/man.h.
#include "cli/man.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cli/escape.h"
#include "cli/help.h"

enum {
    LINE = 68,        // columns of lines in the page's source
    MOST_EXAMPLES = 1 // examples of each mode
};

static const CliEscape roff[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'"', "\\(dq"},
                                 {'^', "\\(ha"}, {'~', "\\(ti"}, {'`', "\\(ga"},  {0, NULL}};

static const struct {
    const char *name, *help;
} environment[] =
    {
        {"QUILL_MODEL", "the model, unless -m names one"},
        {"QUILL_DEVICE", "the device, unless --device names one"},
        {"QUILL_GPU_TRY",
         "turns on GPU kernels that no GPU has found faster yet: ring, wgmma, early, or several with commas"},
        {"HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT",
         "as in the huggingface_hub package"},
        {"QUILL_HISTORY", "the history file of chats; empty: no history"},
        {"VISUAL, EDITOR", "the editor of a chat's /edit"},
        {"NO_COLOR", "not empty: no colour, except with --color always"},
        {"TERM", "dumb: no colour, no progress lines, no line editor"},
        {"XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_STATE_HOME",
         "directories of FILES below; if unset or relative, ~/.config, ~/.cache and ~/.local/state"},
},
  files[] = {
      {"$XDG_CONFIG_HOME/quill/config",
       "defaults and presets: lines option = value, with long names without dashes; # begins a comment, [name] a "
       "preset "
       "for --preset name; precedence: flag, environment, preset, lines before the first preset (--show-config)"},
      {"$XDG_CACHE_HOME/quill/roofline.json", "this machine's ceilings, from quill bench --roofline"},
      {"$XDG_STATE_HOME/quill/history", "the history of chats: what was typed"},
      {"$XDG_STATE_HOME/quill/conversations/DATE-TIME-MODEL.json",
       "conversations saved by --autosave; --continue continues the last one; deleting them is safe at any time"},
      {"$HF_HUB_CACHE/models--USER--REPO", "fetched models, shared with other tools; quill models rm removes them"},
      {"DIR/*.kv, DIR/*.chunk",
       "files of --kv-dir: KV and tokens of prompts and of chunks; deleting them is safe at any time"},
};

// Prints a paragraph in short lines. A line must not begin with a full stop: roff would read it as a request.
static void man_text(const char *text) {
    size_t column = 0;
    while (*text) {
        size_t n = strcspn(text, " \n");
        char word[256];
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        if (column) printf(column + n < LINE ? " " : "\n");
        column = column && column + n < LINE ? column + 1 : 0;
        if (column == 0 && *text == '.') printf("\\&");
        cli_put(word, roff);
        column += n;
        text += n + (text[n] != 0);
    }
    printf("\n");
}

// Prints a name and its text as one paragraph with a hanging indent: half as many lines as with .TP.
static void man_item(const char *name, const char *help) {
    printf(".HP 4\n\\fB");
    cli_put(name, roff);
    printf("\\fR:\n");
    man_text(help);
}

// ---- options --------------------------------------------------------------------------------------------------------

static bool is_of_one_mode(const Option *o) { return o->modes != 1u << MODE_RUN && (o->modes & (o->modes - 1)) == 0; }
static bool is_shown(const Option *o) { return o->help && !is_of_one_mode(o); }

// "quill, batch and decode"
static void add_modes(unsigned modes, Buf *out) {
    const char *between = "";
    for (int m = 0; m < N_MODES; m++) {
        if (!(modes & 1u << m)) continue;
        modes &= ~(1u << m);
        buf_printf(out, "%s%s", between, cli_mode_name((Mode)m));
        between = modes & (modes - 1) ? ", " : " and ";
    }
}

// The set of modes that is the most frequent one among the options of a group.
static unsigned usual_modes(Group group) {
    unsigned best = 0;
    int most = 0;
    for (int i = 0; i < cli_n_options; i++) {
        int same = 0;
        if (cli_options[i].group != group || !is_shown(&cli_options[i])) continue;
        for (int k = 0; k < cli_n_options; k++)
            same += cli_options[k].group == group && is_shown(&cli_options[k]) &&
                    cli_options[k].modes == cli_options[i].modes;
        if (same > most) most = same, best = cli_options[i].modes;
    }
    return best;
}

// Appends how an option's modes differ from the usual modes of its group, which the group's heading names.
static void add_difference(unsigned modes, unsigned usual, Buf *out) {
    unsigned less = usual & ~modes, more = modes & ~usual;
    if (modes == MODES_ALL && more) {
        buf_str(out, " In every mode.");
        return;
    }
    int kept = __builtin_popcount(modes & usual), left = __builtin_popcount(less);
    if (less && kept <= left) {
        buf_str(out, " In ");
        add_modes(modes, out);
        buf_str(out, " only.");
        return;
    }
    if (less) {
        buf_str(out, " Not in ");
        add_modes(less, out);
        buf_str(out, ".");
    }
    if (more) {
        buf_str(out, " In ");
        add_modes(more, out);
        buf_str(out, " too.");
    }
}

// Prints the names of a row in bold.
static size_t man_names(const Option *o, const char *between) {
    char name[32];
    size_t n = 0;
    for (const char *at = o->names; (at = cli_next_name(at, name)); between = ", ") {
        printf("%s\\fB", between);
        cli_put(name, roff);
        printf("\\fR");
        n += strlen(name) + 2;
    }
    return n;
}

static void man_option(const Option *o, unsigned usual) {
    man_names(o, ".HP 4\n");
    if (o->arg) {
        printf(" \\fI");
        cli_put(o->arg, roff);
        printf("\\fR");
    }
    printf(":\n");
    Buf text = {0};
    buf_str(&text, o->help);
    if (o->fallback) buf_printf(&text, " (default %s)", o->fallback);
    buf_str(&text, ".");
    add_difference(o->modes, usual, &text);
    man_text(text.data);
    buf_free(&text);
}

static void man_group(Group group) {
    unsigned usual = usual_modes(group);
    if (!usual) return;
    printf(".SS %s\n", cli_groups[group]);
    Buf head = {0};
    if (usual != MODES_ALL) {
        buf_str(&head, "For ");
        add_modes(usual, &head);
        buf_str(&head, ", unless stated otherwise.");
        man_text(head.data);
    }
    buf_free(&head);
    for (int i = 0; i < cli_n_options; i++)
        if (cli_options[i].group == group && is_shown(&cli_options[i])) man_option(&cli_options[i], usual);
}

static void man_options(void) {
    printf(".SH OPTIONS\n");
    man_text(
        "Numbers take k, M and G (1024 each); _ is - in long names; --opt=value works, and --flag=off for a flag that "
        "the configuration has set; -- ends options. Options of llama-cli that have a counterpart, or need none, "
        "work too. quill MODE --help lists the options that only one mode has.");
    for (int group = 0; group < N_GROUPS; group++) man_group((Group)group);
}

// ---- the page -------------------------------------------------------------------------------------------------------

// Prints the names of the options that only this mode has; its --help explains them.
static void man_own_options(int m) {
    size_t column = LINE;
    const char *between = "Its own options:";
    for (int i = 0; i < cli_n_options; i++) {
        if (!cli_options[i].help || cli_options[i].modes != 1u << m) continue;
        printf("%s", between);
        bool fits = column + 20 < LINE;
        column = fits ? column : 0;
        column += man_names(&cli_options[i], fits ? " " : "\n");
        between = ",";
    }
    if (*between == ',') printf(".\n");
}

static void man_modes(void) {
    printf(".SH MODES\nA mode must be the first argument;\nafter \\-\\- the same word belongs to the prompt.\n");
    for (int m = MODE_RUN + 1; m < N_MODES; m++) {
        char name[64], brief[256];
        cli_brief((Mode)m, brief);
        strncat(brief, ".", sizeof brief - strlen(brief) - 1);
        snprintf(name, sizeof name, "quill %s", cli_modes[m]);
        man_item(name, brief);
        man_own_options(m);
    }
}

// Prints examples without the two spaces in front of their lines.
static void man_examples(void) {
    printf(".SH EXAMPLES\n.EX\n");
    for (int m = 0; m < N_MODES; m++) {
        int left = m == MODE_RUN ? INT_MAX : MOST_EXAMPLES;
        for (const char *at = cli_about[m].examples; *at && left > 0; at += strcspn(at, "\n") + 1, left--) {
            char line[256];
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n") - 2, at + 2);
            cli_put(line, roff);
            printf("\n");
        }
    }
    printf(".EE\n");
}

static void man_commands(CliCommands describe) {
    char shown[64];
    const char *what;
    printf(".SH CHAT COMMANDS\nIn a chat, quill executes these lines and does not send them to the model.\n");
    for (int i = 0; (what = describe(i, shown)); i++) man_item(shown, what);
}

void cli_man(CliCommands describe) {
    printf(".\\\" Written by quill --man\n.TH QUILL 1 %s \"quill %s\" \"User Commands\"\n", QUILL_DATE, QUILL_VERSION);
    printf(".SH NAME\nquill \\- runs language models from the shell\n.SH SYNOPSIS\n.PD 0\n.ad l\n.nh\n");
    printf(".B quill\n[options] [PROMPT...]\n.br\n.B quill\nMODE [options] [ARGUMENT...]\n.SH DESCRIPTION\n");
    man_text(cli_about[MODE_RUN].what);
    man_modes();
    man_options();
    man_commands(describe);
    printf(".SH EXIT STATUS\nA failure is one line on stderr: what, where, expected, found, what to do;\nif memory is "
           "short, its budget follows.\n");
    for (int i = 0; i < cli_n_exit_codes; i++) man_item(cli_exit_codes[i].code, cli_exit_codes[i].what);
    printf(".SH ENVIRONMENT\nAn option overrides the environment.\n");
    for (size_t i = 0; i < ARRAY_LEN(environment); i++) man_item(environment[i].name, environment[i].help);
    printf(".SH FILES\n");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) man_item(files[i].name, files[i].help);
    man_examples();
}
