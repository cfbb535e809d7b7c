// jinja/calls.c: the methods of values, the fields of `loop`, and the functions that every template has
// (jinja/run.h calls them).
#include <string.h>

#include "jinja/format.h"
#include "jinja/run.h"

// Returns an argument that must be a string.
static MarkedText string(JinjaRun *r, const JinjaArgs *a, int slot, const char *who) {
    Value v = a->slot[slot];
    if (value_is(v, V_STRING)) return *v.text;
    heap_fail(r->h, "%s: a string expected, found %s", who, value_type_name(v));
    return (MarkedText){.data = ""};
}

// The same; NULL if the argument is None or was not given.
static const MarkedText *maybe_string(JinjaRun *r, const JinjaArgs *a, int slot, const char *who) {
    if (!given(a, slot) || value_is(a->slot[slot], V_NONE)) return NULL;
    string(r, a, slot, who);
    return run_failed(r) ? NULL : a->slot[slot].text;
}

// An integer argument of a method or a function; `fallback` if it was not given. None is an error, as in Python.
static int64_t integer_arg(JinjaRun *r, const JinjaArgs *a, int slot, const char *who, int64_t fallback) {
    int64_t n = fallback;
    if (given(a, slot)) op_integer(r->h, who, a->slot[slot], &n);
    return n;
}

// ---- methods of strings ---------------------------------------------------------------------------------------------

