// jinja/run.h: what the parts of the interpreter share: the run, and how filters, tests, methods and functions are
// found and called. jinja/run.c walks the tree; jinja/filters.c and jinja/calls.c are the tables.
#ifndef QUILL_JINJA_RUN_H
#define QUILL_JINJA_RUN_H

#include <time.h>

#include "jinja/ops.h"
#include "jinja/print.h"

typedef struct Scope Scope;

typedef struct {
    Heap *h;
    const Dict *variables;
    const struct tm *now;
    Scope *scope;
    TextOut *out; // where {{ }} prints
} JinjaRun;

static inline bool run_failed(const JinjaRun *r) { return r->h->failed.code != 0; }
static inline Value run_text(JinjaRun *r, MarkedText t) { return value_text(r->h, t); }

enum { ARG_SLOTS = 6 };

// The arguments of a call.
typedef struct {
    Value *items; // (n) by position
    size_t n;
    Dict *named;           // NULL: none
    Value slot[ARG_SLOTS]; // by the signature's names, V_ABSENT where not given
} JinjaArgs;

typedef Value Function(JinjaRun *r, Value self, JinjaArgs *a);

// `signature`: the arguments' names, ! behind those that must be given; NULL: the function looks at items and named.
typedef struct {
    const char *name, *signature;
    Function *run;
} Builtin;

static inline bool given(const JinjaArgs *a, int slot) { return a->slot[slot].type != V_ABSENT; }

typedef struct {
    const Builtin *rows; // (n)
    size_t n;
} BuiltinTable;

// All that a template can call.
BuiltinTable builtin_filters(void);
BuiltinTable builtin_tests(void);
BuiltinTable builtin_functions(void);
BuiltinTable builtin_methods(ValueType of);                // those that change nothing; none: n == 0
const Builtin *builtin_find(BuiltinTable table, Str name); // NULL: none
// A method of a value's type. *safe false: one that would change the value, which no template may.
const Builtin *builtin_find_method(Value of, Str name, bool *safe);
Value run_named_filter(JinjaRun *r, Str name, Value v, JinjaArgs *a);
bool run_named_test(JinjaRun *r, Str name, Value v, JinjaArgs *a);

Value value_attribute(JinjaRun *r, Value of, Str name); // of.name
Value value_path(JinjaRun *r, Value of, Value path);    // of.a.b or of[0], as filters write it: "a.b", 0

// A for loop's `loop`.
typedef struct {
    Value *items; // (n)
    size_t n, i;
    Value seen;              // what changed() was asked about last
    const struct Node *node; // the loop that goes on in loop(); NULL: it is not recursive
    Scope *scope;            // around it
    int depth;               // 0: it was not called
} Loop;
Value loop_attribute(JinjaRun *r, Value loop, Str name);

typedef struct {
    const Builtin *builtin;
    Value self;
} Method;
Value value_method(JinjaRun *r, Value self, const Builtin *b); // self.b, to be called later

// A text that goes round (cycler) or comes from the second time on (joiner).
typedef struct {
    Value *items;
    size_t n, at;
} Cycle;

#endif
