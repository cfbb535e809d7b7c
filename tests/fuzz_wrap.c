// tests/fuzz_wrap.c: libFuzzer over wrapped lines. The first byte is the number of columns, the second the length of
// the pieces; the rest is text, in which \1 stands for a mark. The output must not depend on the pieces and must have
// the characters of the input. No line of several words may be wider than the terminal.
#define _GNU_SOURCE
#include "term/wrap.h"

#include <stdlib.h>
#include <string.h>

static void wrapped(Str text, int columns, size_t piece, Buf *out) {
    Wrap w = {.columns = columns};
    for (size_t at = 0; at < text.n;) {
        size_t n = piece && text.n - at > piece ? utf8_whole(text.data + at, piece) : text.n - at;
        if (n == 0) n = (size_t)utf8_next(text.data + at, text.n - at);
        const char *mark = memchr(text.data + at, '\1', n);
        if (mark) n = (size_t)(mark - text.data) - at;
        wrap_text(&w, (Str){text.data + at, n}, out);
        if (mark) wrap_mark(&w, "\1", out);
        at += n + (mark != NULL);
    }
    wrap_end(&w, out);
    buf_append(out, "", 0);
    wrap_free(&w);
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\1'; }

static bool same_characters(Str a, Str b) {
    size_t i = 0, k = 0;
    for (;;) {
        while (i < a.n && is_blank(a.data[i])) i++;
        while (k < b.n && is_blank(b.data[k])) k++;
        if (i == a.n || k == b.n) return i == a.n && k == b.n;
        if (a.data[i++] != b.data[k++]) return false;
    }
}

// Checks words between spaces. Tabs are not used, because their width depends on their column.
static void check_line(Str line, int columns) {
    Buf text = {0};
    for (size_t i = 0; i < line.n; i++)
        if (line.data[i] != '\1') buf_append(&text, line.data + i, 1);
    while (text.n && text.data[text.n - 1] == ' ') text.n--;
    size_t first = 0;
    while (first < text.n && text.data[first] == ' ') first++;
    bool one = !text.n || !memchr(text.data + first, ' ', text.n - first),
         tabs = text.n && memchr(text.data, '\t', text.n);
    if (!one && !tabs && wrap_width(str_of_buf(&text)) > columns) {
        const char *last = memrchr(text.data, ' ', text.n);
        Str before = {text.data, last ? (size_t)(last - text.data) : 0};
        int width = wrap_width(before), blanks = 0;
        for (size_t i = 0; i < before.n; i++) blanks += before.data[i] == ' ';
        // Allowed: the terminal has cut the text before the last word, or the word is invisible (a delete character).
        if (!last || (width <= columns && width > blanks)) abort();
    }
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    int columns = data[0] % 100;
    Buf text = {0}, whole = {0}, pieces = {0};
    utf8_repair(&text, (const char *)data + 2, size - 2);
    for (size_t i = 0; i < text.n; i++) // the caller removes control characters
        if ((unsigned char)text.data[i] < ' ' && !is_blank(text.data[i])) text.data[i] = 'x';
    Str given = {text.data, text.n};
    wrapped(given, columns, 0, &whole);
    wrapped(given, columns, (size_t)data[1] % 7 + 1, &pieces);
    if (whole.n != pieces.n || memcmp(whole.data, pieces.data, whole.n) != 0) abort();
    if (!same_characters(given, str_of_buf(&whole))) abort();
    for (size_t at = 0; columns >= 10 && at < whole.n;) {
        const char *end = memchr(whole.data + at, '\n', whole.n - at);
        size_t n = end ? (size_t)(end - whole.data) - at : whole.n - at;
        check_line((Str){whole.data + at, n}, columns);
        at += n + 1;
    }
    buf_free(&text);
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
