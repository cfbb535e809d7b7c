// jinja/print.c: see jinja/print.h.
#define _GNU_SOURCE
#include "jinja/print.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- str and repr ---------------------------------------------------------------------------------------------------

// Prints the shortest digits that read back as the same number, in Python's form.
static void format_float(double f, char out[40]) {
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char shortest[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(shortest, sizeof shortest, "%.*e", digits - 1, f);
        if (strtod(shortest, NULL) == f) break;
    }
    int exponent = atoi(strchr(shortest, 'e') + 1), digits = 0;
    for (const char *c = shortest; *c != 'e'; c++) digits += isdigit((unsigned char)*c) != 0;
    if (exponent >= -4 && exponent < 16) {
        int after = int_max(1, digits - 1 - exponent);
        snprintf(out, 40, "%.*f", after, f);
    } else
        snprintf(out, 40, "%.*se%c%02d", (int)(strchr(shortest, 'e') - shortest), shortest, exponent < 0 ? '-' : '+',
                 abs(exponent));
}

static void escape_char(TextOut *out, uint32_t c, const char *bytes, size_t n, char quote, bool trusted) {
    char text[16];
    const char *plain = c < 0x80 ? strchr("\n\r\t", (int)c) : NULL;
    if (c == '\\' || c == (uint32_t)quote) snprintf(text, sizeof text, "\\%c", (char)c);
    else if (plain && c) snprintf(text, sizeof text, "\\%c", *plain == '\n' ? 'n' : *plain == '\r' ? 'r' : 't');
    else if (text_is_printable(c)) {
        text_put_bytes(out, bytes, n, trusted);
        return;
    } else if (c < 0x100 || c > 0x10ffff) snprintf(text, sizeof text, "\\x%02x", c & 0xff);
    else snprintf(text, sizeof text, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    text_put_str(out, text, trusted);
}

static void repr_text(TextOut *out, MarkedText t) {
    bool single = memchr(t.data, '\'', t.n) != NULL, twice = memchr(t.data, '"', t.n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    text_put_bytes(out, &quote, 1, false);
    for (size_t i = 0; i < t.n && !out->h->failed.code;) {
        uint32_t c;
        size_t len = (size_t)text_char(t.data + i, t.n - i, &c);
        escape_char(out, c, t.data + i, len, quote, t.marks ? t.marks[i] : t.trusted);
        i += len;
    }
    text_put_bytes(out, &quote, 1, false);
}

static void repr_items(TextOut *out, Value v) {
    const List *l = v.list;
    bool tuple = value_is(v, V_TUPLE);
    text_put_str(out, tuple ? "(" : "[", false);
    for (size_t i = 0; i < l->n && !out->h->failed.code; i++) {
        if (i) text_put_str(out, ", ", false);
        print_repr(out, l->items[i]);
    }
    text_put_str(out, tuple && l->n == 1 ? ",)" : tuple ? ")" : "]", false);
}

static void repr_dict(TextOut *out, const Dict *d) {
    text_put_str(out, "{", false);
    for (size_t i = 0; i < d->n && !out->h->failed.code; i++) {
        if (i) text_put_str(out, ", ", false);
        print_repr(out, d->keys[i]);
        text_put_str(out, ": ", false);
        print_repr(out, d->values[i]);
    }
    text_put_str(out, "}", false);
}

static void repr_view(TextOut *out, Value v) {
    text_put_str(out, v.list->name, false);
    text_put_str(out, "(", false);
    repr_items(out, (Value){.type = V_LIST, .list = v.list});
    text_put_str(out, ")", false);
}

static void repr_range(TextOut *out, Value v) {
    const int64_t *range = v.list->range;
    char text[96];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)range[0], (long long)range[1]);
    if (range[2] != 1) n += snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)range[2]);
    snprintf(text + n, sizeof text - (size_t)n, ")");
    text_put_str(out, text, !v.foreign);
}

static void repr_scalar(TextOut *out, Value v) {
    char text[40];
    if (value_is(v, V_NONE)) snprintf(text, sizeof text, "None");
    else if (value_is(v, V_BOOL)) snprintf(text, sizeof text, v.b ? "True" : "False");
    else if (value_is(v, V_INT)) snprintf(text, sizeof text, "%lld", (long long)v.i);
    else format_float(v.f, text);
    text_put_str(out, text, !v.foreign);
}

