// grammar/vocabulary.c: see grammar/vocabulary.h.
#define _GNU_SOURCE // qsort_r
#include "grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

// The characters of a piece; 0: it is not plain.
static int plain_length(Str s) {
    int n = 0;
    for (size_t i = 0; i < s.n; n++) {
        unsigned char c = (unsigned char)s.data[i];
        int len = utf8_next(s.data + i, s.n - i);
        if (len < 1 || c < 0x20 || c == '"' || c == '\\' || c == 0x7f) return 0;
        i += (size_t)len;
    }
    return n;
}

static int compare_pieces(const void *a, const void *b, void *arg) {
    const Str *pieces = arg, *x = &pieces[*(const int *)a], *y = &pieces[*(const int *)b];
    int order = memcmp(x->data, y->data, x->n < y->n ? x->n : y->n);
    if (order == 0) order = (x->n > y->n) - (x->n < y->n);
    return order ? order : *(const int *)a - *(const int *)b;
}

static size_t common(Str a, Str b) {
    size_t n = 0, most = a.n < b.n ? a.n : b.n;
    while (n < most && a.data[n] == b.data[n]) n++;
    return n;
}

static void close_nodes(TokenTree *t, int *open, size_t *n_open, size_t depth) {
    while (*n_open > depth) t->nodes[open[--*n_open]].end = t->n;
}

// Builds the tree of `n` tokens, sorted by their bytes.
static void build_tree(Vocabulary *v, TokenTree *t, const int *ids, int n) {
    size_t bytes = 1, longest = 1, n_open = 0;
    for (int i = 0; i < n; i++) {
        size_t length = v->pieces[ids[i]].n;
        bytes += length - (i ? common(v->pieces[ids[i - 1]], v->pieces[ids[i]]) : 0);
        if (length > longest) longest = length;
    }
    t->nodes = mem_alloc(bytes * sizeof *t->nodes);
    t->deepest = (int)longest;
    int *open = mem_alloc((longest + 1) * sizeof *open);
    for (int i = 0; i < n; i++) {
        Str s = v->pieces[ids[i]];
        size_t shared = i ? common(v->pieces[ids[i - 1]], s) : 0;
        if (i && shared == s.n) { // a token with the same bytes as the previous one
            v->same[ids[i - 1]] = ids[i];
            continue;
        }
        close_nodes(t, open, &n_open, shared);
        for (; n_open < s.n; n_open++) {
            open[n_open] = t->n;
            int32_t token = n_open + 1 == s.n ? ids[i] : -1;
            t->nodes[t->n++] = (TokenNode){0, token, (int16_t)(n_open + 1), (uint8_t)s.data[n_open]};
        }
    }
    close_nodes(t, open, &n_open, 0);
    free(open);
}

Vocabulary *vocabulary_new(const Str *pieces, int n_tokens, int n_ids, const int *ends, int n_ends) {
    Vocabulary *v = mem_alloc(sizeof *v);
    *v = (Vocabulary){.n_tokens = n_tokens, .n_words = (n_ids + 63) / 64};
    size_t n = (size_t)n_tokens + 1, words = (size_t)v->n_words;
    v->pieces = mem_alloc(n * sizeof *v->pieces);
    v->same = mem_alloc(n * sizeof *v->same);
    v->ends = mem_alloc(words * sizeof *v->ends + 1);
    for (int i = 0; i < n_ends; i++) mask_set(v->ends, ends[i]);
    int *ids = mem_alloc(n * sizeof *ids), count[VOCABULARY_TREES + 1] = {0};
    uint8_t *tree = mem_alloc(n);
    for (int i = 0; i < n_tokens; i++) {
        v->same[i] = -1;
        if (pieces[i].n == 0 || pieces[i].n > INT16_MAX || mask_has(v->ends, i)) continue;
        v->pieces[i] = pieces[i];
        if (pieces[i].n == 1) v->sayable[(unsigned char)pieces[i].data[0]] = true;
        else if ((unsigned char)pieces[i].data[0] == VOCABULARY_CONTROL) v->sayable[VOCABULARY_CONTROL] = true;
        tree[i] = (uint8_t)int_min(plain_length(pieces[i]), VOCABULARY_PLAIN);
        count[tree[i] + 1]++;
    }
    for (int k = 0; k < VOCABULARY_TREES; k++) count[k + 1] += count[k];
    int at[VOCABULARY_TREES];
    for (int k = 0; k < VOCABULARY_TREES; k++) {
        at[k] = count[k];
        if (k > 0) v->plain[k] = mem_alloc(words * sizeof **v->plain + 1);
    }
    for (int i = 0; i < n_tokens; i++) {
        if (v->pieces[i].n == 0) continue;
        ids[at[tree[i]]++] = i;
        if (tree[i]) mask_set(v->plain[tree[i]], i);
    }
    for (int k = 0; k < VOCABULARY_TREES; k++) {
        qsort_r(ids + count[k], (size_t)(count[k + 1] - count[k]), sizeof *ids, compare_pieces, v->pieces);
        build_tree(v, &v->trees[k], ids + count[k], count[k + 1] - count[k]);
    }
    free(ids);
    free(tree);
    return v;
}

void vocabulary_free(Vocabulary *v) {
    if (!v) return;
    for (int k = 0; k < VOCABULARY_TREES; k++) {
        free(v->trees[k].nodes);
        free(v->plain[k]);
    }
    free(v->pieces);
    free(v->same);
    free(v->ends);
    free(v);
}
