// jinja/filters.c: the filters and tests of Jinja2 that chat templates use (jinja/run.h calls them).
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/number.h"
#include "jinja/run.h"

static bool truth(const JinjaArgs *a, int slot) { return given(a, slot) && value_truth(a->slot[slot]); }

// An integer argument of a filter; `fallback` if it was not given or is None.
static int64_t integer_unless_none(JinjaRun *r, const JinjaArgs *a, int slot, const char *who, int64_t fallback) {
    int64_t n = fallback;
    if (given(a, slot) && !value_is(a->slot[slot], V_NONE)) op_integer(r->h, who, a->slot[slot], &n);
    return n;
}

static Value dict_pairs(JinjaRun *r, ValueType type, const Dict *d) {
    Value list = value_new_list(r->h, type, d->n);
    for (size_t i = 0; i < list.list->n; i++) list.list->items[i] = value_pair(r->h, d->keys[i], d->values[i]);
    return list;
}

// ---- texts ----------------------------------------------------------------------------------------------------------

static Value f_trim(JinjaRun *r, Value v, JinjaArgs *a) {
    MarkedText chars = given(a, 0) && !value_is(a->slot[0], V_NONE) ? value_str(r->h, a->slot[0]) : (MarkedText){0};
    return run_text(r, text_strip(r->h, value_str(r->h, v), chars.data ? &chars : NULL, true, true));
}

static Value f_lower(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return run_text(r, text_case(r->h, value_str(r->h, v), CASE_LOWER));
}
static Value f_upper(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return run_text(r, text_case(r->h, value_str(r->h, v), CASE_UPPER));
}
static Value f_title(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return run_text(r, text_case(r->h, value_str(r->h, v), CASE_FILTER_TITLE));
}
static Value f_capitalize(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return run_text(r, text_case(r->h, value_str(r->h, v), CASE_CAPITALIZE));
}
static Value f_string(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return value_is(v, V_STRING) ? v : run_text(r, value_str(r->h, v));
}

static Value f_replace(JinjaRun *r, Value v, JinjaArgs *a) {
    int64_t most = integer_unless_none(r, a, 2, "replace", -1);
    return run_text(
        r, text_replace(r->h, value_str(r->h, v), value_str(r->h, a->slot[0]), value_str(r->h, a->slot[1]), most));
}

static Value f_safe(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    MarkedText t = value_str(r->h, v);
    t.markup = true;
    return run_text(r, t);
}

static Value f_forceescape(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return run_text(r, text_escape(r->h, value_str(r->h, v)));
}
static Value f_escape(JinjaRun *r, Value v, JinjaArgs *a) {
    return value_is(v, V_STRING) && v.text->markup ? v : f_forceescape(r, v, a);
}

static Value f_indent(JinjaRun *r, Value v, JinjaArgs *a) {
    MarkedText by = {.data = "    ", .n = 4, .trusted = true};
    if (given(a, 0) && value_is(a->slot[0], V_STRING)) by = *a->slot[0].text;
    else by = text_repeat(r->h, text_of(" "), integer_unless_none(r, a, 0, "indent", 4));
    return run_text(r, text_indent(r->h, value_str(r->h, v), by, truth(a, 1), truth(a, 2)));
}

static Value f_center(JinjaRun *r, Value v, JinjaArgs *a) {
    return run_text(r, text_pad(r->h, value_str(r->h, v), integer_unless_none(r, a, 0, "center", 80), text_of(" "), 0));
}

static Value f_format(JinjaRun *r, Value v, JinjaArgs *a) {
    Value arguments = value_list(r->h, V_TUPLE, a->items, a->n);
    if (a->named) arguments = (Value){.type = V_DICT, .dict = a->named};
    return run_text(r, print_percent(r->h, value_str(r->h, v), arguments));
}

static Value f_truncate(JinjaRun *r, Value v, JinjaArgs *a) {
    int64_t length = integer_unless_none(r, a, 0, "truncate", 255),
            leeway = integer_unless_none(r, a, 3, "truncate", 5);
    MarkedText end = given(a, 2) ? value_str(r->h, a->slot[2]) : text_of("...");
    int64_t n = value_length(r->h, v), n_end = value_length(r->h, value_text(r->h, end));
    if (run_failed(r)) return v;
    if (length < n_end || leeway < 0)
        heap_fail(r->h, "truncate: a length of %lld or more and a leeway of 0 or more expected, found %lld and %lld",
                  (long long)n_end, (long long)length, (long long)leeway);
    if (n - length <= leeway) return v;
    MarkedText cut = text_slice(r->h, value_str(r->h, v), 0, length - n_end, 1), space = text_of(" ");
    Value words = text_split(r->h, cut, &space, 1, true);
    if (run_failed(r)) return v;
    if (!truth(a, 1)) cut = *words.list->items[0].text;
    return run_text(r, text_concat(r->h, cut, end));
}

