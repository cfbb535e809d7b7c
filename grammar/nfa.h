// grammar/nfa.h: compiles rules into a nondeterministic automaton over bytes, with one network of nodes for each rule.
//
// A rule that does not recurse is inlined where it is called, if that stays small. Other rules are called: the reader
// keeps a stack of where to continue. Characters are encoded as UTF-8. Nodes that cannot reach the end are left out.
#ifndef QUILL_NFA_H
#define QUILL_NFA_H

#include "grammar/rules.h"

enum {
    NFA_END = 0,             // the node where every rule ends
    NFA_FAR = 1 << 28,       // a distance: the end cannot be reached
    NFA_UNSAYABLE = 1 << 14, // what a byte counts in distances if no token consists of that byte alone
};

typedef enum { NODE_END, NODE_BYTES, NODE_SPLIT, NODE_CALL } NfaNodeKind;

typedef struct {
    uint8_t kind, low, high; // BYTES: bytes low..high lead to `to`
    int32_t to;              // the next node; CALL: the node after the called rule
    int32_t other;           // SPLIT: the second next node; CALL: the rule
} NfaNode;

typedef struct {
    int start;
    bool nullable; // it matches the empty text
    int order;     // lower than the order of every rule that this rule may begin with
    int distance;  // bytes of its shortest text, with NFA_UNSAYABLE
} NfaRule;

typedef struct {
    NfaNode *nodes;
    int *distance; // (n_nodes) bytes to the end of the rule; NFA_FAR: the end cannot be reached
    int n_nodes, cap_nodes;
    NfaRule *rules; // (n_rules) the rules that are called; rule 0 is the root
    int n_rules;
    uint8_t class_of[256]; // the class of a byte; bytes that no node distinguishes have the same class
    uint8_t byte_of[256];  // (n_classes) a byte of each class; a sayable one if the class has one
    int n_classes;
    int64_t work; // nodes visited for products (grammar/nfa_both.h)
} Nfa;

// The sum of two distances; NFA_FAR if it is not less.
static inline int nfa_far_sum(int a, int b) { return a + b < NFA_FAR ? a + b : NFA_FAR; }

// sayable: (256) whether some token consists of this byte alone; NULL: all true. QUILL_USAGE: a rule is missing or left
// recursive, the grammar admits no text or is too large; the message does not begin with a position. Call nfa_free even
// after an error.
Status nfa_build(const Rules *rules, const bool *sayable, Nfa *out);
void nfa_free(Nfa *n);

#endif
