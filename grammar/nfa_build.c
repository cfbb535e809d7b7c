// grammar/nfa_build.c: see grammar/nfa_build.h.
#include "grammar/nfa_build.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 400,         // a rule of at most that many nodes is inlined wherever it is called
    MOST_SIZE = 1 << 24, // the largest estimate of a size
    DEEPEST = 1500,      // the deepest nesting of rules and expressions
};

typedef struct {
    NfaBuild *b;
    uint8_t *colour; // (n_rules) 0: not visited, 1: being visited, 2: done
    int *height;     // (n_exprs) depth of the expressions and inlined rules in an expression whose size is known
    int missing;     // a rule that is not defined, -1: none
    bool too_deep;
} NfaPlan;

static int size_plus(int64_t a, int64_t b) { return a + b < MOST_SIZE ? (int)(a + b) : MOST_SIZE; }

static int size_of(NfaPlan *p, int expr, int depth);

// A rule that is called while it is being visited is recursive and is not inlined.
static int size_of_rule(NfaPlan *p, int rule, int depth) {
    const Rule *r = &p->b->rules->rules[rule];
    if (r->expr < 0) {
        p->missing = rule;
        return 1;
    }
    if (p->colour[rule] == 1) {
        p->b->inlined[rule] = false;
        return 1;
    }
    if (p->colour[rule] == 0) {
        p->colour[rule] = 1;
        int size = size_of(p, r->expr, depth + 1);
        if (size > SMALL) p->b->inlined[rule] = false;
        p->colour[rule] = 2;
    }
    if (!p->b->inlined[rule]) return 1;
    if (depth + 1 + p->height[r->expr] > DEEPEST) p->too_deep = true;
    return p->b->size[r->expr];
}

static int size_of(NfaPlan *p, int expr, int depth) {
    const Rules *r = p->b->rules;
    const Expr *e = &r->exprs[expr];
    bool known = p->b->size[expr] >= 0;
    if (depth + (known ? p->height[expr] : 0) > DEEPEST) p->too_deep = true;
    if (known) return p->b->size[expr];
    if (p->too_deep) return 1;
    const int *kids = rules_kids(r, e);
    int size = 0, height = 0;
    if (e->kind == EXPR_TEXT) size = e->n;
    else if (e->kind == EXPR_UNTIL) size = 8 * e->n + 4;
    else if (e->kind == EXPR_CLASS) size = size_plus((int64_t)e->n * 3, 1);
    else if (e->kind == EXPR_RULE) {
        size = size_of_rule(p, e->n, depth);
        if (p->colour[e->n] == 2 && p->b->inlined[e->n]) height = p->height[r->rules[e->n].expr];
    } else
        for (int i = 0; i < (e->kind == EXPR_REPEAT ? 1 : e->n); i++) {
            size = size_plus(size, (int64_t)size_of(p, kids[i], depth + 1) + (e->kind == EXPR_ALT));
            height = int_max(height, p->height[kids[i]]);
        }
    if (e->kind == EXPR_BOTH) size = size_plus(size, 64); // a product; its size is not known yet
    if (e->kind == EXPR_REPEAT) {
        int copies = e->most < 0 ? e->least + 1 : e->most;
        bool own = copies > 4 && size > 64;
        size = own ? copies : size_plus((int64_t)size * copies, copies + 1);
    }
    p->height[expr] = height + 1;
    return p->b->size[expr] = size;
}

Status nfa_plan(NfaBuild *b) {
    const Rules *r = b->rules;
    NfaPlan p = {.b = b, .missing = -1};
    size_t n = (size_t)r->n_rules + 1;
    p.colour = mem_alloc(n);
    p.height = mem_alloc(((size_t)r->n_exprs + 1) * sizeof *p.height);
    b->inlined = mem_alloc(n * sizeof *b->inlined);
    b->rule_of = mem_alloc(n * sizeof *b->rule_of);
    b->size = mem_alloc(((size_t)r->n_exprs + 1) * sizeof *b->size);
    b->expr_rule = mem_alloc(((size_t)r->n_exprs + 1) * sizeof *b->expr_rule);
    for (int i = 0; i < r->n_rules; i++) b->inlined[i] = true;
    for (int i = 0; i < r->n_exprs; i++) b->size[i] = -1;
    if (r->n_rules > 0) size_of_rule(&p, r->start, 0);
    b->inlined[r->start] = false;
    free(p.colour);
    free(p.height);
    if (p.too_deep)
        return status_error(QUILL_USAGE, "rules and groups %d deep at most expected, found more", (int)DEEPEST);
    if (r->n_rules > 0 && p.missing < 0) return OK;
    Str name = r->n_rules ? r->rules[p.missing].name : str_of("root");
    return status_error(QUILL_USAGE, "rule \"%.*s\" expected, found none of that name", int_min((int)name.n, 60),
                        name.data);
}

int nfa_size(const NfaBuild *b, int expr) { return b->size[expr]; }

// ---- the network's rules --------------------------------------------------------------------------------------------

static int new_rule(NfaBuild *b, int expr, int named) {
    Nfa *n = b->nfa;
    if (n->n_rules == b->cap_rules) {
        b->cap_rules = b->cap_rules ? 2 * b->cap_rules : 16;
        n->rules = mem_resize(n->rules, (size_t)b->cap_rules * sizeof *n->rules);
        b->exprs = mem_resize(b->exprs, (size_t)b->cap_rules * sizeof *b->exprs);
        b->named = mem_resize(b->named, (size_t)b->cap_rules * sizeof *b->named);
    }
    n->rules[n->n_rules] = (NfaRule){.start = -1};
    b->exprs[n->n_rules] = expr;
    b->named[n->n_rules] = named;
    return n->n_rules++;
}

int nfa_called(NfaBuild *b, int rule) {
    if (!b->rule_of[rule]) b->rule_of[rule] = new_rule(b, b->rules->rules[rule].expr, rule) + 1;
    return b->rule_of[rule] - 1;
}

int nfa_called_expr(NfaBuild *b, int expr) {
    if (!b->expr_rule[expr]) b->expr_rule[expr] = new_rule(b, expr, -1) + 1;
    return b->expr_rule[expr] - 1;
}

Str nfa_rule_name(const NfaBuild *b, int rule) {
    return b->named[rule] < 0 ? str_of("a repetition") : b->rules->rules[b->named[rule]].name;
}

void nfa_write_rules(NfaBuild *b) {
    nfa_node(b, NODE_END, 0, 0, 0, 0);
    nfa_called(b, b->rules->start);
    for (int i = 0; i < b->nfa->n_rules && !b->too_large; i++) {
        int start = nfa_expr(b, b->exprs[i], NFA_END); // may add rules
        b->nfa->rules[i].start = start;
    }
}

void nfa_build_free(NfaBuild *b) {
    free(b->inlined);
    free(b->size);
    free(b->rule_of);
    free(b->expr_rule);
    free(b->exprs);
    free(b->named);
    free(b->known);
    free(b->known_node);
}