static Value f_wordcount(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    MarkedText t = value_str(r->h, v);
    Value n = value_int(text_count_words(r->h, t));
    n.foreign = !text_trusted(t);
    return n;
}

// Quotes a text for an address; in a query a space becomes +.
static void put_quoted(TextOut *out, MarkedText t, bool query) {
    char code[4];
    if (!heap_work(out->h, t.n / 2)) return;
    for (size_t i = 0; i < t.n; i++) {
        unsigned char c = (unsigned char)t.data[i];
        bool plain = c < 0x80 && (isalnum(c) || (c && strchr(query ? "_.-~" : "_.-~/", c)));
        if (plain) snprintf(code, sizeof code, "%c", c);
        else snprintf(code, sizeof code, query && c == ' ' ? "+" : "%%%02X", c);
        text_put_str(out, code, t.marks ? t.marks[i] : t.trusted);
    }
}

static Value f_urlencode(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    TextOut out = {.h = r->h};
    Value *items, *pair;
    size_t n = 0, n_pair;
    bool one = value_is(v, V_STRING) || value_is_number(v) || value_is(v, V_NONE);
    if (one) put_quoted(&out, value_str(r->h, v), false);
    else if (value_is(v, V_DICT)) v = dict_pairs(r, V_LIST, v.dict);
    if (!one) value_items(r->h, v, &items, &n);
    for (size_t i = 0; i < n && !run_failed(r); i++) {
        if (i) text_put_str(&out, "&", true);
        if (!value_items(r->h, items[i], &pair, &n_pair)) break;
        if (n_pair != 2) heap_fail(r->h, "urlencode: pairs expected, found %zu values", n_pair);
        for (size_t k = 0; k < 2 && !run_failed(r); k++) {
            put_quoted(&out, value_str(r->h, pair[k]), true);
            if (k == 0) text_put_str(&out, "=", true);
        }
    }
    return run_text(r, text_done(&out));
}

static Value f_tojson(JinjaRun *r, Value v, JinjaArgs *a) {
    if (value_is(v, V_UNDEFINED))
        heap_fail(r->h, "Object of type Undefined is not JSON serializable (%.*s)", int_min((int)v.text->n, 200),
                  v.text->data);
    bool text = given(a, 1) && value_is(a->slot[1], V_STRING); // a step of the indentation
    bool lines = given(a, 1) && !value_is(a->slot[1], V_NONE);
    int64_t indent = text ? 0 : integer_unless_none(r, a, 1, "tojson", -1);
    JsonStyle s = {.indent = lines ? (int)(indent < 0      ? 0
                                           : indent > 1000 ? 1000
                                                           : indent)
                                   : -1,
                   .by = text ? a->slot[1].text : NULL,
                   .ascii = truth(a, 0),
                   .sort_keys = truth(a, 3)};
    if (given(a, 2) && !value_is(a->slot[2], V_NONE)) {
        Value *pair;
        size_t n;
        bool good = value_items(r->h, a->slot[2], &pair, &n) && n == 2 && value_is(pair[0], V_STRING) &&
                    value_is(pair[1], V_STRING);
        if (!good) heap_fail(r->h, "tojson: separators as two strings expected");
        else s.between = pair[0].text, s.after_key = pair[1].text;
    }
    return run_failed(r) ? value_none() : run_text(r, value_json(r->h, v, &s));
}

// ---- numbers --------------------------------------------------------------------------------------------------------

static Value too_large(JinjaRun *r) {
    heap_fail(r->h, "an integer of 64 bits expected, found one that is larger");
    return value_none();
}

// Reads a text as Python's int() does. False: it is not an integer, or the heap has failed.
static bool read_integer(JinjaRun *r, MarkedText t, int64_t base, Value *out) {
    t = text_strip(r->h, t, NULL, true, true);
    bool has_digits = base == 0 || (base >= 2 && base <= 36);
    if (!has_digits || !heap_work(r->h, t.n / 8)) return false;
    *out = (Value){.type = V_INT, .foreign = t.marks || !t.trusted};
    NumberKind kind = number_integer(text_str(t), (int)base, &out->i);
    if (kind == NUMBER_TOO_LARGE) too_large(r);
    return kind == NUMBER_FITS;
}

