// grammar/nfa_build.h: the state of building an Nfa: which rules are inlined, and the nodes written so far.
#ifndef QUILL_NFA_BUILD_H
#define QUILL_NFA_BUILD_H

#include "grammar/nfa.h"

enum { NFA_MOST_NODES = 1 << 21 };

typedef struct {
    const Rules *rules;
    Nfa *nfa;
    bool repeats; // the body of a long repeat may become a rule that is called
    bool too_large;
    int64_t work; // nodes visited for products, of the whole grammar
    Status failed;
    bool *inlined;  // (rules->n_rules)
    int *size;      // (rules->n_exprs) estimated nodes of an expression; -1: unknown
    int *rule_of;   // (rules->n_rules) the rule's number in the Nfa + 1; 0: none yet
    int *expr_rule; // (rules->n_exprs) the same for expressions that became rules
    int *exprs;     // (nfa->n_rules) the expression of each rule of the Nfa
    int *named;     // (nfa->n_rules) its rule in `rules`; -1: none
    int cap_rules;
    uint64_t *known; // hash table of the (expression, next) pairs that are written; known_node has their first nodes
    int *known_node;
    uint32_t known_mask;
    int n_known;
} NfaBuild;

// Checks that all rules are defined, and decides which are inlined. QUILL_USAGE.
Status nfa_plan(NfaBuild *b);
void nfa_write_rules(NfaBuild *b); // writes the root and all rules that are called from there
int nfa_size(const NfaBuild *b, int expr);
int nfa_called(NfaBuild *b, int rule);          // the number of a rule in the Nfa, which is given at the first call
int nfa_called_expr(NfaBuild *b, int expr);     // the same for an expression that becomes a rule
Str nfa_rule_name(const NfaBuild *b, int rule); // rule: a number in the Nfa
void nfa_build_free(NfaBuild *b);

int nfa_node(NfaBuild *b, NfaNodeKind kind, int low, int high, int to, int other);
int nfa_expr(NfaBuild *b, int expr, int next); // writes an expression that ends at `next`; returns its first node

#endif
