// grammar/cache.c: see grammar/cache.h.
#include "grammar/cache.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_IDLE = 16 }; // the most grammars that are kept without an answer that uses them

typedef struct {
    GrammarKind kind;
    Buf text;
    Grammar *grammar;
    int n_users;
    long last; // the number of the last request for it
} CachedGrammar;

struct GrammarCache {
    Vocabulary *v;
    char *control;      // the pieces of control tokens
    CachedGrammar *all; // (n)
    int n;
    long now;
};

// Fills the pieces of n tokens; returns the memory that the pieces of control tokens use. Other tokens that begin with
// the byte VOCABULARY_CONTROL become empty.
static char *name_control_tokens(const Tokenizer *t, Str *pieces, int n) {
    size_t size = 1, at = 0;
    for (int i = 0; i < n; i++) {
        pieces[i] = tokenizer_piece(t, i);
        bool control = tokenizer_is_control(t, i);
        if (control) size += pieces[i].n + 1;
        else if (pieces[i].n && (unsigned char)pieces[i].data[0] == VOCABULARY_CONTROL) pieces[i].n = 0;
    }
    char *names = mem_alloc(size);
    for (int i = 0; i < n; i++) {
        if (!tokenizer_is_control(t, i)) continue;
        Str name = pieces[i];
        pieces[i] = (Str){names + at, name.n + 1};
        names[at++] = (char)VOCABULARY_CONTROL;
        if (name.n) memcpy(names + at, name.data, name.n);
        at += name.n;
    }
    return names;
}

static GrammarCache *open_cache(const Tokenizer *t, int n_ids) {
    int n = int_min(tokenizer_n(t), n_ids), n_ends = tokenizer_eog_ids(t, NULL, 0), kept = 0;
    Str *pieces = mem_alloc((size_t)n * sizeof *pieces + 1);
    int *ends = mem_alloc((size_t)n_ends * sizeof *ends + 1);
    tokenizer_eog_ids(t, ends, n_ends);
    for (int i = 0; i < n_ends; i++)
        if (ends[i] < n_ids) ends[kept++] = ends[i];
    GrammarCache *c = mem_alloc(sizeof *c);
    c->control = name_control_tokens(t, pieces, n);
    c->v = vocabulary_new(pieces, n, n_ids, ends, kept);
    free(pieces);
    free(ends);
    return c;
}

static void remove_grammar(GrammarCache *c, int i) {
    grammar_free(c->all[i].grammar);
    buf_free(&c->all[i].text);
    c->all[i] = c->all[--c->n];
}

// Removes the least recently requested idle grammar if there are too many.
static void remove_idle(GrammarCache *c) {
    int idle = 0, oldest = -1;
    for (int i = 0; i < c->n; i++) {
        if (c->all[i].n_users) continue;
        idle++;
        if (oldest < 0 || c->all[i].last < c->all[oldest].last) oldest = i;
    }
    if (idle > MOST_IDLE) remove_grammar(c, oldest);
}

static CachedGrammar *find(GrammarCache *c, GrammarSource s) {
    for (int i = 0; i < c->n; i++)
        if (c->all[i].kind == s.kind && str_eq(str_of_buf(&c->all[i].text), s.text)) return &c->all[i];
    return NULL;
}

Status grammar_cache_get(GrammarCache **cache, const Tokenizer *t, int n_ids, GrammarSource source, bool fresh,
                         Constraint **out) {
    *out = NULL;
    if (!*cache) *cache = open_cache(t, n_ids);
    GrammarCache *c = *cache;
    CachedGrammar *g = find(c, source);
    if (!g) {
        Grammar *made;
        TRY(grammar_compile(source, c->v, &made));
        c->all = mem_resize(c->all, (size_t)(c->n + 1) * sizeof *c->all);
        g = &c->all[c->n++];
        *g = (CachedGrammar){.kind = source.kind, .grammar = made};
        buf_append(&g->text, source.text.data, source.text.n);
    }
    g->n_users++;
    g->last = ++c->now;
    *out = constraint_new(g->grammar, c->v, t, fresh);
    return OK;
}

void grammar_cache_drop(GrammarCache *cache, Constraint *c) {
    if (!c) return;
    for (int i = 0; i < cache->n; i++)
        if (cache->all[i].grammar == constraint_grammar(c)) cache->all[i].n_users--;
    constraint_free(c);
    remove_idle(cache);
}

void grammar_cache_free(GrammarCache *cache) {
    if (!cache) return;
    while (cache->n > 0) remove_grammar(cache, cache->n - 1);
    vocabulary_free(cache->v);
    free(cache->control);
    free(cache->all);
    free(cache);
}