// Reads a text as Python's float() does. False: it is not a number.
static bool read_float(JinjaRun *r, MarkedText t, Value *out) {
    t = text_strip(r->h, t, NULL, true, true);
    *out = (Value){.type = V_FLOAT, .foreign = t.marks || !t.trusted};
    return number_float(text_str(t), &out->f) && !run_failed(r);
}

static Value f_int(JinjaRun *r, Value v, JinjaArgs *a) {
    Value fallback = given(a, 0) ? a->slot[0] : value_int(0), out;
    int64_t base = integer_unless_none(r, a, 1, "int", 10);
    if (value_is(v, V_UNDEFINED)) op_undefined(r->h, v);
    if (run_failed(r)) return fallback;
    if (value_is(v, V_STRING) && read_integer(r, *v.text, base, &out)) return out;
    if (value_is(v, V_STRING) && !read_float(r, *v.text, &v)) return fallback;
    if (!value_is_number(v)) return fallback;
    if (value_is(v, V_FLOAT) && !isfinite(v.f)) return fallback;
    if (value_is(v, V_FLOAT) && (v.f < -0x1p63 || v.f >= 0x1p63)) return too_large(r);
    out = value_int(value_is(v, V_FLOAT) ? (int64_t)v.f : value_is(v, V_INT) ? v.i : v.b);
    out.foreign = v.foreign;
    return out;
}

static Value f_float(JinjaRun *r, Value v, JinjaArgs *a) {
    Value fallback = given(a, 0) ? a->slot[0] : value_float(0), out;
    if (value_is(v, V_UNDEFINED)) op_undefined(r->h, v);
    if (value_is(v, V_STRING)) return read_float(r, *v.text, &out) ? out : fallback;
    if (!value_is_number(v)) return fallback;
    out = value_float(value_number(v));
    out.foreign = v.foreign;
    return out;
}

static Value number_of(JinjaRun *r, Value v, const char *who) {
    if (value_is(v, V_UNDEFINED)) op_undefined(r->h, v);
    else if (!value_is_number(v)) heap_fail(r->h, "%s: a number expected, found %s", who, value_type_name(v));
    return run_failed(r) ? value_int(0) : v;
}

static Value f_abs(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    v = number_of(r, v, "abs");
    if (value_is(v, V_BOOL)) v = (Value){.type = V_INT, .foreign = v.foreign, .i = v.b};
    return value_number(v) < 0 ? op_negative(r->h, v) : v;
}

// Rounds to a multiple of a power of ten, halves to an even one, as Python rounds integers.
static int64_t round_integer(JinjaRun *r, int64_t v, int64_t places) {
    int64_t unit = 1;
    for (int64_t i = 0; i > places && unit; i--) unit = unit > INT64_MAX / 10 ? 0 : unit * 10;
    if (!unit) return 0; // more than twice any integer
    int64_t rest = v % unit, down = v - rest, sign = v < 0 ? -1 : 1, half = unit / 2, size = rest * sign;
    bool away = size > half || (size == half && unit > 1 && down / unit % 2 != 0);
    if (away && (down > INT64_MAX - unit || down < INT64_MIN + unit))
        heap_fail(r->h, "round: an integer of 64 bits expected");
    else if (away) down += sign * unit;
    return down;
}

static Value f_round(JinjaRun *r, Value v, JinjaArgs *a) {
    v = number_of(r, v, "round");
    int64_t places = integer_unless_none(r, a, 0, "round", 0);
    MarkedText method = given(a, 1) ? value_str(r->h, a->slot[1]) : text_of("common");
    double scale = pow(10, (double)(places < -300 ? -300 : places > 300 ? 300 : places)), x = value_number(v);
    bool up = str_is(text_str(method), "ceil"), down = str_is(text_str(method), "floor");
    if (!up && !down && !str_is(text_str(method), "common")) heap_fail(r->h, "method must be common, ceil or floor");
    double scaled = up ? ceil(x * scale) : down ? floor(x * scale) : 0;
    Value out = value_float(scaled / scale);
    if (!up && !down) { // rounds decimal halves to even, as printf does exactly
        char digits[400];
        if (places >= 0) snprintf(digits, sizeof digits, "%.*f", (int)(places > 60 ? 60 : places), x);
        out = value_float(places >= 0 && fabs(x) < 1e300 ? strtod(digits, NULL) : rint(x * scale) / scale);
        if (!value_is(v, V_FLOAT)) out = value_int(round_integer(r, value_is(v, V_INT) ? v.i : v.b, places));
    }
    out.foreign = v.foreign;
    return out;
}

// ---- sequences ------------------------------------------------------------------------------------------------------

