// base/pairs.c: see base/pairs.h.
#include "base/pairs.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// The n bytes at `at` are this word.
static bool is_word(const char *at, size_t n, const char *word) {
    return n == strlen(word) && memcmp(at, word, n) == 0;
}

// What follows the n bytes at `at`; NULL: a comma that ends the text.
static const char *after(const char *at, size_t n) {
    if (at[n] == ',') return at[n + 1] ? at + n + 1 : NULL;
    return at + n;
}

int pairs_word(const char **at, const char *const *words, int n) {
    size_t length = strcspn(*at, ",");
    for (int i = 0; i < n; i++) {
        if (!is_word(*at, length, words[i])) continue;
        *at = after(*at, length);
        return i;
    }
    return -1;
}

static bool read_value(const char *at, size_t n, const PairsNumber *p) {
    char text[32], *end;
    if (p->by_auto && is_word(at, n, "auto")) return *p->by_auto = true;
    if (n == 0 || n >= sizeof text || strspn(at, p->whole ? "0123456789" : "0123456789.") < n) return false;
    memcpy(text, at, n);
    text[n] = 0;
    double value = strtod(text, &end);
    if (*end || !(value >= p->least && value <= p->most)) return false;
    *p->to = value;
    return true;
}

bool pairs_read(const char *at, const PairsNumber *numbers, int n) {
    bool given[8] = {0};
    assert(n <= 8);
    while (at && *at) {
        size_t all = strcspn(at, ","), name = strcspn(at, "=,");
        int i = 0;
        while (i < n && !is_word(at, name, numbers[i].name)) i++;
        if (i == n || given[i] || at[name] != '=' || !read_value(at + name + 1, all - name - 1, &numbers[i]))
            return false;
        given[i] = true;
        at = after(at, all);
    }
    return at != NULL;
}
