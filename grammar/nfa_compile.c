// grammar/nfa_compile.c: builds an Nfa (grammar/nfa.h) and computes its byte classes, the distances of its nodes to the
// end, and the order of rules that begin with other rules.
#include "grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/signals.h"
#include "grammar/nfa_build.h"

// ---- classes of bytes -----------------------------------------------------------------------------------------------

static void find_classes(Nfa *n, const bool *sayable) {
    // Byte values at which a new class begins: between the kinds of UTF-8 bytes, and around bytes that a JSON string
    // must escape (plain characters, grammar/vocabulary.h).
    static const uint8_t edges[] = {0x20, 0x22, 0x23, 0x5c, 0x5d, 0x7f, 0x80, 0x90, 0xa0, 0xc0,
                                    0xc2, 0xe0, 0xe1, 0xed, 0xee, 0xf0, 0xf1, 0xf4, 0xf5};
    bool begins[257] = {true};
    for (size_t i = 0; i < ARRAY_LEN(edges); i++) begins[edges[i]] = true;
    for (int i = 0; i < n->n_nodes; i++)
        if (n->nodes[i].kind == NODE_BYTES) begins[n->nodes[i].low] = begins[n->nodes[i].high + 1] = true;
    n->n_classes = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (begins[byte]) n->byte_of[n->n_classes++] = (uint8_t)byte;
        n->class_of[byte] = (uint8_t)(n->n_classes - 1);
        bool better = sayable && sayable[byte] && !sayable[n->byte_of[n->n_classes - 1]];
        if (better) n->byte_of[n->n_classes - 1] = (uint8_t)byte;
    }
}

// ---- distances ------------------------------------------------------------------------------------------------------

// The smallest distance that one of the bytes low..high counts.
static int cost(const NfaNode *n, const bool *sayable) {
    if (n->low > n->high) return NFA_FAR;
    for (int byte = n->low; byte <= n->high; byte++)
        if (!sayable || sayable[byte]) return 1;
    return NFA_UNSAYABLE;
}

static int distance_of(const Nfa *n, int i, const bool *sayable) {
    const NfaNode *node = &n->nodes[i];
    switch (node->kind) {
    case NODE_END: return 0;
    case NODE_BYTES: return nfa_far_sum(cost(node, sayable), n->distance[node->to]);
    case NODE_SPLIT: return int_min(n->distance[node->to], n->distance[node->other]);
    default: return nfa_far_sum(n->distance[n->rules[node->other].start], n->distance[node->to]);
    }
}

// Sweeps over the nodes in alternating directions: most nodes lead to earlier ones, nodes of products to later ones.
// Rules that call each other in many orders need many sweeps.
static Status find_distances(Nfa *n, const bool *sayable) {
    enum { MOST_VISITS = 1 << 28 }; // about a second
    n->distance = mem_alloc((size_t)n->n_nodes * sizeof *n->distance);
    for (int i = 1; i < n->n_nodes; i++) n->distance[i] = NFA_FAR;
    bool changed = true;
    for (int sweep = 0; changed; sweep++) {
        changed = false;
        if (signals_caught()) return status_error(128 + signals_caught(), "stopped by a signal");
        if ((int64_t)sweep * n->n_nodes > MOST_VISITS)
            return status_error(QUILL_USAGE, "fewer rules that call each other expected, found more");
        for (int k = 0; k < n->n_nodes; k++) {
            int i = sweep % 2 ? n->n_nodes - 1 - k : k, d = distance_of(n, i, sayable);
            changed |= d < n->distance[i];
            n->distance[i] = int_min(d, n->distance[i]);
        }
    }
    for (int i = 0; i < n->n_rules; i++) n->rules[i].distance = n->distance[n->rules[i].start];
    return OK;
}

// ---- rules that may be empty, and what rules begin with -------------------------------------------------------------

typedef struct {
    const Nfa *nfa;
    int *stack;
    int *seen; // (n_nodes) the number of the last search that visited the node
    int search;
    int *calls, n_calls; // (n_nodes) the rules that the last search found
} Walk;

static void push_node(Walk *w, int *n, int node) {
    if (w->seen[node] == w->search || w->nfa->distance[node] >= NFA_FAR) return;
    w->seen[node] = w->search;
    w->stack[(*n)++] = node;
}