static Value f_length(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return value_int(value_length(r->h, v));
}

static Value copy_items(JinjaRun *r, ValueType type, Value v) {
    Value *items;
    size_t n;
    if (!value_items(r->h, v, &items, &n)) return value_none();
    Value list = value_new_list(r->h, type, n);
    if (list.list->n) memcpy(list.list->items, items, n * sizeof *items);
    return list;
}

static Value f_list(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    return copy_items(r, V_LIST, v);
}

static Value f_reverse(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    const Value backwards[3] = {value_none(), value_none(), value_int(-1)};
    if (value_is(v, V_STRING)) return op_slice(r->h, v, backwards);
    Value list = copy_items(r, V_STREAM, v);
    for (size_t i = 0; !run_failed(r) && i < list.list->n / 2; i++) {
        Value one = list.list->items[i];
        list.list->items[i] = list.list->items[list.list->n - 1 - i];
        list.list->items[list.list->n - 1 - i] = one;
    }
    return list;
}

static Value f_first(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    Value *items;
    size_t n, at = value_is(v, V_STREAM) ? v.list->at : 0;
    if (!value_items(r->h, v, &items, &n)) return value_none();
    if (value_is(v, V_STREAM) && n) v.list->at = at + 1; // takes only the first item of a generator
    return n ? items[0] : value_undefined(r->h, "No first item, sequence was empty.");
}

static Value f_last(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    Value *items;
    size_t n;
    if (value_is(v, V_STREAM)) heap_fail(r->h, "'generator' object is not reversible");
    if (!value_items(r->h, v, &items, &n)) return value_none();
    return n ? items[n - 1] : value_undefined(r->h, "No last item, sequence was empty.");
}

static Value f_join(JinjaRun *r, Value v, JinjaArgs *a) {
    MarkedText between = given(a, 0) ? value_str(r->h, a->slot[0]) : (MarkedText){.data = "", .trusted = true};
    TextOut out = {.h = r->h};
    Value *items;
    size_t n;
    value_items(r->h, v, &items, &n);
    for (size_t i = 0; i < n && !run_failed(r); i++) {
        if (i) text_put(&out, between);
        print_str(&out, value_path(r, items[i], a->slot[1]));
    }
    return run_text(r, text_done(&out));
}

static Value f_default(JinjaRun *r, Value v, JinjaArgs *a) {
    bool missing = value_is(v, V_UNDEFINED) || (truth(a, 1) && !value_truth(v));
    if (!missing) return v;
    return given(a, 0) ? a->slot[0] : value_string(r->h, (Str){"", 0}, true);
}

static Value f_items(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    if (value_is(v, V_UNDEFINED)) return value_new_list(r->h, V_STREAM, 0);
    if (!value_is(v, V_DICT)) heap_fail(r->h, "Can only get item pairs from a mapping.");
    return run_failed(r) ? value_none() : dict_pairs(r, V_STREAM, v.dict);
}

static Value f_attr(JinjaRun *r, Value v, JinjaArgs *a) {
    if (value_is(a->slot[0], V_STRING)) return value_own_attribute(r, v, text_str(*a->slot[0].text));
    heap_fail(r->h, "attr: a name expected, found %s", value_type_name(a->slot[0]));
    return value_none();
}

// ---- sorting --------------------------------------------------------------------------------------------------------

typedef struct {
    Value key, item;
} Keyed;

static Value ignore_case(JinjaRun *r, Value v) {
    return value_is(v, V_STRING) ? run_text(r, text_case(r->h, *v.text, CASE_LOWER)) : v;
}

// A stable bottom-up merge sort; equal items keep their order with `reverse` too.
static void merge_sort(JinjaRun *r, Keyed *items, size_t n, bool reverse) {
    Keyed *other = heap_fits(r->h, n * sizeof *other) ? heap_alloc(r->h, n * sizeof *other) : NULL, *from = items;
    for (size_t width = 1; width < n && !run_failed(r); width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t middle = at + width < n ? at + width : n, end = at + 2 * width < n ? at + 2 * width : n;
            size_t a = at, b = middle;
            for (size_t k = at; k < end; k++) {
                bool right = a == middle;
                if (a < middle && b < end) {
                    int order = value_compare(r->h, from[b].key, from[a].key, "<");
                    right = reverse ? order > 0 : order < 0;
                }
                other[k] = right ? from[b++] : from[a++];
            }
        }
        Keyed *old = from;
        from = other;
        other = old;
    }
    if (from != items && !run_failed(r)) memcpy(items, from, n * sizeof *items);
}

