// grammar/nfa_build.h: a network while it is written (grammar/nfa_write.c), and which rules are written out where they
// are called.
#ifndef QUILL_NFA_BUILD_H
#define QUILL_NFA_BUILD_H

#include "grammar/nfa.h"

enum { NFA_MOST_NODES = 1 << 21 };

typedef struct {
    const Rules *rules;
    Nfa *nfa;
    bool repeats; // long repeats may call a rule of their own
    bool too_large;
    Status failed;
    bool *inlined;  // (rules->n_rules)
    int *size;      // (rules->n_exprs) nodes that an expression takes, about; -1: unknown
    int *rule_of;   // (rules->n_rules) its number in the network + 1; 0: none yet
    int *expr_rule; // (rules->n_exprs) the same for expressions with a rule of their own
    int *exprs;     // (nfa->n_rules) what the network's rules are
    int *named;     // (nfa->n_rules) the rule of `rules`, -1: none
    int cap_rules;
    uint64_t *known; // table of (expression, next) that are written already, by known_node
    int *known_node;
    uint32_t known_mask;
    int n_known;
} NfaBuild;

// Checks that all rules are there, and decides what is written out. QUILL_USAGE.
Status nfa_plan(NfaBuild *b);
void nfa_write_rules(NfaBuild *b); // the root, and whatever is called from there
int nfa_size(const NfaBuild *b, int expr);
int nfa_called(NfaBuild *b, int rule); // the network's number of a rule, or of an expression as a rule
int nfa_called_expr(NfaBuild *b, int expr);
Str nfa_rule_name(const NfaBuild *b, int rule); // of the network's
void nfa_build_free(NfaBuild *b);

int nfa_node(NfaBuild *b, NfaNodeKind kind, int low, int high, int to, int other);
int nfa_expr(NfaBuild *b, int expr, int next); // the node where the expression begins that leads to `next`

#endif
