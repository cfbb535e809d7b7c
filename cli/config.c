// cli/config.c: see cli/config.h.
#define _GNU_SOURCE
#include "cli/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/file_sampling.h"
#include "cli/check.h"
#include "formats/kv_types.h"

// ---- the file -------------------------------------------------------------------------------------------------------

// A relative XDG_CONFIG_HOME is ignored, as the XDG specification says. False: there is no home directory to look in.
static bool config_path(Buf *out) {
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (base && base[0] == '/') buf_printf(out, "%s/quill/config", base);
    else if (home && *home) buf_printf(out, "%s/.config/quill/config", home);
    return out->n > 0;
}

// Reads the file; *there: it exists.
static Status read_file(const char *path, Buf *text, bool *there) {
    *there = access(path, F_OK) == 0;
    if (!*there) return OK;
    TRY(file_read(path, text));
    const char *nul = text->n ? memchr(text->data, 0, text->n) : NULL;
    int line = 1;
    for (const char *at = text->data; nul && at < nul; at++) line += *at == '\n';
    return nul ? status_error(QUILL_USAGE, "%.500s:%d: text expected, found a NUL byte", path, line) : OK;
}

typedef struct {
    const char *section; // "": before the first section
    const char *name, *value;
    int line;
} Entry;

typedef struct {
    char *path;
    Entry *entries; // (n) in the order of the file
    int n;
    const char **sections; // (n_sections) one for each [name] line; a name may be repeated
    int n_sections;
} Config;

static char *trim(char *s) {
    while (isspace((unsigned char)*s)) s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1])) n--;
    s[n] = 0;
    return s;
}

static Status bad_line(const Config *c, int line, const char *format, const char *found) {
    Status st = status_error(QUILL_USAGE, format, found);
    return status_error(QUILL_USAGE, "%.500s:%d: %.480s", c->path, line, st.message);
}

// The first character behind the one at `at` and the blanks after it.
static char next_behind(const char *at) { return at[1 + strspn(at + 1, " \t")]; }

// Removes the quotes around a value, or the comment after it. The closing quote is the first one after which only
// blanks or a comment follow, so quotes inside need no escape. NULL: there is no closing quote.
static char *plain_value(char *s) {
    if (s[0] == '"') {
        for (char *end = s + 1; (end = strchr(end, '"')); end++) {
            char next = next_behind(end);
            if (next && next != '#') continue;
            *end = 0;
            return s + 1;
        }
        return NULL;
    }
    for (char *at = s; (at = strchr(at, '#')); at++)
        if (at == s || isspace((unsigned char)at[-1])) {
            *at = 0;
            return trim(s);
        }
    return s;
}

static Status read_section(Config *c, char *s, int line, const char **section) {
    char *end = strchr(s, ']'), *rest = end ? trim(end + 1) : NULL;
    if (!end || (*rest && *rest != '#')) return bad_line(c, line, "[name] expected, found \"%.100s\"", s);
    *end = 0;
    *section = trim(s + 1);
    if (!**section) return bad_line(c, line, "a name expected in %s", "[]");
    c->sections = mem_resize(c->sections, (size_t)(c->n_sections + 1) * sizeof *c->sections);
    c->sections[c->n_sections++] = *section;
    return OK;
}

static Status read_entry(Config *c, char *s, int line, const char *section) {
    char *equals = strchr(s, '=');
    if (!equals) return bad_line(c, line, "option = value expected, found \"%.100s\"", s);
    *equals = 0;
    Entry e = {section, trim(s), plain_value(trim(equals + 1)), line};
    if (!e.value)
        return bad_line(c, line, "%.100s: a \" at the end of the value, or before a comment, expected, found none",
                        e.name);
    if (!*e.value && next_behind(equals) != '"')
        return bad_line(c, line, "%.100s: a value expected; \"...\" around one that is empty or has a # in it", e.name);
    c->entries = mem_resize(c->entries, (size_t)(c->n + 1) * sizeof *c->entries);
    c->entries[c->n++] = e;
    return OK;
}

// Parses the lines of `text`; the entries point into it.
static Status read_lines(Config *c, char *text) {
    const char *section = "";
    text = (char *)utf8_without_mark(str_of(text)).data;
    for (int line = 1; text; line++) {
        char *next = strchr(text, '\n');
        if (next) *next++ = 0;
        char *s = trim(text);
        if (*s == '[') TRY(read_section(c, s, line, &section));
        else if (*s && *s != '#') TRY(read_entry(c, s, line, section));
        text = next;
    }
    return OK;
}

