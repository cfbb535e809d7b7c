// grammar/regex.c: see grammar/regex.h.
#include "grammar/regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "grammar/chars.h"
#include "grammar/cursor.h"

typedef struct {
    char name[3];
    Buf ranges;
} Category;

typedef struct {
    Cursor c;
    Rules *r;
    Category *categories; // (n_categories) those that were read: finding one visits all characters
    int n_categories;
    RegexWriter *write;
    void *arg;
    bool search;
} RegexParse;

static int alternatives(RegexParse *p, bool outer);

static bool among(int c, const char *set) { return c > 0 && strchr(set, c); }

static int write_ranges(RegexParse *p, CharRange *ranges, int n) {
    n = rules_sort_ranges(ranges, n);
    return p->write ? p->write(p->r, ranges, n, p->arg) : rules_class(p->r, ranges, n);
}

static int any_text(RegexParse *p) {
    CharRange all = {0, 0x10ffff};
    return rules_repeat(p->r, write_ranges(p, &all, 1), 0, -1);
}

// ---- characters -----------------------------------------------------------------------------------------------------

// Reads up to `most` hexadecimal digits and returns their value. *n: how many were read.
static uint32_t read_digits(RegexParse *p, int most, int *n) {
    uint32_t value = 0;
    *n = 0;
    for (int d; *n < most && cursor_more(&p->c) && (d = str_hex_digit((char)cursor_peek(&p->c))) >= 0; ++*n, p->c.at++)
        value = value * 16 + (uint32_t)d;
    return value;
}

// Reads the low half of a surrogate pair, \uHHHH, and joins it with the high half *c. Another text is left unread.
static void join_surrogate(RegexParse *p, uint32_t *c) {
    size_t begin = p->c.at;
    int n;
    if (!cursor_eat(&p->c, "\\u")) return;
    uint32_t low = read_digits(p, 4, &n);
    if (n == 4 && low >= 0xdc00 && low < 0xe000) *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    else p->c.at = begin;
}

// Reads \xHH, \uHHHH or \u{...} after its letter. Two escapes that form a surrogate pair are one character.
static bool read_hex(RegexParse *p, int digits, uint32_t *c) {
    size_t begin = p->c.at;
    bool braces = cursor_eat(&p->c, "{");
    int n;
    *c = read_digits(p, braces ? 6 : digits, &n);
    if ((braces && (n == 0 || !cursor_eat(&p->c, "}"))) || (!braces && n < digits))
        return cursor_fail(&p->c, p->c.at, "a hexadecimal digit");
    if (*c > 0x10ffff) return cursor_fail(&p->c, begin, "a code point up to 10ffff");
    if (!braces && *c >= 0xd800 && *c < 0xdc00) join_surrogate(p, c);
    return true;
}

static void find_category(const char *name, Buf *out) {
    CharRange run = {1, 0};
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        const char *category = utf8proc_category_string((utf8proc_int32_t)c);
        bool in = category[0] == name[0] && (!name[1] || category[1] == name[1]);
        if (in && run.first <= run.last) run.last = c;
        else if (in) run = (CharRange){c, c};
        else if (run.first <= run.last) buf_append(out, &run, sizeof run), run = (CharRange){1, 0};
    }
    if (run.first <= run.last) buf_append(out, &run, sizeof run);
}

// The ranges of a category, found at its first use.
static const Buf *category_ranges(RegexParse *p, const char *name) {
    int i = 0;
    while (i < p->n_categories && strcmp(p->categories[i].name, name) != 0) i++;
    if (i < p->n_categories) return &p->categories[i].ranges;
    p->categories = mem_resize(p->categories, (size_t)(i + 1) * sizeof *p->categories);
    p->categories[i] = (Category){0};
    snprintf(p->categories[i].name, sizeof p->categories[i].name, "%s", name);
    find_category(name, &p->categories[i].ranges);
    p->n_categories++;
    return &p->categories[i].ranges;
}

// Reads a category of Unicode, \p{L} or \p{Lu}, and appends its ranges to `set`.
static bool read_category(RegexParse *p, Buf *set) {
    size_t begin = p->c.at;
    char name[3] = "";
    if (cursor_eat(&p->c, "{")) {
        for (int i = 0; i < 2 && cursor_more(&p->c) && cursor_peek(&p->c) != '}'; i++)
            name[i] = p->c.text.data[p->c.at++];
        if (!cursor_eat(&p->c, "}"))
            return cursor_fail(&p->c, p->c.at, "} after a category of one or two letters, as \\p{Lu}");
    } else if (cursor_more(&p->c)) name[0] = p->c.text.data[p->c.at++];
    const Buf *ranges = category_ranges(p, name);
    buf_append(set, ranges->data, ranges->n);
    return ranges->n || cursor_fail(&p->c, begin, "a category of Unicode, as L, Lu or Nd");
}

