// grammar/gbnf.c: see grammar/gbnf.h.
#include "grammar/gbnf.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/chars.h"

enum { DEEPEST = 200, MOST_REPEATS = 100000 };

typedef struct {
    Str text;
    size_t at;
    Rules *r;
    int depth;
    Status failed;
} GbnfParse;

static int alternatives(GbnfParse *p, bool nested);

static bool fail(GbnfParse *p, size_t at, const char *expected) {
    if (p->failed.code) return false;
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        if (p->text.data[i] == '\n') line++, column = 1;
        else column += ((unsigned char)p->text.data[i] & 0xc0) != 0x80;
    }
    Buf found = {0};
    size_t n = 0;
    while (at + n < p->text.n && n < 20 && (n == 0 || !isspace((unsigned char)p->text.data[at + n]))) n++;
    utf8_escape(&found, p->text.data + at, n);
    p->failed = status_error(QUILL_USAGE, "line %zu, column %zu: %s expected, found %s%s%s", line, column, expected,
                             n ? "\"" : "", n ? found.data : "the end", n ? "\"" : "");
    buf_free(&found);
    return false;
}

static bool more(const GbnfParse *p) { return !p->failed.code && p->at < p->text.n; }
static int peek(const GbnfParse *p) { return more(p) ? (unsigned char)p->text.data[p->at] : -1; }

static bool eat(GbnfParse *p, const char *word) {
    size_t n = strlen(word);
    if (p->failed.code || p->text.n - p->at < n || memcmp(p->text.data + p->at, word, n) != 0) return false;
    p->at += n;
    return true;
}

// Skips white space and comments; ends of lines only if the rule may continue on the next line.
static void skip(GbnfParse *p, bool lines) {
    for (int c; (c = peek(p)) >= 0;) {
        if (c == '#')
            while (peek(p) >= 0 && peek(p) != '\n') p->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines)) p->at++;
        else return;
    }
}

