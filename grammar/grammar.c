// grammar/grammar.c: see grammar/grammar.h.
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/gbnf.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

enum {
    MOST_BYTES = 256 << 20,     // limit of the memory for states
    MOST_MASK_BYTES = 64 << 20, // limit of the memory for masks
    MOST_LAYER = 32,            // the most states of a PlainLayer
};

typedef struct {
    uint64_t *words; // NULL: not computed yet
    int farthest;    // the largest distance after a token of the mask
} Mask;

// A state on the path to a token, and its row of transitions, whose address does not change.
typedef struct {
    int state;
    const int32_t *next;
} PathState;

struct Grammar {
    const Vocabulary *v;
    Nfa nfa;
    Automaton *a;
    Mask *masks; // (cap_masks) by state
    int cap_masks;
    size_t mask_bytes;
    unsigned generation;
    PathState *path;  // (deepest token + 1) of walk_tree, by depth
    int nearest;      // the smallest distance after a token that walk_tree has seen
    uint64_t *within; // (n_words) the mask that grammar_mask_within returns
};

// ---- compiling ------------------------------------------------------------------------------------------------------

static Status choice_parse(Str text, Rules *r) {
    int root = rules_rule(r, str_of("root")), n = 0, *kids = mem_alloc((text.n + 2) * sizeof *kids);
    Buf one = {0};
    for (size_t i = 0; i <= text.n; i++) {
        bool escaped = i + 1 < text.n && text.data[i] == '\\' && (text.data[i + 1] == ',' || text.data[i + 1] == '\\');
        if (i == text.n || text.data[i] == ',') {
            if (one.n) kids[n++] = rules_text(r, one.data, one.n);
            one.n = 0;
        } else buf_append(&one, &text.data[escaped ? ++i : i], 1);
    }
    rules_define(r, root, rules_alt(r, kids, n));
    buf_free(&one);
    free(kids);
    return n ? OK : status_error(QUILL_USAGE, "texts with commas between them expected, found none");
}

Status grammar_rules(GrammarSource s, Rules *r) {
    switch (s.kind) {
    case GRAMMAR_REGEX: return regex_parse_root(s.text, r);
    case GRAMMAR_CHOICE: return choice_parse(s.text, r);
    case GRAMMAR_GBNF: return gbnf_parse(s.text, r);
    case GRAMMAR_WRITTEN: return s.write(r, s.arg);
    default: return schema_parse(s.text, false, r);
    }
}

Status grammar_compile(GrammarSource source, const Vocabulary *v, Grammar **out) {
    *out = NULL;
    Grammar *g = mem_alloc(sizeof *g);
    *g = (Grammar){.v = v};
    Rules rules;
    rules_start(&rules);
    Status st = grammar_rules(source, &rules);
    if (!st.code) st = nfa_build(&rules, v->sayable, &g->nfa);
    rules_free(&rules);
    if (st.code) {
        grammar_free(g);
        return st;
    }
    g->a = automaton_new(&g->nfa);
    int deepest = 1;
    for (int k = 0; k < VOCABULARY_TREES; k++) deepest = int_max(deepest, v->trees[k].deepest);
    g->path = mem_alloc(((size_t)deepest + 1) * sizeof *g->path);
    g->within = mem_alloc((size_t)v->n_words * sizeof *g->within + 1);
    *out = g;
    return OK;
}

static void forget_masks(Grammar *g) {
    for (int i = 0; i < g->cap_masks; i++) free(g->masks[i].words);
    free(g->masks);
    g->masks = NULL;
    g->cap_masks = 0;
    g->mask_bytes = 0;
}

void grammar_free(Grammar *g) {
    if (!g) return;
    forget_masks(g);
    automaton_free(g->a);
    nfa_free(&g->nfa);
    free(g->path);
    free(g->within);
    free(g);
}

void grammar_tidy(Grammar *g) {
    if (automaton_bytes(g->a) < MOST_BYTES) return;
    forget_masks(g);
    automaton_forget(g->a);
    g->generation++;
}

unsigned grammar_generation(const Grammar *g) { return g->generation; }

// ---- states ---------------------------------------------------------------------------------------------------------

int grammar_start(const Grammar *g) { return automaton_start(g->a); }

int grammar_step(Grammar *g, int state, Str bytes) {
    for (size_t i = 0; i < bytes.n && state != STATE_DEAD; i++)
        state = automaton_step(g->a, state, (uint8_t)bytes.data[i]);
    return state;
}

