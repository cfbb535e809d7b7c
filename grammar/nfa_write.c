// grammar/nfa_write.c: writes expressions as nodes of an Nfa (grammar/nfa_build.h), from their end to their beginning,
// so that the node that follows is known and equal continuations are shared.
#include "grammar/nfa_build.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/nfa_both.h"

// ---- nodes ----------------------------------------------------------------------------------------------------------

int nfa_node(NfaBuild *b, NfaNodeKind kind, int low, int high, int to, int other) {
    Nfa *n = b->nfa;
    if (n->n_nodes >= NFA_MOST_NODES) {
        b->too_large = true;
        return NFA_END;
    }
    if (n->n_nodes == n->cap_nodes) {
        n->cap_nodes = n->cap_nodes ? 2 * n->cap_nodes : 256;
        n->nodes = mem_resize(n->nodes, (size_t)n->cap_nodes * sizeof *n->nodes);
    }
    n->nodes[n->n_nodes] = (NfaNode){(uint8_t)kind, (uint8_t)low, (uint8_t)high, to, other};
    return n->n_nodes++;
}

static int either(NfaBuild *b, int one, int other) {
    if (one < 0) return other;
    return one == other ? one : nfa_node(b, NODE_SPLIT, 0, 0, one, other);
}

// ---- characters as bytes --------------------------------------------------------------------------------------------

// A node that leads with bytes low..high to `to`; reuses one that the same class has written.
static int class_node(NfaBuild *b, int first, int low, int high, int to) {
    for (int i = b->nfa->n_nodes - 1; i >= first && i >= b->nfa->n_nodes - 16; i--) {
        const NfaNode *n = &b->nfa->nodes[i];
        if (n->kind == NODE_BYTES && n->low == low && n->high == high && n->to == to) return i;
    }
    return nfa_node(b, NODE_BYTES, low, high, to, 0);
}

// Writes the characters from `low` to `high`, whose UTF-8 encodings both have n bytes; returns the first node.
static int same_length(NfaBuild *b, int first, const unsigned char *low, const unsigned char *high, int n, int next) {
    if (n == 1) return class_node(b, first, low[0], high[0], next);
    static const unsigned char least[] = {0x80, 0x80, 0x80}, most[] = {0xbf, 0xbf, 0xbf};
    if (low[0] == high[0])
        return class_node(b, first, low[0], low[0], same_length(b, first, low + 1, high + 1, n - 1, next));
    int from = low[0], to = high[0], entry = -1;
    if (memcmp(low + 1, least, (size_t)n - 1) != 0) {
        entry = class_node(b, first, from, from, same_length(b, first, low + 1, most, n - 1, next));
        from++;
    }
    if (memcmp(high + 1, most, (size_t)n - 1) != 0) {
        int last = class_node(b, first, to, to, same_length(b, first, least, high + 1, n - 1, next));
        entry = either(b, entry, last);
        to--;
    }
    if (from > to) return entry;
    return either(b, entry, class_node(b, first, from, to, same_length(b, first, least, most, n - 1, next)));
}

static int add_range(NfaBuild *b, int first, uint32_t from, uint32_t to, int next, int entry) {
    static const uint32_t last_of[] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
    for (int i = 0; i < 4 && from <= to; i++) {
        if (from > last_of[i]) continue;
        uint32_t end = to < last_of[i] ? to : last_of[i];
        char low[4], high[4];
        utf8_write(low, from);
        utf8_write(high, end);
        int part = same_length(b, first, (unsigned char *)low, (unsigned char *)high, i + 1, next);
        entry = either(b, entry, part);
        from = end + 1;
    }
    return entry;
}

static int build_class(NfaBuild *b, const Expr *e, int next) {
    const CharRange *ranges = e->n ? (const CharRange *)(const void *)(b->rules->ranges.data + e->at) : NULL;
    int entry = -1, first = b->nfa->n_nodes;
    for (int i = 0; i < e->n; i++) {
        uint32_t from = ranges[i].first, to = ranges[i].last; // surrogates, which UTF-8 does not encode, are left out
        if (from < 0xd800) entry = add_range(b, first, from, to < 0xd800 ? to : 0xd7ff, next, entry);
        if (to > 0xdfff) entry = add_range(b, first, from > 0xdfff ? from : 0xe000, to, next, entry);
    }
    return entry < 0 ? nfa_node(b, NODE_BYTES, 1, 0, next, 0) : entry; // an empty class: a node that no byte matches
}

// ---- any bytes up to a text -----------------------------------------------------------------------------------------

// The number of matched bytes of the text after `had` matched bytes and one more byte: a step of the
// Knuth-Morris-Pratt automaton.
static int bytes_there(const char *text, int n, int had, int byte) {
    for (int k = int_min(n, had + 1); k > 0; k--)
        if ((unsigned char)text[k - 1] == byte && memcmp(text, text + had - (k - 1), (size_t)k - 1) == 0) return k;
    return 0;
}

