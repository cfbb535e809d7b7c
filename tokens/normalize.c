// tokens/normalize.c: see tokens/normalize.h.
#include "tokens/normalize.h"

#include <stdint.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/sizes.h"
#include "base/utf8.h"

enum { MAX_MARKS = 1024 };

// `growth` comes from Unicode's table of maximum expansion factors, for UTF-8.
static const struct {
    const char *name;
    int options;
    size_t growth;
} forms[] = {
    [NORMALIZE_NONE] = {"", 0, 1},
    [NORMALIZE_NFC] = {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE, 3},
    [NORMALIZE_NFD] = {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 3},
    [NORMALIZE_NFKC] = {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 11},
    [NORMALIZE_NFKD] = {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 11},
};

bool normalize_form(Str name, NormalForm *out) {
    for (size_t i = NORMALIZE_NFC; i < ARRAY_LEN(forms); i++)
        if (str_is(name, forms[i].name)) {
            *out = (NormalForm)i;
            return true;
        }
    return false;
}

size_t normalize_growth(NormalForm form) { return forms[form].growth; }

// The length of the characters that normalization may combine: up to the next ASCII character, which does not combine
// with those before it. 0: no character begins here.
static size_t chunk_length(Str s) {
    size_t at = 0;
    int marks = 0;
    while (at < s.n && marks < MAX_MARKS) {
        uint32_t c = 0;
        int n = utf8_read(s.data + at, s.n - at, &c);
        if (n <= 0 || (at > 0 && n == 1)) break;
        marks = utf8proc_get_property((utf8proc_int32_t)c)->combining_class ? marks + 1 : 0;
        at += (size_t)n;
    }
    return at;
}

static void append_chunk(Buf *out, int options, Str s) {
    utf8proc_ssize_t room = (utf8proc_ssize_t)s.n + 16, n;
    utf8proc_int32_t *chars = NULL;
    for (;; room = n) { // one element more than `room`, for the NUL that utf8proc_reencode appends
        chars = mem_resize(chars, (size_t)(room + 1) * sizeof *chars);
        n = utf8proc_decompose((const utf8proc_uint8_t *)s.data, (utf8proc_ssize_t)s.n, chars, room, options);
        if (n <= room) break;
    }
    n = n < 0 ? n : utf8proc_reencode(chars, n, options);
    if (n < 0) buf_append(out, s.data, s.n); // utf8proc does not accept a character: the text stays as it is
    else buf_append(out, chars, (size_t)n);
    free(chars);
}

void normalize_append(Buf *out, NormalForm form, Str text) {
    for (size_t at = 0; at < text.n;) {
        size_t end = at;
        while (end < text.n && (unsigned char)text.data[end] < 0x80) end++;
        if (end > at && end < text.n) end--; // a combining mark may follow the last ASCII character
        buf_append(out, text.data + at, end - at);
        if ((at = end) == text.n) break;
        Str rest = {text.data + at, text.n - at};
        rest.n = chunk_length(rest);
        if (rest.n) append_chunk(out, forms[form].options, rest);
        else buf_append(out, rest.data, 1);
        at += rest.n ? rest.n : 1;
    }
}