#define STRIP(name, left, right)                                                                                       \
    static Value m_##name(JinjaRun *r, Value v, JinjaArgs *a) {                                                        \
        return run_text(r, text_strip(r->h, *v.text, maybe_string(r, a, 0, #name), left, right));                      \
    }
#define CASE(name, to)                                                                                                 \
    static Value m_##name(JinjaRun *r, Value v, JinjaArgs *a) {                                                        \
        (void)a;                                                                                                       \
        return run_text(r, text_case(r->h, *v.text, to));                                                              \
    }
#define KIND(name)                                                                                                     \
    static Value m_is##name(JinjaRun *r, Value v, JinjaArgs *a) {                                                      \
        (void)a;                                                                                                       \
        return value_bool(text_is(r->h, *v.text, #name));                                                              \
    }

STRIP(strip, true, true)
STRIP(lstrip, true, false)
STRIP(rstrip, false, true)
CASE(upper, CASE_UPPER)
CASE(lower, CASE_LOWER)
CASE(title, CASE_TITLE)
CASE(capitalize, CASE_CAPITALIZE)
CASE(swapcase, CASE_SWAP)
KIND(alpha)
KIND(alnum)
KIND(digit)
KIND(space)
KIND(lower)
KIND(upper)

static Value m_split(JinjaRun *r, Value v, JinjaArgs *a) {
    return text_split(r->h, *v.text, maybe_string(r, a, 0, "split"), integer_arg(r, a, 1, "split", -1), false);
}
static Value m_rsplit(JinjaRun *r, Value v, JinjaArgs *a) {
    return text_split(r->h, *v.text, maybe_string(r, a, 0, "rsplit"), integer_arg(r, a, 1, "rsplit", -1), true);
}
static Value m_splitlines(JinjaRun *r, Value v, JinjaArgs *a) {
    return text_lines(r->h, *v.text, given(a, 0) && value_truth(a->slot[0]));
}
static Value m_partition(JinjaRun *r, Value v, JinjaArgs *a) {
    return text_partition(r->h, *v.text, string(r, a, 0, "partition"), false);
}
static Value m_rpartition(JinjaRun *r, Value v, JinjaArgs *a) {
    return text_partition(r->h, *v.text, string(r, a, 0, "rpartition"), true);
}

static Value m_replace(JinjaRun *r, Value v, JinjaArgs *a) {
    MarkedText old = string(r, a, 0, "replace"), new = string(r, a, 1, "replace");
    return run_text(r, text_replace(r->h, *v.text, old, new, integer_arg(r, a, 2, "replace", -1)));
}

// v[start:end], with the bounds from the arguments at `slot` and `slot` + 1. False: start is past the end, where Python
// finds not even an empty text.
static bool cut_out(JinjaRun *r, Value v, const JinjaArgs *a, int slot, MarkedText *out, int64_t *start) {
    const Value parts[3] = {a->slot[slot], a->slot[slot + 1], value_none()};
    int64_t n = value_length(r->h, v);
    *out = *v.text;
    *start = integer_arg(r, a, slot, "start", 0);
    if (*start < 0) *start = *start + n < 0 ? 0 : *start + n;
    if (given(a, slot) || given(a, slot + 1)) {
        Value cut = op_slice(r->h, v, parts);
        if (!run_failed(r)) *out = *cut.text;
    }
    return *start <= n && !run_failed(r);
}

static bool begins(MarkedText t, MarkedText with) {
    return with.n <= t.n && str_eq((Str){t.data, with.n}, text_str(with));
}
static bool ends(MarkedText t, MarkedText with) {
    return with.n <= t.n && str_eq((Str){t.data + t.n - with.n, with.n}, text_str(with));
}

static Value affix(JinjaRun *r, Value v, JinjaArgs *a, bool (*has)(MarkedText, MarkedText), const char *who) {
    MarkedText t;
    int64_t start;
    if (!cut_out(r, v, a, 1, &t, &start) || !heap_work(r->h, t.n / 64)) return value_bool(false);
    if (!value_is(a->slot[0], V_TUPLE)) return value_bool(has(t, string(r, a, 0, who)));
    const List *any = a->slot[0].list;
    for (size_t i = 0; i < any->n && heap_work(r->h, t.n / 64 + 1); i++)
        if (value_is(any->items[i], V_STRING) && has(t, *any->items[i].text)) return value_bool(true);
    return value_bool(false);
}

static Value m_startswith(JinjaRun *r, Value v, JinjaArgs *a) { return affix(r, v, a, begins, "startswith"); }
static Value m_endswith(JinjaRun *r, Value v, JinjaArgs *a) { return affix(r, v, a, ends, "endswith"); }

static Value m_removeprefix(JinjaRun *r, Value v, JinjaArgs *a) {
    MarkedText with = string(r, a, 0, "removeprefix");
    return begins(*v.text, with) ? run_text(r, text_cut(*v.text, with.n, v.text->n - with.n)) : v;
}
static Value m_removesuffix(JinjaRun *r, Value v, JinjaArgs *a) {
    MarkedText with = string(r, a, 0, "removesuffix");
    return ends(*v.text, with) ? run_text(r, text_cut(*v.text, 0, v.text->n - with.n)) : v;
}

static int64_t find(JinjaRun *r, Value v, JinjaArgs *a, bool from_right, const char *who) {
    MarkedText t, part = string(r, a, 0, who);
    int64_t start, at = -1;
    if (cut_out(r, v, a, 1, &t, &start)) at = text_find(r->h, t, part, from_right);
    return at < 0 ? -1 : at + start;
}

static Value m_find(JinjaRun *r, Value v, JinjaArgs *a) { return value_int(find(r, v, a, false, "find")); }
static Value m_rfind(JinjaRun *r, Value v, JinjaArgs *a) { return value_int(find(r, v, a, true, "rfind")); }
static Value m_index(JinjaRun *r, Value v, JinjaArgs *a) {
    int64_t at = find(r, v, a, false, "index");
    if (at < 0) heap_fail(r->h, "substring not found");
    return value_int(at);
}

static Value m_count(JinjaRun *r, Value v, JinjaArgs *a) {
    MarkedText t, part = string(r, a, 0, "count");
    int64_t start;
    return value_int(cut_out(r, v, a, 1, &t, &start) ? text_count(r->h, t, part) : 0);
}

static Value m_join(JinjaRun *r, Value v, JinjaArgs *a) {
    TextOut out = {.h = r->h};
    Value *items;
    size_t n;
    value_items(r->h, a->slot[0], &items, &n);
    for (size_t i = 0; i < n && !run_failed(r); i++) {
        if (!value_is(items[i], V_STRING))
            heap_fail(r->h, "sequence item %zu: expected str instance, %s found", i, value_type_name(items[i]));
        else {
            if (i) text_put(&out, *v.text);
            text_put(&out, *items[i].text);
        }
    }
    return run_text(r, text_done(&out));
}

static Value pad(JinjaRun *r, Value v, JinjaArgs *a, int side, const char *who) {
    const MarkedText *fill = maybe_string(r, a, 1, who);
    if (fill && fill->n != 1) heap_fail(r->h, "%s: one ASCII character to fill with expected", who);
    return run_text(
        r, text_pad(r->h, *v.text, integer_arg(r, a, 0, who, 0), fill && fill->n ? *fill : text_of(" "), side));
}

static Value m_ljust(JinjaRun *r, Value v, JinjaArgs *a) { return pad(r, v, a, -1, "ljust"); }
static Value m_center(JinjaRun *r, Value v, JinjaArgs *a) { return pad(r, v, a, 0, "center"); }
static Value m_rjust(JinjaRun *r, Value v, JinjaArgs *a) { return pad(r, v, a, 1, "rjust"); }

static Value m_zfill(JinjaRun *r, Value v, JinjaArgs *a) {
    size_t sign = v.text->n && (v.text->data[0] == '-' || v.text->data[0] == '+');
    int64_t width = integer_arg(r, a, 0, "zfill", 0);
    MarkedText digits =
        text_pad(r->h, text_cut(*v.text, sign, v.text->n - sign), width - (int64_t)sign, text_of("0"), 1);
    return run_text(r, text_concat(r->h, text_cut(*v.text, 0, sign), digits));
}

static Value m_format(JinjaRun *r, Value v, JinjaArgs *a) { return run_text(r, format_braces(r->h, *v.text, a)); }

// clang-format off
static const Builtin string_methods[] = {
    {"capitalize", "", m_capitalize}, {"casefold", "", m_lower}, {"center", "width! fillchar", m_center},
    {"count", "sub! start end", m_count}, {"endswith", "suffix! start end", m_endswith},
    {"find", "sub! start end", m_find}, {"format", NULL, m_format}, {"index", "sub! start end", m_index},
    {"isalnum", "", m_isalnum}, {"isalpha", "", m_isalpha}, {"isdecimal", "", m_isdigit}, {"isdigit", "", m_isdigit},
    {"islower", "", m_islower}, {"isnumeric", "", m_isdigit}, {"isspace", "", m_isspace}, {"isupper", "", m_isupper},
    {"join", "iterable!", m_join}, {"ljust", "width! fillchar", m_ljust}, {"lower", "", m_lower},
    {"lstrip", "chars", m_lstrip}, {"partition", "sep!", m_partition}, {"removeprefix", "prefix!", m_removeprefix},
    {"removesuffix", "suffix!", m_removesuffix}, {"replace", "old! new! count", m_replace},
    {"rfind", "sub! start end", m_rfind}, {"rjust", "width! fillchar", m_rjust}, {"rpartition", "sep!", m_rpartition},
    {"rsplit", "sep maxsplit", m_rsplit}, {"rstrip", "chars", m_rstrip}, {"split", "sep maxsplit", m_split},
    {"splitlines", "keepends", m_splitlines}, {"startswith", "prefix! start end", m_startswith},
    {"strip", "chars", m_strip}, {"swapcase", "", m_swapcase}, {"title", "", m_title}, {"upper", "", m_upper},
    {"zfill", "width!", m_zfill},
};
// clang-format on

// ---- methods of dicts and lists -------------------------------------------------------------------------------------

static Value view(JinjaRun *r, const char *name, size_t n) {
    Value list = value_new_list(r->h, V_VIEW, n);
    list.list->name = name;
    return list;
}

static Value d_items(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    Value out = view(r, "dict_items", v.dict->n);
    for (size_t i = 0; i < out.list->n; i++) out.list->items[i] = value_pair(r->h, v.dict->keys[i], v.dict->values[i]);
    return out;
}

static Value d_keys(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    Value out = view(r, "dict_keys", v.dict->n);
    for (size_t i = 0; i < out.list->n; i++) out.list->items[i] = v.dict->keys[i];
    return out;
}

static Value d_values(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)a;
    Value out = view(r, "dict_values", v.dict->n);
    for (size_t i = 0; i < out.list->n; i++) out.list->items[i] = v.dict->values[i];
    return out;
}

static Value d_get(JinjaRun *r, Value v, JinjaArgs *a) {
    const Value *found = dict_get(r->h, v.dict, a->slot[0]);
    return found ? *found : given(a, 1) ? a->slot[1] : value_none();
}

static Value x_copy(JinjaRun *r, Value v, JinjaArgs *a) { // lists and dicts are immutable: no copy is needed
    (void)r;
    (void)a;
    return v;
}

static Value l_count(JinjaRun *r, Value v, JinjaArgs *a) {
    int64_t n = 0;
    for (size_t i = 0; i < v.list->n; i++) n += value_equal(r->h, v.list->items[i], a->slot[0]);
    return value_int(n);
}

static Value l_index(JinjaRun *r, Value v, JinjaArgs *a) {
    for (size_t i = 0; i < v.list->n && !run_failed(r); i++)
        if (value_equal(r->h, v.list->items[i], a->slot[0])) return value_int((int64_t)i);
    heap_fail(r->h, "the value is not in the list");
    return value_none();
}

static const Builtin dict_methods[] = {
    {"copy", "", x_copy}, {"get", "key! default", d_get}, {"items", "", d_items},
    {"keys", "", d_keys}, {"values", "", d_values},
};
static const Builtin list_methods[] = {
    {"copy", "", x_copy}, {"count", "value!", l_count}, {"index", "value!", l_index}};

// Methods that would change their value; the sandbox forbids them.
static const Builtin dict_unsafe[] = {
    {"clear", "", NULL}, {"pop", "", NULL}, {"popitem", "", NULL}, {"setdefault", "", NULL}, {"update", "", NULL}};
static const Builtin list_unsafe[] = {{"append", "", NULL},  {"clear", "", NULL}, {"extend", "", NULL},
                                      {"insert", "", NULL},  {"pop", "", NULL},   {"remove", "", NULL},
                                      {"reverse", "", NULL}, {"sort", "", NULL}};

static Value loop_cycle(JinjaRun *r, Value v, JinjaArgs *a);
static Value loop_changed(JinjaRun *r, Value v, JinjaArgs *a);
static Value c_next(JinjaRun *r, Value v, JinjaArgs *a);
static Value c_reset(JinjaRun *r, Value v, JinjaArgs *a);
static const Builtin cycle_methods[] = {{"next", "", c_next}, {"reset", "", c_reset}};
static const Builtin loop_methods[] = {{"cycle", NULL, loop_cycle}, {"changed", NULL, loop_changed}};

#define TABLE(rows) ((BuiltinTable){rows, ARRAY_LEN(rows)})

BuiltinTable builtin_methods(ValueType of) {
    switch (of) {
    case V_STRING: return TABLE(string_methods);
    case V_DICT: return TABLE(dict_methods);
    case V_LIST:
    case V_TUPLE: return TABLE(list_methods);
    case V_CYCLER: return TABLE(cycle_methods);
    case V_LOOP: return TABLE(loop_methods);
    default: return (BuiltinTable){0};
    }
}

const Builtin *builtin_find_method(Value of, Str name, bool *safe) {
    *safe = true;
    if (value_is(of, V_TUPLE) && str_is(name, "copy")) return NULL;
    const Builtin *b = builtin_find(builtin_methods((ValueType)of.type), name);
    bool dict = value_is(of, V_DICT), list = value_is(of, V_LIST);
    if (b || (!dict && !list)) return b;
    *safe = false;
    return dict ? builtin_find(TABLE(dict_unsafe), name) : builtin_find(TABLE(list_unsafe), name);
}

// ---- loop -----------------------------------------------------------------------------------------------------------

static Value loop_cycle(JinjaRun *r, Value v, JinjaArgs *a) {
    const Loop *l = v.object;
    if (a->n == 0) heap_fail(r->h, "no items for cycling given");
    return run_failed(r) ? value_none() : a->items[l->i % a->n];
}

static Value loop_changed(JinjaRun *r, Value v, JinjaArgs *a) {
    Loop *l = v.object;
    Value now = value_list(r->h, V_TUPLE, a->items, a->n);
    bool changed = value_is(l->seen, V_ABSENT) || !value_equal(r->h, l->seen, now);
    if (changed) l->seen = now;
    return value_bool(changed);
}

Value loop_attribute(JinjaRun *r, Value v, Str name) {
    const Loop *l = v.object;
    int64_t i = (int64_t)l->i, n = (int64_t)l->n;
    const Builtin *b = builtin_find(builtin_methods(V_LOOP), name);
    if (b) return value_method(r, v, b);
    if (str_is(name, "index")) return value_int(i + 1);
    if (str_is(name, "index0")) return value_int(i);
    if (str_is(name, "revindex")) return value_int(n - i);
    if (str_is(name, "revindex0")) return value_int(n - i - 1);
    if (str_is(name, "first")) return value_bool(i == 0);
    if (str_is(name, "last")) return value_bool(i == n - 1);
    if (str_is(name, "length")) return value_int(n);
    if (str_is(name, "depth")) return value_int(l->depth + 1);
    if (str_is(name, "depth0")) return value_int(l->depth);
    if (str_is(name, "previtem")) return i > 0 ? l->items[i - 1] : value_undefined(r->h, "there is no previous item");
    if (str_is(name, "nextitem")) return i + 1 < n ? l->items[i + 1] : value_undefined(r->h, "there is no next item");
    return value_undefined(r->h, "'jinja2.runtime.LoopContext object' has no attribute '%.*s'",
                           int_min((int)name.n, 200), name.data);
}

// ---- functions ------------------------------------------------------------------------------------------------------

enum { RANGE_MOST = 100000 }; // MAX_RANGE of Jinja2's sandbox

// How many of from, from + step, ... are before `to`. A difference of 64-bit integers fits an unsigned one.
static size_t range_length(int64_t from, int64_t to, int64_t step) {
    bool any = step > 0 ? from < to : from > to;
    uint64_t distance = step > 0 ? (uint64_t)to - (uint64_t)from : (uint64_t)from - (uint64_t)to;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return any ? (size_t)((distance - 1) / stride + 1) : 0;
}

static bool any_foreign(const JinjaArgs *a) {
    for (int i = 0; i < ARG_SLOTS; i++)
        if (given(a, i) && a->slot[i].foreign) return true;
    return false;
}

static Value g_range(JinjaRun *r, Value self, JinjaArgs *a) {
    (void)self;
    bool two = given(a, 1);
    int64_t from = two ? integer_arg(r, a, 0, "range", 0) : 0, to = integer_arg(r, a, two, "range", 0);
    int64_t step = integer_arg(r, a, 2, "range", 1);
    if (step == 0) heap_fail(r->h, "range() arg 3 must not be zero");
    if (run_failed(r)) return value_none();
    size_t n = range_length(from, to, step);
    if (n > RANGE_MOST) {
        heap_fail(r->h, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", RANGE_MOST);
        return value_none();
    }
    Value list = value_new_list(r->h, V_RANGE, n);
    list.foreign = any_foreign(a);
    for (size_t i = 0; i < list.list->n; i++) {
        list.list->items[i] = value_int((int64_t)((uint64_t)from + i * (uint64_t)step)); // within from and to
        list.list->items[i].foreign = list.foreign;
    }
    memcpy(list.list->range, (int64_t[]){from, to, step}, sizeof list.list->range);
    return list;
}

// Makes a dict from a mapping or from pairs, and from the named arguments.
static Value make_dict(JinjaRun *r, ValueType type, const JinjaArgs *a) {
    Value out = value_dict(r->h), *items;
    size_t n, n_pair;
    out.type = (uint8_t)type;
    if (a->n > 1) heap_fail(r->h, "dict expected at most 1 argument, got %zu", a->n);
    bool mapping = a->n == 1 && value_is(a->items[0], V_DICT);
    for (size_t i = 0; mapping && i < a->items[0].dict->n && !run_failed(r); i++)
        dict_set(r->h, out.dict, a->items[0].dict->keys[i], a->items[0].dict->values[i]);
    if (a->n == 1 && !mapping && value_items(r->h, a->items[0], &items, &n))
        for (size_t i = 0; i < n && !run_failed(r); i++) {
            Value *pair;
            if (value_items(r->h, items[i], &pair, &n_pair) && n_pair == 2) dict_set(r->h, out.dict, pair[0], pair[1]);
            else heap_fail(r->h, "a dictionary's entries are pairs, which element %zu is not", i);
        }
    for (size_t i = 0; a->named && i < a->named->n && !run_failed(r); i++)
        dict_set(r->h, out.dict, a->named->keys[i], a->named->values[i]);
    return out;
}

static Value g_dict(JinjaRun *r, Value self, JinjaArgs *a) {
    (void)self;
    return make_dict(r, V_DICT, a);
}
static Value g_namespace(JinjaRun *r, Value self, JinjaArgs *a) {
    (void)self;
    return make_dict(r, V_NAMESPACE, a);
}

static Value g_raise_exception(JinjaRun *r, Value self, JinjaArgs *a) {
    (void)self;
    MarkedText why = value_str(r->h, a->slot[0]);
    heap_fail(r->h, "%.*s", int_min((int)why.n, 800), why.data);
    return value_none();
}

static Value g_strftime_now(JinjaRun *r, Value self, JinjaArgs *a) {
    (void)self;
    MarkedText format = string(r, a, 0, "strftime_now");
    char out[512] = "", form[256];
    if (format.n >= sizeof form || memchr(format.data, 0, format.n))
        heap_fail(r->h, "strftime_now: a format of at most 255 bytes expected");
    if (run_failed(r)) return value_none();
    memcpy(form, format.data, format.n);
    form[format.n] = 0;
    size_t n = strftime(out, sizeof out, form, r->now);
    TextOut all = {.h = r->h};
    text_put_bytes(&all, out, n,
                   text_trusted(format)); // all bytes get the format's trust: strftime mixes their sources
    return run_text(r, text_done(&all));
}

static Value make_cycle(JinjaRun *r, ValueType type, Value *items, size_t n) {
    Cycle *c = heap_alloc(r->h, sizeof *c);
    *c = (Cycle){items, n, 0};
    return (Value){.type = (uint8_t)type, .object = c};
}

static Value g_joiner(JinjaRun *r, Value self, JinjaArgs *a) {
    (void)self;
    Value *sep = heap_alloc(r->h, sizeof *sep);
    *sep = given(a, 0) ? a->slot[0] : value_string(r->h, str_of(", "), true);
    return make_cycle(r, V_JOINER, sep, 1);
}

static Value g_cycler(JinjaRun *r, Value self, JinjaArgs *a) {
    (void)self;
    if (a->n == 0) heap_fail(r->h, "at least one item has to be provided");
    return make_cycle(r, V_CYCLER, a->items, a->n);
}

static Value c_next(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)r;
    (void)a;
    Cycle *c = v.object;
    return c->items[c->at++ % c->n];
}

static Value c_reset(JinjaRun *r, Value v, JinjaArgs *a) {
    (void)r;
    (void)a;
    ((Cycle *)v.object)->at = 0;
    return value_none();
}

static const Builtin functions[] = {
    {"range", "start! stop step", g_range},
    {"dict", NULL, g_dict},
    {"namespace", NULL, g_namespace},
    {"raise_exception", "message!", g_raise_exception},
    {"strftime_now", "format!", g_strftime_now},
    {"joiner", "sep", g_joiner},
    {"cycler", NULL, g_cycler},
};

BuiltinTable builtin_functions(void) { return TABLE(functions); }
