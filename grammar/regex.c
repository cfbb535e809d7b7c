// grammar/regex.c: see grammar/regex.h.
#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "grammar/chars.h"

enum { DEEPEST = 200, MOST_REPEATS = 100000 };

typedef struct {
    Str text;
    size_t at;
    Rules *r;
    RegexWriter *write;
    void *arg;
    bool search;
    int depth;
    Status failed;
} RegexParse;

static int alternatives(RegexParse *p, bool outer);

static bool fail(RegexParse *p, size_t at, const char *expected) {
    if (p->failed.code) return false;
    size_t column = 1;
    for (size_t i = 0; i < at && i < p->text.n; i++) column += ((unsigned char)p->text.data[i] & 0xc0) != 0x80;
    Buf found = {0};
    if (at < p->text.n) {
        int n = int_max(1, utf8_next(p->text.data + at, p->text.n - at));
        utf8_escape(&found, p->text.data + at, (size_t)n);
    }
    p->failed = status_error(QUILL_USAGE, "column %zu: %s expected, found %s%s%s", column, expected,
                             found.n ? "\"" : "", found.n ? found.data : "the end", found.n ? "\"" : "");
    buf_free(&found);
    return false;
}

static bool more(const RegexParse *p) { return !p->failed.code && p->at < p->text.n; }
static int peek(const RegexParse *p) { return more(p) ? (unsigned char)p->text.data[p->at] : -1; }

static bool among(int c, const char *set) { return c > 0 && strchr(set, c); }

static bool eat(RegexParse *p, const char *word) {
    size_t n = strlen(word);
    if (p->failed.code || p->text.n - p->at < n || memcmp(p->text.data + p->at, word, n) != 0) return false;
    p->at += n;
    return true;
}

static int write_ranges(RegexParse *p, CharRange *ranges, int n) {
    n = rules_sort_ranges(ranges, n);
    return p->write ? p->write(p->r, ranges, n, p->arg) : rules_class(p->r, ranges, n);
}

static int any_text(RegexParse *p) {
    CharRange all = {0, 0x10ffff};
    return rules_repeat(p->r, write_ranges(p, &all, 1), 0, -1);
}

// ---- characters -----------------------------------------------------------------------------------------------------

static bool read_char(RegexParse *p, uint32_t *c) {
    int n = utf8_read(p->text.data + p->at, p->text.n - p->at, c);
    if (n < 1) return fail(p, p->at, "UTF-8");
    p->at += (size_t)n;
    return true;
}

// Reads up to `most` hexadecimal digits and returns their value. *n: how many were read.
static uint32_t read_digits(RegexParse *p, int most, int *n) {
    uint32_t value = 0;
    *n = 0;
    for (int d; *n < most && more(p) && (d = str_hex_digit((char)peek(p))) >= 0; ++*n, p->at++)
        value = value * 16 + (uint32_t)d;
    return value;
}

// Reads the low half of a surrogate pair, \uHHHH, and joins it with the high half *c. Another text is left unread.
static void join_surrogate(RegexParse *p, uint32_t *c) {
    size_t begin = p->at;
    int n;
    if (!eat(p, "\\u")) return;
    uint32_t low = read_digits(p, 4, &n);
    if (n == 4 && low >= 0xdc00 && low < 0xe000) *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    else p->at = begin;
}

// Reads \xHH, \uHHHH or \u{...} after its letter. Two escapes that form a surrogate pair are one character.
static bool read_hex(RegexParse *p, int digits, uint32_t *c) {
    size_t begin = p->at;
    bool braces = eat(p, "{");
    int n;
    *c = read_digits(p, braces ? 6 : digits, &n);
    if ((braces && (n == 0 || !eat(p, "}"))) || (!braces && n < digits)) return fail(p, p->at, "a hexadecimal digit");
    if (*c > 0x10ffff) return fail(p, begin, "a code point up to 10ffff");
    if (!braces && *c >= 0xd800 && *c < 0xdc00) join_surrogate(p, c);
    return true;
}