// Where the key of an item comes from.
typedef struct {
    Value attribute;      // a path, or nothing (value_path)
    const Value *missing; // (value_path_or)
    bool exact;           // do not ignore case
} KeyRule;

typedef Value KeyOf(JinjaRun *r, Value item, const KeyRule *rule);

static Value plain_key(JinjaRun *r, Value item, const KeyRule *rule) {
    Value key = value_path_or(r, item, rule->attribute, rule->missing);
    return rule->exact ? key : ignore_case(r, key);
}

// The key for the filter sort, whose attribute may be "a,b": a list of keys.
static Value list_key(JinjaRun *r, Value item, const KeyRule *rule) {
    Value attribute = rule->attribute, names = value_list(r->h, V_LIST, &attribute, 1);
    if (value_is(attribute, V_STRING))
        names = text_split(r->h, *attribute.text, &(MarkedText){.data = ",", .n = 1}, -1, false);
    Value key = value_new_list(r->h, V_LIST, names.list->n);
    for (size_t i = 0; i < key.list->n && !run_failed(r); i++) {
        KeyRule part = {names.list->items[i], rule->missing, rule->exact};
        key.list->items[i] = plain_key(r, item, &part);
    }
    return key;
}

// The items of v with their keys. NULL: failed.
static Keyed *keyed_items(JinjaRun *r, Value v, KeyOf *key, const KeyRule *rule, size_t *n) {
    Value *items;
    if (!value_items(r->h, v, &items, n) || !heap_fits(r->h, *n * sizeof(Keyed))) return NULL;
    Keyed *all = heap_alloc(r->h, *n * sizeof *all);
    for (size_t i = 0; i < *n && !run_failed(r); i++) all[i] = (Keyed){key(r, items[i], rule), items[i]};
    return run_failed(r) ? NULL : all;
}

static Value plain_list(JinjaRun *r, const Keyed *all, size_t n) {
    Value list = value_new_list(r->h, V_LIST, n);
    for (size_t i = 0; i < list.list->n; i++) list.list->items[i] = all[i].item;
    return list;
}

static Value f_sort(JinjaRun *r, Value v, JinjaArgs *a) {
    size_t n;
    const KeyRule rule = {.attribute = a->slot[2], .exact = truth(a, 1)};
    Keyed *all = keyed_items(r, v, list_key, &rule, &n);
    if (!all) return value_none();
    merge_sort(r, all, n, truth(a, 0));
    return plain_list(r, all, n);
}

static Value f_dictsort(JinjaRun *r, Value v, JinjaArgs *a) {
    if (!value_is(v, V_DICT)) heap_fail(r->h, "dictsort: a mapping expected, found %s", value_type_name(v));
    Str by = given(a, 1) ? text_str(value_str(r->h, a->slot[1])) : str_of("key");
    bool by_value = str_is(by, "value");
    if (!by_value && !str_is(by, "key")) heap_fail(r->h, "You can only sort by either \"key\" or \"value\"");
    const KeyRule rule = {.attribute = value_int(by_value), .exact = truth(a, 0)};
    size_t n;
    Keyed *all = run_failed(r) ? NULL : keyed_items(r, dict_pairs(r, V_LIST, v.dict), plain_key, &rule, &n);
    if (!all) return value_none();
    merge_sort(r, all, n, truth(a, 2));
    return plain_list(r, all, n);
}

static Value extreme(JinjaRun *r, Value v, JinjaArgs *a, int sign) {
    const KeyRule rule = {.attribute = a->slot[1], .exact = truth(a, 0)};
    size_t n, best = 0;
    Keyed *all = keyed_items(r, v, plain_key, &rule, &n);
    if (!all) return value_none();
    for (size_t i = 1; i < n; i++)
        if (value_compare(r->h, all[i].key, all[best].key, sign < 0 ? "<" : ">") * sign > 0) best = i;
    return n ? all[best].item : value_undefined(r->h, "No aggregated item, sequence was empty.");
}

static Value f_min(JinjaRun *r, Value v, JinjaArgs *a) { return extreme(r, v, a, -1); }
static Value f_max(JinjaRun *r, Value v, JinjaArgs *a) { return extreme(r, v, a, 1); }

static Value f_unique(JinjaRun *r, Value v, JinjaArgs *a) {
    const KeyRule rule = {.attribute = a->slot[1], .exact = truth(a, 0)};
    size_t n, kept = 0;
    Keyed *all = keyed_items(r, v, plain_key, &rule, &n);
    if (!all) return value_none();
    for (size_t i = 0; i < n && !run_failed(r); i++) {
        size_t k = 0;
        while (k < kept && !value_equal(r->h, all[k].key, all[i].key)) k++;
        if (k == kept) all[kept++] = all[i];
    }
    Value list = plain_list(r, all, kept);
    list.type = V_STREAM;
    return list;
}

