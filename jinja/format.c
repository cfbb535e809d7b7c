// jinja/format.c: see jinja/format.h.
#include "jinja/format.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- specifications -------------------------------------------------------------------------------------------------

typedef struct {
    char fill, align;     // align 0: the default of the value's type
    char sign, group;     // 0: none
    bool other, zero;     // # and 0
    int width, precision; // precision < 0: none
    char kind;            // 0: none
    bool trusted;         // the trust of the specification's bytes
    Str text;             // for messages
} FormatSpec;

static void invalid(Heap *h, const FormatSpec *s, Value v) {
    heap_fail(h, "format: a specification for a value of type %s expected, found \"%.*s\"", value_type_name(v),
              int_min((int)s->text.n, 64), s->text.data);
}

// Whether the character at i is one of these; it is written to *out.
static bool take(Str s, size_t *i, const char *of, char *out) {
    if (*i >= s.n || !s.data[*i] || !strchr(of, s.data[*i])) return false;
    *out = s.data[(*i)++];
    return true;
}

static FormatSpec read_spec(Heap *h, MarkedText t, Value v) {
    Str s = text_str(t);
    FormatSpec out = {.fill = ' ', .precision = -1, .trusted = text_trusted(t), .text = s};
    size_t i = 0, second = 1;
    char any;
    if (s.n > 1 && take(s, &second, "<>=^", &out.align)) {
        out.fill = s.data[0];
        i = 2;
    } else take(s, &i, "<>=^", &out.align);
    take(s, &i, "+- ", &out.sign);
    out.other = take(s, &i, "#", &any);
    out.zero = take(s, &i, "0", &any);
    if (out.zero && !out.align) out.fill = '0';
    i = text_width(h, s, i, &out.width);
    take(s, &i, ",_", &out.group);
    if (i < s.n && s.data[i] == '.') {
        size_t digits = ++i;
        i = text_width(h, s, i, &out.precision);
        if (i == digits) invalid(h, &out, v);
    }
    take(s, &i, "sdboxXeEfFgG%", &out.kind);
    if (i != s.n || (unsigned char)out.fill >= 0x80) invalid(h, &out, v);
    return out;
}

// ---- values ---------------------------------------------------------------------------------------------------------

static void put_fill(TextOut *out, const FormatSpec *s, int64_t n) {
    for (int64_t i = 0; i < n && heap_work(out->h, 1); i++) text_put_bytes(out, &s->fill, 1, s->trusted);
}

static void put_text(TextOut *out, const FormatSpec *s, Value v) {
    Heap *h = out->h;
    if (s->sign || s->group || s->other || (s->kind && s->kind != 's') || s->align == '=') invalid(h, s, v);
    if (h->failed.code) return;
    MarkedText t = *v.text;
    int64_t n = value_length(h, v);
    if (s->precision >= 0 && s->precision < n) {
        t = text_slice(h, t, 0, s->precision, 1);
        n = s->precision;
    }
    int64_t all = s->width > n ? s->width - n : 0, left = s->align == '>' ? all : s->align == '^' ? all / 2 : 0;
    put_fill(out, s, left);
    text_put(out, t);
    put_fill(out, s, all - left);
}

// Digits of a whole number, without its sign.
static void whole_digits(const FormatSpec *s, uint64_t n, Buf *out) {
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    unsigned base = s->kind == 'b' ? 2 : s->kind == 'o' ? 8 : s->kind == 'x' || s->kind == 'X' ? 16 : 10;
    char digits[64];
    size_t i = sizeof digits;
    do digits[--i] = (s->kind == 'X' ? upper : lower)[n % base];
    while (n /= base);
    buf_append(out, digits + i, sizeof digits - i);
}

// Digits of a number, without its sign; false: the type has no such form.
static bool number_digits(const FormatSpec *s, Value v, Buf *out) {
    bool whole = s->kind ? strchr("dboxX", s->kind) != NULL : !value_is(v, V_FLOAT);
    if (whole && (value_is(v, V_FLOAT) || s->precision >= 0)) return false;
    if (whole) {
        int64_t i = value_is(v, V_INT) ? v.i : v.b;
        whole_digits(s, i < 0 ? 0 - (uint64_t)i : (uint64_t)i, out);
        return true;
    }
    double x = fabs(value_number(v));
    if (!s->kind || s->kind == 's') return false; // put_number prints a float without a type
    char spec[8], kind = s->kind == '%' ? 'f' : s->kind;
    snprintf(spec, sizeof spec, "%%%s.*%c", s->other ? "#" : "", kind);
    buf_printf(out, spec, s->precision < 0 ? 6 : s->precision, s->kind == '%' ? x * 100 : x);
    if (s->kind == '%') buf_str(out, "%");
    return true;
}

// Copies digits and puts a separator between groups of three in front of the point.
static void group_digits(const Buf *digits, char separator, Buf *out) {
    size_t whole = strspn(digits->data, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0) buf_append(out, &separator, 1);
        buf_append(out, digits->data + i, 1);
    }
    buf_str(out, digits->data + whole);
}

