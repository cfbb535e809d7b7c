// grammar/nfa.h: rules as a network of nodes that bytes lead through, one part a rule.
//
// Rules that do not recur are written out where they are called, as far as that stays small; the others are called: a
// stack remembers where to go on. Characters are their UTF-8 bytes. A node that cannot reach the end is left out.
#ifndef QUILL_NFA_H
#define QUILL_NFA_H

#include "grammar/rules.h"

enum {
    NFA_END = 0,             // the node where every rule ends
    NFA_FAR = 1 << 28,       // a distance without a way
    NFA_UNSAYABLE = 1 << 14, // what a byte costs that no token says alone
};

typedef enum { NODE_END, NODE_BYTES, NODE_SPLIT, NODE_CALL } NfaNodeKind;

typedef struct {
    uint8_t kind, low, high; // BYTES: low..high lead to `to`
    int32_t to;              // CALL: where to go on behind the rule
    int32_t other;           // SPLIT: the other way; CALL: the rule
} NfaNode;

typedef struct {
    int start;
    bool nullable; // it may be empty
    int order;     // a rule that another one may begin with has a higher one
    int distance;  // bytes of its shortest text
} NfaRule;

typedef struct {
    NfaNode *nodes;
    int *distance; // (n_nodes) bytes to the end of the rule; NFA_FAR: it is never reached
    int n_nodes, cap_nodes;
    NfaRule *rules; // (n_rules) those that are called; rule 0 is the root
    int n_rules;
    uint8_t class_of[256]; // bytes that no node tells apart have the same class
    uint8_t byte_of[256];  // (n_classes) a byte of each; one that a token says alone, where there is one
    int n_classes;
} Nfa;

// sayable: (256) whether some token is this byte alone; NULL: all are. QUILL_USAGE: a rule is missing or begins with
// itself, the grammar admits nothing or is too large; the message has no place in front. nfa_free is due in any case.
Status nfa_build(const Rules *rules, const bool *sayable, Nfa *out);
void nfa_free(Nfa *n);

#endif