bool grammar_accepts(const Grammar *g, int state) { return automaton_state(g->a, state)->accepts; }

bool grammar_ends(Grammar *g, int state) {
    for (int class = 0; class < g->nfa.n_classes; class ++)
        if (automaton_step(g->a, state, g->nfa.byte_of[class]) != STATE_DEAD) return false;
    return true;
}

int grammar_distance(const Grammar *g, int state) { return automaton_state(g->a, state)->distance; }

void grammar_shortest(Grammar *g, int state, Buf *out) {
    for (int left = grammar_distance(g, state); left > 0 && left < NFA_FAR;) {
        int best = STATE_DEAD, by = 0;
        for (int class = 0; class < g->nfa.n_classes; class ++) {
            int to = automaton_step(g->a, state, g->nfa.byte_of[class]);
            if (to == STATE_DEAD) continue;
            if (best == STATE_DEAD || grammar_distance(g, to) < grammar_distance(g, best)) best = to, by = class;
        }
        if (best == STATE_DEAD || grammar_distance(g, best) >= left) return;
        buf_append(out, &g->nfa.byte_of[by], 1);
        left = grammar_distance(g, state = best);
    }
}

// ---- masks ----------------------------------------------------------------------------------------------------------

// Adds to the mask the tokens of a tree that the automaton accepts from `state` and after which the distance to the end
// is at most `most`. Returns the largest distance after one of them.
static int walk_tree(Grammar *g, const TokenTree *t, int state, int most, uint64_t *mask) {
    const uint8_t *class_of = g->nfa.class_of;
    int farthest = 0;
    g->path[0] = (PathState){state, automaton_state(g->a, state)->next};
    for (int i = 0; i < t->n;) {
        const TokenNode *node = &t->nodes[i];
        PathState *from = &g->path[node->depth - 1];
        int class = class_of[node->byte], to = from->next[class];
        if (to < 0) to = automaton_find_step(g->a, from->state, class);
        if (to == STATE_DEAD) {
            i = node->end;
            continue;
        }
        i++;
        const State *reached = automaton_state(g->a, to);
        from[1] = (PathState){to, reached->next};
        int id = node->token;
        if (id < 0) continue;
        g->nearest = int_min(g->nearest, reached->distance);
        if (reached->distance > most) continue;
        farthest = int_max(farthest, reached->distance);
        for (; id >= 0; id = g->v->same[id]) mask_set(mask, id);
    }
    return farthest;
}

// All states that plain text of one number of characters leads to.
typedef struct {
    int states[MOST_LAYER];
    int n;
    bool all;      // the grammar accepted every plain character on the way
    bool too_many; // there are more than MOST_LAYER
} PlainLayer;

static void layer_add(PlainLayer *l, int state) {
    for (int i = 0; i < l->n; i++)
        if (l->states[i] == state) return;
    if (l->n == MOST_LAYER) l->too_many = true;
    else l->states[l->n++] = state;
}

// Adds to `out` the states that bytes low..high lead to from a layer. No byte class crosses the borders of these ranges
// (grammar/nfa_compile.c).
static void step_layer(Grammar *g, const PlainLayer *from, int low, int high, PlainLayer *out) {
    for (int i = 0; i < from->n; i++)
        for (int byte = low; byte <= high; byte++) {
            if (byte > low && g->nfa.class_of[byte] == g->nfa.class_of[byte - 1]) continue;
            int to = automaton_step(g->a, from->states[i], (uint8_t)byte);
            if (to == STATE_DEAD) out->all = false;
            else layer_add(out, to);
        }
    out->all &= from->all;
    out->too_many |= from->too_many;
}

// Steps a layer by one plain character. The table has the ranges of UTF-8's first bytes with those of the second byte.
static void step_character(Grammar *g, const PlainLayer *from, PlainLayer *out) {
    static const struct {
        uint8_t low, high, second_low, second_high;
        int more; // bytes after the second
    } leads[] = {{0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1}, {0xe1, 0xec, 0x80, 0xbf, 1},
                 {0xed, 0xed, 0x80, 0x9f, 1}, {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2},
                 {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2}};
    *out = (PlainLayer){.all = true};
    step_layer(g, from, 0x20, 0x21, out);
    step_layer(g, from, 0x23, 0x5b, out);
    step_layer(g, from, 0x5d, 0x7e, out);
    for (size_t i = 0; i < ARRAY_LEN(leads) && !out->too_many; i++) {
        PlainLayer at = {.all = true}, next = {.all = true};
        step_layer(g, from, leads[i].low, leads[i].high, &at);
        step_layer(g, &at, leads[i].second_low, leads[i].second_high, &next);
        for (int k = 0; k < leads[i].more; k++) {
            at = next;
            next = (PlainLayer){.all = true};
            step_layer(g, &at, 0x80, 0xbf, &next);
        }
        for (int k = 0; k < next.n; k++) layer_add(out, next.states[k]);
        out->all &= next.all;
        out->too_many |= next.too_many;
    }
}

