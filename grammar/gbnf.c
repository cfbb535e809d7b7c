// grammar/gbnf.c: see grammar/gbnf.h.
#include "grammar/gbnf.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/chars.h"
#include "grammar/cursor.h"

typedef struct {
    Cursor c;
    Rules *r;
} GbnfParse;

static int alternatives(GbnfParse *p, bool nested);

// Skips white space and comments; ends of lines only if the rule may continue on the next line.
static void skip(GbnfParse *p, bool lines) {
    for (int c; (c = cursor_peek(&p->c)) >= 0;) {
        if (c == '#')
            while (cursor_peek(&p->c) >= 0 && cursor_peek(&p->c) != '\n') p->c.at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines)) p->c.at++;
        else return;
    }
}

static bool is_name(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static Str read_name(GbnfParse *p) {
    size_t begin = p->c.at;
    while (is_name(cursor_peek(&p->c))) p->c.at++;
    if (p->c.at == begin) cursor_fail(&p->c, begin, "the name of a rule");
    return (Str){p->c.text.data + begin, p->c.at - begin};
}

// ---- characters -----------------------------------------------------------------------------------------------------

static bool read_hex(GbnfParse *p, int digits, uint32_t *c) {
    size_t begin = p->c.at;
    *c = 0;
    for (int i = 0, d; i < digits; i++, p->c.at++) {
        d = cursor_more(&p->c) ? str_hex_digit((char)cursor_peek(&p->c)) : -1;
        if (d < 0) return cursor_fail(&p->c, p->c.at, "a hexadecimal digit");
        *c = *c * 16 + (uint32_t)d;
    }
    return *c <= 0x10ffff || cursor_fail(&p->c, begin, "a code point up to 10ffff");
}

static bool read_char(GbnfParse *p, uint32_t *c) {
    size_t begin = p->c.at;
    if (!cursor_eat(&p->c, "\\")) return cursor_char(&p->c, c);
    static const char letters[] = "ntr\\\"[]-^/'", values[] = "\n\t\r\\\"[]-^/'";
    if (cursor_eat(&p->c, "x")) return read_hex(p, 2, c);
    if (cursor_eat(&p->c, "u")) return read_hex(p, 4, c);
    if (cursor_eat(&p->c, "U")) return read_hex(p, 8, c);
    const char *known = cursor_peek(&p->c) > 0 ? strchr(letters, cursor_peek(&p->c)) : NULL;
    if (!known) return cursor_fail(&p->c, begin, "one of \\n \\t \\r \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
    p->c.at++;
    *c = (unsigned char)values[known - letters];
    return true;
}

static int read_text(GbnfParse *p) {
    Buf text = {0};
    size_t begin = p->c.at - 1;
    while (cursor_more(&p->c) && cursor_peek(&p->c) != '"') {
        uint32_t c = 0;
        char bytes[4];
        if (cursor_peek(&p->c) == '\n') cursor_fail(&p->c, begin, "\" before the end of the line");
        else if (!read_char(p, &c)) break;
        else if (c >= 0xd800 && c < 0xe000) cursor_fail(&p->c, begin, "a code point that is no surrogate");
        else buf_append(&text, bytes, (size_t)utf8_write(bytes, c));
    }
    if (!cursor_eat(&p->c, "\"")) cursor_fail(&p->c, begin, "\" at the end of this text");
    int e = p->c.failed.code ? 0 : rules_text(p->r, text.data ? text.data : "", text.n);
    buf_free(&text);
    return e;
}

static int read_class(GbnfParse *p) {
    Buf set = {0}, all = {0};
    size_t begin = p->c.at - 1;
    bool not = cursor_eat(&p->c, "^");
    while (cursor_more(&p->c) && cursor_peek(&p->c) != ']') {
        uint32_t low = 0, high = 0;
        if (!read_char(p, &low)) break;
        high = low;
        bool range = cursor_range(&p->c);
        if (range) {
            size_t at = p->c.at++;
            if (!read_char(p, &high)) break;
            if (high < low) cursor_fail(&p->c, at, "a range from a lower to a higher character");
        }
        chars_add(&set, low, high);
    }
    if (!cursor_eat(&p->c, "]")) cursor_fail(&p->c, begin, "] at the end of this class");
    chars_append(&all, &set, not );
    int e = p->c.failed.code ? 0 : rules_class(p->r, (CharRange *)(void *)all.data, chars_count(&all));
    buf_free(&set);
    buf_free(&all);
    return e;
}

// ---- rules ----------------------------------------------------------------------------------------------------------

static int read_item(GbnfParse *p) {
    if (cursor_eat(&p->c, "\"")) return read_text(p);
    if (cursor_eat(&p->c, "[")) return read_class(p);
    if (cursor_eat(&p->c, ".")) return rules_class(p->r, &(CharRange){0, 0x10ffff}, 1);
    if (cursor_eat(&p->c, "(")) {
        size_t begin = p->c.at - 1;
        int e = cursor_nest(&p->c, begin) ? alternatives(p, true) : 0;
        p->c.depth--;
        skip(p, true);
        if (!cursor_eat(&p->c, ")")) cursor_fail(&p->c, p->c.at, ")");
        return e;
    }
    Str name = read_name(p);
    return p->c.failed.code ? 0 : rules_call(p->r, rules_rule(p->r, name));
}

static void read_braces(GbnfParse *p, int *least, int *most) {
    size_t begin = p->c.at;
    skip(p, false);
    bool low = cursor_count(&p->c, least);
    *most = *least;
    skip(p, false);
    bool comma = cursor_eat(&p->c, ",");
    skip(p, false);
    if (comma && !cursor_count(&p->c, most)) *most = -1;
    skip(p, false);
    if (!cursor_eat(&p->c, "}") || (!low && (!comma || *most < 0)))
        cursor_fail(&p->c, p->c.at, "{n}, {n,}, {n,m} or {,m}");
    if (*most >= 0 && *most < *least) cursor_fail(&p->c, begin, "a range that rises");
}

static int repeated(GbnfParse *p, int e, bool nested) {
    for (int times = 0; cursor_more(&p->c); times++) {
        skip(p, nested);
        int least = 0, most = -1;
        if (times > CURSOR_DEEPEST) cursor_fail(&p->c, p->c.at, "at most 200 repetitions of one thing");
        if (cursor_eat(&p->c, "?")) most = 1;
        else if (cursor_eat(&p->c, "+")) least = 1;
        else if (cursor_eat(&p->c, "{")) read_braces(p, &least, &most);
        else if (!cursor_eat(&p->c, "*")) break;
        if (!p->c.failed.code) e = rules_repeat(p->r, e, least, most);
    }
    return e;
}

static bool sequence_ends(const GbnfParse *p) {
    int c = cursor_peek(&p->c);
    return c < 0 || c == '|' || c == ')' || c == '\n';
}

static int sequence(GbnfParse *p, bool nested) {
    Buf kids = {0};
    skip(p, nested);
    while (cursor_more(&p->c) && !sequence_ends(p)) {
        int e = repeated(p, read_item(p), nested);
        buf_append(&kids, &e, sizeof e);
        skip(p, nested);
    }
    int e = p->c.failed.code ? 0 : rules_seq_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

// Whether the next line continues the rule with |; if so, moves there.
static bool goes_on(GbnfParse *p) {
    size_t at = p->c.at;
    skip(p, true);
    if (cursor_peek(&p->c) == '|') return true;
    p->c.at = at;
    return false;
}

static int alternatives(GbnfParse *p, bool nested) {
    Buf kids = {0};
    do {
        skip(p, true); // after ::=, ( and | the rule may continue on the next line
        int e = sequence(p, nested);
        buf_append(&kids, &e, sizeof e);
    } while ((cursor_peek(&p->c) == '|' || goes_on(p)) && cursor_eat(&p->c, "|"));
    int e = p->c.failed.code ? 0 : rules_alt_of(p->r, &kids);
    buf_free(&kids);
    return e;
}

static void read_rule(GbnfParse *p) {
    size_t begin = p->c.at;
    Str name = read_name(p);
    if (p->c.failed.code) return;
    int rule = rules_rule(p->r, name);
    skip(p, false);
    if (!cursor_eat(&p->c, "::=")) cursor_fail(&p->c, p->c.at, "::=");
    if (!p->c.failed.code && p->r->rules[rule].expr >= 0) cursor_fail(&p->c, begin, "a rule that is not defined yet");
    int e = p->c.failed.code ? 0 : alternatives(p, false);
    if (cursor_more(&p->c) && cursor_peek(&p->c) != '\n') cursor_fail(&p->c, p->c.at, "the end of the line");
    if (!p->c.failed.code) rules_define(p->r, rule, e);
}

Status gbnf_parse(Str text, Rules *r) {
    GbnfParse p = {.c = {.text = utf8_without_mark(text), .lines = true}, .r = r};
    rules_rule(r, str_of("root"));
    skip(&p, true);
    if (!cursor_more(&p.c)) cursor_fail(&p.c, p.c.at, "a rule as root ::= \"yes\" | \"no\"");
    while (cursor_more(&p.c)) {
        read_rule(&p);
        skip(&p, true);
    }
    return p.c.failed;
}
