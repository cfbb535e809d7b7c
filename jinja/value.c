// jinja/value.c: see jinja/value.h.
#define _GNU_SOURCE
#include "jinja/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// ---- the heap -------------------------------------------------------------------------------------------------------

enum { CHUNK = 1 << 16, ALIGN = 16 };

struct Chunk {
    Chunk *next;
    size_t n, cap; // bytes of data used, and allocated
    _Alignas(ALIGN) char data[];
};

// The levels for which the stack has room: a level takes up to half a KiB, and three quarters of the stack are for
// them.
static int deepest(void) {
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur / 1024 * 3 / 4 >= HEAP_DEPTH) return HEAP_DEPTH;
    return (int)(stack.rlim_cur / 1024 * 3 / 4);
}

Heap *heap_new(size_t room, int64_t steps) {
    Heap *h = mem_alloc(sizeof *h);
    h->deepest = deepest();
    h->room = room;
    h->steps = steps;
    h->hash = hash_key();
    return h;
}

void heap_free(Heap *h) {
    if (!h) return;
    for (Chunk *c = h->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(h);
}

void heap_fail(Heap *h, const char *format, ...) {
    if (h->failed.code) return;
    char text[900];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (h->line) h->failed = status_error(QUILL_MODEL, "line %d: %s", h->line, text);
    else h->failed = status_error(QUILL_MODEL, "%s", text);
}

bool heap_fits(Heap *h, size_t n) {
    if (n > h->room) heap_fail(h, "the template takes more memory than a prompt can need");
    return !h->failed.code;
}

void *heap_alloc(Heap *h, size_t n) {
    n = round_up(n ? n : 1, ALIGN);
    heap_fits(h, n);
    h->room -= n < h->room ? n : h->room;
    Chunk *c = h->chunks;
    if (!c || c->cap - c->n < n) {
        size_t cap = n > CHUNK ? n : CHUNK;
        c = mem_alloc(sizeof *c + cap);
        c->cap = cap;
        bool large = n > CHUNK && h->chunks; // a large chunk goes after the first one, which still has room
        c->next = large ? h->chunks->next : h->chunks;
        if (large) h->chunks->next = c;
        else h->chunks = c;
    }
    void *p = c->data + c->n;
    c->n += n;
    return p;
}

bool heap_work(Heap *h, size_t n) {
    if (h->failed.code) return false;
    h->steps -= n > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)n;
    if (h->steps < 0) heap_fail(h, "the template runs longer than a prompt can need");
    return h->steps >= 0;
}

bool heap_enter(Heap *h) {
    if (h->failed.code) return false;
    if (h->depth >= h->deepest) {
        heap_fail(h, "the template nests deeper than %d levels", h->deepest);
        return false;
    }
    h->depth++;
    return true;
}

// ---- making ---------------------------------------------------------------------------------------------------------

Value value_text(Heap *h, MarkedText t) {
    MarkedText *copy = heap_alloc(h, sizeof *copy);
    *copy = t;
    return (Value){.type = V_STRING, .text = copy};
}

Value value_string(Heap *h, Str bytes, bool trusted) {
    return value_text(h, (MarkedText){.data = bytes.n ? bytes.data : "", .n = bytes.n, .trusted = trusted});
}

Value value_list(Heap *h, ValueType type, Value *items, size_t n) {
    List *list = heap_alloc(h, sizeof *list);
    *list = (List){.items = items, .n = n};
    return (Value){.type = (uint8_t)type, .list = list};
}

Value value_new_list(Heap *h, ValueType type, size_t n) {
    size_t bytes;
    if (!size_mul(n, sizeof(Value), &bytes)) bytes = SIZE_MAX;
    if (!heap_fits(h, bytes)) n = bytes = 0;
    return value_list(h, type, heap_alloc(h, bytes), n);
}

Value value_pair(Heap *h, Value a, Value b) {
    Value pair = value_new_list(h, V_TUPLE, 2);
    if (pair.list->n == 2) pair.list->items[0] = a, pair.list->items[1] = b;
    return pair;
}