// Reads an escape after its backslash and appends its characters to `set`. *single: it is one character.
static bool read_escape(RegexParse *p, Buf *set, bool *single) {
    uint32_t c = 0;
    size_t begin = p->c.at;
    *single = false;
    if (!cursor_more(&p->c)) return cursor_fail(&p->c, p->c.at, "a character after \\");
    if (!cursor_char(&p->c, &c)) return false;
    if (chars_set((char)(c < 128 ? c : 0), set)) return true;
    if (c == 'p' || c == 'P') {
        Buf category = {0};
        bool ok = read_category(p, &category);
        if (ok) chars_append(set, &category, c == 'P');
        buf_free(&category);
        return ok;
    }
    static const char letters[] = "ntrfv0a", values[] = "\n\t\r\f\v\0\a";
    uint32_t letter = c;
    const char *known = c < 128 && c ? strchr(letters, (int)c) : NULL;
    if (known && *known) c = (unsigned char)values[known - letters];
    else if (c == 'x' || c == 'u') {
        if (!read_hex(p, letter == 'x' ? 2 : 4, &c)) return false;
    } else if ((c >= '1' && c <= '9') || c == 'k')
        return cursor_fail(&p->c, begin, "no reference to a group, which no automaton has,");
    else if (c == 'b' || c == 'B' || c == 'A' || c == 'z' || c == 'Z')
        return cursor_fail(&p->c, begin, "^ and $ in place of \\b, \\A and \\z");
    else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return cursor_fail(&p->c, begin, "an escape: \\d \\w \\s \\n \\t \\r \\xHH \\uHHHH \\p{..} or punctuation");
    *single = true;
    chars_add(set, c, c);
    return true;
}

static bool read_class_item(RegexParse *p, Buf *set, bool *single) {
    uint32_t c;
    *single = true;
    if (cursor_eat(&p->c, "\\")) {
        if (!cursor_eat(&p->c, "b")) return read_escape(p, set, single);
        chars_add(set, '\b', '\b');
        return true;
    }
    if (cursor_eat(&p->c, "[:")) return cursor_fail(&p->c, p->c.at - 2, "\\d, \\w or ranges in place of [:...:]");
    if (!cursor_char(&p->c, &c)) return false;
    chars_add(set, c, c);
    return true;
}

static CharRange *last_of(Buf *set) { return (CharRange *)(void *)(set->data + set->n) - 1; }