// ---- checking entries -----------------------------------------------------------------------------------------------

static bool is_prompt(const Option *row) { return row->kind == PROMPT_TEXT || row->kind == PROMPT_FILE; }

// Options that the configuration file cannot contain.
static bool is_of_command_line(const Option *row) {
    return row->group == G_CONFIG || row->kind == HELP || row->kind == VERSION || row->kind == MAN ||
           row->kind == COMPLETIONS;
}

static Status unknown_name(const Config *c, const Entry *e) {
    Nearest nearest = {.word = e->name};
    char name[32];
    for (int i = 0; i < cli_n_options; i++)
        for (const char *at = cli_options[i].names; (at = cli_next_name(at, name));)
            if (name[1] == '-') nearest_try(&nearest, name + 2);
    const char *meant = nearest_found(&nearest);
    char flag[8], of_short[32];
    snprintf(flag, sizeof flag, "-%s", e->name);
    const Option *row = strlen(e->name) < sizeof flag - 1 ? cli_find(flag, MODES_ALL) : NULL;
    if (row) cli_long_name(row, of_short), meant = of_short;
    Buf what = {0};
    if (*e->name == '-') buf_printf(&what, "%.80s: an option without its dashes expected", e->name);
    else buf_printf(&what, "%.80s: the long name of an option expected", e->name);
    if (meant) buf_printf(&what, "; did you mean %s?", meant);
    else buf_str(&what, "; quill --help lists them");
    Status st = bad_line(c, e->line, "%s", what.data);
    buf_free(&what);
    return st;
}

static Status check_entry(const Config *c, const Entry *e) {
    const Option *row = cli_find_long(e->name, ~0u);
    if (!row || *e->name == '-') return unknown_name(c, e);
    if (is_of_command_line(row))
        return bad_line(c, e->line, "%.80s: this option works only on the command line", e->name);
    const Option *text = cli_find_long(e->name, MODES_TEXT); // `file` is also the name of batch's jobs
    if (text && is_prompt(text) && !*e->section)
        return bad_line(c, e->line, "%.80s: a prompt is allowed only in a section [name], for --preset name", e->name);
    return OK;
}

static Status check_preset(const Config *c, const char *preset) {
    Buf known = {0};
    for (int i = 0; i < c->n_sections; i++) {
        if (strcmp(c->sections[i], preset) == 0) {
            buf_free(&known);
            return OK;
        }
        buf_printf(&known, "%s[%s]", known.n ? ", " : "; there is ", c->sections[i]);
    }
    Status st = status_error(QUILL_USAGE, "--preset %.100s: a section [%.100s] in %.400s expected, found none%.300s",
                             preset, preset, c->path, known.data ? known.data : "");
    buf_free(&known);
    return st;
}

// ---- setting --------------------------------------------------------------------------------------------------------

// Whether these names, separated by spaces, have the row of a mode.
static bool names_row(const char *names, const Option *row, Mode m) {
    char name[32];
    while ((names = cli_next_name(names, name)))
        if (cli_find(name, 1u << m) == row) return true;
    return false;
}

// Whether one of the named options other than this one was given by a stronger source, and not turned off there.
static bool names_stronger(const char *names, const Option *row, Giver by, const Options *o) {
    char name[32];
    while ((names = cli_next_name(names, name))) {
        const Option *rival = cli_find(name, 1u << o->mode);
        if (rival && rival != row && !cli_is_off(rival, o) && cli_origin(o, rival)->by > by) return true;
    }
    return false;
}

// The same for --temp 0, which is greedy, and --best-of; other temperatures do not exclude it.
static bool is_greedy_rival(const Option *row, const char *value, Giver by, const Options *o) {
    const Option *temp = cli_find("--temp", 1u << o->mode), *best = cli_find("--best-of", 1u << o->mode);
    if (!temp || !best) return false;
    if (row == temp) return strtof(value, NULL) <= 0 && o->answer.best_of > 0 && cli_origin(o, best)->by > by;
    return row == best && o->answer.sampling.temp <= 0 && cli_origin(o, temp)->by > by;
}

// The same for types of K and V that seal groups of slots, beside --evict and --chunk, which need every slot for
// itself.
static bool is_sealed_rival(const Option *row, const char *value, Giver by, const Options *o) {
    static const char types[] = "-ctk -ctv", dense[] = "--evict --chunk";
    const EngineConfig *e = &o->engine;
    char name[32];
    if (names_row(types, row, o->mode)) return kv_is_sealed(kv_type_find(value)) && names_stronger(dense, row, by, o);
    if (!names_row(dense, row, o->mode)) return false;
    for (const char *at = types; (at = cli_next_name(at, name));) {
        bool sealed = kv_is_sealed(strcmp(name, "-ctk") == 0 ? e->type_k : e->type_v);
        if (sealed && names_stronger(name, row, by, o)) return true;
    }
    return false;
}

