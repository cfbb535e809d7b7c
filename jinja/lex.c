// jinja/lex.c: see jinja/lex.h.
#define _GNU_SOURCE
#include "jinja/lex.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/text.h"

void lex_start(Lexer *l, Heap *h, Str source) {
    char *copy = heap_alloc(h, source.n);
    size_t n = 0;
    for (size_t i = 0; i < source.n && !h->failed.code; i++) {
        bool cr = source.data[i] == '\r';
        if (cr && i + 1 < source.n && source.data[i + 1] == '\n') i++;
        copy[n++] = cr ? '\n' : source.data[i];
    }
    if (n && copy[n - 1] == '\n') n--;
    *l = (Lexer){.h = h, .source = {copy, n}, .line = 1, .line_starting = true, .inside = LEX_DATA};
}

static bool at_str(const Lexer *l, size_t at, const char *word) {
    size_t n = strlen(word);
    return l->source.n >= n && at <= l->source.n - n && memcmp(l->source.data + at, word, n) == 0;
}

static char char_at(const Lexer *l, size_t at) { return at < l->source.n ? l->source.data[at] : 0; }

static size_t skip_space(const Lexer *l, size_t at) {
    for (uint32_t c; at < l->source.n;) {
        size_t len = (size_t)text_char(l->source.data + at, l->source.n - at, &c);
        if (!text_is_space(c)) break;
        at += len;
    }
    return at;
}

// Moves to the offset `to` and counts lines.
static void go(Lexer *l, size_t to) {
    for (; l->at < to; l->at++) l->line += l->source.data[l->at] == '\n';
    l->line_starting = to > 0 && l->source.data[to - 1] == '\n';
}

static LexToken token(const Lexer *l, LexKind kind, size_t from, size_t to) {
    return (LexToken){kind, {l->source.data + from, to - from}, l->line};
}

static LexToken fail(Lexer *l, const char *what) {
    l->h->line = l->line;
    heap_fail(l->h, "%s", what);
    return (LexToken){.kind = LEX_END, .text = {"", 0}, .line = l->line};
}

// Where the text continues after a tag; `at` is after its %} or #}. sign: the character before the end.
static size_t after_tag(const Lexer *l, size_t at, char sign) {
    if (sign == '-') return skip_space(l, at);
    return sign != '+' && char_at(l, at) == '\n' ? at + 1 : at;
}

// ---- text -----------------------------------------------------------------------------------------------------------

// Where the text before a tag ends. sign: the character after {% or {#.
static size_t text_end(const Lexer *l, size_t from, size_t tag, char sign, bool lstrip) {
    if (sign == '-')
        return from +
               text_strip(l->h, (MarkedText){.data = l->source.data + from, .n = tag - from}, NULL, false, true).n;
    if (sign == '+' || !lstrip) return tag;
    size_t line = tag;
    while (line > from && l->source.data[line - 1] != '\n') line--;
    if (line == from && !l->line_starting) return tag;
    return skip_space(l, line) >= tag ? line : tag;
}

// If the tag at `at` consists of this word, as {%- raw -%}: the offset after it; otherwise 0.
static size_t word_tag(const Lexer *l, size_t at, const char *word, char *end_sign) {
    at += 2;
    at += char_at(l, at) == '-' || char_at(l, at) == '+';
    at = skip_space(l, at);
    if (!at_str(l, at, word)) return 0;
    at = skip_space(l, at + strlen(word));
    *end_sign = char_at(l, at) == '-' || char_at(l, at) == '+' ? char_at(l, at) : 0;
    at += *end_sign != 0;
    return at_str(l, at, "%}") ? at + 2 : 0;
}

// Returns the text between {% raw %}, which ends at `from`, and {% endraw %}.
static LexToken raw_text(Lexer *l, size_t from, char sign) {
    if (sign == '-') from = skip_space(l, from);
    go(l, from);
    for (size_t at = from; at < l->source.n; at++) {
        char end_sign;
        size_t after = at_str(l, at, "{%") ? word_tag(l, at, "endraw", &end_sign) : 0;
        if (!after) continue;
        LexToken t = token(l, LEX_DATA, from, text_end(l, from, at, char_at(l, at + 2), true));
        go(l, after_tag(l, after, end_sign));
        return t;
    }
    return fail(l, "Missing end of raw directive");
}

