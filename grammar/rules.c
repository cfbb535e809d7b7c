// grammar/rules.c: see grammar/rules.h.
#include "grammar/rules.h"

#include <stdlib.h>
#include <string.h>

void rules_start(Rules *r) {
    *r = (Rules){.name_mask = 63};
    r->by_name = mem_alloc(64 * sizeof *r->by_name);
}

void rules_free(Rules *r) {
    free(r->exprs);
    for (int i = 0; i < r->n_rules; i++) free((void *)r->rules[i].name.data);
    free(r->rules);
    free(r->by_name);
    buf_free(&r->bytes);
    buf_free(&r->ranges);
    buf_free(&r->kids);
    *r = (Rules){0};
}

static int add(Rules *r, Expr e) {
    if (r->n_exprs == r->cap_exprs) {
        r->cap_exprs = r->cap_exprs ? 2 * r->cap_exprs : 64;
        r->exprs = mem_resize(r->exprs, (size_t)r->cap_exprs * sizeof *r->exprs);
    }
    r->exprs[r->n_exprs] = e;
    return r->n_exprs++;
}

int rules_text(Rules *r, const char *bytes, size_t n) {
    size_t at = r->bytes.n;
    buf_append(&r->bytes, bytes, n);
    return add(r, (Expr){.kind = EXPR_TEXT, .at = at, .n = (int)n});
}

static int add_until(Rules *r, const char *bytes, size_t n, int least) {
    size_t at = r->bytes.n;
    buf_append(&r->bytes, bytes, n < RULES_LONGEST_END ? n : RULES_LONGEST_END);
    return add(r, (Expr){.kind = EXPR_UNTIL, .at = at, .n = (int)(r->bytes.n - at), .least = least});
}

int rules_until(Rules *r, const char *bytes, size_t n) { return add_until(r, bytes, n, 1); }

int rules_without(Rules *r, const char *bytes, size_t n) { return add_until(r, bytes, n, 0); }

static int compare_ranges(const void *a, const void *b) {
    const CharRange *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

int rules_sort_ranges(CharRange *ranges, int n) {
    if (n == 0) return 0;
    qsort(ranges, (size_t)n, sizeof *ranges, compare_ranges);
    int kept = 0;
    for (int i = 1; i < n; i++) {
        if (ranges[i].first > ranges[kept].last + 1) ranges[++kept] = ranges[i];
        else if (ranges[i].last > ranges[kept].last) ranges[kept].last = ranges[i].last;
    }
    return kept + 1;
}

int rules_other_ranges(const CharRange *sorted, int n, CharRange *out) {
    uint32_t next = 0;
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (sorted[i].first > next) out[m++] = (CharRange){next, sorted[i].first - 1};
        next = sorted[i].last + 1;
    }
    if (next <= 0x10ffff) out[m++] = (CharRange){next, 0x10ffff};
    return m;
}

int rules_class(Rules *r, const CharRange *ranges, int n) {
    size_t at = r->ranges.n;
    buf_append(&r->ranges, ranges, (size_t)n * sizeof *ranges);
    int sorted = n ? rules_sort_ranges((CharRange *)(void *)(r->ranges.data + at), n) : 0;
    r->ranges.n = at + (size_t)sorted * sizeof *ranges;
    return add(r, (Expr){.kind = EXPR_CLASS, .at = at, .n = sorted});
}

static int add_kids(Rules *r, ExprKind kind, const int *kids, int n) {
    size_t at = r->kids.n;
    buf_append(&r->kids, kids, (size_t)n * sizeof *kids);
    return add(r, (Expr){.kind = kind, .at = at, .n = n});
}

int rules_seq(Rules *r, const int *kids, int n) { return n == 1 ? kids[0] : add_kids(r, EXPR_SEQ, kids, n); }

int rules_alt(Rules *r, const int *kids, int n) { return n == 1 ? kids[0] : add_kids(r, EXPR_ALT, kids, n); }

int rules_pair(Rules *r, int a, int b) { return rules_seq(r, (int[]){a, b}, 2); }

int rules_both(Rules *r, int a, int b) { return add_kids(r, EXPR_BOTH, (int[]){a, b}, 2); }

int rules_repeat(Rules *r, int kid, int least, int most) {
    if (least == 1 && most == 1) return kid;
    int e = add_kids(r, EXPR_REPEAT, &kid, 1);
    r->exprs[e].least = least;
    r->exprs[e].most = most;
    return e;
}

int rules_call(Rules *r, int rule) { return add(r, (Expr){.kind = EXPR_RULE, .n = rule}); }

// ---- rules by name --------------------------------------------------------------------------------------------------

static uint32_t name_hash(Str name) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < name.n; i++) h = (h ^ (unsigned char)name.data[i]) * 16777619u;
    return h;
}

static int new_rule(Rules *r, Str name) {
    if (r->n_rules == r->cap_rules) {
        r->cap_rules = r->cap_rules ? 2 * r->cap_rules : 16;
        r->rules = mem_resize(r->rules, (size_t)r->cap_rules * sizeof *r->rules);
    }
    r->rules[r->n_rules] = (Rule){{mem_copy(name.data ? name.data : "", name.n), name.n}, -1};
    return r->n_rules++;
}

static void insert_name(Rules *r, int rule) {
    uint32_t at = name_hash(r->rules[rule].name) & r->name_mask;
    while (r->by_name[at]) at = (at + 1) & r->name_mask;
    r->by_name[at] = rule + 1;
}

int rules_rule(Rules *r, Str name) {
    for (uint32_t at = name_hash(name) & r->name_mask; r->by_name[at]; at = (at + 1) & r->name_mask)
        if (str_eq(r->rules[r->by_name[at] - 1].name, name)) return r->by_name[at] - 1;
    int rule = new_rule(r, name);
    if ((uint32_t)r->n_rules > r->name_mask / 2) {
        r->name_mask = 2 * r->name_mask + 1;
        free(r->by_name);
        r->by_name = mem_alloc(((size_t)r->name_mask + 1) * sizeof *r->by_name);
        for (int i = 0; i < r->n_rules; i++)
            if (r->rules[i].name.n) insert_name(r, i);
    } else insert_name(r, rule);
    return rule;
}

int rules_anonymous(Rules *r, int expr) {
    int rule = new_rule(r, (Str){"", 0});
    r->rules[rule].expr = expr;
    return rule;
}

void rules_define(Rules *r, int rule, int expr) { r->rules[rule].expr = expr; }