// Whether an option that excludes this one with this value was given by a stronger source.
static bool has_stronger_rival(const Option *row, const char *value, Giver by, const Options *o) {
    for (int i = 0; i < cli_n_conflicts; i++) {
        const CliConflict *c = &cli_conflicts[i];
        bool first = names_row(c->a, row, o->mode);
        if (!first && !names_row(c->b, row, o->mode)) continue;
        if (names_stronger(first ? c->b : c->a, row, by, o)) return true;
    }
    return is_greedy_rival(row, value, by, o) || is_sealed_rival(row, value, by, o);
}

// Replaces ~/ by the home directory if the value is a path, or a word, a comma and a path (ngram,FILE). The options own
// the new text.
static const char *with_home(const Option *row, const char *value, Options *o) {
    const char *home = getenv("HOME"), *comma = strchr(value, ',');
    bool path = row->arg && (strstr(row->arg, "FILE") || strncmp(row->arg, "DIR", 3) == 0);
    size_t head = comma && row->arg && strstr(row->arg, ",FILE") ? (size_t)(comma + 1 - value) : 0;
    if (!path || strncmp(value + head, "~/", 2) != 0 || !home) return value;
    Buf whole = {0};
    buf_printf(&whole, "%.*s%s%s", (int)head, value, home, value + head + 1);
    cli_keep(o, whole.data);
    return whole.data;
}

static Status apply_entry(const Config *c, const Entry *e, Giver by, Options *o) {
    const Option *row = cli_find_long(e->name, 1u << o->mode);
    if (!row) return OK; // an option of other modes
    Origin *origin = cli_origin(o, row);
    bool list = row->kind == STOPS || row->kind == BIAS || row->kind == FILES || is_prompt(row);
    bool adds = list && *e->value && !origin->alone;
    if ((origin->by > by && !adds) || has_stronger_rival(row, e->value, by, o)) return OK;
    const char *value = with_home(row, e->value, o);
    Status st =
        is_prompt(row) ? cli_add_part(row, value, o->n_preset_parts++, o) : cli_set_option(row, e->name, value, o);
    if (st.code) return bad_line(c, e->line, "%s", st.message);
    bool also = adds && origin->by == by; // several lines give the values
    if (origin->by <= by) origin->by = by, origin->line = also ? 0 : e->line;
    return OK;
}

static Status apply_all(const Config *c, Options *o) {
    for (int i = 0; i < c->n; i++) TRY(check_entry(c, &c->entries[i]));
    if (o->preset) TRY(check_preset(c, o->preset));
    for (int i = 0; o->preset && i < c->n; i++)
        if (strcmp(c->entries[i].section, o->preset) == 0) TRY(apply_entry(c, &c->entries[i], BY_PRESET, o));
    for (int i = 0; i < c->n; i++)
        if (!*c->entries[i].section) TRY(apply_entry(c, &c->entries[i], BY_FILE, o));
    return OK;
}

Status config_apply(Options *o) {
    Buf path = {0}, text = {0};
    bool there = false;
    Status st = OK;
    if (o->no_config && o->preset)
        return status_error(QUILL_USAGE, "--preset and --no-config: one of them expected, found both");
    if (!o->no_config && config_path(&path)) st = read_file(path.data, &text, &there);
    if (!st.code && o->preset && !there)
        st = status_error(QUILL_USAGE, "--preset %.100s: the file %.800s expected, found none", o->preset,
                          path.data ? path.data : "~/.config/quill/config");
    Config c = {.path = path.data};
    if (!st.code && there) {
        cli_keep(o, text.data);
        st = read_lines(&c, text.data);
        if (!st.code) st = apply_all(&c, o);
    } else buf_free(&text);
    free(c.entries);
    free(c.sections);
    buf_free(&path);
    return st;
}

// ---- --show-config --------------------------------------------------------------------------------------------------

