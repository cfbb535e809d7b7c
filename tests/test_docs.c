// tests/test_docs.c: help, man page and completions must have every flag of the option table and no other.
#include "tests/rig/testing.h"

#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

#include "chat/commands.h"
#include "cli/completions.h"
#include "cli/help.h"
#include "cli/man.h"

enum { MAX_FLAGS = 1024 };

typedef struct {
    char names[MAX_FLAGS][32];
    int n;
} Flags;

static void add(Flags *f, const char *before, const char *name, size_t n) {
    assert_true(f->n < MAX_FLAGS && n > 0 && n < 30);
    snprintf(f->names[f->n++], 32, "%s%.*s", before, (int)n, name);
}

static bool has(const Flags *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0) return true;
    return false;
}

static size_t flag_length(const char *s) {
    size_t n = 0;
    while (s[n] == '-' || isalnum((unsigned char)s[n])) n++;
    return n;
}

// ---- parsers of the documents: the flags in one line ----------------------------------------------------------------

// Parses a line such as "  -n, --predict N    tokens to generate".
static void help_line(const char *line, Flags *f) {
    const char *at = line + strspn(line, " ");
    if (at != line + 2 && at != line + 6) return;
    for (; *at == '-'; at += strspn(at, ", ")) {
        add(f, "", at, flag_length(at));
        at += flag_length(at);
        if (*at != ',') return;
    }
}

// Parses a line such as "\fB\-n\fR, \fB\-\-predict\fR \fIN\fR".
static void man_line(const char *line, Flags *f) {
    if (strncmp(line, "\\fB\\-", 5) != 0) return;
    for (const char *at = line; (at = strstr(at, "\\fB")); at++) {
        char name[64];
        size_t n = 0;
        for (const char *c = at + 3; strncmp(c, "\\fR", 3) != 0; c++)
            if (*c != '\\') name[n++] = *c;
        add(f, "", name, n);
    }
}

// Parses a line such as "        options='-m --model '".
static void bash_line(const char *line, Flags *f) {
    const char *at = strstr(line, " options='-");
    for (at = at ? at + 10 : ""; *at == '-'; at += strspn(at, " ")) {
        add(f, "", at, flag_length(at));
        at += flag_length(at);
    }
}

// Parses a line such as "            '(-m --model)'{-m,--model=}'[help]:FILE:_files' \", with '*' in front if an option
// may be repeated.
static void zsh_line(const char *line, Flags *f) {
    const char *end = strstr(line, "'["), *at = line + strspn(line, " ");
    if (!end || (strncmp(at, "'(-", 3) != 0 && strncmp(at, "'*'", 3) != 0)) return;
    for (at = strchr(at + 1, '\'') + 1; at < end; at++) {
        if (*at != '-') continue;
        add(f, "", at, flag_length(at));
        at += flag_length(at);
    }
}

// Parses a line such as "complete -c quill -n '__quill_in quill' -s m -l model -o sys -rF -d 'help'".
static void fish_line(const char *line, Flags *f) {
    const char *at = strstr(line, "'__quill_in "), *end = strstr(line, " -d '");
    if (!at || !end) return;
    for (at = strchr(at + 1, '\'') + 1; at < end && strchr("slo", at[2]); at += 4 + strcspn(at + 4, " "))
        add(f, at[2] == 'l' ? "--" : "-", at + 4, strcspn(at + 4, " "));
}

// ---- the documents --------------------------------------------------------------------------------------------------

static void write_man(const char *arg) { (void)arg, cli_man(commands_describe); }
static void write_help(const char *arg) {
    for (int m = 0; m < N_MODES; m++)
        if (cli_about[m].usage) cli_help((Mode)m);
    (void)arg;
}

static void write_completions(const char *shell) { cli_completions(shell, "F32, Q8_0"); }

static Buf captured(void (*write)(const char *), const char *arg) {
    const char *path = test_tmp("docs.txt");
    fflush(stdout);
    int saved = dup(STDOUT_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    write(arg);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(file);
    Buf text = {0};
    assert_ok(file_read(path, &text));
    return text;
}

static void test_every_flag_everywhere(void **state) {
    (void)state;
    static const struct {
        const char *name;
        void (*write)(const char *arg);
        void (*line)(const char *line, Flags *f);
        bool aliases; // every name of a row must be there
    } documents[] = {
        {"help", write_help, help_line, false},       {"man", write_man, man_line, true},
        {"bash", write_completions, bash_line, true}, {"zsh", write_completions, zsh_line, true},
        {"fish", write_completions, fish_line, true},
    };
    Flags table = {0};
    char name[32];
    for (int i = 0; i < cli_n_options; i++)
        for (const char *at = cli_options[i].names; cli_options[i].help && (at = cli_next_name(at, name));)
            add(&table, "", name, strlen(name));
    assert_in_range(table.n, 90, MAX_FLAGS);
    for (size_t d = 0; d < ARRAY_LEN(documents); d++) {
        Buf text = captured(documents[d].write, documents[d].name);
        Flags found = {0};
        for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) documents[d].line(line, &found);
        for (int i = 0; i < found.n; i++)
            if (!has(&table, found.names[i])) fail_msg("%s: %s is not in the table", documents[d].name, found.names[i]);
        for (int i = 0; i < cli_n_options; i++) {
            const Option *o = &cli_options[i];
            for (const char *at = o->names; o->help && (at = cli_next_name(at, name));) {
                if (!has(&found, name)) fail_msg("%s: %s is missing", documents[d].name, name);
                if (!documents[d].aliases && name[1] == '-') break;
            }
        }
        buf_free(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_flag_everywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