// Skips the comment that begins with {# at `at`. False: it has no end.
static bool skip_comment(Lexer *l, size_t at) {
    at += 2;
    at += char_at(l, at) == '-' || char_at(l, at) == '+';
    const char *end = memmem(l->source.data + at, l->source.n - at, "#}", 2);
    if (!end) return false;
    size_t stop = (size_t)(end - l->source.data);
    go(l, after_tag(l, stop + 2, stop > at ? char_at(l, stop - 1) : 0));
    return true;
}

// Returns the text up to the next tag, and stores the kind of the tag in `pending`.
static LexToken next_data(Lexer *l) {
    size_t from = l->at, at = from;
    while (at < l->source.n && !(l->source.data[at] == '{' && char_at(l, at + 1) && strchr("{%#", char_at(l, at + 1))))
        at++;
    if (at >= l->source.n) {
        go(l, l->source.n);
        return token(l, at > from ? LEX_DATA : LEX_END, from, l->source.n);
    }
    char kind = char_at(l, at + 1), sign = char_at(l, at + 2), end_sign = 0;
    LexToken t = token(l, LEX_DATA, from, text_end(l, from, at, sign, kind != '{'));
    size_t raw = kind == '%' ? word_tag(l, at, "raw", &end_sign) : 0;
    if (raw && t.text.n) { // returns the text before the raw block first
        go(l, at);
        l->line_starting = false;
        return t;
    }
    if (raw) return raw_text(l, raw, end_sign);
    if (kind == '#') {
        if (!skip_comment(l, at)) return fail(l, "Missing end of comment tag");
        return t;
    }
    go(l, at + 2 + (sign == '-' || sign == '+'));
    l->pending = kind == '{' ? LEX_VAR_BEGIN : LEX_BLOCK_BEGIN;
    return t;
}

// ---- tokens inside tags ---------------------------------------------------------------------------------------------

// Reads the end of the tag if it is here and no bracket is open.
static bool tag_end(Lexer *l, LexToken *out) {
    bool block = l->inside == LEX_BLOCK_BEGIN;
    char sign = char_at(l, l->at);
    bool signs = sign == '-' || (sign == '+' && block);
    size_t at = l->at + signs;
    if (l->n_open || !at_str(l, at, block ? "%}" : "}}")) return false;
    *out = token(l, block ? LEX_BLOCK_END : LEX_VAR_END, l->at, at + 2);
    go(l, block || sign == '-' ? after_tag(l, at + 2, signs ? sign : 0) : at + 2);
    l->inside = LEX_DATA;
    return true;
}

static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }
static bool is_digit(char c) { return isdigit((unsigned char)c); }

static size_t digits_end(const Lexer *l, size_t at) {
    while (is_digit(char_at(l, at)) || (char_at(l, at) == '_' && is_digit(char_at(l, at + 1)))) at++;
    return at;
}

static LexToken next_number(Lexer *l) {
    size_t from = l->at, at = from;
    char second = (char)tolower((unsigned char)char_at(l, at + 1));
    if (char_at(l, at) == '0' && second && strchr("xob", second)) {
        for (at += 2; isxdigit((unsigned char)char_at(l, at)) || char_at(l, at) == '_';) at++;
        l->at = at;
        return token(l, LEX_INTEGER, from, at);
    }
    at = digits_end(l, at);
    bool whole = true, after_dot = from > 0 && l->source.data[from - 1] == '.';
    if (!after_dot && char_at(l, at) == '.' && is_digit(char_at(l, at + 1))) at = digits_end(l, at + 1), whole = false;
    size_t exponent = at + 1;
    exponent += char_at(l, exponent) == '-' || char_at(l, exponent) == '+';
    if (!after_dot && tolower((unsigned char)char_at(l, at)) == 'e' && is_digit(char_at(l, exponent)))
        at = digits_end(l, exponent), whole = false;
    l->at = at;
    return token(l, whole ? LEX_INTEGER : LEX_FLOAT, from, at);
}

static LexToken next_string(Lexer *l) {
    char quote = char_at(l, l->at);
    size_t from = l->at + 1, at = from;
    while (at < l->source.n && l->source.data[at] != quote) at += l->source.data[at] == '\\' ? 2 : 1;
    if (at >= l->source.n) return fail(l, "a string that ends expected, found none");
    LexToken t = token(l, LEX_STRING, from, at);
    go(l, at + 1);
    return t;
}

