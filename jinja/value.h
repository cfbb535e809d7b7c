// jinja/value.h: the values of a template, and the heap: memory, step budget and first error of one run.
//
// Values behave like Python's. Every byte of a string has a trust flag: set if the template or quill itself wrote the
// byte, clear if it came with a message. All operations keep these flags. A run allocates from chunks, bounded by
// `room`; memory is freed only with the heap.
//
// Errors are sticky: the first heap_fail is kept, functions return undefined after it, and loops check heap->failed.
#ifndef QUILL_JINJA_VALUE_H
#define QUILL_JINJA_VALUE_H

#include "base/hash.h"
#include "base/base.h"

typedef struct Chunk Chunk;

typedef struct {
    Chunk *chunks;
    size_t room;   // bytes that may still be allocated
    int64_t steps; // steps that may still be taken
    int depth;     // depth of recursion in C, which follows the nesting of the template or of a value
    int deepest;   // its limit: HEAP_DEPTH, less on a small stack
    int line;      // the current line of the template, for messages; 0: unknown
    HashKey hash;  // hash key of all its dicts
    Status failed; // the first error
} Heap;

enum { HEAP_DEPTH = 800 }; // a recursive call of a macro inside an expression takes about ten levels

Heap *heap_new(size_t room, int64_t steps);
void heap_free(Heap *h);             // NULL is fine
bool heap_fits(Heap *h, size_t n);   // false: no room for n bytes, the heap has failed. For sizes that depend on input
void *heap_alloc(Heap *h, size_t n); // zeroed, never NULL: beyond `room` the heap fails, but the memory is allocated
bool heap_work(Heap *h, size_t n);   // takes n steps; false: none are left, the heap has failed
bool heap_enter(Heap *h);            // one level deeper; false: too deep, the heap has failed; do not call heap_leave
static inline void heap_leave(Heap *h) { h->depth--; }
void heap_fail(Heap *h, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef enum {
    V_UNDEFINED, // prints nothing; any other use fails with its text, which names the missing thing
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_RANGE,
    V_VIEW,   // dict.items() and the like: a length, no index
    V_STREAM, // a generator: can be read once, has no length
    V_DICT,
    V_NAMESPACE, // a dict whose fields {% set %} changes
    V_LOOP,
    V_MACRO,
    V_FUNCTION,
    V_METHOD, // a method bound to its value
    V_JOINER,
    V_CYCLER,
    V_ABSENT, // an argument that was not given
} ValueType;

// A string, or a view of a part of one.
typedef struct {
    const char *data;
    const uint8_t *marks; // (n) 1: trusted; NULL: `trusted` holds for all bytes
    size_t n;
    bool trusted;
    bool markup; // already escaped by |escape, which leaves it unchanged
} MarkedText;

typedef struct List List;
typedef struct Dict Dict;

typedef struct {
    uint8_t type; // a ValueType
    bool foreign; // a number, boolean or None from a message: its printed text is not trusted
    union {
        bool b;
        int64_t i;
        double f;
        const MarkedText *text;
        List *list;
        Dict *dict;
        void *object; // for the other types, used by jinja/run.c
    };
} Value;

struct List {
    Value *items; // (n)
    size_t n;
    size_t at;        // V_STREAM: number of items taken so far
    const char *name; // V_VIEW: "dict_items"; V_RANGE: NULL, its repr prints `range`; V_TUPLE: "group" or NULL
    int64_t range[3];
};

struct Dict {
    Value *keys, *values; // (n), in the order of their first insertion
    size_t n, cap;
    uint32_t *slots; // (n_slots) by hash of a string key: its number + 1; 0: empty. NULL: few keys, searched in order
    size_t n_slots;  // a power of two, at least twice cap
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
Value value_text(Heap *h, MarkedText t);              // bytes are not copied: the caller keeps them alive
Value value_string(Heap *h, Str bytes, bool trusted); // likewise
Value value_list(Heap *h, ValueType type, Value *items, size_t n);
Value value_new_list(Heap *h, ValueType type, size_t n); // n undefined items, for the caller to set
Value value_pair(Heap *h, Value a, Value b);
Value value_dict(Heap *h);
Value value_undefined(Heap *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dict_set(Heap *h, Dict *d, Value key, Value value); // fails for a key that is not hashable in Python
void dict_set_str(Heap *h, Dict *d, const char *key, Value value);
void dict_set_name(Heap *h, Dict *d, Str key, Value value); // the key is trusted and its bytes are not copied

// ---- looking --------------------------------------------------------------------------------------------------------

static inline bool value_is(Value v, ValueType type) { return v.type == (uint8_t)type; }
static inline bool value_is_number(Value v) { return v.type == V_BOOL || v.type == V_INT || v.type == V_FLOAT; }
static inline bool value_is_list(Value v) { return v.type >= V_LIST && v.type <= V_STREAM; }
static inline bool value_has_index(Value v) { return v.type >= V_LIST && v.type <= V_RANGE; }
const Value *dict_get(Heap *h, const Dict *d, Value key); // NULL: none
const Value *dict_get_str(const Dict *d, Str key);        // the same by bytes
const char *value_type_name(Value v);                     // Python's: "str", "NoneType"
double value_number(Value v);                             // v must be a number
bool value_truth(Value v);
bool value_equal(Heap *h, Value a, Value b);
// -1, 0 or 1 by Python's order; fails if Python cannot compare them. `op`, such as "<", is for the message.
int value_compare(Heap *h, Value a, Value b, const char *op);
bool value_contains(Heap *h, Value container, Value item); // item in container
// The items of a for loop over v. False: v cannot be iterated, and the heap has failed. A stream is used up.
bool value_items(Heap *h, Value v, Value **items, size_t *n);
int64_t value_length(Heap *h, Value v); // -1: it has no length, and the heap has failed

#endif