static Value f_groupby(JinjaRun *r, Value v, JinjaArgs *a) {
    const Value *missing = given(a, 1) ? &a->slot[1] : NULL;
    const KeyRule rule = {a->slot[0], missing, .exact = truth(a, 2)}, shown = {a->slot[0], missing, .exact = true};
    size_t n, n_groups = 0;
    Keyed *all = keyed_items(r, v, plain_key, &rule, &n);
    if (!all) return value_none();
    merge_sort(r, all, n, false);
    Value groups = value_new_list(r->h, V_LIST, n);
    for (size_t i = 0, end; i < n && !run_failed(r); i = end) {
        for (end = i + 1; end < n && value_equal(r->h, all[end].key, all[i].key);) end++;
        Value group = value_pair(r->h, plain_key(r, all[i].item, &shown), plain_list(r, all + i, end - i));
        if (!run_failed(r)) group.list->name = "group"; // has .grouper and .list (jinja/run.c)
        groups.list->items[n_groups++] = group;
    }
    groups.list->n = n_groups;
    return groups;
}

static Value f_sum(JinjaRun *r, Value v, JinjaArgs *a) {
    Value *items, sum = given(a, 1) ? a->slot[1] : value_int(0);
    size_t n;
    value_items(r->h, v, &items, &n);
    for (size_t i = 0; i < n && !run_failed(r); i++)
        sum = op_binary(r->h, '+', sum, value_path(r, items[i], a->slot[0]));
    return sum;
}

static Value f_batch(JinjaRun *r, Value v, JinjaArgs *a) {
    int64_t size = integer_unless_none(r, a, 0, "batch", 1);
    Value *items;
    size_t n;
    if (size < 1) heap_fail(r->h, "batch: a size of at least 1 expected, found %lld", (long long)size);
    if (!value_items(r->h, v, &items, &n)) return value_none();
    bool fill = given(a, 1) && !value_is(a->slot[1], V_NONE);
    size_t each = (size_t)size < n || fill ? (size_t)size : n + !n;
    Value all = value_new_list(r->h, V_STREAM, (n + each - 1) / each);
    for (size_t b = 0; b < all.list->n && !run_failed(r); b++) {
        size_t left = n - b * each, here = left < each ? left : each;
        Value one = value_new_list(r->h, V_LIST, fill ? each : here);
        for (size_t i = 0; i < one.list->n; i++) one.list->items[i] = i < here ? items[b * each + i] : a->slot[1];
        all.list->items[b] = one;
    }
    return all;
}

static Value f_slice(JinjaRun *r, Value v, JinjaArgs *a) {
    int64_t slices = 0;
    Value *items;
    size_t n, at = 0;
    if (!op_integer(r->h, "slice", a->slot[0], &slices) || !value_items(r->h, v, &items, &n)) return value_none();
    if (slices == 0) heap_fail(r->h, "slice: a number of slices other than 0 expected");
    bool fill = given(a, 1) && !value_is(a->slot[1], V_NONE);
    Value all = value_new_list(r->h, V_STREAM, slices > 0 ? (size_t)slices : 0);
    for (size_t s = 0; s < all.list->n && heap_work(r->h, 1); s++) {
        bool more = s < n % (size_t)slices, filled = fill && !more;
        size_t each = n / (size_t)slices + more;
        Value one = value_new_list(r->h, V_LIST, each + filled);
        for (size_t i = 0; i < one.list->n; i++) one.list->items[i] = i < each ? items[at + i] : a->slot[1];
        all.list->items[s] = one;
        at += each;
    }
    return all;
}

// ---- filters over filters and tests ---------------------------------------------------------------------------------

// The arguments without the first `from` positional ones.
static JinjaArgs rest(const JinjaArgs *a, size_t from) {
    return (JinjaArgs){.items = a->items + from, .n = a->n > from ? a->n - from : 0, .named = a->named};
}