// Counts a bracket. False: it closes a bracket that is not open, or there are too many.
static bool balance(Lexer *l, char c) {
    const char *opens = strchr("([{", c);
    if (opens && l->n_open == LEX_NESTING) return false;
    if (opens) l->open[l->n_open++] = c;
    if (!strchr(")]}", c)) return true;
    return l->n_open > 0 && l->open[--l->n_open] == (c == ')' ? '(' : c == ']' ? '[' : '{');
}

static LexToken next_operator(Lexer *l) {
    static const char *const all[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (!at_str(l, l->at, all[i])) continue;
        if (!all[i][1] && !balance(l, all[i][0])) return fail(l, "a bracket that was not opened, or too many of them");
        LexToken t = token(l, LEX_OPERATOR, l->at, l->at + strlen(all[i]));
        l->at += strlen(all[i]);
        return t;
    }
    return fail(l, "unexpected character in a tag");
}

static LexToken next_in_tag(Lexer *l) {
    go(l, skip_space(l, l->at));
    LexToken t;
    if (l->at >= l->source.n) return fail(l, "the end of a tag expected, found the end of the template");
    if (tag_end(l, &t)) return t;
    char c = char_at(l, l->at);
    if (is_digit(c)) return next_number(l);
    if (c == '\'' || c == '"') return next_string(l);
    if (!is_name_char(c)) return next_operator(l);
    size_t from = l->at;
    while (is_name_char(char_at(l, l->at))) l->at++;
    return token(l, LEX_NAME, from, l->at);
}

LexToken lex_next(Lexer *l) {
    while (!l->h->failed.code) {
        if (l->pending) {
            l->inside = l->pending;
            l->pending = LEX_END;
            return (LexToken){l->inside, {"", 0}, l->line};
        }
        LexToken t = l->inside == LEX_DATA ? next_data(l) : next_in_tag(l);
        if (t.kind != LEX_DATA || t.text.n) return t;
    }
    return (LexToken){LEX_END, {"", 0}, l->line};
}

// ---- escapes --------------------------------------------------------------------------------------------------------

// Reads `least` to `most` digits at `at`. False: there are fewer.
static bool read_digits(Str s, size_t *at, int least, int most, int base, uint32_t *out) {
    int n = 0;
    for (*out = 0; n < most && *at + (size_t)n < s.n; n++) {
        int digit = str_hex_digit(s.data[*at + (size_t)n]);
        if (digit < 0 || digit >= base) break;
        *out = *out * (uint32_t)base + (uint32_t)digit;
    }
    *at += (size_t)n;
    return n >= least;
}

// Decodes the escape whose backslash is before `at`; returns the offset after it.
static size_t unescape(TextOut *out, Str s, size_t at) {
    static const char from[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    char c = s.data[at], bytes[4];
    const char *plain = c ? strchr(from, c) : NULL;
    uint32_t code = 0;
    if (c == '\n') return at + 1;
    if (plain) {
        text_put_bytes(out, &to[plain - from], 1, true);
        return at + 1;
    }
    int n_hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_hex || (c >= '0' && c <= '7')) {
        at += n_hex > 0;
        bool good = n_hex ? read_digits(s, &at, n_hex, n_hex, 16, &code) : read_digits(s, &at, 1, 3, 8, &code);
        if (!good || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            heap_fail(out->h, "a string with a broken \\%c escape", c);
        else text_put_bytes(out, bytes, (size_t)text_encode(bytes, code), true);
        return at;
    }
    text_put_bytes(out, "\\", 1, true); // not an escape of Python: the backslash stays
    return at;
}

MarkedText lex_unescape(Heap *h, Str s) {
    TextOut out = {.h = h};
    for (size_t i = 0; i < s.n && !h->failed.code;) {
        const char *slash = memchr(s.data + i, '\\', s.n - i);
        size_t at = slash ? (size_t)(slash - s.data) : s.n;
        text_put_bytes(&out, s.data + i, at - i, true);
        i = at;
        if (at + 1 < s.n) i = unescape(&out, s, at + 1);
        else if (at < s.n) i = s.n; // cannot come from the lexer
    }
    return text_done(&out);
}
