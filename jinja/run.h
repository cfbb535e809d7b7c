// jinja/run.h: shared by the parts of the interpreter: the state of a run, and how filters, tests, methods and
// functions are found and called. jinja/run.c walks the tree; jinja/filters.c and jinja/calls.c have the tables.
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
    Value slot[ARG_SLOTS]; // in the order of the signature; V_ABSENT: not given
} JinjaArgs;

typedef Value Function(JinjaRun *r, Value self, JinjaArgs *a);

// `signature`: the arguments' names, with ! after required ones. NULL: the function reads `items` and `named` itself.
typedef struct {
    const char *name, *signature;
    Function *run;
} Builtin;

static inline bool given(const JinjaArgs *a, int slot) { return a->slot[slot].type != V_ABSENT; }

typedef struct {
    const Builtin *rows; // (n)
    size_t n;
} BuiltinTable;

// Everything that a template can call.
BuiltinTable builtin_filters(void);
BuiltinTable builtin_tests(void);
BuiltinTable builtin_functions(void);
BuiltinTable builtin_methods(ValueType of);                // methods that do not change the value; n == 0: none
const Builtin *builtin_find(BuiltinTable table, Str name); // NULL: none
// A method of a value's type. *safe false: it would change the value, which templates must not do.
const Builtin *builtin_find_method(Value of, Str name, bool *safe);
Value run_named_filter(JinjaRun *r, Str name, Value v, JinjaArgs *a);
bool run_named_test(JinjaRun *r, Str name, Value v, JinjaArgs *a);

// A method or a field of the value itself, not one of its items; undefined if there is none.
Value value_own_attribute(JinjaRun *r, Value of, Str name);
// of.a.b or of[0]. The path is "a.b" or 0, as in filters; None or V_ABSENT: `of` itself.
Value value_path(JinjaRun *r, Value of, Value path);
// The same with a value for each undefined part of the path. missing NULL or None: there is no such value.
Value value_path_or(JinjaRun *r, Value of, Value path, const Value *missing);

// A for loop's `loop`.
typedef struct {
    Value *items; // (n)
    size_t n, i;
    Value seen;              // the last argument of changed()
    const struct Node *node; // the loop that loop() runs again; NULL: it is not recursive
    Scope *scope;            // the scope around the loop
    int depth;               // recursion depth; 0: not called by loop()
} Loop;
Value loop_attribute(JinjaRun *r, Value loop, Str name);

typedef struct {
    const Builtin *builtin;
    Value self;
} Method;
Value value_method(JinjaRun *r, Value self, const Builtin *b); // self.b, to be called later

// State of a cycler, which returns its items in turn, or of a joiner, which returns its text from the second call on.
typedef struct {
    Value *items;
    size_t n, at;
} Cycle;

#endif