void config_origin(const Option *row, const Origin *origin, Buf *out) {
    char name[32];
    Buf path = {0};
    switch (origin->by) {
    case BY_FLAG: buf_str(out, "the command line"); break;
    case BY_ENVIRONMENT: buf_str(out, cli_find("--model", row->modes) == row ? "QUILL_MODEL" : "QUILL_DEVICE"); break;
    case BY_FILE:
    case BY_PRESET:
        config_path(&path);
        buf_str(out, path.data);
        if (origin->line) buf_printf(out, ":%d", origin->line);
        buf_free(&path);
        break;
    default:
        cli_long_name(row, name);
        buf_str(out, file_sampling_knows(name) ? "the default, or the model's file" : "the default");
    }
}

void config_sources(const Options *o, Str message, Buf *out) {
    const char *until = memchr(message.data, ';', message.n); // what comes behind it is advice
    size_t n = until ? (size_t)(until - message.data) : message.n;
    for (size_t i = 0; i < n; i++) {
        char name[32];
        size_t length = 0;
        if (message.data[i] != '-' || (i > 0 && !strchr(" (,/", message.data[i - 1]))) continue;
        while (i + length < n && length < sizeof name - 1 &&
               (isalnum((unsigned char)message.data[i + length]) || message.data[i + length] == '-'))
            length++;
        snprintf(name, sizeof name, "%.*s", (int)length, message.data + i);
        const Option *row = cli_find(name, 1u << o->mode);
        const Origin *origin = row ? cli_origin(o, row) : NULL;
        if (!origin || origin->by == BY_DEFAULT || origin->by == BY_FLAG) continue;
        Buf from = {0};
        config_origin(row, origin, &from);
        buf_printf(out, "; %s is from %s", name, from.data);
        buf_free(&from);
        i += length;
    }
}

// Whether plain_value finds a comment in a value, with quotes around it as well.
static bool has_comment(const char *value) {
    for (const char *at = value; (at = strchr(at, '"')); at++)
        if (next_behind(at) == '#') return true;
    return false;
}

static void show_line(const char *name, const char *value, const char *from) {
    const char *has = strchr(value, '\n') ? "a line break" : has_comment(value) ? "a \" before a #" : NULL;
    if (has) { // a line of a file cannot hold it
        printf("# %s has %s; it works only on the command line # %s\n", name, has, from);
        return;
    }
    bool quoted = !*value || strchr(value, '#') || isspace((unsigned char)*value) ||
                  isspace((unsigned char)value[strlen(value) - 1]) || *value == '"';
    const char *quote = quoted ? "\"" : "";
    int width = printf("%s = %s%s%s", name, quote, value, quote);
    printf("%*s # %s\n", width < 40 ? 40 - width : 0, "", from);
}

static void show_row(const Option *row, const Origin *origin, const Options *o) {
    char name[32];
    Buf from = {0}, value = {0};
    cli_long_name(row, name);
    config_origin(row, origin, &from);
    if (cli_can_be_off(row) && cli_is_off(row, o)) show_line(name, "", from.data);
    else if (row->kind == STOPS) // one line for each, as they are read
        for (int i = 0; i < o->answer.n_stop; i++) show_line(name, o->answer.stop[i], from.data);
    else if (row->kind == FILES)
        for (int i = 0; i < o->answer.n_chunks; i++) show_line(name, o->answer.chunks[i], from.data);
    else {
        cli_value(row, o, &value);
        show_line(name, value.data, from.data);
    }
    buf_free(&from);
    buf_free(&value);
}

void config_show(const Options *o) {
    Buf path = {0};
    if (o->no_config) printf("# no file was read: --no-config\n");
    else if (config_path(&path) && access(path.data, R_OK) == 0) printf("# %s\n", path.data);
    else if (path.n)
        printf("# %s (%s)\n", path.data, errno == ENOENT || errno == ENOTDIR ? "there is none" : strerror(errno));
    else printf("# no file was read: XDG_CONFIG_HOME is no absolute path, and HOME is not set\n");
    if (o->preset) printf("# --preset %s\n", o->preset);
    buf_free(&path);
    for (int i = 0; i < o->prompt.n_parts; i++) {
        const PromptPart *p = &o->prompt.parts[i];
        printf("# "); // a prompt is allowed only in a section
        show_line(p->file ? "file" : "prompt", p->file ? p->file : p->text,
                  i < o->n_preset_parts ? "the preset" : "the command line");
    }
    for (int i = 0; i < cli_n_options; i++) {
        const Option *row = &cli_options[i];
        bool known = o->origins[i].by != BY_DEFAULT || (row->fallback && row->help);
        if (row->modes & 1u << o->mode && known && !is_of_command_line(row) && !is_prompt(row))
            show_row(row, &o->origins[i], o);
    }
}
