// policy/ngram.c: the index of n-grams, as hash chains. See policy/ngram.h.
//
// Each order (2, 4, 8 tokens) has a hash table of chains: the newest place with that hash, and from each place a link
// to the next older one. Places in a chain are compared token by token, so that hash collisions do no harm.
#include "policy/ngram.h"

#include "base/base.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

enum {
    ORDERS = 3,
    TRIES = 24,
    NEAR = 48,
    TEXT_SIZE = 4, // what a text counts in Ngram.size besides its tokens: a Text and two allocations
    LEAST_HEADS = 1024,
};
static const int order_length[ORDERS] = {2, 4, 8};

// A position in a text, after its token `at`; it includes the text's number. 0: none.
typedef uint64_t Place;

typedef struct {
    int *tokens;    // (n)
    Place *before;  // (n, ORDERS) the next older place in the chain
    int n, cap;     // n < 0: the text's number is free
    int next, prev; // a list of texts: of free numbers (next only), or of ended texts in the order of their ends
    int source, at; // the text that this one copies, -1: none; and the index of the next token there
    int lost;       // calls of ngram_find since the last match
} Text;

struct Ngram {
    Text *texts; // (n_texts)
    int n_texts, cap_texts;
    Place *heads[ORDERS]; // (n_heads)
    size_t n_heads;       // a power of two
    size_t size;          // tokens of all texts, and TEXT_SIZE for each text
    int first_free;       // the first free number; -1: none
    int oldest, newest;   // the texts that ended first and last; -1: no text has ended
};

static Place place_of(int text, int at) { return ((uint64_t)(text + 1) << 32) | (uint32_t)at; }
static int place_text(Place p) { return (int)(p >> 32) - 1; }
static int place_at(Place p) { return (int)(uint32_t)p; }

Ngram *ngram_new(void) {
    Ngram *g = mem_alloc(sizeof *g);
    *g = (Ngram){.first_free = -1, .oldest = -1, .newest = -1};
    return g;
}

void ngram_free(Ngram *g) {
    if (!g) return;
    for (int i = 0; i < g->n_texts; i++) {
        free(g->texts[i].tokens);
        free(g->texts[i].before);
    }
    for (int i = 0; i < ORDERS; i++) free(g->heads[i]);
    free(g->texts);
    free(g);
}

// ---- the index ------------------------------------------------------------------------------------------------------

static size_t bucket(const Ngram *g, const int *last, int length) {
    uint64_t hash = 0;
    for (int i = 0; i < length; i++) hash = rng_mix(hash ^ (uint64_t)(uint32_t)last[-i]);
    return (size_t)hash & (g->n_heads - 1);
}

// Inserts the n-grams that end with token `at` at the heads of their chains.
static void link_token(Ngram *g, int text, int at) {
    Text *t = &g->texts[text];
    for (int i = 0; i < ORDERS; i++) {
        Place *before = &t->before[(size_t)at * ORDERS + (size_t)i];
        *before = 0;
        if (at + 1 < order_length[i]) continue;
        Place *head = &g->heads[i][bucket(g, t->tokens + at, order_length[i])];
        *before = *head;
        *head = place_of(text, at);
    }
}

// Rebuilds all chains, with n_heads chains for each order.
static void link_all(Ngram *g, size_t n_heads) {
    g->n_heads = n_heads;
    for (int i = 0; i < ORDERS; i++) {
        free(g->heads[i]);
        g->heads[i] = mem_alloc(n_heads * sizeof(Place));
    }
    for (int i = 0; i < g->n_texts; i++)
        for (int k = 0; k < g->texts[i].n; k++) link_token(g, i, k);
}

// ---- texts ----------------------------------------------------------------------------------------------------------

static void resize_text(Text *t, int cap) {
    t->cap = cap;
    t->tokens = mem_resize(t->tokens, (size_t)cap * sizeof *t->tokens);
    t->before = mem_resize(t->before, (size_t)cap * ORDERS * sizeof *t->before);
}

static void add_ended(Ngram *g, int text) {
    g->texts[text].next = -1;
    g->texts[text].prev = g->newest;
    *(g->newest < 0 ? &g->oldest : &g->texts[g->newest].next) = text;
    g->newest = text;
}

static void take_ended(Ngram *g, int text) {
    const Text *t = &g->texts[text];
    *(t->prev < 0 ? &g->oldest : &g->texts[t->prev].next) = t->next;
    *(t->next < 0 ? &g->newest : &g->texts[t->next].prev) = t->prev;
}

static void remove_text(Ngram *g, int text) {
    Text *t = &g->texts[text];
    take_ended(g, text);
    g->size -= (size_t)t->n + TEXT_SIZE;
    free(t->tokens);
    free(t->before);
    *t = (Text){.n = -1, .source = -1, .next = g->first_free};
    g->first_free = text;
}

// Removes the texts that ended first until the index is half full.
static void make_room(Ngram *g) {
    if (g->size < NGRAM_TOKENS || g->oldest < 0) return;
    while (g->size > NGRAM_TOKENS / 2 && g->oldest >= 0) remove_text(g, g->oldest);
    for (int i = 0; i < g->n_texts; i++) {
        Text *t = &g->texts[i];
        if (t->source >= 0 && g->texts[t->source].n < 0) t->source = -1;
    }
    link_all(g, g->n_heads);
}

// The text that is a prefix of these tokens and ended last, among the NGRAM_RECENT texts that ended last; -1: none.
static int text_before(const Ngram *g, const int *tokens, int n) {
    int text = g->newest;
    for (int i = 0; i < NGRAM_RECENT && text >= 0; i++, text = g->texts[text].prev) {
        const Text *t = &g->texts[text];
        if (t->n > 0 && t->n <= n && memcmp(t->tokens, tokens, (size_t)t->n * sizeof *tokens) == 0) return text;
    }
    return -1;
}

