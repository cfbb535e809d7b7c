// quantize/pre_name.c: see quantize/pre_name.h.
#include "quantize/pre_name.h"

#include <stdio.h>
#include <string.h>

#include "tokens/pretokenize.h"

// One sign, at least, of each kind that patterns tell apart. Some names stand for patterns that know the case of ASCII
// letters alone, and no marks: the first RARE signs and texts are left out to find these.
enum { RARE_SIGNS = 3, RARE_TEXTS = 1 };
static const char *const signs[] = {
    "\xc3\xa9", "\xc3\x89", "\xcc\x81", "a",        "Z", "s",        "\xe4\xb8\xad", "\xe3\x81\x82", "\xea\xb0\x80",
    "1",        "7",        "\xd9\xa3", "\xc2\xbd", " ", "\xc2\xa0", "\xe3\x80\x80", "\n",           "\r",
    "\t",       "'",        ".",        "/",        "$", "_",        "\xef\xbc\x8c", "\xe2\x80\xa6", "\xf0\x9f\x98\x80",
};
static const char *const texts[] = {
    "\xe4\xb8\xad\xe6\x96\x87\xe3\x80\x82\xe3\x81\x82 \xe0\xb8\x81\xe0\xb8\xb3 \xd7\x90\xd6\xb8",
    "1234567890 12345678 a123456b",
    "    x   \n\n   y  \n \n",
    "don't we'll THEY'RE you've I'M it'D he's",
    "HelloWorld HTMLParser aBC camelCase's ABCdef",
    "<sentinel:1>IMGIMGAZ",
    "a.b/c//\n\n/x ...\r\n\r\n==>",
    "if (x[1] == 22) { return \"$333\"; }\t// 4444",
    "  \t\t  12  345",
    "a\n\n\nb \n c",
};

static bool same_split(Pretokenizer *a, Pretokenizer *b, const char *text) {
    int n_a, n_b, n = (int)strlen(text);
    const PretokenPiece *x = pretokenizer_split(a, text, n, &n_a), *y = pretokenizer_split(b, text, n, &n_b);
    bool same = n_a == n_b;
    for (int i = 0; i < n_a && same; i++) same = x[i].end == y[i].end;
    return same;
}

static bool same_splits(Pretokenizer *a, Pretokenizer *b, bool rare) {
    char text[16];
    const char *const *sign = signs + (rare ? 0 : RARE_SIGNS);
    size_t n = ARRAY_LEN(signs) - (rare ? 0 : RARE_SIGNS);
    for (size_t i = rare ? 0 : RARE_TEXTS; i < ARRAY_LEN(texts); i++)
        if (!same_split(a, b, texts[i])) return false;
    for (size_t i = 0; i < n * n * n; i++) {
        snprintf(text, sizeof text, "%s%s%s", sign[i % n], sign[i / n % n], sign[i / n / n]);
        if (!same_split(a, b, text)) return false;
    }
    return true;
}

// Sets the name of the first known patterns with the same splits, if there is one.
static void find_name(Pretokenizer *own, bool whole, bool rare, char found[64]) {
    Buf names = {0};
    pretokenizer_names(&names);
    for (const char *at = names.data; *at && !*found;) {
        size_t len = strcspn(at, " ");
        Pretokenizer *known = pretokenizer_new((Str){at, len});
        if (pretokenizer_ignores_merges(known) == whole && len < 64 && same_splits(own, known, rare))
            memcpy(found, at, len), found[len] = 0;
        pretokenizer_free(known);
        at += len + (at[len] == ' ');
    }
    buf_free(&names);
}

const char *pre_name(const Str *patterns, size_t n, bool whole, bool *exact) {
    static char found[64];
    Pretokenizer *own;
    *found = 0;
    *exact = false;
    if (pretokenizer_of_patterns(patterns, n, &own).code) return NULL;
    find_name(own, whole, true, found);
    *exact = *found;
    if (!*found) find_name(own, whole, false, found);
    pretokenizer_free(own);
    return *found ? found : NULL;
}
