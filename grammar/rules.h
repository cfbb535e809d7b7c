// grammar/rules.h: a grammar as rules over characters: the common form of regular expressions, GBNF and JSON Schema.
//
//   Rules r;
//   rules_start(&r);
//   int digit = rules_class(&r, &(CharRange){'0', '9'}, 1);
//   rules_define(&r, rules_rule(&r, str_of("root")), rules_repeat(&r, digit, 1, -1));
//
// An expression is a number and may be used several times. Rules may be recursive, except left recursive.
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
    EXPR_SEQ,    // expressions in order; with none: the empty text
    EXPR_ALT,    // one of several expressions; with none: no text at all
    EXPR_REPEAT, // `least` to `most` times
    EXPR_RULE,   // a rule
    EXPR_BOTH,   // the texts that match two expressions; neither may use a recursive rule
    EXPR_UNTIL,  // least 1: any bytes up to and including the first occurrence of a text; least 0: any bytes without it
} ExprKind;

typedef struct {
    ExprKind kind;
    size_t at;       // offset: TEXT, UNTIL: in `bytes`; CLASS: in `ranges`; SEQ, ALT, REPEAT, BOTH: in `kids`
    int n;           // number of bytes, ranges or kids; RULE: the rule's number
    int least, most; // REPEAT; most -1: no limit
} Expr;

typedef struct {
    Str name; // owned; empty: anonymous
    int expr; // -1: not defined
} Rule;

typedef struct {
    Expr *exprs;
    int n_exprs, cap_exprs;
    Buf bytes, ranges, kids; // chars, CharRanges, ints
    Rule *rules;             // owned
    int n_rules, cap_rules;
    int start;    // the start rule: 0, the rule that was named first
    int *by_name; // hash table of rule + 1
    uint32_t name_mask;
} Rules;

void rules_start(Rules *r);
void rules_free(Rules *r);

int rules_text(Rules *r, const char *bytes, size_t n);
int rules_class(Rules *r, const CharRange *ranges, int n); // in any order; they may overlap
int rules_seq(Rules *r, const int *kids, int n);
int rules_alt(Rules *r, const int *kids, int n);
// The same for expressions that were collected in a Buf of ints.
static inline int rules_seq_of(Rules *r, const Buf *kids) {
    return rules_seq(r, (const int *)(const void *)kids->data, (int)(kids->n / sizeof(int)));
}
static inline int rules_alt_of(Rules *r, const Buf *kids) {
    return rules_alt(r, (const int *)(const void *)kids->data, (int)(kids->n / sizeof(int)));
}
int rules_pair(Rules *r, int a, int b); // a, then b
int rules_repeat(Rules *r, int kid, int least, int most);
int rules_both(Rules *r, int a, int b);
// rules_until: any bytes and control tokens (grammar/vocabulary.h) up to and including the first occurrence of a text.
// rules_without: any bytes that do not contain the text (n 0: any bytes). n is at most RULES_LONGEST_END.
int rules_until(Rules *r, const char *bytes, size_t n);
int rules_without(Rules *r, const char *bytes, size_t n);
int rules_call(Rules *r, int rule);
int rules_rule(Rules *r, Str name); // the rule of this name; creates it if there is none
void rules_define(Rules *r, int rule, int expr);
int rules_anonymous(Rules *r, int expr); // a new rule without a name

// (e->n) the sub-expressions of a SEQ, ALT, REPEAT or BOTH; NULL: none.
static inline const int *rules_kids(const Rules *r, const Expr *e) {
    return r->kids.data ? (const int *)(const void *)(r->kids.data + e->at) : NULL;
}

// Sorts and merges ranges in place, as a class stores them; returns their number. Surrogates may be inside a range:
// they are skipped when a class becomes bytes.
int rules_sort_ranges(CharRange *ranges, int n);
// The complement of sorted ranges; returns the number of ranges. out: (n + 2)
int rules_other_ranges(const CharRange *sorted, int n, CharRange *out);

#endif