Value value_dict(Heap *h) { return (Value){.type = V_DICT, .dict = heap_alloc(h, sizeof(Dict))}; }

Value value_undefined(Heap *h, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t kept = n < 0 ? 0 : utf8_whole(text, (size_t)int_min(n, (int)sizeof text - 1));
    char *copy = heap_alloc(h, kept);
    memcpy(copy, text, kept);
    Value v = value_string(h, (Str){copy, kept}, true);
    v.type = V_UNDEFINED;
    return v;
}

static bool has_hash(Heap *h, Value v) {
    if (value_is(v, V_TUPLE) && heap_work(h, v.list->n / 16))
        for (size_t i = 0; i < v.list->n; i++)
            if (value_is_list(v.list->items[i]) || value_is(v.list->items[i], V_DICT)) return false;
    return !value_is(v, V_LIST) && !value_is(v, V_DICT);
}

enum { FEW_KEYS = 8 }; // up to this number of keys is searched in order; larger dicts have an index of string keys

// The slot that has the key, or the empty slot where it would be inserted.
static uint32_t *slot_of(const Dict *d, Str key) {
    size_t at = hash_bytes(d->hash, key.data, key.n) & (d->n_slots - 1);
    while (d->slots[at] && !str_eq(text_str(*d->keys[d->slots[at] - 1].text), key)) at = (at + 1) & (d->n_slots - 1);
    return &d->slots[at];
}

static void index_key(Dict *d, size_t i) {
    if (d->slots && value_is(d->keys[i], V_STRING)) *slot_of(d, text_str(*d->keys[i].text)) = (uint32_t)i + 1;
}

// Makes room for more keys. False: the heap has failed, nothing has changed.
static bool grow_dict(Heap *h, Dict *d) {
    size_t cap = d->cap ? d->cap * 2 : 2, n_slots = cap > FEW_KEYS ? 2 * cap : 0;
    if (cap > UINT32_MAX / 4 || !heap_fits(h, cap * 2 * sizeof(Value) + n_slots * sizeof *d->slots)) return false;
    Value *keys = heap_alloc(h, cap * sizeof *keys), *values = heap_alloc(h, cap * sizeof *values);
    if (d->n) memcpy(keys, d->keys, d->n * sizeof *keys), memcpy(values, d->values, d->n * sizeof *values);
    d->keys = keys, d->values = values, d->cap = cap;
    if (n_slots) d->slots = heap_alloc(h, n_slots * sizeof *d->slots), d->n_slots = n_slots, d->hash = h->hash;
    for (size_t i = 0; i < d->n; i++) index_key(d, i);
    return !h->failed.code;
}

static void add_key(Heap *h, Dict *d, Value key, Value value) {
    if (d->n == d->cap && !grow_dict(h, d)) return;
    d->keys[d->n] = key;
    d->values[d->n] = value;
    index_key(d, d->n++);
}

void dict_set(Heap *h, Dict *d, Value key, Value value) {
    if (!has_hash(h, key)) heap_fail(h, "unhashable type: '%s'", value_type_name(key));
    Value *old = (Value *)dict_get(h, d, key);
    if (h->failed.code) return;
    if (old) *old = value;
    else add_key(h, d, key, value);
}

void dict_set_name(Heap *h, Dict *d, Str key, Value value) {
    Value *old = (Value *)dict_get_str(d, key);
    if (old) *old = value;
    else add_key(h, d, value_string(h, key, true), value);
}

void dict_set_str(Heap *h, Dict *d, const char *key, Value value) {
    dict_set(h, d, value_string(h, str_of(key), true), value);
}

// ---- reading --------------------------------------------------------------------------------------------------------

const Value *dict_get_str(const Dict *d, Str key) {
    if (d->slots) {
        uint32_t found = *slot_of(d, key);
        return found ? &d->values[found - 1] : NULL;
    }
    for (size_t i = 0; i < d->n; i++)
        if (value_is(d->keys[i], V_STRING) && str_eq(text_str(*d->keys[i].text), key)) return &d->values[i];
    return NULL;
}