// Reads [...] after its opening bracket.
static int read_class(RegexParse *p) {
    Buf set = {0};
    bool not = cursor_eat(&p->c, "^"), single, first = true;
    while (cursor_more(&p->c) && (first || cursor_peek(&p->c) != ']')) {
        first = false;
        size_t begin = p->c.at;
        if (!read_class_item(p, &set, &single)) break;
        bool range = cursor_range(&p->c);
        if (!range) continue;
        p->c.at++;
        uint32_t low = last_of(&set)->first;
        bool was_single = single;
        if (!read_class_item(p, &set, &single)) break;
        CharRange *high = last_of(&set);
        if (!was_single || !single || high->first < low)
            cursor_fail(&p->c, begin, "a range from a lower to a higher character");
        high->first = low;
    }
    if (!cursor_eat(&p->c, "]")) cursor_fail(&p->c, p->c.at, "]");
    Buf all = {0};
    chars_append(&all, &set, not );
    int e = p->c.failed.code ? 0 : write_ranges(p, (CharRange *)(void *)all.data, chars_count(&all));
    buf_free(&set);
    buf_free(&all);
    return e;
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static int read_group(RegexParse *p) {
    size_t begin = p->c.at;
    if (cursor_eat(&p->c, "?")) {
        bool named = cursor_eat(&p->c, "P<") || (cursor_peek(&p->c) == '<' && p->c.at + 1 < p->c.text.n &&
                                                 !among(p->c.text.data[p->c.at + 1], "=!"));
        if (named) {
            while (cursor_more(&p->c) && cursor_peek(&p->c) != '>') p->c.at++;
            if (!cursor_eat(&p->c, ">")) cursor_fail(&p->c, p->c.at, "> after the name of a group");
        } else if (!cursor_eat(&p->c, ":"))
            cursor_fail(&p->c, begin, "(?:...) or (?<name>...); look-around and flags are not regular, so a group");
    }
    int e = cursor_nest(&p->c, begin) ? alternatives(p, false) : 0;
    p->c.depth--;
    if (!cursor_eat(&p->c, ")")) cursor_fail(&p->c, p->c.at, ")");
    return e;
}

static int read_atom(RegexParse *p) {
    uint32_t c;
    size_t begin = p->c.at;
    if (cursor_eat(&p->c, "(")) return read_group(p);
    if (cursor_eat(&p->c, "[")) return read_class(p);
    if (cursor_eat(&p->c, ".")) {
        CharRange dot[] = {{0, '\n' - 1}, {'\n' + 1, 0x10ffff}};
        return write_ranges(p, dot, 2);
    }
    if (cursor_eat(&p->c, "\\")) {
        Buf set = {0};
        bool single;
        int e = 0;
        if (read_escape(p, &set, &single)) e = write_ranges(p, (CharRange *)(void *)set.data, chars_count(&set));
        buf_free(&set);
        return e;
    }
    if (among(cursor_peek(&p->c), "*+?")) cursor_fail(&p->c, begin, "something to repeat before it");
    if (among(cursor_peek(&p->c), "^$"))
        cursor_fail(&p->c, begin, "^ and $ where the expression begins and ends, here a character");
    if (!cursor_char(&p->c, &c)) return 0;
    CharRange one = {c, c};
    return write_ranges(p, &one, 1);
}

// Reads {n}, {n,} or {n,m} after its opening brace.
static void read_braces(RegexParse *p, int *least, int *most) {
    size_t begin = p->c.at;
    *least = 0;
    bool low = cursor_count(&p->c, least);
    *most = *least;
    bool comma = cursor_eat(&p->c, ",");
    if (comma && !cursor_count(&p->c, most)) *most = -1;
    if (!cursor_eat(&p->c, "}") || (!low && (!comma || *most < 0)))
        cursor_fail(&p->c, p->c.failed.code ? begin : p->c.at, "{n}, {n,} or {n,m}");
    if (*most >= 0 && *most < *least) cursor_fail(&p->c, begin, "a range that rises");
}

static int repeated(RegexParse *p, int e) {
    for (int times = 0; cursor_more(&p->c); times++) {
        size_t begin = p->c.at;
        int least = 0, most = -1;
        if (cursor_eat(&p->c, "?")) most = 1;
        else if (cursor_eat(&p->c, "+")) least = 1;
        else if (cursor_eat(&p->c, "{")) read_braces(p, &least, &most);
        else if (!cursor_eat(&p->c, "*")) return e;
        if (times)
            cursor_fail(&p->c, begin,
                        "one repetition after an item (put it into a group to repeat it again), no second one");
        if (cursor_eat(&p->c, "+"))
            cursor_fail(&p->c, p->c.at - 1, "no possessive repetition, which no automaton has,");
        cursor_eat(&p->c, "?"); // a lazy repetition matches the same texts
        if (!p->c.failed.code) e = rules_repeat(p->r, e, least, most);
    }
    return e;
}

// Parses items that follow each other. `outer`: ^ and $ may stand at both ends.
static int sequence(RegexParse *p, bool outer) {
    Buf kids = {0};
    bool begins = outer && cursor_eat(&p->c, "^"), ends = false;
    int any = outer && p->search && !begins ? any_text(p) : -1;
    if (any >= 0) buf_append(&kids, &any, sizeof any);
    while (cursor_more(&p->c) && cursor_peek(&p->c) != '|' && cursor_peek(&p->c) != ')') {
        size_t rest = p->c.text.n - p->c.at;
        ends = outer && cursor_peek(&p->c) == '$' && (rest == 1 || among(p->c.text.data[p->c.at + 1], "|)"));
        if (ends) {
            p->c.at++;
            break;
        }
        int e = repeated(p, read_atom(p));
        buf_append(&kids, &e, sizeof e);
    }
    if (outer && p->search && !ends && !p->c.failed.code) {
        any = any_text(p);
        buf_append(&kids, &any, sizeof any);
    }
    int e = p->c.failed.code ? 0 : rules_seq_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

static int alternatives(RegexParse *p, bool outer) {
    Buf kids = {0};
    do {
        int e = sequence(p, outer);
        buf_append(&kids, &e, sizeof e);
    } while (cursor_eat(&p->c, "|"));
    int e = p->c.failed.code ? 0 : rules_alt_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

Status regex_parse(Str text, bool search, RegexWriter *write, void *arg, Rules *r, int *expr) {
    RegexParse p = {.c = {.text = text}, .r = r, .write = write, .arg = arg, .search = search};
    *expr = alternatives(&p, true);
    if (cursor_more(&p.c)) cursor_fail(&p.c, p.c.at, "the end, or ( in front of this )");
    for (int i = 0; i < p.n_categories; i++) buf_free(&p.categories[i].ranges);
    free(p.categories);
    return p.c.failed;
}

Status regex_parse_root(Str text, Rules *r) {
    int root = rules_rule(r, str_of("root")), expr;
    TRY(regex_parse(text, false, NULL, NULL, r, &expr));
    rules_define(r, root, expr);
    return OK;
}
