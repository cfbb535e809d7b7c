// quantize/merge_scores.c: see quantize/merge_scores.h.
#include "quantize/merge_scores.h"

#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"

typedef struct {
    Str text;
    size_t id;
    size_t n_merges, last; // merges that give this token, and the last of them
} ScoredToken;

static int compare(const void *a, const void *b) {
    Str x = ((const ScoredToken *)a)->text, y = ((const ScoredToken *)b)->text;
    int c = memcmp(x.data, y.data, x.n < y.n ? x.n : y.n);
    return c ? c : (x.n > y.n) - (x.n < y.n);
}

static ScoredToken *find(ScoredToken *sorted, size_t n, Str text) {
    ScoredToken key = {.text = text};
    return n ? bsearch(&key, sorted, n, sizeof key, compare) : NULL;
}

// Gives each token minus the number of its first merge. False: the merges of a token are apart.
static bool rank(ScoredToken *sorted, size_t n, const Str *merges, size_t n_merges, float *scores) {
    bool together = true;
    Buf joined = {0};
    for (size_t i = 0; i < n_merges; i++) {
        const char *space = memchr(merges[i].data, ' ', merges[i].n);
        if (!space) continue;
        size_t left = (size_t)(space - merges[i].data);
        joined.n = 0;
        buf_append(&joined, merges[i].data, left);
        buf_append(&joined, space + 1, merges[i].n - left - 1);
        ScoredToken *t = find(sorted, n, str_of_buf(&joined));
        if (!t) continue;
        if (t->n_merges == 0) scores[t->id] = -(float)i;
        else together &= t->last + 1 == i;
        t->n_merges++;
        t->last = i;
    }
    buf_free(&joined);
    return together;
}

// Whether the token has a merge for each pair of tokens that it consists of.
static bool complete(ScoredToken *sorted, size_t n, const ScoredToken *t) {
    size_t pairs = 0;
    for (size_t k = 1; k < t->text.n; k++) {
        if (((unsigned char)t->text.data[k] & 0xc0) == 0x80) continue; // inside a character
        Str left = {t->text.data, k}, right = {t->text.data + k, t->text.n - k};
        pairs += find(sorted, n, left) && find(sorted, n, right);
    }
    return pairs <= t->n_merges;
}

bool merge_scores(const Str *tokens, const int32_t *types, size_t n_tokens, const Str *merges, size_t n_merges,
                  float *scores) {
    ScoredToken *sorted = mem_alloc((n_tokens + 1) * sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        scores[i] = -(float)n_merges;
        if (tokens[i].n) sorted[n++] = (ScoredToken){.text = tokens[i], .id = i};
    }
    qsort(sorted, n, sizeof *sorted, compare);
    bool same = rank(sorted, n, merges, n_merges, scores);
    for (size_t i = 0; i < n && same; i++)
        same = (types && types[sorted[i].id] == GGUF_TOKEN_USER_DEFINED) || complete(sorted, n, &sorted[i]);
    free(sorted);
    return same;
}
