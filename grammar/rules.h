// grammar/rules.h: a grammar as rules over characters: what regular expressions, GBNF and JSON Schema are turned into.
//
//   Rules r;
//   rules_start(&r);
//   int digit = rules_class(&r, &(CharRange){'0', '9'}, 1);
//   rules_define(&r, rules_rule(&r, str_of("root")), rules_repeat(&r, digit, 1, -1));
//
// An expression is a number; expressions may be used several times. Rules may call each other, but for left recursion.
#ifndef QUILL_RULES_H
#define QUILL_RULES_H

#include "base/base.h"

enum { RULES_LONGEST_END = 200 };

typedef struct {
    uint32_t first, last; // code points, both included
} CharRange;

typedef enum {
    EXPR_TEXT,   // bytes
    EXPR_CLASS,  // one character of some ranges
    EXPR_SEQ,    // one after the other; of none: the empty text
    EXPR_ALT,    // one of these; of none: nothing at all
    EXPR_REPEAT, // `least` to `most` times
    EXPR_RULE,   // another rule
    EXPR_BOTH,   // texts of two expressions at once; neither calls a rule
    EXPR_UNTIL,  // any bytes up to a text, which ends them (least 1), or any bytes without it (least 0)
} ExprKind;

typedef struct {
    ExprKind kind;
    size_t at;       // TEXT, UNTIL: in `bytes`; CLASS: in `ranges`; SEQ, ALT, REPEAT, BOTH: in `kids`
    int n;           // of them; RULE: its number
    int least, most; // REPEAT; most -1: without end
} Expr;

typedef struct {
    Str name; // owned; empty: it has none
    int expr; // -1: not defined
} Rule;

typedef struct {
    Expr *exprs;
    int n_exprs, cap_exprs;
    Buf bytes, ranges, kids; // of CharRange; of int
    Rule *rules;             // owned
    int n_rules, cap_rules;
    int start;    // the rule where an answer begins: 0, the one that was named first
    int *by_name; // hash table of rule + 1
    uint32_t name_mask;
} Rules;

void rules_start(Rules *r);
void rules_free(Rules *r);

int rules_text(Rules *r, const char *bytes, size_t n);
int rules_class(Rules *r, const CharRange *ranges, int n); // in any order; they may overlap
int rules_seq(Rules *r, const int *kids, int n);
int rules_alt(Rules *r, const int *kids, int n);
// The same of expressions that were gathered in a Buf of int.
static inline int rules_seq_of(Rules *r, const Buf *kids) {
    return rules_seq(r, (const int *)(const void *)kids->data, (int)(kids->n / sizeof(int)));
}
static inline int rules_alt_of(Rules *r, const Buf *kids) {
    return rules_alt(r, (const int *)(const void *)kids->data, (int)(kids->n / sizeof(int)));
}
int rules_pair(Rules *r, int a, int b); // the two, one after the other
int rules_repeat(Rules *r, int kid, int least, int most);
int rules_both(Rules *r, int a, int b);
// Any bytes, and control tokens (grammar/vocabulary.h), up to the first place of a text of at most RULES_LONGEST_END
// bytes, which is part of it; any bytes that do not have the text in them (of no bytes: any at all).
int rules_until(Rules *r, const char *bytes, size_t n);
int rules_without(Rules *r, const char *bytes, size_t n);
int rules_call(Rules *r, int rule);
int rules_rule(Rules *r, Str name); // the rule of this name, which is made if there is none
void rules_define(Rules *r, int rule, int expr);
int rules_anonymous(Rules *r, int expr); // a new rule without a name

// (e->n) the expressions that a SEQ, ALT, REPEAT or BOTH is made of; NULL: there are none.
static inline const int *rules_kids(const Rules *r, const Expr *e) {
    return r->kids.data ? (const int *)(const void *)(r->kids.data + e->at) : NULL;
}

// The ranges of a class sorted and joined, as a class has them; all other characters. Surrogates are no characters.
int rules_sort_ranges(CharRange *ranges, int n);
int rules_other_ranges(const CharRange *sorted, int n, CharRange *out); // out: (n + 2)

#endif