void print_repr(TextOut *out, Value v) {
    if (!heap_work(out->h, 1) || !heap_enter(out->h)) return;
    switch ((ValueType)v.type) {
    case V_UNDEFINED: text_put_str(out, "Undefined", true); break;
    case V_NONE:
    case V_BOOL:
    case V_INT:
    case V_FLOAT: repr_scalar(out, v); break;
    case V_STRING: repr_text(out, *v.text); break;
    case V_LIST:
    case V_TUPLE: repr_items(out, v); break;
    case V_RANGE: repr_range(out, v); break;
    case V_VIEW: repr_view(out, v); break;
    case V_DICT: repr_dict(out, v.dict); break;
    case V_NAMESPACE:
        text_put_str(out, "<Namespace ", true);
        repr_dict(out, v.dict);
        text_put_str(out, ">", true);
        break;
    default: // Python prints an address
        text_put_str(out, "<", true);
        text_put_str(out, value_type_name(v), true);
        text_put_str(out, ">", true);
    }
    heap_leave(out->h);
}

void print_str(TextOut *out, Value v) {
    if (value_is(v, V_STRING)) text_put(out, *v.text);
    else if (!value_is(v, V_UNDEFINED)) print_repr(out, v);
}

MarkedText value_str(Heap *h, Value v) {
    if (value_is(v, V_STRING)) return *v.text;
    TextOut out = {.h = h};
    print_str(&out, v);
    return text_done(&out);
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static void json_value(TextOut *out, Value v, const JsonStyle *s, int depth);

static void json_char(TextOut *out, uint32_t c, const char *bytes, size_t n, bool ascii, bool trusted) {
    static const char special[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    char text[16];
    const char *found = c && c < 0x80 ? strchr(special, (int)c) : NULL;
    if (c > 0x10ffff) c = 0xfffd, bytes = "\xef\xbf\xbd", n = 3;
    if (found) snprintf(text, sizeof text, "\\%c", letter[found - special]);
    else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) snprintf(text, sizeof text, "\\u%04x", c);
    else if (ascii && c >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    else {
        text_put_bytes(out, bytes, n, trusted);
        return;
    }
    text_put_str(out, text, trusted);
}

static void json_text(TextOut *out, MarkedText t, const JsonStyle *s) {
    text_put_str(out, "\"", false);
    for (size_t i = 0; i < t.n && !out->h->failed.code;) {
        uint32_t c;
        size_t len = (size_t)text_char(t.data + i, t.n - i, &c);
        json_char(out, c, t.data + i, len, s->ascii, t.marks ? t.marks[i] : t.trusted);
        i += len;
    }
    text_put_str(out, "\"", false);
}

static void json_break(TextOut *out, const JsonStyle *s, int depth) {
    if (s->indent < 0) return;
    text_put_str(out, "\n", false);
    for (int i = 0; s->by && i < depth && !out->h->failed.code; i++) text_put(out, *s->by);
    if (s->by) return;
    for (int64_t i = 0; i < (int64_t)s->indent * depth && !out->h->failed.code; i++) text_put_str(out, " ", false);
}

static void json_between(TextOut *out, const JsonStyle *s) {
    if (s->between) text_put(out, *s->between);
    else text_put_str(out, s->indent < 0 ? ", " : ",", false);
}

static void json_list(TextOut *out, const List *l, const JsonStyle *s, int depth) {
    text_put_str(out, "[", false);
    for (size_t i = 0; i < l->n && !out->h->failed.code; i++) {
        if (i) json_between(out, s);
        json_break(out, s, depth + 1);
        json_value(out, l->items[i], s, depth + 1);
    }
    if (l->n) json_break(out, s, depth);
    text_put_str(out, "]", false);
}

static void json_scalar(TextOut *out, Value v) {
    if (value_is(v, V_NONE)) text_put_str(out, "null", false);
    else if (value_is(v, V_BOOL)) text_put_str(out, v.b ? "true" : "false", false);
    else if (value_is(v, V_FLOAT) && !isfinite(v.f))
        text_put_str(out, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity", false);
    else repr_scalar(out, v);
}

static void json_key(TextOut *out, Value key, const JsonStyle *s) {
    if (value_is(key, V_STRING)) json_text(out, *key.text, s);
    else if (value_is_number(key) || value_is(key, V_NONE)) {
        text_put_str(out, "\"", false);
        json_scalar(out, key);
        text_put_str(out, "\"", false);
    } else heap_fail(out->h, "tojson: keys must be str, int, float, bool or None, not %s", value_type_name(key));
    if (s->after_key) text_put(out, *s->after_key);
    else text_put_str(out, ": ", false);
}

// The order in which entries are written: the dict's own, or sorted by key. Insertion sort, since dicts of tools are
// small.
static size_t *key_order(Heap *h, const Dict *d, bool sorted) {
    size_t *order = heap_alloc(h, d->n * sizeof *order);
    for (size_t i = 0; i < d->n && !h->failed.code; i++) {
        size_t at = i;
        for (; sorted && at > 0 && value_compare(h, d->keys[order[at - 1]], d->keys[i], "<") > 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

static void json_dict(TextOut *out, const Dict *d, const JsonStyle *s, int depth) {
    size_t *order = key_order(out->h, d, s->sort_keys);
    text_put_str(out, "{", false);
    for (size_t i = 0; i < d->n && !out->h->failed.code; i++) {
        if (i) json_between(out, s);
        json_break(out, s, depth + 1);
        json_key(out, d->keys[order[i]], s);
        json_value(out, d->values[order[i]], s, depth + 1);
    }
    if (d->n) json_break(out, s, depth);
    text_put_str(out, "}", false);
}

static void json_value(TextOut *out, Value v, const JsonStyle *s, int depth) {
    if (!heap_work(out->h, 1) || !heap_enter(out->h)) return;
    if (value_is(v, V_STRING)) json_text(out, *v.text, s);
    else if (value_is(v, V_LIST) || value_is(v, V_TUPLE)) json_list(out, v.list, s, depth);
    else if (value_is(v, V_DICT)) json_dict(out, v.dict, s, depth);
    else if (value_is_number(v) || value_is(v, V_NONE)) json_scalar(out, v);
    else heap_fail(out->h, "Object of type %s is not JSON serializable", value_type_name(v));
    heap_leave(out->h);
}

MarkedText value_json(Heap *h, Value v, const JsonStyle *style) {
    TextOut out = {.h = h};
    json_value(&out, v, style, 0);
    return text_done(&out);
}

// ---- the % operator -------------------------------------------------------------------------------------------------

typedef struct {
    char flags[8];
    int width, precision; // precision < 0: none
    char kind;
    bool trusted; // the trust of the format's bytes
} Conversion;

// Reads a conversion after its %, from i on; returns the offset after it.
static size_t read_conversion(Heap *h, MarkedText f, size_t i, Conversion *c) {
    size_t n = 0, begin = i;
    *c = (Conversion){.precision = -1};
    while (i < f.n && f.data[i] && strchr("-+ #0", f.data[i])) {
        if (n + 1 < sizeof c->flags) c->flags[n++] = f.data[i];
        i++;
    }
    i = text_width(h, text_str(f), i, &c->width);
    if (i < f.n && f.data[i] == '.') i = text_width(h, text_str(f), i + 1, &c->precision);
    while (i < f.n && f.data[i] && strchr("hlL", f.data[i])) i++;
    if (i == f.n) heap_fail(h, "incomplete format");
    else c->kind = f.data[i++];
    c->trusted = text_trusted(text_cut(f, begin, i - begin));
    return i;
}

static bool has_flag(const Conversion *c, char flag) { return strchr(c->flags, flag) != NULL; }

// Puts a whole number: its sign, its prefix, and its digits, which zeros fill up to the precision or the width.
static void put_whole(TextOut *out, const Conversion *c, int64_t i, bool trusted) {
    bool decimal = strchr("diu", c->kind) != NULL;
    char front[4] = "", spec[16];
    int n = 0, least = int_max(c->precision, 1);
    if (i < 0 || has_flag(c, '+') || has_flag(c, ' ')) front[n++] = i < 0 ? '-' : has_flag(c, '+') ? '+' : ' ';
    if (has_flag(c, '#') && !decimal) {
        front[n++] = '0';
        front[n++] = c->kind;
    }
    if (has_flag(c, '0') && !has_flag(c, '-')) least = int_max(least, c->width - n);
    Buf digits = {0};
    snprintf(spec, sizeof spec, "%%s%%.*ll%c", decimal ? 'u' : c->kind);
    buf_printf(&digits, spec, front, least, i < 0 ? 0 - (unsigned long long)i : (unsigned long long)i);
    MarkedText t = {.data = digits.data, .n = digits.n, .trusted = trusted}, space = {" ", NULL, 1, trusted, false};
    text_put(out, text_pad(out->h, t, c->width, space, has_flag(c, '-') ? -1 : 1));
    buf_free(&digits);
}

static void put_float(TextOut *out, const Conversion *c, double x, bool trusted) {
    char spec[32], *text = NULL;
    snprintf(spec, sizeof spec, "%%%s*.*%c", c->flags, c->kind);
    int n = asprintf(&text, spec, c->width, c->precision, x);
    if (n < 0) mem_refused((size_t)c->width); // only memory can be missing: the conversion is valid
    if (n > 0) text_put_bytes(out, text, (size_t)n, trusted);
    free(text);
}

static void put_number(TextOut *out, const Conversion *c, Value v) {
    bool whole = strchr("diuxXo", c->kind) != NULL, cut = strchr("diu", c->kind) != NULL; // cut: %d prints 3 for 3.9
    if (!value_is_number(v))
        heap_fail(out->h, "%%%c format: a real number is required, not %s", c->kind, value_type_name(v));
    else if (whole && !cut && value_is(v, V_FLOAT))
        heap_fail(out->h, "%%%c format: an integer is required, not float", c->kind);
    else if (whole && value_is(v, V_FLOAT) && !(v.f >= -0x1p63 && v.f < 0x1p63))
        heap_fail(out->h, "%%%c format: a whole number of 64 bits expected", c->kind);
    if (out->h->failed.code) return;
    bool trusted = c->trusted && !v.foreign;
    if (!whole) put_float(out, c, value_number(v), trusted);
    else put_whole(out, c, value_is(v, V_FLOAT) ? (int64_t)v.f : value_is(v, V_INT) ? v.i : v.b, trusted);
}

static void put_text(TextOut *out, const Conversion *c, Value v) {
    TextOut own = {.h = out->h};
    if (c->kind == 'r') print_repr(&own, v);
    else print_str(&own, v);
    MarkedText t = text_done(&own);
    int64_t n = value_length(out->h, value_text(out->h, t));
    if (c->precision >= 0 && c->precision < n) t = text_slice(out->h, t, 0, c->precision, 1);
    MarkedText space = {.data = " ", .n = 1, .trusted = c->trusted};
    text_put(out, text_pad(out->h, t, c->width, space, strchr(c->flags, '-') ? -1 : 1));
}

// Reads the name in %(name)s if there is one; returns the offset after it.
static size_t read_name(Heap *h, MarkedText f, size_t i, Value arguments, const Value **named) {
    *named = NULL;
    if (i >= f.n || f.data[i] != '(') return i;
    const char *end = memchr(f.data + i, ')', f.n - i);
    if (!end || !value_is(arguments, V_DICT)) {
        heap_fail(h, "a format with names needs a mapping");
        return f.n;
    }
    Str name = {f.data + i + 1, (size_t)(end - f.data) - i - 1};
    *named = dict_get_str(arguments.dict, name);
    if (!*named) heap_fail(h, "format: no argument named %.*s", int_min((int)name.n, 64), name.data);
    return (size_t)(end - f.data) + 1;
}

MarkedText print_percent(Heap *h, MarkedText f, Value arguments) {
    bool tuple = value_is(arguments, V_TUPLE);
    const Value *given = tuple ? arguments.list->items : &arguments;
    size_t n_given = tuple ? arguments.list->n : 1, used = 0;
    TextOut out = {.h = h};
    for (size_t i = 0; i < f.n && !h->failed.code;) {
        const char *percent = memchr(f.data + i, '%', f.n - i);
        size_t at = percent ? (size_t)(percent - f.data) : f.n;
        text_put(&out, text_cut(f, i, at - i));
        if (!percent) break;
        const Value *v;
        Conversion c;
        i = read_name(h, f, at + 1, arguments, &v);
        i = read_conversion(h, f, i, &c);
        if (h->failed.code) break;
        if (c.kind == '%') {
            text_put(&out, text_cut(f, i - 1, 1));
            continue;
        }
        if (!v && used == n_given) heap_fail(h, "not enough arguments for format string");
        else if (!v) v = &given[used++];
        if (h->failed.code) break;
        if (c.kind && strchr("sra", c.kind)) put_text(&out, &c, *v);
        else if (c.kind && strchr("diuxXofFeEgG", c.kind)) put_number(&out, &c, *v);
        else heap_fail(h, "unsupported format character '%c'", c.kind);
    }
    if (!h->failed.code && used < n_given && !value_is(arguments, V_DICT))
        heap_fail(h, "not all arguments converted during string formatting");
    return text_done(&out);
}