static Value f_map(JinjaRun *r, Value v, JinjaArgs *a) {
    const Value *attribute = a->named && a->n == 0 ? dict_get_str(a->named, str_of("attribute")) : NULL;
    const Value *missing = attribute ? dict_get_str(a->named, str_of("default")) : NULL;
    if (!value_truth(v)) return value_new_list(r->h, V_STREAM, 0);
    Value list = copy_items(r, V_STREAM, v);
    if (!attribute && (a->n == 0 || !value_is(a->items[0], V_STRING)))
        heap_fail(r->h, "map requires a filter argument");
    for (size_t i = 0; !run_failed(r) && i < list.list->n; i++) {
        Value *item = &list.list->items[i];
        JinjaArgs more = rest(a, 1);
        *item = attribute ? value_path_or(r, *item, *attribute, missing)
                          : run_named_filter(r, text_str(*a->items[0].text), *item, &more);
    }
    return list;
}

// Keeps the items for which the test gives `wanted`; without a test their truth value counts. by_attribute: tests an
// attribute of each item.
static Value keep(JinjaRun *r, Value v, JinjaArgs *a, bool by_attribute, bool wanted) {
    if (!value_truth(v)) return value_new_list(r->h, V_STREAM, 0);
    Value list = copy_items(r, V_STREAM, v);
    size_t kept = 0, test = by_attribute;
    if (a->n < test) heap_fail(r->h, "an attribute's name expected");
    if (a->n > test && !value_is(a->items[test], V_STRING)) heap_fail(r->h, "a test's name expected");
    for (size_t i = 0; !run_failed(r) && i < list.list->n; i++) {
        Value item = list.list->items[i], of = by_attribute ? value_path(r, item, a->items[0]) : item;
        JinjaArgs more = rest(a, test + 1);
        bool yes = a->n > test ? run_named_test(r, text_str(*a->items[test].text), of, &more) : value_truth(of);
        if (yes == wanted) list.list->items[kept++] = item;
    }
    if (!run_failed(r)) list.list->n = kept;
    return list;
}

static Value f_select(JinjaRun *r, Value v, JinjaArgs *a) { return keep(r, v, a, false, true); }
static Value f_reject(JinjaRun *r, Value v, JinjaArgs *a) { return keep(r, v, a, false, false); }
static Value f_selectattr(JinjaRun *r, Value v, JinjaArgs *a) { return keep(r, v, a, true, true); }
static Value f_rejectattr(JinjaRun *r, Value v, JinjaArgs *a) { return keep(r, v, a, true, false); }

// clang-format off
static const Builtin filters[] = {
    {"abs", "", f_abs}, {"attr", "name!", f_attr}, {"batch", "linecount! fill_with", f_batch},
    {"capitalize", "", f_capitalize}, {"center", "width", f_center}, {"count", "", f_length},
    {"d", "default_value boolean", f_default}, {"default", "default_value boolean", f_default},
    {"dictsort", "case_sensitive by reverse", f_dictsort}, {"e", "", f_escape}, {"escape", "", f_escape},
    {"first", "", f_first}, {"float", "default", f_float}, {"forceescape", "", f_forceescape},
    {"format", NULL, f_format}, {"groupby", "attribute! default case_sensitive", f_groupby},
    {"indent", "width first blank", f_indent}, {"int", "default base", f_int}, {"items", "", f_items},
    {"join", "d attribute", f_join}, {"last", "", f_last}, {"length", "", f_length}, {"list", "", f_list},
    {"lower", "", f_lower}, {"map", NULL, f_map}, {"max", "case_sensitive attribute", f_max},
    {"min", "case_sensitive attribute", f_min}, {"reject", NULL, f_reject}, {"rejectattr", NULL, f_rejectattr},
    {"replace", "old! new! count", f_replace}, {"reverse", "", f_reverse}, {"round", "precision method", f_round},
    {"safe", "", f_safe}, {"select", NULL, f_select}, {"selectattr", NULL, f_selectattr},
    {"slice", "slices! fill_with", f_slice},
    {"sort", "reverse case_sensitive attribute", f_sort}, {"string", "", f_string}, {"sum", "attribute start", f_sum},
    {"title", "", f_title}, {"tojson", "ensure_ascii indent separators sort_keys", f_tojson},
    {"trim", "chars", f_trim}, {"truncate", "length killwords end leeway", f_truncate},
    {"unique", "case_sensitive attribute", f_unique}, {"upper", "", f_upper},
    {"urlencode", "", f_urlencode},
    {"wordcount", "", f_wordcount},
};
// clang-format on

BuiltinTable builtin_filters(void) { return (BuiltinTable){filters, ARRAY_LEN(filters)}; }

// ---- tests ----------------------------------------------------------------------------------------------------------

#define TEST(name, truth)                                                                                              \
    static Value name(JinjaRun *r, Value v, JinjaArgs *a) {                                                            \
        (void)r;                                                                                                       \
        (void)a;                                                                                                       \
        return value_bool(truth);                                                                                      \
    }