const Value *dict_get(Heap *h, const Dict *d, Value key) {
    if (!heap_work(h, value_is(key, V_STRING) ? key.text->n / 64 : d->n / 4)) return NULL;
    if (value_is(key, V_STRING)) return dict_get_str(d, text_str(*key.text));
    for (size_t i = 0; i < d->n; i++)
        if (value_equal(h, d->keys[i], key)) return &d->values[i];
    return NULL;
}

const char *value_type_name(Value v) {
    static const char *const names[] = {
        [V_UNDEFINED] = "Undefined", [V_NONE] = "NoneType",    [V_BOOL] = "bool",        [V_INT] = "int",
        [V_FLOAT] = "float",         [V_STRING] = "str",       [V_LIST] = "list",        [V_TUPLE] = "tuple",
        [V_RANGE] = "range",         [V_VIEW] = "dict_view",   [V_STREAM] = "generator", [V_DICT] = "dict",
        [V_NAMESPACE] = "Namespace", [V_LOOP] = "LoopContext", [V_MACRO] = "Macro",      [V_FUNCTION] = "function",
        [V_METHOD] = "method",       [V_JOINER] = "Joiner",    [V_CYCLER] = "Cycler",    [V_ABSENT] = "nothing",
    };
    return value_is(v, V_VIEW) ? v.list->name : names[v.type];
}

double value_number(Value v) { return v.type == V_FLOAT ? v.f : v.type == V_INT ? (double)v.i : v.b; }

bool value_truth(Value v) {
    switch ((ValueType)v.type) {
    case V_UNDEFINED:
    case V_NONE:
    case V_ABSENT: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_STRING: return v.text->n > 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW: return v.list->n > 0;
    case V_DICT: return v.dict->n > 0;
    default: return true;
    }
}

static bool equal_lists(Heap *h, const List *a, const List *b) {
    if (a->n != b->n || !heap_enter(h)) return false;
    bool same = true;
    for (size_t i = 0; i < a->n && same; i++) same = value_equal(h, a->items[i], b->items[i]);
    heap_leave(h);
    return same;
}

static bool equal_dicts(Heap *h, const Dict *a, const Dict *b) {
    if (a->n != b->n || !heap_enter(h)) return false;
    bool same = true;
    for (size_t i = 0; i < a->n && same; i++) {
        const Value *other = dict_get(h, b, a->keys[i]);
        same = other && value_equal(h, a->values[i], *other);
    }
    heap_leave(h);
    return same;
}

bool value_equal(Heap *h, Value a, Value b) {
    if (!heap_work(h, 1)) return false;
    if (value_is_number(a) && value_is_number(b)) {
        if (a.type != V_FLOAT && b.type != V_FLOAT)
            return (a.type == V_INT ? a.i : a.b) == (b.type == V_INT ? b.i : b.b);
        return value_number(a) == value_number(b);
    }
    if (a.type != b.type) return false;
    switch ((ValueType)a.type) {
    case V_STRING: return heap_work(h, a.text->n / 64) && str_eq(text_str(*a.text), text_str(*b.text));
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE: return equal_lists(h, a.list, b.list);
    case V_DICT: return equal_dicts(h, a.dict, b.dict);
    default: return a.object == b.object;
    }
}

static int compare_strings(Str a, Str b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.data, b.data, n) : 0; // UTF-8 bytes sort in the order of code points
    if (order == 0) order = a.n < b.n ? -1 : a.n > b.n;
    return order < 0 ? -1 : order > 0;
}

static int compare_lists(Heap *h, const List *a, const List *b, const char *op) {
    if (!heap_enter(h)) return 0;
    int order = 0;
    size_t i = 0;
    for (; i < a->n && i < b->n && !h->failed.code && order == 0; i++)
        if (!value_equal(h, a->items[i], b->items[i])) order = value_compare(h, a->items[i], b->items[i], op);
    if (order == 0) order = a->n < b->n ? -1 : a->n > b->n;
    heap_leave(h);
    return order;
}