// Reads a category of Unicode, \p{L} or \p{Lu}, and appends its ranges to `set`.
static bool read_category(RegexParse *p, Buf *set) {
    size_t begin = p->at;
    char name[3] = "";
    if (eat(p, "{")) {
        for (int i = 0; i < 2 && more(p) && peek(p) != '}'; i++) name[i] = p->text.data[p->at++];
        if (!eat(p, "}")) return fail(p, p->at, "} after a category of one or two letters, as \\p{Lu}");
    } else if (more(p)) name[0] = p->text.data[p->at++];
    bool found = false;
    CharRange run = {1, 0};
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        const char *category = utf8proc_category_string((utf8proc_int32_t)c);
        bool in = category[0] == name[0] && (!name[1] || category[1] == name[1]);
        found |= in;
        if (in && run.first <= run.last) run.last = c;
        else if (in) run = (CharRange){c, c};
        else if (run.first <= run.last) buf_append(set, &run, sizeof run), run = (CharRange){1, 0};
    }
    if (run.first <= run.last) buf_append(set, &run, sizeof run);
    return found || fail(p, begin, "a category of Unicode, as L, Lu or Nd");
}

// Reads an escape after its backslash and appends its characters to `set`. *single: it is one character.
static bool read_escape(RegexParse *p, Buf *set, bool *single) {
    uint32_t c = 0;
    size_t begin = p->at;
    *single = false;
    if (!more(p)) return fail(p, p->at, "a character after \\");
    if (!read_char(p, &c)) return false;
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
        return fail(p, begin, "no reference to a group, which no automaton has,");
    else if (c == 'b' || c == 'B' || c == 'A' || c == 'z' || c == 'Z')
        return fail(p, begin, "^ and $ in place of \\b, \\A and \\z");
    else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return fail(p, begin, "an escape: \\d \\w \\s \\n \\t \\r \\xHH \\uHHHH \\p{..} or punctuation");
    *single = true;
    chars_add(set, c, c);
    return true;
}

static bool read_class_item(RegexParse *p, Buf *set, bool *single) {
    uint32_t c;
    *single = true;
    if (eat(p, "\\")) {
        if (!eat(p, "b")) return read_escape(p, set, single);
        chars_add(set, '\b', '\b');
        return true;
    }
    if (eat(p, "[:")) return fail(p, p->at - 2, "\\d, \\w or ranges in place of [:...:]");
    if (!read_char(p, &c)) return false;
    chars_add(set, c, c);
    return true;
}

static CharRange *last_of(Buf *set) { return (CharRange *)(void *)(set->data + set->n) - 1; }