static bool is_iterable(Value v) {
    return value_is_list(v) || value_is(v, V_STRING) || value_is(v, V_DICT) || value_is(v, V_UNDEFINED) ||
           value_is(v, V_LOOP);
}

static bool has_rest(JinjaRun *r, Value v, Value by, int64_t rest) {
    return value_equal(r->h, op_binary(r->h, '%', v, by), value_int(rest));
}

static bool is_same(Value a, Value b) {
    if (a.type != b.type) return false;
    if (value_is(a, V_STRING)) return str_eq(text_str(*a.text), text_str(*b.text));
    return a.type == V_NONE || (a.type == V_BOOL ? a.b == b.b : a.i == b.i);
}

TEST(t_defined, !value_is(v, V_UNDEFINED))
TEST(t_undefined, value_is(v, V_UNDEFINED))
TEST(t_none, value_is(v, V_NONE))
TEST(t_boolean, value_is(v, V_BOOL))
TEST(t_true, value_is(v, V_BOOL) && v.b)
TEST(t_false, value_is(v, V_BOOL) && !v.b)
TEST(t_integer, value_is(v, V_INT))
TEST(t_float, value_is(v, V_FLOAT))
TEST(t_number, value_is_number(v))
TEST(t_string, value_is(v, V_STRING))
TEST(t_mapping, value_is(v, V_DICT))
TEST(t_iterable, is_iterable(v))
TEST(t_sequence, value_has_index(v) || value_is(v, V_STRING) || value_is(v, V_DICT) || value_is(v, V_UNDEFINED))
TEST(t_callable, (v.type >= V_MACRO && v.type <= V_JOINER) || value_is(v, V_UNDEFINED))
TEST(t_escaped, value_is(v, V_STRING) && v.text->markup)
TEST(t_lower, text_is(r->h, value_str(r->h, v), "lower"))
TEST(t_upper, text_is(r->h, value_str(r->h, v), "upper"))
TEST(t_odd, has_rest(r, v, value_int(2), 1))
TEST(t_even, has_rest(r, v, value_int(2), 0))
TEST(t_divisibleby, has_rest(r, v, a->slot[0], 0))
TEST(t_sameas, is_same(v, a->slot[0]))
TEST(t_in, value_contains(r->h, a->slot[0], v))
TEST(t_eq, op_compare(r->h, '=', v, a->slot[0]))
TEST(t_ne, op_compare(r->h, '!', v, a->slot[0]))
TEST(t_lt, op_compare(r->h, '<', v, a->slot[0]))
TEST(t_le, op_compare(r->h, 'l', v, a->slot[0]))
TEST(t_gt, op_compare(r->h, '>', v, a->slot[0]))
TEST(t_ge, op_compare(r->h, 'g', v, a->slot[0]))
TEST(t_filter, builtin_find(builtin_filters(), text_str(value_str(r->h, v))) != NULL)
TEST(t_test, builtin_find(builtin_tests(), text_str(value_str(r->h, v))) != NULL)

// clang-format off
static const Builtin tests[] = {
    {"defined", "", t_defined}, {"undefined", "", t_undefined}, {"none", "", t_none}, {"boolean", "", t_boolean},
    {"true", "", t_true}, {"false", "", t_false}, {"integer", "", t_integer}, {"float", "", t_float},
    {"number", "", t_number}, {"string", "", t_string}, {"mapping", "", t_mapping}, {"iterable", "", t_iterable},
    {"sequence", "", t_sequence}, {"callable", "", t_callable}, {"escaped", "", t_escaped}, {"lower", "", t_lower},
    {"upper", "", t_upper}, {"odd", "", t_odd}, {"even", "", t_even}, {"divisibleby", "num!", t_divisibleby},
    {"sameas", "other!", t_sameas}, {"in", "seq!", t_in}, {"eq", "other!", t_eq}, {"equalto", "other!", t_eq},
    {"==", "other!", t_eq}, {"ne", "other!", t_ne}, {"!=", "other!", t_ne}, {"lt", "other!", t_lt},
    {"lessthan", "other!", t_lt}, {"<", "other!", t_lt}, {"le", "other!", t_le}, {"<=", "other!", t_le},
    {"gt", "other!", t_gt}, {"greaterthan", "other!", t_gt}, {">", "other!", t_gt}, {"ge", "other!", t_ge},
    {">=", "other!", t_ge}, {"filter", "", t_filter}, {"test", "", t_test},
};
// clang-format on

BuiltinTable builtin_tests(void) { return (BuiltinTable){tests, ARRAY_LEN(tests)}; }
