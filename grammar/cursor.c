// grammar/cursor.c: see grammar/cursor.h.
#include "grammar/cursor.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "grammar/chars.h"

// The length of what an error shows of the text at `at`.
static size_t shown(const Cursor *c, size_t at) {
    size_t n = 0, left = at < c->text.n ? c->text.n - at : 0;
    if (left == 0) return 0;
    if (!c->lines) return (size_t)int_max(1, utf8_next(c->text.data + at, left));
    while (n < left && n < 20 && (n == 0 || !isspace((unsigned char)c->text.data[at + n]))) n++;
    return n;
}

bool cursor_fail(Cursor *c, size_t at, const char *expected) {
    if (c->failed.code) return false;
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < c->text.n; i++) {
        if (c->lines && c->text.data[i] == '\n') line++, column = 1;
        else column += ((unsigned char)c->text.data[i] & 0xc0) != 0x80;
    }
    char place[32] = "";
    if (c->lines) snprintf(place, sizeof place, "line %zu, ", line);
    Buf found = {0};
    size_t n = shown(c, at);
    if (n) utf8_escape(&found, c->text.data + at, n);
    const char *quote = n ? "\"" : "";
    c->failed = status_error(QUILL_USAGE, "%scolumn %zu: %s expected, found %s%s%s", place, column, expected, quote,
                             n ? found.data : "the end", quote);
    buf_free(&found);
    return false;
}

bool cursor_more(const Cursor *c) { return !c->failed.code && c->at < c->text.n; }

int cursor_peek(const Cursor *c) { return cursor_more(c) ? (unsigned char)c->text.data[c->at] : -1; }

bool cursor_eat(Cursor *c, const char *word) {
    size_t n = strlen(word);
    if (c->failed.code || c->text.n - c->at < n || memcmp(c->text.data + c->at, word, n) != 0) return false;
    c->at += n;
    return true;
}

bool cursor_count(Cursor *c, int *n) {
    size_t begin = c->at;
    int value = chars_number(c->text, &c->at, CURSOR_MOST_REPEATS);
    if (c->at == begin) return false;
    if (value > CURSOR_MOST_REPEATS) return cursor_fail(c, begin, "a count of 100000 at most");
    *n = value;
    return true;
}

bool cursor_nest(Cursor *c, size_t begin) {
    if (++c->depth > CURSOR_DEEPEST) cursor_fail(c, begin, "groups at most 200 deep");
    return !c->failed.code;
}

bool cursor_range(const Cursor *c) {
    return cursor_peek(c) == '-' && c->at + 1 < c->text.n && c->text.data[c->at + 1] != ']';
}

bool cursor_char(Cursor *c, uint32_t *out) {
    int n = utf8_read(c->text.data + c->at, c->text.n - c->at, out);
    if (n < 1) return cursor_fail(c, c->at, "UTF-8");
    c->at += (size_t)n;
    return true;
}