static bool is_name(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static Str read_name(GbnfParse *p) {
    size_t begin = p->at;
    while (is_name(peek(p))) p->at++;
    if (p->at == begin) fail(p, begin, "the name of a rule");
    return (Str){p->text.data + begin, p->at - begin};
}

// ---- characters -----------------------------------------------------------------------------------------------------

static bool read_hex(GbnfParse *p, int digits, uint32_t *c) {
    size_t begin = p->at;
    *c = 0;
    for (int i = 0, d; i < digits; i++, p->at++) {
        d = more(p) ? str_hex_digit((char)peek(p)) : -1;
        if (d < 0) return fail(p, p->at, "a hexadecimal digit");
        *c = *c * 16 + (uint32_t)d;
    }
    return *c <= 0x10ffff || fail(p, begin, "a code point up to 10ffff");
}

static bool read_char(GbnfParse *p, uint32_t *c) {
    size_t begin = p->at;
    if (!eat(p, "\\")) {
        int n = utf8_read(p->text.data + p->at, p->text.n - p->at, c);
        if (n < 1) return fail(p, p->at, "UTF-8");
        p->at += (size_t)n;
        return true;
    }
    static const char letters[] = "ntr\\\"[]-^/'", values[] = "\n\t\r\\\"[]-^/'";
    if (eat(p, "x")) return read_hex(p, 2, c);
    if (eat(p, "u")) return read_hex(p, 4, c);
    if (eat(p, "U")) return read_hex(p, 8, c);
    const char *known = peek(p) > 0 ? strchr(letters, peek(p)) : NULL;
    if (!known) return fail(p, begin, "one of \\n \\t \\r \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
    p->at++;
    *c = (unsigned char)values[known - letters];
    return true;
}

static int read_text(GbnfParse *p) {
    Buf text = {0};
    size_t begin = p->at - 1;
    while (more(p) && peek(p) != '"') {
        uint32_t c = 0;
        char bytes[4];
        if (peek(p) == '\n') fail(p, begin, "\" before the end of the line");
        else if (read_char(p, &c)) buf_append(&text, bytes, (size_t)utf8_write(bytes, c));
    }
    if (!eat(p, "\"")) fail(p, begin, "\" at the end of this text");
    int e = p->failed.code ? 0 : rules_text(p->r, text.data ? text.data : "", text.n);
    buf_free(&text);
    return e;
}

static int read_class(GbnfParse *p) {
    Buf set = {0}, all = {0};
    size_t begin = p->at - 1;
    bool not = eat(p, "^");
    while (more(p) && peek(p) != ']') {
        uint32_t low = 0, high = 0;
        if (!read_char(p, &low)) break;
        high = low;
        bool range = peek(p) == '-' && p->at + 1 < p->text.n && p->text.data[p->at + 1] != ']';
        if (range) {
            size_t at = p->at++;
            if (!read_char(p, &high)) break;
            if (high < low) fail(p, at, "a range from a lower to a higher character");
        }
        chars_add(&set, low, high);
    }
    if (!eat(p, "]")) fail(p, begin, "] at the end of this class");
    chars_append(&all, &set, not );
    int e = p->failed.code ? 0 : rules_class(p->r, (CharRange *)(void *)all.data, chars_count(&all));
    buf_free(&set);
    buf_free(&all);
    return e;
}

// ---- rules ----------------------------------------------------------------------------------------------------------

static int read_item(GbnfParse *p) {
    if (eat(p, "\"")) return read_text(p);
    if (eat(p, "[")) return read_class(p);
    if (eat(p, ".")) return rules_class(p->r, &(CharRange){0, 0x10ffff}, 1);
    if (eat(p, "(")) {
        size_t begin = p->at - 1;
        if (++p->depth > DEEPEST) fail(p, begin, "groups at most 200 deep");
        int e = p->failed.code ? 0 : alternatives(p, true);
        p->depth--;
        skip(p, true);
        if (!eat(p, ")")) fail(p, p->at, ")");
        return e;
    }
    Str name = read_name(p);
    return p->failed.code ? 0 : rules_call(p->r, rules_rule(p->r, name));
}

static bool read_count(GbnfParse *p, int *n) {
    size_t begin = p->at;
    int value = chars_number(p->text, &p->at, MOST_REPEATS);
    if (p->at == begin) return false;
    if (value > MOST_REPEATS) return fail(p, begin, "a count of 100000 at most");
    *n = value;
    return true;
}

static void read_braces(GbnfParse *p, int *least, int *most) {
    size_t begin = p->at;
    skip(p, false);
    bool low = read_count(p, least);
    *most = *least;
    skip(p, false);
    bool comma = eat(p, ",");
    skip(p, false);
    if (comma && !read_count(p, most)) *most = -1;
    skip(p, false);
    if (!eat(p, "}") || (!low && (!comma || *most < 0))) fail(p, p->at, "{n}, {n,}, {n,m} or {,m}");
    if (*most >= 0 && *most < *least) fail(p, begin, "a range that rises");
}

static int repeated(GbnfParse *p, int e, bool nested) {
    for (int times = 0; more(p); times++) {
        skip(p, nested);
        int least = 0, most = -1;
        if (times > DEEPEST) fail(p, p->at, "at most 200 repetitions of one thing");
        if (eat(p, "?")) most = 1;
        else if (eat(p, "+")) least = 1;
        else if (eat(p, "{")) read_braces(p, &least, &most);
        else if (!eat(p, "*")) break;
        if (!p->failed.code) e = rules_repeat(p->r, e, least, most);
    }
    return e;
}

static bool sequence_ends(const GbnfParse *p) {
    int c = peek(p);
    return c < 0 || c == '|' || c == ')' || c == '\n';
}

static int sequence(GbnfParse *p, bool nested) {
    Buf kids = {0};
    skip(p, nested);
    while (more(p) && !sequence_ends(p)) {
        int e = repeated(p, read_item(p), nested);
        buf_append(&kids, &e, sizeof e);
        skip(p, nested);
    }
    int e = p->failed.code ? 0 : rules_seq_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

// Whether the next line continues the rule with |; if so, moves there.
static bool goes_on(GbnfParse *p) {
    size_t at = p->at;
    skip(p, true);
    if (peek(p) == '|') return true;
    p->at = at;
    return false;
}

static int alternatives(GbnfParse *p, bool nested) {
    Buf kids = {0};
    do {
        skip(p, true); // after ::=, ( and | the rule may continue on the next line
        int e = sequence(p, nested);
        buf_append(&kids, &e, sizeof e);
    } while ((peek(p) == '|' || goes_on(p)) && eat(p, "|"));
    int e = p->failed.code ? 0 : rules_alt_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

static void read_rule(GbnfParse *p) {
    size_t begin = p->at;
    Str name = read_name(p);
    if (p->failed.code) return;
    int rule = rules_rule(p->r, name);
    skip(p, false);
    if (!eat(p, "::=")) fail(p, p->at, "::=");
    if (!p->failed.code && p->r->rules[rule].expr >= 0) fail(p, begin, "a rule that is not defined yet");
    int e = p->failed.code ? 0 : alternatives(p, false);
    if (more(p) && peek(p) != '\n') fail(p, p->at, "the end of the line");
    if (!p->failed.code) rules_define(p->r, rule, e);
}

Status gbnf_parse(Str text, Rules *r) {
    GbnfParse p = {.text = utf8_without_mark(text), .r = r};
    rules_rule(r, str_of("root"));
    skip(&p, true);
    if (!more(&p)) fail(&p, p.at, "a rule as root ::= \"yes\" | \"no\"");
    while (more(&p)) {
        read_rule(&p);
        skip(&p, true);
    }
    return p.failed;
}
