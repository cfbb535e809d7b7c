// answer/extract.c: see answer/extract.h.
#include "answer/extract.h"

#include <string.h>

#include "base/jsonio.h"

enum { MOST_TRIES = 1000 }; // the most brackets at which JSON is tried

static size_t line_end(Str text, size_t at) {
    const char *end = memchr(text.data + at, '\n', text.n - at);
    return end ? (size_t)(end - text.data) : text.n;
}

// The length of the code fence (three or more ` or ~ after at most three spaces) at the beginning of a line; 0: none.
static size_t fence(Str text, size_t at, char *mark) {
    size_t begin = at, n = 0;
    while (begin < text.n && begin < at + 3 && text.data[begin] == ' ') begin++;
    if (begin >= text.n || (text.data[begin] != '`' && text.data[begin] != '~')) return 0;
    while (begin + n < text.n && text.data[begin + n] == text.data[begin]) n++;
    *mark = text.data[begin];
    return n >= 3 ? n : 0;
}

static Str block_at(Str text, size_t at, size_t n_open, char open) {
    size_t begin = line_end(text, at);
    if (begin < text.n) begin++;
    for (size_t line = begin; line < text.n; line = line_end(text, line) + 1) {
        char mark = 0;
        if (fence(text, line, &mark) >= n_open && mark == open) return (Str){text.data + begin, line - begin};
    }
    return begin < text.n ? (Str){text.data + begin, text.n - begin} : (Str){0}; // the answer was cut
}

static Str json_at(Str text, size_t at) {
    json_error_t error;
    json_t *value = json_loadb(text.data + at, text.n - at, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &error);
    if (!value) return (Str){0};
    json_decref(value);
    return (Str){text.data + at, (size_t)error.position};
}

Str extract_first(Str text) {
    bool begins = true;
    for (size_t at = 0, tries = 0; at < text.n; at++) {
        char mark = 0;
        size_t n = begins ? fence(text, at, &mark) : 0;
        if (n) return block_at(text, at, n, mark);
        begins = text.data[at] == '\n';
        if ((text.data[at] != '{' && text.data[at] != '[') || tries++ > MOST_TRIES) continue;
        Str value = json_at(text, at);
        if (value.data) return value;
    }
    return (Str){0};
}
