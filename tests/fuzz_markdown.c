// tests/fuzz_markdown.c: libFuzzer over Markdown. The first byte is the number of columns, the second the length of the
// pieces. The output must not depend on the pieces. Without wrapping it must have as many lines as the input. All
// styles must be reset at its end, and the held-back text must be bounded.
#include "term/markdown.h"

#include <stdlib.h>
#include <string.h>

static void shown(Str text, int columns, size_t piece, Buf *out) {
    Markdown m = {.color = columns % 2 == 0};
    Wrap w = {.columns = columns};
    for (size_t at = 0; at < text.n;) {
        size_t n = piece && text.n - at > piece ? utf8_whole(text.data + at, piece) : text.n - at;
        if (n == 0) n = (size_t)utf8_next(text.data + at, text.n - at);
        markdown_text(&m, (Str){text.data + at, n}, &w, out);
        at += n;
    }
    markdown_end(&m, &w, out);
    if (m.style != 0 || m.held.n != 0) abort();
    wrap_end(&w, out);
    buf_append(out, "", 0);
    wrap_free(&w);
    markdown_free(&m);
}

static size_t lines_of(Str text) {
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) n += text.data[i] == '\n';
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    int columns = data[0] % 50;
    Buf text = {0}, whole = {0}, pieces = {0}, bare = {0};
    utf8_repair(&text, (const char *)data + 2, size - 2);
    for (size_t i = 0; i < text.n; i++) // the caller removes control characters
        if ((unsigned char)text.data[i] < ' ' && text.data[i] != '\n' && text.data[i] != '\t') text.data[i] = '*';
    Str given = {text.data, text.n};
    shown(given, columns, 0, &whole);
    shown(given, columns, (size_t)data[1] % 7 + 1, &pieces);
    if (whole.n != pieces.n || memcmp(whole.data, pieces.data, whole.n) != 0) abort();
    shown(given, 0, 3, &bare);
    if (lines_of(str_of_buf(&bare)) != lines_of(given)) abort();
    buf_free(&text);
    buf_free(&whole);
    buf_free(&pieces);
    buf_free(&bare);
    return 0;
}