// Visits the nodes reachable from a rule's start without reading a byte, and collects the called rules. Returns whether
// the end of the rule is reachable.
static bool walk_start(Walk *w, int rule) {
    const Nfa *n = w->nfa;
    int top = 0;
    bool ends = false;
    w->search++;
    w->n_calls = 0;
    push_node(w, &top, n->rules[rule].start);
    while (top > 0) {
        const NfaNode *node = &n->nodes[w->stack[--top]];
        if (node->kind == NODE_END) ends = true;
        if (node->kind == NODE_SPLIT) push_node(w, &top, node->to), push_node(w, &top, node->other);
        if (node->kind != NODE_CALL) continue;
        w->calls[w->n_calls++] = node->other;
        if (n->rules[node->other].nullable) push_node(w, &top, node->to);
    }
    return ends;
}

// Sets the order of a rule and of the rules that it may begin with (topological sort). Returns a left-recursive rule,
// -1: none. colour: 0 for rules not visited, 1 while they are visited, 2 afterwards.
static int order_rule(Walk *w, Nfa *n, int rule, uint8_t *colour, int *next, int depth) {
    if (colour[rule] == 2) return -1;
    if (colour[rule] == 1 || depth > 2000) return rule;
    colour[rule] = 1;
    walk_start(w, rule);
    int n_calls = w->n_calls, bad = -1, *own = mem_alloc((size_t)(n_calls + 1) * sizeof *own);
    memcpy(own, w->calls, (size_t)n_calls * sizeof *own);
    for (int i = 0; i < n_calls && bad < 0; i++) bad = order_rule(w, n, own[i], colour, next, depth + 1);
    free(own);
    colour[rule] = 2;
    n->rules[rule].order = --*next;
    return bad;
}

static Status order_rules(Nfa *n, const NfaBuild *b) {
    Walk w = {.nfa = n};
    w.stack = mem_alloc((size_t)n->n_nodes * sizeof *w.stack);
    w.seen = mem_alloc((size_t)n->n_nodes * sizeof *w.seen);
    w.calls = mem_alloc((size_t)n->n_nodes * sizeof *w.calls);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < n->n_rules; i++)
            if (!n->rules[i].nullable && walk_start(&w, i)) changed = n->rules[i].nullable = true;
    }
    uint8_t *colour = mem_alloc((size_t)n->n_rules);
    int next = n->n_rules, bad = -1;
    for (int i = 0; i < n->n_rules && bad < 0; i++) bad = order_rule(&w, n, i, colour, &next, 0);
    free(w.stack);
    free(w.seen);
    free(w.calls);
    free(colour);
    if (bad < 0) return OK;
    Str name = nfa_rule_name(b, bad);
    return status_error(QUILL_USAGE,
                        "rule \"%.*s\" begins with itself (left recursion); write it as a repetition: item (\",\" "
                        "item)*",
                        int_min((int)name.n, 60), name.data);
}

// ---- everything together --------------------------------------------------------------------------------------------

Status nfa_build(const Rules *rules, const bool *sayable, Nfa *out) {
    *out = (Nfa){0};
    NfaBuild b = {.rules = rules, .nfa = out, .repeats = true};
    Status st = nfa_plan(&b);
    if (!st.code) nfa_write_rules(&b);
    out->work = b.work;
    if (!st.code && b.failed.code) st = b.failed;
    if (!st.code && b.too_large)
        st = status_error(QUILL_USAGE,
                          "the grammar has more than %d steps when it is written out; repeat less, or shorter parts",
                          (int)NFA_MOST_NODES);
    if (!st.code) {
        find_classes(out, sayable);
        st = find_distances(out, sayable);
        if (!st.code && out->rules[0].distance >= NFA_FAR)
            st = status_error(QUILL_USAGE, "no text matches: every path through the rules is contradictory or endless");
    }
    if (!st.code) st = order_rules(out, &b);
    nfa_build_free(&b);
    return st;
}

void nfa_free(Nfa *n) {
    free(n->nodes);
    free(n->distance);
    free(n->rules);
    *n = (Nfa){0};
}