int value_compare(Heap *h, Value a, Value b, const char *op) {
    if (!heap_work(h, 1)) return 0;
    if (value_is_number(a) && value_is_number(b)) {
        if (a.type == V_INT && b.type == V_INT) return a.i < b.i ? -1 : a.i > b.i;
        double x = value_number(a), y = value_number(b);
        return x < y ? -1 : x > y;
    }
    if (value_is(a, V_STRING) && value_is(b, V_STRING))
        return heap_work(h, a.text->n / 64) ? compare_strings(text_str(*a.text), text_str(*b.text)) : 0;
    if (a.type == b.type && (value_is(a, V_LIST) || value_is(a, V_TUPLE))) return compare_lists(h, a.list, b.list, op);
    Value missing = value_is(a, V_UNDEFINED) ? a : b;
    if (value_is(missing, V_UNDEFINED)) heap_fail(h, "%.*s", (int)missing.text->n, missing.text->data);
    heap_fail(h, "'%s' not supported between instances of '%s' and '%s'", op, value_type_name(a), value_type_name(b));
    return 0;
}

bool value_contains(Heap *h, Value container, Value item) {
    if (value_is(container, V_STRING)) {
        if (!value_is(item, V_STRING))
            heap_fail(h, "'in <string>' requires string as left operand, not %s", value_type_name(item));
        if (!heap_work(h, container.text->n / 64) || h->failed.code) return false;
        return item.text->n == 0 ||
               memmem(container.text->data, container.text->n, item.text->data, item.text->n) != NULL;
    }
    if (value_is(container, V_DICT)) {
        if (!has_hash(h, item)) heap_fail(h, "unhashable type: '%s'", value_type_name(item));
        return dict_get(h, container.dict, item) != NULL;
    }
    if (!value_is_list(container) && !value_is(container, V_UNDEFINED)) {
        heap_fail(h, "argument of type '%s' is not iterable", value_type_name(container));
        return false;
    }
    Value *items;
    size_t n;
    if (!value_items(h, container, &items, &n)) return false;
    for (size_t i = 0; i < n; i++)
        if (value_equal(h, items[i], item)) return true;
    return false;
}

static void string_items(Heap *h, const MarkedText *t, Value **items, size_t *n) {
    size_t chars = 0, i = 0;
    for (size_t at = 0; at < t->n; chars++) at += (size_t)int_max(1, utf8_next(t->data + at, t->n - at));
    Value list = heap_work(h, chars) ? value_new_list(h, V_LIST, chars) : value_new_list(h, V_LIST, 0);
    for (size_t at = 0; i < list.list->n && !h->failed.code; i++) {
        size_t len = (size_t)int_max(1, utf8_next(t->data + at, t->n - at));
        MarkedText one = {t->data + at, t->marks ? t->marks + at : NULL, len, t->trusted, t->markup};
        list.list->items[i] = value_text(h, one);
        at += len;
    }
    *items = list.list->items;
    *n = i;
}

bool value_items(Heap *h, Value v, Value **items, size_t *n) {
    *items = NULL;
    *n = 0;
    if (h->failed.code) return false;
    if (value_is_list(v)) {
        *items = v.list->items + v.list->at;
        *n = v.list->n - v.list->at;
        if (value_is(v, V_STREAM)) v.list->at = v.list->n;
    } else if (value_is(v, V_DICT)) {
        *items = v.dict->keys;
        *n = v.dict->n;
    } else if (value_is(v, V_STRING)) string_items(h, v.text, items, n);
    else if (!value_is(v, V_UNDEFINED)) heap_fail(h, "'%s' object is not iterable", value_type_name(v));
    return heap_work(h, *n / 4);
}

int64_t value_length(Heap *h, Value v) {
    if (value_is(v, V_UNDEFINED)) return 0;
    if (value_is(v, V_DICT)) return (int64_t)v.dict->n;
    if (value_is_list(v) && !value_is(v, V_STREAM)) return (int64_t)v.list->n;
    if (!value_is(v, V_STRING)) {
        heap_fail(h, "object of type '%s' has no len()", value_type_name(v));
        return -1;
    }
    int64_t chars = 0;
    for (size_t at = 0; at < v.text->n; chars++) at += (size_t)int_max(1, utf8_next(v.text->data + at, v.text->n - at));
    return heap_work(h, v.text->n / 64) ? chars : -1;
}
