// grammar/json_number.c: see grammar/json_number.h.
#include "grammar/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/json_text.h"

enum { MOST_DIGITS = 16, MOST_MULTIPLE = 200, MOST_DECIMALS = 20 };
static const double BEYOND = 1e16;               // all numbers that are written are below it
static const int64_t LARGEST = 9999999999999999; // the largest number of 16 digits

static int digit(Rules *r, int low, int high) {
    return rules_class(r, &(CharRange){(uint32_t)('0' + low), (uint32_t)('0' + high)}, 1);
}

// ---- whole numbers --------------------------------------------------------------------------------------------------

// Texts of n digits from `low` to `high`.
static int digits_between(Rules *r, const char *low, const char *high, int n) {
    if (n == 0) return rules_seq(r, NULL, 0);
    static const char zeros[] = "0000000000000000000000", nines[] = "9999999999999999999999";
    int ways[3], n_ways = 0, from = low[0] - '0', to = high[0] - '0';
    if (from == to) ways[n_ways++] = rules_pair(r, digit(r, from, from), digits_between(r, low + 1, high + 1, n - 1));
    else {
        if (strncmp(low + 1, zeros, (size_t)n - 1) != 0) {
            ways[n_ways++] = rules_pair(r, digit(r, from, from), digits_between(r, low + 1, nines, n - 1));
            from++;
        }
        if (strncmp(high + 1, nines, (size_t)n - 1) != 0) {
            ways[n_ways++] = rules_pair(r, digit(r, to, to), digits_between(r, zeros, high + 1, n - 1));
            to--;
        }
        if (from <= to) ways[n_ways++] = rules_pair(r, digit(r, from, to), digits_between(r, zeros, nines, n - 1));
    }
    return rules_alt(r, ways, n_ways);
}

// The whole numbers low..high, 0 <= low, without leading zeros.
static int range(Rules *r, int64_t low, int64_t high) {
    int ways[MOST_DIGITS], n_ways = 0;
    int64_t first = 0, last = 9;
    for (int digits = 1; digits <= MOST_DIGITS && first <= high; digits++) {
        int64_t from = low > first ? low : first, to = high < last ? high : last;
        char a[32], b[32];
        snprintf(a, sizeof a, "%0*lld", digits, (long long)from);
        snprintf(b, sizeof b, "%0*lld", digits, (long long)to);
        if (from <= to) ways[n_ways++] = digits_between(r, a, b, digits);
        first = last + 1;
        last = last * 10 + 9;
    }
    return rules_alt(r, ways, n_ways);
}

// ---- fractions ------------------------------------------------------------------------------------------------------

// One end of a range: the number whole.digits, at least 0.
typedef struct {
    int64_t whole;
    char digits[MOST_DECIMALS + 1]; // of its fraction; the last one is not 0
    bool open;                      // the number itself is not allowed
} NumberEnd;

typedef struct {
    Rules *r;
    bool low_open, high_open;
    int any[MOST_DIGITS + 1]; // any[n]: n digits at most
} Fractions;

static int fraction(const Fractions *f, const char *low, const char *high, int left);

// The texts of `fraction` with at least one digit.
static int fraction_digits(const Fractions *f, const char *low, const char *high, int left) {
    Rules *r = f->r;
    int ways[3], n = 0, from = low && *low ? *low - '0' : 0, to = !high ? 9 : *high ? *high - '0' : 0;
    const char *low_rest = low && *low ? low + 1 : low, *high_rest = high && *high ? high + 1 : high;
    bool none = high && !*high && (low || f->high_open); // the fraction must be below 0, or above 0 and at most 0
    if (left == 0 || none) return rules_alt(r, NULL, 0);
    if (from == to) return rules_pair(r, digit(r, from, from), fraction(f, low_rest, high_rest, left - 1));
    if (low && from < to) {
        ways[n++] = rules_pair(r, digit(r, from, from), fraction(f, low_rest, NULL, left - 1));
        from++;
    }
    if (high && from <= to) {
        ways[n++] = rules_pair(r, digit(r, to, to), fraction(f, NULL, high_rest, left - 1));
        to--;
    }
    if (from <= to) ways[n++] = rules_pair(r, digit(r, from, to), f->any[left - 1]);
    return rules_alt(r, ways, n);
}

// At most `left` digits of a fraction. low, high: the remaining digits of the bounds, which all earlier digits are
// equal to; NULL: an earlier digit is already inside of the bound.
static int fraction(const Fractions *f, const char *low, const char *high, int left) {
    if (low && !*low && !f->low_open) low = NULL; // further digits make the number larger
    if (!low && !high) return f->any[left];
    int digits = fraction_digits(f, low, high, left);
    bool ends = !low && (*high || !f->high_open);
    return ends ? rules_alt(f->r, (int[]){rules_seq(f->r, NULL, 0), digits}, 2) : digits;
}

