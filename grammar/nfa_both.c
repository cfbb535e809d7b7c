// grammar/nfa_both.c: see grammar/nfa_both.h. Subset construction on both sides; a pair of sets is a node of the
// product.
#include "grammar/nfa_both.h"

#include <stdlib.h>
#include <string.h>

#include "base/signals.h"
#include "grammar/intern.h"

enum {
    MOST_PAIRS = 50000,
    MOST_WORK = 50 << 20, // the most nodes visited for all products of a grammar: about a second
    UNKNOWN = -2,         // a step that is not known yet
};

// One side: its own Nfa, and its numbered sets of nodes.
typedef struct {
    Nfa nfa;
    Intern sets;
    uint8_t *seen; // (nfa.n_nodes)
    int *stack, *set;
    int start;
    uint8_t class_of[256]; // bytes that no node distinguishes have the same class
    int n_classes;
    int *to; // (cap, n_classes) the set after a set and a byte of a class: many pairs have the same set
    int cap;
    int64_t *work; // NfaBuild.work
} Side;

typedef struct {
    NfaBuild *b;
    Side side[2];
    Intern pairs; // pairs of sets
    int *entry;   // (pairs.n) the SPLIT node that a pair begins with
    int cap, next;
} Product;

// The number of the set of nodes reachable from `from` without reading a byte; SPLIT nodes are left out.
static int close_set(Side *s, const int *from, int n_from) {
    int top = 0, n = 0;
    bool fresh;
    for (int i = 0; i < n_from; i++)
        if (!s->seen[from[i]]) s->seen[from[i]] = 1, s->stack[top++] = from[i];
    int n_seen = 0, *all = s->stack + s->nfa.n_nodes;
    while (top > 0) {
        int at = s->stack[--top];
        const NfaNode *node = &s->nfa.nodes[at];
        all[n_seen++] = at;
        ++*s->work;
        if (node->kind != NODE_SPLIT) {
            s->set[n++] = at;
            continue;
        }
        if (!s->seen[node->to]) s->seen[node->to] = 1, s->stack[top++] = node->to;
        if (!s->seen[node->other]) s->seen[node->other] = 1, s->stack[top++] = node->other;
    }
    for (int i = 0; i < n_seen; i++) s->seen[all[i]] = 0;
    return intern_set(&s->sets, s->set, n, &fresh);
}

static int find_step(Side *s, int set, int byte) {
    int n = 0, *to = s->stack + 2 * s->nfa.n_nodes;
    const int *nodes = intern_words(&s->sets, set);
    *s->work += intern_length(&s->sets, set);
    for (int i = 0; i < intern_length(&s->sets, set); i++) {
        const NfaNode *node = &s->nfa.nodes[nodes[i]];
        if (node->kind == NODE_BYTES && node->low <= byte && byte <= node->high) to[n++] = node->to;
    }
    return n ? close_set(s, to, n) : -1;
}

// The set after reading a byte; -1: the byte is not allowed.
static int step(Side *s, int set, int byte) {
    if (set >= s->cap) {
        int had = s->cap;
        s->cap = 2 * set + 64;
        s->to = mem_resize(s->to, (size_t)s->cap * (size_t)s->n_classes * sizeof *s->to);
        for (size_t i = (size_t)had * (size_t)s->n_classes; i < (size_t)s->cap * (size_t)s->n_classes; i++)
            s->to[i] = UNKNOWN;
    }
    int *to = &s->to[(size_t)set * (size_t)s->n_classes + s->class_of[byte]];
    if (*to == UNKNOWN) *to = find_step(s, set, byte);
    return *to;
}

static void find_classes(Side *s) {
    bool begins[257] = {true};
    for (int i = 0; i < s->nfa.n_nodes; i++)
        if (s->nfa.nodes[i].kind == NODE_BYTES) begins[s->nfa.nodes[i].low] = begins[s->nfa.nodes[i].high + 1] = true;
    for (int byte = 0; byte < 256; byte++) {
        s->n_classes += begins[byte];
        s->class_of[byte] = (uint8_t)(s->n_classes - 1);
    }
}

static bool ends(const Side *s, int set) {
    return intern_length(&s->sets, set) > 0 && intern_words(&s->sets, set)[0] == NFA_END;
}