// Puts a number, whose digits are known, with its sign, its prefix and its padding.
static void put_digits(TextOut *out, const FormatSpec *s, Value v, const Buf *digits) {
    bool minus = value_is(v, V_FLOAT) ? signbit(v.f) && !isnan(v.f) : value_number(v) < 0;
    char front[4] = "";
    size_t n = 0;
    if (minus || s->sign == '+' || s->sign == ' ') front[n++] = minus ? '-' : s->sign;
    if (s->other && s->kind && strchr("boxX", s->kind)) {
        front[n++] = '0';
        front[n++] = s->kind;
    }
    char align = s->align ? s->align : s->zero ? '=' : '>';
    int64_t have = (int64_t)(n + digits->n), all = s->width > have ? s->width - have : 0;
    int64_t left = align == '>' ? all : align == '^' ? all / 2 : 0;
    bool trusted = s->trusted && !v.foreign;
    put_fill(out, s, left);
    text_put_bytes(out, front, n, trusted);
    if (align == '=') put_fill(out, s, all);
    text_put_bytes(out, digits->data, digits->n, trusted);
    if (align != '=') put_fill(out, s, all - left);
}

static void put_number(TextOut *out, const FormatSpec *s, Value v) {
    Heap *h = out->h;
    Buf digits = {0}, grouped = {0};
    buf_str(&digits, "");
    buf_str(&grouped, "");
    bool decimal = !s->kind || !strchr("boxX", s->kind), padded = s->zero || s->align == '=';
    if (!s->kind && value_is(v, V_FLOAT) && s->precision < 0 && !s->other) {
        MarkedText t = value_str(h, value_float(fabs(v.f)));
        buf_append(&digits, t.data, t.n);
    } else if (!number_digits(s, v, &digits)) invalid(h, s, v);
    if (s->group && (!decimal || padded)) invalid(h, s, v);
    if (s->group) group_digits(&digits, s->group, &grouped);
    if (!h->failed.code) put_digits(out, s, v, s->group ? &grouped : &digits);
    buf_free(&digits);
    buf_free(&grouped);
}

// ---- fields ---------------------------------------------------------------------------------------------------------

static Value find_argument(Heap *h, Str field, const JinjaArgs *a, size_t *next) {
    bool number = true;
    int64_t index = 0;
    for (size_t i = 0; i < field.n; i++) {
        number = number && field.data[i] >= '0' && field.data[i] <= '9' && i < 9;
        index = number ? index * 10 + field.data[i] - '0' : 0;
    }
    if (field.n == 0) index = (int64_t)(*next)++;
    const Value *named = !number && a->named ? dict_get_str(a->named, field) : NULL;
    if (named) return *named;
    if (number && (size_t)index < a->n) return a->items[index];
    heap_fail(h, "format: the argument {%.*s} expected, not found", int_min((int)field.n, 64), field.data);
    return value_none();
}

// Puts a field, the text between the braces.
static void put_field(TextOut *out, MarkedText field, const JinjaArgs *a, size_t *next) {
    Heap *h = out->h;
    const char *colon = memchr(field.data, ':', field.n);
    size_t n = colon ? (size_t)(colon - field.data) : field.n;
    char how = n >= 2 && field.data[n - 2] == '!' ? field.data[n - 1] : 0;
    Value v = find_argument(h, (Str){field.data, how ? n - 2 : n}, a, next);
    if (how && how != 'r' && how != 's') heap_fail(h, "format: !r or !s expected, found !%c", how);
    if (h->failed.code) return;
    bool empty = !colon || n + 1 == field.n;
    if (how) {
        TextOut own = {.h = h};
        if (how == 'r') print_repr(&own, v);
        else print_str(&own, v);
        v = value_text(h, text_done(&own));
    }
    if (empty) {
        print_str(out, v);
        return;
    }
    FormatSpec s = read_spec(h, text_cut(field, n + 1, field.n - n - 1), v);
    if (h->failed.code) return;
    if (value_is(v, V_STRING)) put_text(out, &s, v);
    else if (value_is_number(v)) put_number(out, &s, v);
    else heap_fail(h, "unsupported format string passed to %s.__format__", value_type_name(v));
}

MarkedText format_braces(Heap *h, MarkedText f, const JinjaArgs *a) {
    TextOut out = {.h = h};
    size_t next = 0;
    heap_work(h, f.n / 8);
    for (size_t i = 0; i < f.n && !h->failed.code; i++) {
        char c = f.data[i];
        bool twice = i + 1 < f.n && f.data[i + 1] == c;
        if (c != '{' || twice) {
            text_put(&out, text_cut(f, i, 1));
            i += (c == '{' || c == '}') && twice;
            continue;
        }
        const char *end = memchr(f.data + i, '}', f.n - i);
        size_t n = end ? (size_t)(end - f.data) - i - 1 : 0;
        if (!end || memchr(f.data + i + 1, '{', n)) heap_fail(h, "format: {} or {name} expected");
        if (!h->failed.code) put_field(&out, text_cut(f, i + 1, n), a, &next);
        i += n + 1;
    }
    return text_done(&out);
}