// What may follow a whole number: nothing, or a point and a fraction.
static int tail(const Fractions *f, const char *low, const char *high) {
    Rules *r = f->r;
    if (low && !*low && !f->low_open) low = NULL;
    bool ends = !low && (!high || *high || !f->high_open);
    int with_point = rules_pair(r, json_text_literal(r, "."), fraction_digits(f, low, high, MOST_DIGITS));
    return ends ? rules_alt(r, (int[]){rules_seq(r, NULL, 0), with_point}, 2) : with_point;
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

// The magnitude of a bound; without one: of the largest number.
static Status read_end(bool given, double x, bool open, NumberEnd *out) {
    char s[64];
    *out = (NumberEnd){.whole = LARGEST};
    if (!given) return OK;
    for (int k = 0; fabs(x) < BEYOND && k <= MOST_DECIMALS; k++) {
        snprintf(s, sizeof s, "%.*f", k, fabs(x));
        if (strtod(s, NULL) != fabs(x)) continue;
        *out = (NumberEnd){.whole = strtoll(s, NULL, 10), .open = open};
        memcpy(out->digits, s + strlen(s) - (size_t)k, (size_t)k);
        return OK;
    }
    return status_error(QUILL_USAGE, "bounds below 1e16 with %d decimals at most expected, found %.17g",
                        (int)MOST_DECIMALS, x);
}

// The numbers from low to high, both at least 0.
static int positive(Rules *r, const NumberEnd *low, const NumberEnd *high, bool integer) {
    int64_t first = low->whole, last = high->whole;
    if (integer) {
        if (low->digits[0] || low->open) first++;
        if (!high->digits[0] && high->open) last--;
        return range(r, first, last);
    }
    Fractions f = {.r = r, .low_open = low->open, .high_open = high->open, .any = {rules_seq(r, NULL, 0)}};
    for (int i = 1; i <= MOST_DIGITS; i++)
        f.any[i] = rules_alt(r, (int[]){f.any[0], rules_pair(r, digit(r, 0, 9), f.any[i - 1])}, 2);
    if (first > last) return rules_alt(r, NULL, 0);
    if (first == last) return rules_pair(r, range(r, first, last), tail(&f, low->digits, high->digits));
    return rules_alt(r,
                     (int[]){rules_pair(r, range(r, first, first), tail(&f, low->digits, NULL)),
                             rules_pair(r, range(r, first + 1, last - 1), tail(&f, NULL, NULL)),
                             rules_pair(r, range(r, last, last), tail(&f, NULL, high->digits))},
                     3);
}

static Status bounded(Rules *r, const NumberBounds *b, int *expr) {
    NumberEnd low, high, zero = {0}, above_zero = {.open = true};
    TRY(read_end(b->has_low && b->low > -BEYOND, b->low, b->low_open, &low));
    TRY(read_end(b->has_high && b->high < BEYOND, b->high, b->high_open, &high));
    bool below_zero = !b->has_low || b->low < 0, over_zero = !b->has_high || b->high >= 0;
    int ways[2], n = 0;
    if (over_zero) ways[n++] = positive(r, below_zero ? &zero : &low, &high, b->integer);
    if (below_zero)
        ways[n++] =
            rules_pair(r, json_text_literal(r, "-"), positive(r, over_zero ? &above_zero : &high, &low, b->integer));
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
    ways[n_ways++] = json_text_literal(r, "0");
    for (int d = 1; d < 10; d++)
        ways[n_ways++] = rules_pair(r, digit(r, d, d), multiples(r, m, d % m, MOST_DIGITS - 1, known));
    free(known);
    return rules_pair(r, rules_repeat(r, json_text_literal(r, "-"), 0, 1), rules_alt(r, ways, n_ways));
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
        for (; n < 4 && known[i].fractions[n]; n++) ways[n] = json_text_literal(r, known[i].fractions[n]);
        int fraction =
            n ? rules_alt(r, ways, n)
              : rules_pair(r, json_text_literal(r, "."), rules_repeat(r, digit(r, 0, 9), 1, known[i].decimals));
        *expr = rules_pair(r, multiples_of(r, 1), rules_repeat(r, fraction, 0, 1));
        return OK;
    }
    return status_error(QUILL_USAGE,
                        "multipleOf: a whole number up to %d, 0.5, 0.25, 0.1, 0.01 or 0.001 expected, found %g",
                        (int)MOST_MULTIPLE, m);
}

// ---- everything together --------------------------------------------------------------------------------------------

static int any_number(Rules *r, bool integer) {
    int whole = rules_alt(r,
                          (int[]){json_text_literal(r, "0"),
                                  rules_pair(r, digit(r, 1, 9), rules_repeat(r, digit(r, 0, 9), 0, MOST_DIGITS - 1))},
                          2);
    int minus = rules_repeat(r, json_text_literal(r, "-"), 0, 1);
    if (integer) return rules_pair(r, minus, whole);
    int fraction = rules_pair(r, json_text_literal(r, "."), rules_repeat(r, digit(r, 0, 9), 1, MOST_DIGITS));
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

// ---- single numbers -------------------------------------------------------------------------------------------------

static bool is_multiple(double x, double of) {
    if (x == floor(x) && of == floor(of)) return fmod(x, of) == 0;
    double times = x / of; // fractions are rounded: 0.3 is a multiple of 0.1
    return fabs(times - round(times)) <= fmin(1e-3, 1e-9 * fmax(1, fabs(times))) && (round(times) != 0 || x == 0);
}

bool json_number_within(json_t *schema, double x) {
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
    bool fits = true;
    for (int i = 0; i < (int)ARRAY_LEN(keys); i++) {
        const json_t *value = json_object_get(schema, keys[i]);
        if (!json_is_number(value)) continue;
        double y = json_number_value(value);
        if (strcmp(keys[i], "multipleOf") == 0 && !(y > 0)) continue; // stays, and is an error
        bool ok[] = {x >= y, x <= y, x > y, x < y, is_multiple(x, y)};
        fits &= ok[i];
        json_object_del(schema, keys[i]);
    }
    return fits;
}