// Reads [...] after its opening bracket.
static int read_class(RegexParse *p) {
    Buf set = {0};
    bool not = eat(p, "^"), single, first = true;
    while (more(p) && (first || peek(p) != ']')) {
        first = false;
        size_t begin = p->at;
        if (!read_class_item(p, &set, &single)) break;
        bool range = peek(p) == '-' && p->at + 1 < p->text.n && p->text.data[p->at + 1] != ']';
        if (!range) continue;
        p->at++;
        uint32_t low = last_of(&set)->first;
        bool was_single = single;
        if (!read_class_item(p, &set, &single)) break;
        CharRange *high = last_of(&set);
        if (!was_single || !single || high->first < low) fail(p, begin, "a range from a lower to a higher character");
        high->first = low;
    }
    if (!eat(p, "]")) fail(p, p->at, "]");
    Buf all = {0};
    chars_append(&all, &set, not );
    int e = p->failed.code ? 0 : write_ranges(p, (CharRange *)(void *)all.data, chars_count(&all));
    buf_free(&set);
    buf_free(&all);
    return e;
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static int read_group(RegexParse *p, bool outer) {
    size_t begin = p->at;
    if (eat(p, "?")) {
        bool named = eat(p, "P<") || (peek(p) == '<' && p->at + 1 < p->text.n && !among(p->text.data[p->at + 1], "=!"));
        if (named) {
            while (more(p) && peek(p) != '>') p->at++;
            if (!eat(p, ">")) fail(p, p->at, "> after the name of a group");
        } else if (!eat(p, ":"))
            fail(p, begin, "(?:...) or (?<name>...); look-around and flags are not regular, so a group");
    }
    if (++p->depth > DEEPEST) fail(p, begin, "groups at most 200 deep");
    int e = p->failed.code ? 0 : alternatives(p, outer);
    p->depth--;
    if (!eat(p, ")")) fail(p, p->at, ")");
    return e;
}

static int read_atom(RegexParse *p, bool outer) {
    uint32_t c;
    size_t begin = p->at;
    if (eat(p, "(")) return read_group(p, outer);
    if (eat(p, "[")) return read_class(p);
    if (eat(p, ".")) {
        CharRange dot[] = {{0, '\n' - 1}, {'\n' + 1, 0x10ffff}};
        return write_ranges(p, dot, 2);
    }
    if (eat(p, "\\")) {
        Buf set = {0};
        bool single;
        int e = 0;
        if (read_escape(p, &set, &single)) e = write_ranges(p, (CharRange *)(void *)set.data, chars_count(&set));
        buf_free(&set);
        return e;
    }
    if (among(peek(p), "*+?")) fail(p, begin, "something to repeat before it");
    if (among(peek(p), "^$")) fail(p, begin, "^ and $ where the expression begins and ends, here a character");
    if (!read_char(p, &c)) return 0;
    CharRange one = {c, c};
    return write_ranges(p, &one, 1);
}

static bool read_count(RegexParse *p, int *n) {
    size_t begin = p->at;
    int value = chars_number(p->text, &p->at, MOST_REPEATS);
    if (p->at == begin) return false;
    if (value > MOST_REPEATS) return fail(p, begin, "a count of 100000 at most");
    *n = value;
    return true;
}

// Reads {n}, {n,} or {n,m} after its opening brace.
static void read_braces(RegexParse *p, int *least, int *most) {
    size_t begin = p->at;
    *least = 0;
    bool low = read_count(p, least);
    *most = *least;
    bool comma = eat(p, ",");
    if (comma && !read_count(p, most)) *most = -1;
    if (!eat(p, "}") || (!low && (!comma || *most < 0))) fail(p, p->failed.code ? begin : p->at, "{n}, {n,} or {n,m}");
    if (*most >= 0 && *most < *least) fail(p, begin, "a range that rises");
}

static int repeated(RegexParse *p, int e) {
    for (int times = 0; more(p); times++) {
        size_t begin = p->at;
        int least = 0, most = -1;
        if (eat(p, "?")) most = 1;
        else if (eat(p, "+")) least = 1;
        else if (eat(p, "{")) read_braces(p, &least, &most);
        else if (!eat(p, "*")) return e;
        if (times)
            fail(p, begin, "one repetition after an item (put it into a group to repeat it again), no second one");
        if (eat(p, "+")) fail(p, p->at - 1, "no possessive repetition, which no automaton has,");
        eat(p, "?"); // a lazy repetition matches the same texts
        if (!p->failed.code) e = rules_repeat(p->r, e, least, most);
    }
    return e;
}

// Parses items that follow each other. `outer`: ^ and $ may stand at both ends.
static int sequence(RegexParse *p, bool outer) {
    Buf kids = {0};
    bool begins = outer && eat(p, "^"), ends = false;
    int any = outer && p->search && !begins ? any_text(p) : -1;
    if (any >= 0) buf_append(&kids, &any, sizeof any);
    while (more(p) && peek(p) != '|' && peek(p) != ')') {
        size_t rest = p->text.n - p->at;
        ends = outer && peek(p) == '$' && (rest == 1 || among(p->text.data[p->at + 1], "|)"));
        if (ends) {
            p->at++;
            break;
        }
        int e = repeated(p, read_atom(p, false));
        buf_append(&kids, &e, sizeof e);
    }
    if (outer && p->search && !ends && !p->failed.code) {
        any = any_text(p);
        buf_append(&kids, &any, sizeof any);
    }
    int e = p->failed.code ? 0 : rules_seq_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

static int alternatives(RegexParse *p, bool outer) {
    Buf kids = {0};
    do {
        int e = sequence(p, outer);
        buf_append(&kids, &e, sizeof e);
    } while (eat(p, "|"));
    int e = p->failed.code ? 0 : rules_alt_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

Status regex_parse(Str text, bool search, RegexWriter *write, void *arg, Rules *r, int *expr) {
    RegexParse p = {.text = text, .r = r, .write = write, .arg = arg, .search = search};
    *expr = alternatives(&p, true);
    if (more(&p)) fail(&p, p.at, "the end, or ( in front of this )");
    return p.failed;
}

Status regex_parse_root(Str text, Rules *r) {
    int root = rules_rule(r, str_of("root")), expr;
    TRY(regex_parse(text, false, NULL, NULL, r, &expr));
    rules_define(r, root, expr);
    return OK;
}
