// grammar/json_text.c: see grammar/json_text.h.
#include "grammar/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"

int json_text_literal(Rules *r, const char *text) { return rules_text(r, text, strlen(text)); }

int json_text_quoted(Rules *r, int content) {
    return rules_seq(r, (int[]){json_text_literal(r, "\""), content, json_text_literal(r, "\"")}, 3);
}

// ---- characters -----------------------------------------------------------------------------------------------------

// Intersects the ranges with [first, last] into `out`; returns the number of ranges.
static int cut(const CharRange *ranges, int n, uint32_t first, uint32_t last, CharRange *out) {
    int m = 0;
    for (int i = 0; i < n; i++) {
        uint32_t low = ranges[i].first > first ? ranges[i].first : first;
        uint32_t high = ranges[i].last < last ? ranges[i].last : last;
        if (low <= high) out[m++] = (CharRange){low, high};
    }
    return m;
}

static int escape(Rules *r, uint32_t c) {
    static const char letters[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    const char *known = c ? strchr(values, (int)c) : NULL;
    char text[8] = {'\\', known ? letters[known - values] : 0};
    if (!known) snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    return json_text_literal(r, text);
}

int json_text_ranges(Rules *r, const CharRange *ranges, int n, void *arg) {
    (void)arg;
    CharRange *part = mem_alloc((4 * (size_t)n + 4) * sizeof *part);
    int ways[40], n_ways = 0;
    int m = cut(ranges, n, 0x20, 0x21, part);
    m += cut(ranges, n, 0x23, 0x5b, part + m);
    m += cut(ranges, n, 0x5d, 0x7e, part + m);
    m += cut(ranges, n, 0x80, 0x10ffff, part + m);
    if (m) ways[n_ways++] = rules_class(r, part, m);
    for (uint32_t c = 1; c <= '\\'; c++) {
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (cut(ranges, n, c, c, part)) ways[n_ways++] = escape(r, c);
    }
    free(part);
    return rules_alt(r, ways, n_ways);
}

static int plain_char(Rules *r) {
    return rules_class(r, (CharRange[]){{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, 0x10ffff}}, 4);
}

static int hex(Rules *r, const char *first, const char *last) { // one hexadecimal digit in the ranges first[i]..last[i]
    CharRange ranges[3];
    int n = 0;
    for (; first[n]; n++) ranges[n] = (CharRange){(unsigned char)first[n], (unsigned char)last[n]};
    return rules_class(r, ranges, n);
}

// n digits that are not all 0.
static int not_zero(Rules *r, int n) {
    int some = rules_pair(r, hex(r, "1Aa", "9Ff"), rules_repeat(r, hex(r, "0Aa", "9Ff"), n - 1, n - 1));
    if (n == 1) return some;
    return rules_alt(r, (int[]){some, rules_pair(r, json_text_literal(r, "0"), not_zero(r, n - 1))}, 2);
}

int json_text_char(Rules *r) {
    int any = hex(r, "0Aa", "9Ff"), d = hex(r, "Dd", "Dd"), u = json_text_literal(r, "\\u");
    int two = rules_repeat(r, any, 2, 2), three = rules_repeat(r, any, 3, 3);
    int ways[] = {
        plain_char(r),
        rules_pair(
            r, json_text_literal(r, "\\"),
            rules_class(
                r,
                (CharRange[]){
                    {'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}},
                8)),
        rules_seq(r,
                  (int[]){u,
                          rules_class(r, (CharRange[]){{'1', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}, 5),
                          three},
                  3),
        rules_seq(r, (int[]){u, json_text_literal(r, "0"), not_zero(r, 3)}, 3), // excludes NUL
        rules_seq(r, (int[]){u, d, hex(r, "0", "7"), two}, 4),
        rules_seq(r, (int[]){u, d, hex(r, "8Aa", "9Bb"), two, u, d, hex(r, "Cc", "Ff"), two}, 8),
    };
    return rules_alt(r, ways, ARRAY_LEN(ways));
}

int json_text_value(Rules *r, const json_t *value) {
    Buf text = {0};
    jsonio_print(value, JSON_ENCODE_ANY | JSON_COMPACT, &text);
    int e = rules_text(r, text.data, text.n);
    buf_free(&text);
    return e;
}

// ---- keys -----------------------------------------------------------------------------------------------------------

typedef struct {
    Rules *r;
    int plain, rest; // expressions for a character and for any number of them
} OtherKey;

static int compare_names(const void *a, const void *b) {
    const Str *x = a, *y = b;
    int order = memcmp(x->data, y->data, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

// The continuations after the first `at` bytes, which the n names have in common, that lead to none of the names.
static int other_rest(OtherKey *o, const Str *names, int n, size_t at) {
    CharRange *begins = mem_alloc(((size_t)n + 1) * sizeof *begins);
    int *ways = mem_alloc(((size_t)n + 2) * sizeof *ways), n_ways = 0, n_begins = 0, i = 0;
    bool whole = n > 0 && names[0].n == at; // the first name ends here
    while (i < n && names[i].n == at) i++;
    while (i < n) {
        uint32_t c = 0, other = 0;
        int len = int_max(1, utf8_read(names[i].data + at, names[i].n - at, &c)), end = i;
        while (end < n && utf8_read(names[end].data + at, names[end].n - at, &other) == len && other == c) end++;
        if (end == i) end++;
        begins[n_begins++] = (CharRange){c, c};
        bool plain = c >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
        if (plain) {
            int first = rules_class(o->r, &(CharRange){c, c}, 1);
            ways[n_ways++] = rules_pair(o->r, first, other_rest(o, names + i, end - i, at + (size_t)len));
        }
        i = end;
    }
    static const CharRange special[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}, {0x7f, 0x7f}};
    CharRange *all = mem_alloc(((size_t)n_begins + 4) * sizeof *all),
              *rest = mem_alloc(((size_t)n_begins + 6) * sizeof *rest);
    memcpy(all, special, sizeof special);
    memcpy(all + 4, begins, (size_t)n_begins * sizeof *all);
    int n_rest = rules_other_ranges(all, rules_sort_ranges(all, n_begins + 4), rest);
    int free_way = rules_pair(o->r, rules_class(o->r, rest, n_rest), o->rest);
    ways[n_ways++] = whole ? free_way : rules_repeat(o->r, free_way, 0, 1);
    free(begins);
    free(all);
    free(rest);
    int e = rules_alt(o->r, ways, n_ways);
    free(ways);
    return e;
}

int json_text_other_key(Rules *r, const Str *names, int n) {
    OtherKey o = {.r = r, .plain = plain_char(r)};
    o.rest = rules_repeat(r, o.plain, 0, -1);
    Str *sorted = mem_alloc(((size_t)n + 1) * sizeof *sorted);
    if (n) memcpy(sorted, names, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_names);
    int e = json_text_quoted(r, other_rest(&o, sorted, n, 0));
    free(sorted);
    return e;
}