static int build_until(NfaBuild *b, const Expr *e, int next) {
    const char *text = e->n ? b->rules->bytes.data + e->at : "";
    int heads[RULES_LONGEST_END + 1], n = e->n;
    bool ends = e->least > 0;
    if (ends && n == 0) return next;
    for (int i = 0; i < int_max(1, n); i++) heads[i] = nfa_node(b, NODE_SPLIT, 0, 0, NFA_END, NFA_END);
    for (int i = 0; i < int_max(1, n) && !b->too_large; i++) {
        int entry = ends ? -1 : next;
        for (int low = 0, high; low < 256; low = high + 1) {
            int there = bytes_there(text, n, i, low);
            for (high = low; high < 255 && bytes_there(text, n, i, high + 1) == there; high++) {
            }
            bool whole = n > 0 && there == n;
            if (whole && !ends) continue;
            entry = either(b, entry, nfa_node(b, NODE_BYTES, low, high, whole ? next : heads[there], 0));
        }
        b->nfa->nodes[heads[i]].to = b->nfa->nodes[heads[i]].other = entry;
    }
    return heads[0];
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static const int *kids_of(const NfaBuild *b, const Expr *e) { return rules_kids(b->rules, e); }

// Writes the use of a rule: inlined or called.
static int build_call(NfaBuild *b, int rule, int next) {
    if (!b->inlined[rule]) return nfa_node(b, NODE_CALL, 0, 0, next, nfa_called(b, rule));
    return nfa_expr(b, b->rules->rules[rule].expr, next);
}

// Writes a call of an expression that becomes a rule: inlining every copy of a repeat would be too large.
static int build_own_rule(NfaBuild *b, int kid, int next) {
    return nfa_node(b, NODE_CALL, 0, 0, next, nfa_called_expr(b, kid));
}

static int build_repeat(NfaBuild *b, const Expr *e, int next) {
    int kid = *kids_of(b, e), copies = e->most < 0 ? e->least + 1 : e->most;
    bool own = copies > 4 && nfa_size(b, kid) > 64 && b->repeats; // not inside EXPR_BOTH, which does not support calls
    int at = next;
    if (e->most < 0) {
        int loop = nfa_node(b, NODE_SPLIT, 0, 0, NFA_END, next);
        int body = own ? build_own_rule(b, kid, loop) : nfa_expr(b, kid, loop);
        b->nfa->nodes[loop].to = body;
        at = loop;
    }
    for (int i = e->least; i < e->most && !b->too_large; i++) {
        int body = own ? build_own_rule(b, kid, at) : nfa_expr(b, kid, at);
        at = either(b, body, next);
    }
    for (int i = 0; i < e->least && !b->too_large; i++) at = own ? build_own_rule(b, kid, at) : nfa_expr(b, kid, at);
    return at;
}

static int write_expr(NfaBuild *b, int expr, int next) {
    const Expr *e = &b->rules->exprs[expr];
    int entry = -1;
    if (b->too_large) return next;
    switch (e->kind) {
    case EXPR_TEXT:
        for (int i = e->n - 1; i >= 0; i--) {
            int byte = (unsigned char)b->rules->bytes.data[e->at + (size_t)i];
            next = nfa_node(b, NODE_BYTES, byte, byte, next, 0);
        }
        return next;
    case EXPR_CLASS: return build_class(b, e, next);
    case EXPR_SEQ:
        for (int i = e->n - 1; i >= 0; i--) next = nfa_expr(b, kids_of(b, e)[i], next);
        return next;
    case EXPR_ALT:
        for (int i = 0; i < e->n; i++) entry = either(b, entry, nfa_expr(b, kids_of(b, e)[i], next));
        return entry < 0 ? nfa_node(b, NODE_BYTES, 1, 0, next, 0) : entry;
    case EXPR_REPEAT: return build_repeat(b, e, next);
    case EXPR_RULE: return build_call(b, e->n, next);
    case EXPR_UNTIL: return build_until(b, e, next);
    default: return nfa_both(b, kids_of(b, e)[0], kids_of(b, e)[1], next);
    }
}

// ---- reuse: an expression before the same node gives the same nodes -------------------------------------------------

static uint32_t find_known(const NfaBuild *b, uint64_t key) {
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & b->known_mask;
    while (b->known[at] && b->known[at] != key) at = (at + 1) & b->known_mask;
    return at;
}

static void grow_known(NfaBuild *b) {
    NfaBuild old = *b;
    b->known_mask = old.known ? 2 * old.known_mask + 1 : 255;
    b->known = mem_alloc(((size_t)b->known_mask + 1) * sizeof *b->known);
    b->known_node = mem_alloc(((size_t)b->known_mask + 1) * sizeof *b->known_node);
    for (uint32_t i = 0; old.known && i <= old.known_mask; i++) {
        if (!old.known[i]) continue;
        uint32_t at = find_known(b, old.known[i]);
        b->known[at] = old.known[i];
        b->known_node[at] = old.known_node[i];
    }
    free(old.known);
    free(old.known_node);
}

int nfa_expr(NfaBuild *b, int expr, int next) {
    ExprKind kind = b->rules->exprs[expr].kind;
    if (kind == EXPR_TEXT) return write_expr(b, expr, next);
    if ((uint32_t)b->n_known >= b->known_mask / 2) grow_known(b);
    uint64_t key = ((uint64_t)(uint32_t)expr + 1) << 32 | (uint32_t)next;
    uint32_t at = find_known(b, key);
    if (b->known[at]) return b->known_node[at];
    int node = write_expr(b, expr, next);
    if ((uint32_t)b->n_known >= b->known_mask / 2) grow_known(b);
    at = find_known(b, key);
    b->known[at] = key;
    b->known_node[at] = node;
    b->n_known++;
    return node;
}
