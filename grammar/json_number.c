// grammar/json_number.c: see grammar/json_number.h.
#include "grammar/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 16, MOST_MULTIPLE = 200 };
static const int64_t LARGEST = 9999999999999999; // the largest number of 16 digits

static int digit(Rules *r, int low, int high) {
    return rules_class(r, &(CharRange){(uint32_t)('0' + low), (uint32_t)('0' + high)}, 1);
}

static int text(Rules *r, const char *s) { return rules_text(r, s, strlen(s)); }

// ---- ranges ---------------------------------------------------------------------------------------------------------

// Texts of n digits from `low` to `high`, with a decimal point before digit `point` (-1: none).
static int digits_between(Rules *r, const char *low, const char *high, int n, int point) {
    if (n == 0) return rules_seq(r, NULL, 0);
    static const char zeros[] = "0000000000000000000000", nines[] = "9999999999999999999999";
    int ways[3], n_ways = 0, from = low[0] - '0', to = high[0] - '0', dot = point == 0 ? text(r, ".") : -1;
    if (from == to)
        ways[n_ways++] = rules_pair(r, digit(r, from, from), digits_between(r, low + 1, high + 1, n - 1, point - 1));
    else {
        if (strncmp(low + 1, zeros, (size_t)n - 1) != 0) {
            ways[n_ways++] = rules_pair(r, digit(r, from, from), digits_between(r, low + 1, nines, n - 1, point - 1));
            from++;
        }
        if (strncmp(high + 1, nines, (size_t)n - 1) != 0) {
            ways[n_ways++] = rules_pair(r, digit(r, to, to), digits_between(r, zeros, high + 1, n - 1, point - 1));
            to--;
        }
        if (from <= to)
            ways[n_ways++] = rules_pair(r, digit(r, from, to), digits_between(r, zeros, nines, n - 1, point - 1));
    }
    int e = rules_alt(r, ways, n_ways);
    return dot >= 0 ? rules_pair(r, dot, e) : e;
}

// The numbers low..high in units of 10^-decimals, 0 <= low, without leading zeros.
static int range(Rules *r, int64_t low, int64_t high, int decimals) {
    int ways[40], n_ways = 0;
    int64_t first = 0, last = 9;
    for (int i = 0; i < decimals; i++) last = last * 10 + 9;
    for (int digits = decimals + 1; digits <= 18 && first <= high; digits++) {
        int64_t from = low > first ? low : first, to = high < last ? high : last;
        char a[32], b[32];
        snprintf(a, sizeof a, "%0*lld", digits, (long long)from);
        snprintf(b, sizeof b, "%0*lld", digits, (long long)to);
        if (from <= to) ways[n_ways++] = digits_between(r, a, b, digits, decimals ? digits - decimals : -1);
        first = last + 1;
        last = last * 10 + 9;
    }
    return rules_alt(r, ways, n_ways);
}

// The number of decimals of a bound, at most 6; -1: more.
static int decimals_of(double x) {
    double scale = 1;
    for (int k = 0; k <= 6; k++, scale *= 10)
        if (fabs(x * scale - round(x * scale)) < 1e-9 * fmax(1, fabs(x * scale))) return k;
    return -1;
}

// Writes alternatives for the numbers from low to high, both at least 0, to `ways`; returns their number.
static int positive(Rules *r, const NumberBounds *b, int *ways) {
    int n = 0, decimals = int_max(decimals_of(b->low), decimals_of(b->high));
    int64_t first = (int64_t)ceil(b->low), last = (int64_t)floor(b->high);
    if (b->low_open && b->low == (double)first) first++;
    if (b->high_open && b->high == (double)last) last--;
    if (first <= last) ways[n++] = range(r, first, last, 0);
    if (b->integer) return n;
    int64_t below = (int64_t)floor(b->high) - 1; // numbers from `first` to `below` may have any fraction
    int fraction = rules_pair(r, text(r, "."), rules_repeat(r, digit(r, 0, 9), 1, MOST_DIGITS));
    if (first <= below) ways[n++] = rules_pair(r, range(r, first, below, 0), fraction);
    int more =
        rules_seq(r, (int[]){text(r, "."), rules_repeat(r, digit(r, 0, 9), 0, MOST_DIGITS - 1), digit(r, 1, 9)}, 3);
    bool behind_open = b->low_open && b->low == (double)(first - 1) && first - 1 <= below;
    if (behind_open) ways[n++] = rules_pair(r, range(r, first - 1, first - 1, 0), more);
    decimals = int_max(decimals, 1);
    double scale = pow(10, decimals);
    int64_t from = (int64_t)ceil(b->low * scale - 1e-6), to = (int64_t)floor(b->high * scale + 1e-6);
    if (b->low_open && fabs((double)from - b->low * scale) < 1e-3) from++;
    if (b->high_open && fabs((double)to - b->high * scale) < 1e-3) to--;
    if (from <= to) ways[n++] = range(r, from, to, decimals);
    return n;
}

