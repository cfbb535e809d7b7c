// jinja/value.h: the values that a template computes with, and the memory, budget and first error of one run.
//
// Values behave as Python's do where a template can see them. A string knows of every byte whether the template (or
// quill itself) wrote it or it came with a message: that is its trust, kept through every operation. Nothing is
// freed before the heap is: a run allocates from chunks, bounded by `room`.
//
// Errors are sticky: the first heap_fail stays, functions return undefined from then on, loops look at heap->failed.
#ifndef QUILL_JINJA_VALUE_H
#define QUILL_JINJA_VALUE_H

#include "base/hash.h"
#include "base/base.h"

typedef struct Chunk Chunk;

typedef struct {
    Chunk *chunks;
    size_t room;   // bytes that may still be allocated
    int64_t steps; // that may still be taken
    int depth;     // of C calls that follow the template's or a value's nesting
    int line;      // of what runs, for messages; 0: unknown
    HashKey hash;  // of its dicts
    Status failed; // the first error
} Heap;

enum { HEAP_DEPTH = 800 }; // an expression in a template's function that calls itself takes some ten

Heap *heap_new(size_t room, int64_t steps);
void heap_free(Heap *h);           // NULL is fine
bool heap_fits(Heap *h, size_t n); // there is room for n bytes; false: the heap has failed. For sizes that data decides
void *heap_alloc(Heap *h, size_t n); // zeroed, never NULL: without room the heap fails and what was asked is given
bool heap_work(Heap *h, size_t n);   // takes n steps; false: the heap has failed
bool heap_enter(Heap *h);            // one level deeper; false: failed, and heap_leave is not due
static inline void heap_leave(Heap *h) { h->depth--; }
void heap_fail(Heap *h, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef enum {
    V_UNDEFINED, // prints nothing; any other use fails with the text, which says what is missing
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_RANGE,
    V_VIEW,   // dict.items() and the like: a length, no index
    V_STREAM, // what a generator gives: once, no length
    V_DICT,
    V_NAMESPACE, // a dict whose fields {% set %} changes
    V_LOOP,
    V_MACRO,
    V_FUNCTION,
    V_METHOD, // a function with the value it belongs to
    V_JOINER,
    V_CYCLER,
    V_ABSENT, // an argument that was not given
} ValueType;

// A string; a view as often as not.
typedef struct {
    const char *data;
    const uint8_t *marks; // (n) 1: trusted; NULL: all bytes as `trusted` says
    size_t n;
    bool trusted;
    bool markup; // |escape has been over it, so that it does not go over it again
} MarkedText;

typedef struct List List;
typedef struct Dict Dict;

typedef struct {
    uint8_t type; // a ValueType
    bool foreign; // a number, truth or none that came with a message: so do its digits
    union {
        bool b;
        int64_t i;
        double f;
        const MarkedText *text;
        List *list;
        Dict *dict;
        void *object; // what jinja/run.c makes of the rest
    };
} Value;

struct List {
    Value *items; // (n)
    size_t n;
    size_t at;        // V_STREAM: how many were taken
    const char *name; // V_VIEW: "dict_items"; V_RANGE: NULL, and three numbers to print
    int64_t range[3];
};

struct Dict {
    Value *keys, *values; // (n), in the order of their first insertion
    size_t n, cap;
    uint32_t
        *slots;     // (n_slots) by the hash of a string key: its number + 1; 0: empty. NULL: few keys, which are walked
    size_t n_slots; // a power of two, at least twice cap
    HashKey hash;
};

// ---- making ---------------------------------------------------------------------------------------------------------

static inline Value value_none(void) { return (Value){.type = V_NONE}; }
static inline Value value_bool(bool b) { return (Value){.type = V_BOOL, .b = b}; }
static inline Value value_int(int64_t i) { return (Value){.type = V_INT, .i = i}; }
static inline Value value_float(double f) { return (Value){.type = V_FLOAT, .f = f}; }
static inline MarkedText text_of(const char *c_string) {
    return (MarkedText){str_of(c_string).data, NULL, str_of(c_string).n, true, false};
}
static inline Str text_str(MarkedText t) { return (Str){t.data, t.n}; }
Value value_text(Heap *h, MarkedText t);              // the bytes stay where they are
Value value_string(Heap *h, Str bytes, bool trusted); // so here: the caller keeps them alive
Value value_list(Heap *h, ValueType type, Value *items, size_t n);
Value value_new_list(Heap *h, ValueType type, size_t n); // n items, undefined, for the caller to fill
Value value_pair(Heap *h, Value a, Value b);
Value value_dict(Heap *h);
Value value_undefined(Heap *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dict_set(Heap *h, Dict *d, Value key, Value value); // fails for a key that has no hash in Python
void dict_set_str(Heap *h, Dict *d, const char *key, Value value);
void dict_set_name(Heap *h, Dict *d, Str key, Value value); // a trusted key, whose bytes stay where they are

// ---- looking --------------------------------------------------------------------------------------------------------

static inline bool value_is(Value v, ValueType type) { return v.type == (uint8_t)type; }
static inline bool value_is_number(Value v) { return v.type == V_BOOL || v.type == V_INT || v.type == V_FLOAT; }
static inline bool value_is_list(Value v) { return v.type >= V_LIST && v.type <= V_STREAM; }
static inline bool value_has_index(Value v) { return v.type >= V_LIST && v.type <= V_RANGE; }
const Value *dict_get(Heap *h, const Dict *d, Value key); // NULL: none
const Value *dict_get_str(const Dict *d, Str key);        // the same by bytes
const char *value_type_name(Value v);                     // Python's: "str", "NoneType"
double value_number(Value v);                             // of a number
bool value_truth(Value v);
bool value_equal(Heap *h, Value a, Value b);
// -1, 0, 1 in Python's order; fails where Python has none. `op` is for the message: "<".
int value_compare(Heap *h, Value a, Value b, const char *op);
bool value_contains(Heap *h, Value container, Value item); // item in container
// The items that a for loop goes over. False: failed, there are none. A stream is used up.
bool value_items(Heap *h, Value v, Value **items, size_t *n);
int64_t value_length(Heap *h, Value v); // -1: failed, it has none

#endif