static int new_text(Ngram *g) {
    int text = g->first_free;
    if (text >= 0) g->first_free = g->texts[text].next;
    else {
        text = g->n_texts++;
        if (text == g->cap_texts) {
            g->cap_texts = g->cap_texts ? 2 * g->cap_texts : 8;
            g->texts = mem_resize(g->texts, (size_t)g->cap_texts * sizeof *g->texts);
        }
    }
    g->texts[text] = (Text){.source = -1};
    g->size += TEXT_SIZE;
    return text;
}

int ngram_begin(Ngram *g, const int *tokens, int n) {
    int text = text_before(g, tokens, n);
    if (text >= 0) take_ended(g, text);
    else {
        make_room(g);
        text = new_text(g);
    }
    int had = g->texts[text].n;
    ngram_extend(g, text, tokens + had, n - had);
    return text;
}

void ngram_extend(Ngram *g, int text, const int *tokens, int n) {
    Text *t = &g->texts[text];
    if (t->n + n > t->cap) resize_text(t, int_max(2 * t->cap, t->n + n + 16));
    g->size += (size_t)n;
    bool grows = g->size > g->n_heads && g->n_heads < NGRAM_TOKENS;
    for (int i = 0; i < n; i++) {
        t->tokens[t->n++] = tokens[i];
        t->at++;
        if (!grows) link_token(g, text, t->n - 1);
    }
    if (!grows) return;
    size_t heads = g->n_heads ? g->n_heads : LEAST_HEADS;
    while (heads < g->size && heads < NGRAM_TOKENS) heads *= 2;
    link_all(g, heads);
}

int ngram_tokens(const Ngram *g, int text) { return g->texts[text].n; }

void ngram_end(Ngram *g, int text) {
    Text *t = &g->texts[text];
    t->source = -1;
    if (t->n > 0) resize_text(t, t->n);
    add_ended(g, text);
}

size_t ngram_bytes(const Ngram *g) {
    size_t n = sizeof *g + (size_t)g->cap_texts * sizeof *g->texts + ORDERS * g->n_heads * sizeof(Place);
    for (int i = 0; i < g->n_texts; i++)
        n += (size_t)g->texts[i].cap * (sizeof *g->texts[i].tokens + ORDERS * sizeof(Place));
    return n;
}

// ---- matches --------------------------------------------------------------------------------------------------------

// A match with the end of a text: the `length` tokens of `text` before index `at`.
typedef struct {
    int text, at, length;
} Match;

// The number of equal tokens when a and b are compared backwards from a[0] and b[0].
static int common_length(const int *a, int n_a, const int *b, int n_b) {
    int n = 0, most = int_min(NGRAM_LONGEST, int_min(n_a, n_b));
    while (n < most && a[-n] == b[-n]) n++;
    return n;
}

// The longest match among the newest places of one order.
static Match longest_of_order(const Ngram *g, int text, int order) {
    const Text *t = &g->texts[text];
    Match best = {-1, 0, 0};
    if (t->n < order_length[order]) return best;
    Place p = g->heads[order][bucket(g, t->tokens + t->n - 1, order_length[order])];
    for (int i = 0; p && i < TRIES; i++) {
        const Text *other = &g->texts[place_text(p)];
        int at = place_at(p);
        if (at + 1 < other->n) {
            int n = common_length(t->tokens + t->n - 1, t->n, other->tokens + at, at + 1);
            if (n >= order_length[order] && n > best.length) best = (Match){place_text(p), at + 1, n};
        }
        p = other->before[(size_t)at * ORDERS + (size_t)order];
    }
    return best;
}

// The longest match around the current position in the text that this one copies; among equals the nearest.
static Match longest_near(const Ngram *g, int text) {
    const Text *t = &g->texts[text], *s = t->source >= 0 ? &g->texts[t->source] : NULL;
    Match best = {-1, 0, 0};
    for (int i = 0; s && i < 2 * NEAR; i++) {
        int at = t->at + (i % 2 ? -(i + 1) / 2 : i / 2);
        if (at < 1 || at >= s->n) continue;
        int n = common_length(t->tokens + t->n - 1, t->n, s->tokens + at - 1, at);
        if (n > best.length) best = (Match){t->source, at, n};
    }
    return best;
}

static Match longest(const Ngram *g, int text) {
    Match best = {-1, 0, 0};
    for (int order = ORDERS - 1; order >= 0 && best.length == 0; order--) best = longest_of_order(g, text, order);
    if (best.length >= order_length[ORDERS - 1]) return best;
    Match near = longest_near(g, text);
    return near.length + 1 >= best.length ? near : best; // prefers to continue the current copy
}

NgramMatch ngram_find(Ngram *g, int text, int *draft, int most) {
    Text *t = &g->texts[text];
    Match m = longest(g, text);
    if (m.length > 0) {
        t->source = m.text;
        t->at = m.at;
        t->lost = 0;
    } else if (t->source >= 0 && t->lost++ == 0 && t->at > 0 && t->at < g->texts[t->source].n)
        m = (Match){t->source, t->at, 0}; // continues the copy after one changed token
    if (m.text < 0) return (NgramMatch){0};
    const Text *s = &g->texts[m.text];
    int n = 0;
    for (; n < most; n++) {
        int at = m.at + n;
        if (at < s->n) draft[n] = s->tokens[at];
        else if (m.text == text) draft[n] = draft[at - s->n]; // past the end of the text: its drafts follow
        else break;
    }
    return (NgramMatch){n, m.length};
}