static Status bounded(Rules *r, const NumberBounds *given, int *expr) {
    NumberBounds b = *given;
    if ((b.has_low && decimals_of(b.low) < 0) || (b.has_high && decimals_of(b.high) < 0))
        return status_error(QUILL_USAGE, "bounds with 6 decimals at most expected, found more");
    double largest = (double)LARGEST;
    if (b.integer) largest = 999999999999999999.0;
    if ((b.has_low && fabs(b.low) > largest / 1e8 && !b.integer) ||
        (b.has_high && fabs(b.high) > largest / 1e8 && !b.integer) || (b.has_low && fabs(b.low) > 1e15) ||
        (b.has_high && fabs(b.high) > 1e15))
        return status_error(QUILL_USAGE, "bounds up to 1e15, of numbers up to 1e8, expected, found larger ones");
    double most = b.integer ? (double)LARGEST : 1e9;
    if (!b.has_low) b.low = -most, b.low_open = false;
    if (!b.has_high) b.high = most, b.high_open = false;
    int ways[12], n = 0;
    NumberBounds part = b;
    if (part.low < 0) part.low = 0, part.low_open = false;
    if (part.low <= part.high) n = positive(r, &part, ways);
    part = b;
    part.low = b.high < 0 ? -b.high : 0;
    part.low_open = b.high < 0 ? b.high_open : true;
    part.high = -b.low;
    part.high_open = b.low_open;
    if (b.low < 0 && part.low <= part.high) {
        int negative[6], m = positive(r, &part, negative);
        if (m) ways[n++] = rules_pair(r, text(r, "-"), rules_alt(r, negative, m));
    }
    *expr = rules_alt(r, ways, n);
    return OK;
}

// ---- multiples ------------------------------------------------------------------------------------------------------

// At most `left` digits that complete a number with remainder `rest` to a multiple of m. known: results, which are
// shared.
static int multiples(Rules *r, int m, int rest, int left, int *known) {
    int *at = &known[rest * (MOST_DIGITS + 1) + left];
    if (*at >= 0) return *at;
    int ways[11], n = 0;
    if (rest == 0) ways[n++] = rules_seq(r, NULL, 0);
    for (int d = 0; d < 10 && left > 0; d++)
        ways[n++] = rules_pair(r, digit(r, d, d), multiples(r, m, (10 * rest + d) % m, left - 1, known));
    return *at = rules_alt(r, ways, n);
}

static int multiples_of(Rules *r, int m) {
    size_t n = (size_t)m * (MOST_DIGITS + 1);
    int *known = mem_alloc(n * sizeof *known), ways[10], n_ways = 0;
    for (size_t i = 0; i < n; i++) known[i] = -1;
    ways[n_ways++] = text(r, "0");
    for (int d = 1; d < 10; d++)
        ways[n_ways++] = rules_pair(r, digit(r, d, d), multiples(r, m, d % m, MOST_DIGITS - 1, known));
    free(known);
    return rules_pair(r, rules_repeat(r, text(r, "-"), 0, 1), rules_alt(r, ways, n_ways));
}

static Status multiple(Rules *r, double m, int *expr) {
    static const struct {
        double m;
        const char *fractions[4];
        int decimals;
    } known[] = {{0.5, {".0", ".5"}, 0},
                 {0.25, {".0", ".25", ".5", ".75"}, 0},
                 {0.1, {NULL}, 1},
                 {0.01, {NULL}, 2},
                 {0.001, {NULL}, 3}};
    if (m == floor(m) && m >= 1 && m <= MOST_MULTIPLE) {
        *expr = multiples_of(r, (int)m);
        return OK;
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (known[i].m != m) continue;
        int ways[4], n = 0;
        for (; n < 4 && known[i].fractions[n]; n++) ways[n] = text(r, known[i].fractions[n]);
        int fraction = n ? rules_alt(r, ways, n)
                         : rules_pair(r, text(r, "."), rules_repeat(r, digit(r, 0, 9), 1, known[i].decimals));
        *expr = rules_pair(r, multiples_of(r, 1), rules_repeat(r, fraction, 0, 1));
        return OK;
    }
    return status_error(QUILL_USAGE,
                        "multipleOf: a whole number up to %d, 0.5, 0.25, 0.1, 0.01 or 0.001 expected, found %g",
                        (int)MOST_MULTIPLE, m);
}

// ---- everything together --------------------------------------------------------------------------------------------

static int any_number(Rules *r, bool integer) {
    int whole = rules_alt(
        r, (int[]){text(r, "0"), rules_pair(r, digit(r, 1, 9), rules_repeat(r, digit(r, 0, 9), 0, MOST_DIGITS - 1))},
        2);
    int minus = rules_repeat(r, text(r, "-"), 0, 1);
    if (integer) return rules_pair(r, minus, whole);
    int fraction = rules_pair(r, text(r, "."), rules_repeat(r, digit(r, 0, 9), 1, MOST_DIGITS));
    int sign = rules_class(r, (CharRange[]){{'+', '+'}, {'-', '-'}}, 2),
        e = rules_class(r, (CharRange[]){{'E', 'E'}, {'e', 'e'}}, 2);
    int exponent = rules_seq(r, (int[]){e, rules_repeat(r, sign, 0, 1), rules_repeat(r, digit(r, 0, 9), 1, 2)}, 3);
    return rules_seq(r, (int[]){minus, whole, rules_repeat(r, fraction, 0, 1), rules_repeat(r, exponent, 0, 1)}, 4);
}

Status json_number_rules(Rules *r, const NumberBounds *b, int *expr) {
    int other;
    if (!b->has_low && !b->has_high && b->multiple == 0) {
        *expr = any_number(r, b->integer);
        return OK;
    }
    if (b->multiple != 0) TRY(multiple(r, b->multiple, expr));
    if (b->multiple != 0 && b->integer && b->multiple < 1) *expr = any_number(r, true);
    if (!b->has_low && !b->has_high) return OK;
    TRY(bounded(r, b, b->multiple != 0 ? &other : expr));
    if (b->multiple != 0) *expr = rules_both(r, *expr, other);
    return OK;
}