// Whether all states of a layer are also in the previous one. Then further characters lead to no new states.
static bool is_within(const PlainLayer *l, const PlainLayer *before) {
    for (int i = 0; i < l->n; i++) {
        bool found = false;
        for (int k = 0; k < before->n; k++) found |= l->states[i] == before->states[k];
        if (!found) return false;
    }
    return true;
}

static int layer_distance(const Grammar *g, const PlainLayer *l) {
    int farthest = 0;
    for (int i = 0; i < l->n; i++) farthest = int_max(farthest, automaton_state(g->a, l->states[i])->distance);
    return farthest;
}

static void allow_all(const Grammar *g, int tree, uint64_t *mask) {
    for (int i = 0; i < g->v->n_words; i++) mask[i] |= g->v->plain[tree][i];
}

// Adds plain tokens to the mask: whole trees as long as the grammar accepts any plain text. Returns the largest
// distance after one of them.
static int add_plain(Grammar *g, int state, uint64_t *mask) {
    PlainLayer now = {.states = {state}, .n = 1, .all = true};
    int farthest = 0, tree = 1;
    bool steady = false;
    for (; tree < VOCABULARY_TREES; tree++) {
        PlainLayer next = now;
        if (!steady) step_character(g, &now, &next);
        if (next.n == 0 && !next.too_many) return farthest; // no plain text of that length
        if (!next.all || next.too_many || (tree == VOCABULARY_PLAIN && !steady)) break;
        steady = steady || is_within(&next, &now);
        now = next;
        farthest = int_max(farthest, layer_distance(g, &now));
        allow_all(g, tree, mask);
    }
    for (; tree < VOCABULARY_TREES; tree++)
        farthest = int_max(farthest, walk_tree(g, &g->v->trees[tree], state, NFA_FAR - 1, mask));
    return farthest;
}

static Mask *find_mask(Grammar *g, int state) {
    size_t bytes = (size_t)g->v->n_words * sizeof(uint64_t);
    if (g->mask_bytes + bytes > MOST_MASK_BYTES) forget_masks(g);
    if (state >= g->cap_masks) {
        int cap = int_max(state + 1, 2 * g->cap_masks);
        g->masks = mem_resize(g->masks, (size_t)cap * sizeof *g->masks);
        memset(g->masks + g->cap_masks, 0, (size_t)(cap - g->cap_masks) * sizeof *g->masks);
        g->cap_masks = cap;
    }
    Mask *m = &g->masks[state];
    if (m->words) return m;
    m->words = mem_alloc(bytes + 1);
    g->mask_bytes += bytes;
    m->farthest = walk_tree(g, &g->v->trees[0], state, NFA_FAR - 1, m->words);
    m->farthest = int_max(m->farthest, add_plain(g, state, m->words));
    if (grammar_accepts(g, state))
        for (int i = 0; i < g->v->n_words; i++) m->words[i] |= g->v->ends[i];
    return m;
}

const uint64_t *grammar_mask(Grammar *g, int state) { return find_mask(g, state)->words; }

// Computes the mask of the tokens after which the distance to the end is at most `most`.
static const uint64_t *mask_near(Grammar *g, int state, int most) {
    memset(g->within, 0, (size_t)g->v->n_words * sizeof *g->within);
    g->nearest = NFA_FAR;
    for (int k = 0; k < VOCABULARY_TREES; k++) walk_tree(g, &g->v->trees[k], state, most, g->within);
    if (grammar_accepts(g, state))
        for (int i = 0; i < g->v->n_words; i++) g->within[i] |= g->v->ends[i];
    return g->within;
}

const uint64_t *grammar_mask_within(Grammar *g, int state, int left) {
    const Mask *m = find_mask(g, state);
    if (m->farthest < left) return m->words;
    const uint64_t *near = mask_near(g, state, left - 1);
    bool reached = grammar_accepts(g, state) || g->nearest < left;
    // long tokens may lead directly to that distance
    return reached || g->nearest >= NFA_FAR ? near : mask_near(g, state, g->nearest);
}