static void mark_borders(const Side *s, int set, bool *begins) {
    const int *nodes = intern_words(&s->sets, set);
    *s->work += intern_length(&s->sets, set);
    for (int i = 0; i < intern_length(&s->sets, set); i++) {
        const NfaNode *node = &s->nfa.nodes[nodes[i]];
        if (node->kind == NODE_BYTES && node->low <= node->high) begins[node->low] = begins[node->high + 1] = true;
    }
}

static int pair_entry(Product *p, int one, int other) {
    bool fresh;
    int pair = intern_number(&p->pairs, (int[]){one, other}, 2, &fresh);
    if (!fresh) return p->entry[pair];
    if (pair >= p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->entry = mem_resize(p->entry, (size_t)p->cap * sizeof *p->entry);
    }
    return p->entry[pair] = nfa_node(p->b, NODE_SPLIT, 0, 0, 0, 0);
}

// Writes the transitions of a pair, which follow its entry node.
static void write_pair(Product *p, int pair) {
    int one = intern_words(&p->pairs, pair)[0], other = intern_words(&p->pairs, pair)[1];
    bool begins[257] = {true};
    mark_borders(&p->side[0], one, begins);
    mark_borders(&p->side[1], other, begins);
    int head =
        ends(&p->side[0], one) && ends(&p->side[1], other) ? p->next : nfa_node(p->b, NODE_BYTES, 1, 0, p->next, 0);
    for (int low = 0, high; low < 256; low = high + 1) {
        for (high = low; high < 255 && !begins[high + 1];) high++;
        p->b->work++;
        int to_one = step(&p->side[0], one, low), to_other = to_one < 0 ? -1 : step(&p->side[1], other, low);
        if (to_other < 0) continue;
        int way = nfa_node(p->b, NODE_BYTES, low, high, pair_entry(p, to_one, to_other), 0);
        head = nfa_node(p->b, NODE_SPLIT, 0, 0, way, head);
    }
    if (p->b->too_large) return;
    NfaNode *entry = &p->b->nfa->nodes[p->entry[pair]];
    entry->to = entry->other = head;
}

static void open_side(NfaBuild *b, Side *s, int expr) {
    NfaBuild own = *b;
    own.nfa = &s->nfa;
    own.repeats = false;
    own.too_large = false;
    own.failed = OK;
    own.known = NULL;
    own.known_node = NULL;
    own.known_mask = 0;
    own.n_known = 0;
    nfa_node(&own, NODE_END, 0, 0, 0, 0);
    s->start = nfa_expr(&own, expr, NFA_END);
    b->too_large |= own.too_large;
    b->work = own.work;
    if (own.failed.code) b->failed = own.failed;
    free(own.known);
    free(own.known_node);
    for (int i = 0; i < s->nfa.n_nodes; i++)
        if (s->nfa.nodes[i].kind == NODE_CALL)
            b->failed = status_error(QUILL_USAGE, "a pattern together with other bounds: texts without recursion "
                                                  "expected, found a rule that is called");
    size_t n = (size_t)s->nfa.n_nodes;
    find_classes(s);
    s->work = &b->work;
    s->seen = mem_alloc(n);
    s->stack = mem_alloc(3 * n * sizeof *s->stack);
    s->set = mem_alloc(n * sizeof *s->set);
    intern_start(&s->sets);
}

static void close_side(Side *s) {
    nfa_free(&s->nfa);
    intern_free(&s->sets);
    free(s->seen);
    free(s->stack);
    free(s->set);
    free(s->to);
}

int nfa_both(NfaBuild *b, int one, int other, int next) {
    Product p = {.b = b, .next = next};
    open_side(b, &p.side[0], one);
    open_side(b, &p.side[1], other);
    intern_start(&p.pairs);
    int first = next;
    if (!b->failed.code && !b->too_large) {
        int start_one = close_set(&p.side[0], &p.side[0].start, 1);
        first = pair_entry(&p, start_one, close_set(&p.side[1], &p.side[1].start, 1));
        for (int i = 0; i < p.pairs.n && !b->too_large; i++) {
            write_pair(&p, i);
            b->too_large |= p.pairs.n > MOST_PAIRS || b->work > MOST_WORK;
            if (!signals_caught()) continue;
            b->failed = status_error(128 + signals_caught(), "stopped by a signal");
            b->too_large = true;
        }
    }
    close_side(&p.side[0]);
    close_side(&p.side[1]);
    intern_free(&p.pairs);
    free(p.entry);
    return first;
}
