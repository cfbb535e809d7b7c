// jinja/number.c: see jinja/number.h.
#include "jinja/number.h"

#include <stdlib.h>
#include <string.h>

// The value of a digit in bases up to 36; 36: not a digit.
static int digit_of(char c) {
    int letter = c | 0x20;
    if (c >= '0' && c <= '9') return c - '0';
    return letter >= 'a' && letter <= 'z' ? letter - 'a' + 10 : 36;
}

// Whether the character at i is a _ that may be there: neither the first nor the last, and not after another.
static bool is_separator(Str s, size_t i) { return s.data[i] == '_' && i > 0 && s.data[i - 1] != '_' && i + 1 < s.n; }

static NumberKind read_digits(Str s, int base, uint64_t *n) {
    NumberKind kind = s.n ? NUMBER_FITS : NUMBER_NONE;
    *n = 0;
    for (size_t i = 0; i < s.n; i++) {
        int digit = digit_of(s.data[i]);
        if (is_separator(s, i)) continue;
        if (digit >= base) return NUMBER_NONE;
        bool large = __builtin_mul_overflow(*n, (uint64_t)base, n);
        if (__builtin_add_overflow(*n, (uint64_t)digit, n) || large) kind = NUMBER_TOO_LARGE;
    }
    return kind;
}

// The base of the prefix that s begins with; 0: none.
static int prefix_base(Str s) {
    int letter = s.n >= 2 && s.data[0] == '0' ? s.data[1] | 0x20 : 0;
    return letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 0;
}

NumberKind number_integer(Str s, int base, int64_t *out) {
    bool minus = s.n && s.data[0] == '-';
    size_t begin = s.n && (minus || s.data[0] == '+');
    Str digits = {s.data + begin, s.n - begin};
    int prefix = prefix_base(digits);
    bool zeros = base == 0 && !prefix && digits.n && digits.data[0] == '0'; // 00 is a number for Python, 010 is not
    if (prefix && (base == 0 || base == prefix)) {
        base = prefix;
        begin = 2 + (digits.n > 2 && digits.data[2] == '_');
        digits = (Str){digits.data + begin, digits.n - begin};
    }
    uint64_t n;
    NumberKind kind = read_digits(digits, base ? base : 10, &n);
    if (zeros && (n || kind == NUMBER_TOO_LARGE)) return NUMBER_NONE;
    if (kind != NUMBER_FITS) return kind;
    if (n > (uint64_t)INT64_MAX + minus) return NUMBER_TOO_LARGE;
    *out = (int64_t)(minus ? 0 - n : n);
    return NUMBER_FITS;
}

bool number_float(Str s, double *out) {
    char plain[401], *end;
    size_t n = 0;
    if (s.n >= sizeof plain) return false;
    for (size_t i = 0; i < s.n; i++) {
        bool separator = is_separator(s, i) && digit_of(s.data[i - 1]) < 10 && digit_of(s.data[i + 1]) < 10;
        if (!s.data[i] || strchr("xXpP()", s.data[i])) return false; // C reads 0x1p3 and nan(1), Python does not
        if (!separator) plain[n++] = s.data[i];
    }
    plain[n] = 0;
    *out = strtod(plain, &end);
    return n && *end == 0;
}
