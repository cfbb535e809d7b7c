// jinja/run.c: walks a template's tree: evaluates expressions, and runs statements, which print text (jinja/jinja.h,
// jinja/run.h).
#include "jinja/run.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/parse.h"

struct Jinja {
    Heap *h; // holds the tree
    Node *first;
};

struct Scope {
    Scope *parent;
    Dict variables;
};

typedef struct {
    const Node *node; // N_MACRO or N_CALL_BLOCK
    Scope *scope;     // where it was written
} Macro;

enum { PARSE_ROOM = 64 << 20 };

Status jinja_parse(Str source, Jinja **out) {
    *out = NULL;
    if (source.n > PARSE_ROOM / 4)
        return status_error(QUILL_MODEL, "a template of at most %d bytes expected, found %zu", PARSE_ROOM / 4,
                            source.n);
    Jinja *t = mem_alloc(sizeof *t);
    t->h = heap_new(PARSE_ROOM, INT64_MAX); // no step limit: parsing takes linear time
    t->first = jinja_tree(t->h, source);
    Status st = t->h->failed;
    if (st.code) jinja_free(t);
    else *out = t;
    return st;
}

void jinja_free(Jinja *t) {
    if (!t) return;
    heap_free(t->h);
    free(t);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static void set_variable(JinjaRun *r, Scope *scope, Str name, Value v) {
    if (heap_work(r->h, 1 + name.n / 64)) dict_set_name(r->h, &scope->variables, name, v);
}

// Costs a step for each scope, plus one for each 64 bytes of the name, which is hashed in each scope.
static const Value *find_variable(JinjaRun *r, Str name) {
    for (const Scope *s = r->scope; s && heap_work(r->h, 1 + name.n / 64); s = s->parent) {
        const Value *v = s->variables.n ? dict_get_str(&s->variables, name) : NULL;
        if (v) return v;
    }
    return run_failed(r) ? NULL : dict_get_str(r->variables, name);
}

static Value undefined_name(JinjaRun *r, Str name) {
    return value_undefined(r->h, "'%.*s' is undefined", int_min((int)name.n, 200), name.data);
}

static Value get_name(JinjaRun *r, Str name) {
    const Value *v = find_variable(r, name);
    if (v) return *v;
    const Builtin *global = builtin_find(builtin_functions(), name);
    return global ? (Value){.type = V_FUNCTION, .object = (void *)global} : undefined_name(r, name);
}

static Scope *enter_scope(JinjaRun *r, Scope *parent) {
    Scope *s = heap_alloc(r->h, sizeof *s);
    s->parent = parent;
    r->scope = s;
    return s;
}

static Value no_attribute(JinjaRun *r, Value of, Str name) {
    if (value_is(of, V_NONE))
        return value_undefined(r->h, "'None' has no attribute '%.*s'", int_min((int)name.n, 200), name.data);
    return value_undefined(r->h, "'%s object' has no attribute '%.*s'", value_type_name(of), int_min((int)name.n, 200),
                           name.data);
}

Value value_method(JinjaRun *r, Value self, const Builtin *b) {
    Method *m = heap_alloc(r->h, sizeof *m);
    *m = (Method){b, self};
    return (Value){.type = V_METHOD, .object = m};
}

// A method or a field of the value itself, not one of its items. *found false: there is none.
static Value own_attribute(JinjaRun *r, Value of, Str name, bool *found) {
    *found = true;
    bool safe;
    if (value_is(of, V_UNDEFINED)) op_undefined(r->h, of);
    if (value_is(of, V_LOOP)) return loop_attribute(r, of, name);
    if (value_is(of, V_NAMESPACE)) {
        const Value *v = dict_get_str(of.dict, name);
        if (v) return *v;
    }
    if (value_is(of, V_MACRO) && str_is(name, "name"))
        return value_string(r->h, ((const Macro *)of.object)->node->name, true);
    if (value_is(of, V_CYCLER) && str_is(name, "current")) {
        const Cycle *c = of.object;
        return c->items[c->at % c->n];
    }
    bool list = str_is(name, "list");
    if (value_is(of, V_TUPLE) && of.list->name && (list || str_is(name, "grouper"))) return of.list->items[list];
    const Builtin *b = run_failed(r) ? NULL : builtin_find_method(of, name, &safe);
    if (b && safe) return value_method(r, of, b);
    if (b || str_has_prefix(name, "__"))
        return value_undefined(r->h, "access to attribute '%.*s' of '%s' object is unsafe.", int_min((int)name.n, 200),
                               name.data, value_type_name(of));
    *found = false;
    return value_none();
}

static Value value_attribute(JinjaRun *r, Value of, Str name) {
    bool found;
    Value v = own_attribute(r, of, name, &found);
    if (found || run_failed(r)) return v;
    v = op_index(r->h, of, value_string(r->h, name, true), &found);
    return found ? v : no_attribute(r, of, name);
}

Value value_own_attribute(JinjaRun *r, Value of, Str name) {
    bool found;
    Value v = own_attribute(r, of, name, &found);
    return found ? v : no_attribute(r, of, name);
}

// of[key]
static Value item_of(JinjaRun *r, Value of, Value key) {
    bool found;
    if (value_is(of, V_UNDEFINED)) op_undefined(r->h, of);
    if (run_failed(r)) return value_none();
    Value v = op_index(r->h, of, key, &found);
    if (!found && value_is(key, V_STRING)) v = own_attribute(r, of, text_str(*key.text), &found);
    if (found || run_failed(r)) return v;
    if (value_is(key, V_STRING)) return no_attribute(r, of, text_str(*key.text));
    TextOut out = {.h = r->h};
    print_repr(&out, key);
    MarkedText shown = text_done(&out);
    return value_undefined(r->h, "'%s object' has no element %.*s", value_type_name(of), int_min((int)shown.n, 200),
                           shown.data);
}

static Value item_or(JinjaRun *r, Value of, Value key, const Value *missing) {
    Value v = item_of(r, of, key);
    return value_is(v, V_UNDEFINED) && missing && !value_is(*missing, V_NONE) ? *missing : v;
}

Value value_path_or(JinjaRun *r, Value of, Value path, const Value *missing) {
    if (value_is(path, V_NONE) || value_is(path, V_ABSENT)) return of;
    if (!value_is(path, V_STRING)) return item_or(r, of, path, missing);
    Value parts = text_split(r->h, *path.text, &(MarkedText){.data = ".", .n = 1}, -1, false);
    for (size_t i = 0; i < parts.list->n && !run_failed(r); i++) {
        MarkedText part = *parts.list->items[i].text;
        int64_t index = 0;
        for (size_t k = 0; k < part.n && k < 18 && isdigit((unsigned char)part.data[k]); k++)
            index = index * 10 + part.data[k] - '0';
        of = item_or(r, of, text_is(r->h, part, "digit") ? value_int(index) : parts.list->items[i], missing);
    }
    return of;
}

Value value_path(JinjaRun *r, Value of, Value path) { return value_path_or(r, of, path, NULL); }

const Builtin *builtin_find(BuiltinTable table, Str name) {
    for (size_t i = 0; i < table.n; i++)
        if (str_is(name, table.rows[i].name)) return &table.rows[i];
    return NULL;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static Value eval(JinjaRun *r, const Node *n);
typedef enum { GO_ON, BREAK, CONTINUE } Flow;
static Flow run_list(JinjaRun *r, const Node *first);

// **v
static void add_named(JinjaRun *r, JinjaArgs *a, Value v) {
    if (!value_is(v, V_DICT)) heap_fail(r->h, "argument after ** must be a mapping, not %s", value_type_name(v));
    for (size_t i = 0; !run_failed(r) && i < v.dict->n; i++)
        if (!value_is(v.dict->keys[i], V_STRING)) heap_fail(r->h, "keywords must be strings");
        else dict_set(r->h, a->named, v.dict->keys[i], v.dict->values[i]);
}

// Evaluates the arguments of a call.
static JinjaArgs eval_arguments(JinjaRun *r, const Node *items) {
    size_t n = 0, n_more = 0;
    Value *more = NULL;
    JinjaArgs a = {0};
    for (const Node *at = items; at; at = at->next) {
        n += at->op == 0;
        if (at->op == '*') value_items(r->h, eval(r, at->a), &more, &n_more);
        if (at->op && at->op != '*' && !a.named) a.named = heap_alloc(r->h, sizeof *a.named);
    }
    a.items = heap_alloc(r->h, (n + n_more) * sizeof *a.items);
    for (const Node *at = items; at && !run_failed(r); at = at->next) {
        if (at->op == 0) a.items[a.n++] = eval(r, at->a);
        else if (at->op == '=') dict_set(r->h, a.named, value_string(r->h, at->name, true), eval(r, at->a));
        else if (at->op == 'P') add_named(r, &a, eval(r, at->a));
    }
    for (size_t i = 0; i < n_more && !run_failed(r); i++) a.items[a.n++] = more[i];
    return a;
}

// Assigns the arguments to the slots of the signature.
static void bind_arguments(JinjaRun *r, const Builtin *b, JinjaArgs *a) {
    int n_slots = 0;
    size_t n_known = 0;
    for (int i = 0; i < ARG_SLOTS; i++) a->slot[i] = (Value){.type = V_ABSENT};
    for (const char *at = b->signature; *at; n_slots++) {
        Str name = {at, strcspn(at, " !")};
        const Value *v = a->named ? dict_get_str(a->named, name) : NULL;
        bool required = at[name.n] == '!';
        if ((size_t)n_slots < a->n) a->slot[n_slots] = a->items[n_slots];
        else if (v) a->slot[n_slots] = *v, n_known++;
        else if (required) heap_fail(r->h, "%s: the argument '%.*s' expected", b->name, (int)name.n, name.data);
        at += name.n + required;
        at += *at == ' ';
    }
    if (a->n > (size_t)n_slots) heap_fail(r->h, "%s: at most %d arguments expected, found %zu", b->name, n_slots, a->n);
    if (a->named && n_known < a->named->n) {
        MarkedText name = value_str(r->h, a->named->keys[0]);
        heap_fail(r->h, "%s: an argument that it does not take, '%.*s' or another", b->name, int_min((int)name.n, 64),
                  name.data);
    }
}

static Value call_builtin(JinjaRun *r, const Builtin *b, Value self, JinjaArgs *a) {
    if (!heap_work(r->h, 1) || !heap_enter(r->h)) return value_none();
    if (b->signature) bind_arguments(r, b, a);
    Value v = run_failed(r) ? value_none() : b->run(r, self, a);
    heap_leave(r->h);
    return run_failed(r) ? value_none() : v;
}

Value run_named_filter(JinjaRun *r, Str name, Value v, JinjaArgs *a) {
    const Builtin *b = builtin_find(builtin_filters(), name);
    if (b) return call_builtin(r, b, v, a);
    heap_fail(r->h, "No filter named '%.*s'.", int_min((int)name.n, 64), name.data);
    return value_none();
}

bool run_named_test(JinjaRun *r, Str name, Value v, JinjaArgs *a) {
    const Builtin *b = builtin_find(builtin_tests(), name);
    if (b) return value_truth(call_builtin(r, b, v, a));
    heap_fail(r->h, "No test named '%.*s'.", int_min((int)name.n, 64), name.data);
    return false;
}

// Whether a named argument is one of the macro's parameters after the first n, which were given by position.
static bool is_parameter(JinjaRun *r, const Node *macro, size_t n, Str name) {
    size_t i = 0;
    for (const Node *p = macro->items; p && heap_work(r->h, 1); p = p->next, i++)
        if (i >= n && str_eq(p->name, name)) return true;
    return false;
}

// Binds arguments beyond the parameters to varargs and kwargs if the macro uses these.
static void bind_rest(JinjaRun *r, const Node *macro, const JinjaArgs *a, size_t n_parameters) {
    Str name = macro->name.n ? macro->name : str_of("caller");
    size_t n_more = a->n > n_parameters ? a->n - n_parameters : 0;
    Value named = value_dict(r->h);
    for (size_t i = 0; a->named && i < a->named->n; i++) {
        Str key = text_str(*a->named->keys[i].text);
        if (str_is(key, "caller")) set_variable(r, r->scope, key, a->named->values[i]);
        else if (!is_parameter(r, macro, a->n, key)) dict_set(r->h, named.dict, a->named->keys[i], a->named->values[i]);
    }
    if (macro->op & TAKES_MORE)
        set_variable(r, r->scope, str_of("varargs"), value_list(r->h, V_TUPLE, a->items + (a->n - n_more), n_more));
    else if (n_more)
        heap_fail(r->h, "macro '%.*s' takes not more than %zu argument(s)", int_min((int)name.n, 64), name.data,
                  n_parameters);
    if (macro->op & TAKES_NAMED) set_variable(r, r->scope, str_of("kwargs"), named);
    else if (named.dict->n)
        heap_fail(r->h, "macro '%.*s' takes no such keyword argument", int_min((int)name.n, 64), name.data);
}

// Binds the parameters of a macro in the scope that was entered.
static void bind_parameters(JinjaRun *r, const Node *macro, const JinjaArgs *a) {
    size_t i = 0;
    for (const Node *p = macro->items; p && !run_failed(r); p = p->next, i++) {
        const Value *v = a->named ? dict_get_str(a->named, p->name) : NULL;
        if (i < a->n) set_variable(r, r->scope, p->name, a->items[i]);
        else if (v) set_variable(r, r->scope, p->name, *v);
        else if (p->a) set_variable(r, r->scope, p->name, eval(r, p->a));
        else
            set_variable(
                r, r->scope, p->name,
                value_undefined(r->h, "parameter '%.*s' was not provided", int_min((int)p->name.n, 200), p->name.data));
    }
    bind_rest(r, macro, a, i);
}

// Runs a body and returns the text that it prints.
static MarkedText capture(JinjaRun *r, const Node *body) {
    TextOut own = {.h = r->h}, *out = r->out;
    r->out = &own;
    run_list(r, body);
    r->out = out;
    return text_done(&own);
}

static Value call_macro(JinjaRun *r, const Macro *m, const JinjaArgs *a) {
    if (!heap_enter(r->h)) return value_none();
    Scope *scope = r->scope;
    enter_scope(r, m->scope);
    bind_parameters(r, m->node, a);
    Value v = value_text(r->h, capture(r, m->node->body));
    r->scope = scope;
    heap_leave(r->h);
    return v;
}

static Value call_cycle(JinjaRun *r, Value of) {
    Cycle *c = of.object;
    if (value_is(of, V_JOINER)) return c->at++ ? c->items[0] : value_string(r->h, (Str){"", 0}, true);
    return c->items[c->at++ % c->n];
}

static Value call_loop(JinjaRun *r, const Loop *loop, const JinjaArgs *a);

static Value call_value(JinjaRun *r, Value f, JinjaArgs *a) {
    if (run_failed(r)) return value_none();
    if (value_is(f, V_MACRO)) return call_macro(r, f.object, a);
    if (value_is(f, V_FUNCTION)) return call_builtin(r, f.object, value_none(), a);
    if (value_is(f, V_METHOD)) return call_builtin(r, ((Method *)f.object)->builtin, ((Method *)f.object)->self, a);
    if (value_is(f, V_JOINER)) return call_cycle(r, f);
    if (value_is(f, V_LOOP)) return call_loop(r, f.object, a);
    if (value_is(f, V_UNDEFINED)) op_undefined(r->h, f);
    heap_fail(r->h, "'%s' object is not callable", value_type_name(f));
    return value_none();
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static Value eval_items(JinjaRun *r, ValueType type, const Node *items) {
    size_t n = 0;
    for (const Node *at = items; at; at = at->next) n++;
    Value list = value_new_list(r->h, type, n);
    n = 0;
    for (const Node *at = items; at && !run_failed(r); at = at->next) list.list->items[n++] = eval(r, at);
    return list;
}

static Value eval_dict(JinjaRun *r, const Node *items) {
    Value d = value_dict(r->h);
    for (const Node *key = items; key && !run_failed(r); key = key->next->next) {
        Value k = eval(r, key);
        dict_set(r->h, d.dict, k, eval(r, key->next));
    }
    return d;
}

static Value eval_slice(JinjaRun *r, const Node *n) {
    Value of = eval(r, n->a), parts[3] = {{0}};
    const Node *at = n->items;
    for (int i = 0; i < 3; i++, at = at->next) parts[i] = at->kind == N_NOTHING ? value_none() : eval(r, at);
    return op_slice(r->h, of, parts);
}

static Value eval_concat(JinjaRun *r, const Node *items) {
    TextOut out = {.h = r->h};
    for (const Node *at = items; at && !run_failed(r); at = at->next) print_str(&out, eval(r, at));
    return value_text(r->h, text_done(&out));
}

static Value eval_compare(JinjaRun *r, const Node *n) {
    Value left = eval(r, n->a);
    bool truth = true;
    for (const Node *at = n->items; at && truth && !run_failed(r); at = at->next) {
        Value right = eval(r, at->a);
        truth = op_compare(r->h, at->op, left, right);
        left = right;
    }
    return value_bool(truth);
}

static Value eval_choice(JinjaRun *r, const Node *n) {
    if (value_truth(eval(r, n->a))) return eval(r, n->b);
    if (n->c) return eval(r, n->c);
    return value_undefined(
        r->h, "the inline if-expression on line %d evaluated to false and no else section was defined.", n->line);
}

static Value eval_call(JinjaRun *r, const Node *n) {
    Value f = eval(r, n->a);
    JinjaArgs a = eval_arguments(r, n->items);
    r->h->line = n->line;
    return call_value(r, f, &a);
}

static Value eval_filter(JinjaRun *r, const Node *n, Value v) {
    JinjaArgs a = eval_arguments(r, n->items);
    r->h->line = n->line;
    return run_named_filter(r, n->name, v, &a);
}

static Value eval_test(JinjaRun *r, const Node *n) {
    Value v = eval(r, n->a);
    JinjaArgs a = eval_arguments(r, n->items);
    r->h->line = n->line;
    return value_bool(run_named_test(r, n->name, v, &a));
}

static Value eval_logic(JinjaRun *r, const Node *n) { // gives the deciding operand's value, as in Python
    Value left = eval(r, n->a);
    return value_truth(left) == (n->kind == N_OR) ? left : eval(r, n->b);
}

static Value eval_binary(JinjaRun *r, const Node *n) {
    Value left = eval(r, n->a), right = eval(r, n->b);
    r->h->line = n->line;
    return op_binary(r->h, n->op, left, right);
}

static Value eval_positive(JinjaRun *r, const Node *n) {
    Value v = eval(r, n->a);
    return value_is_number(v) ? v : op_negative(r->h, v); // fails with the error for unary operators
}

static Value eval_kind(JinjaRun *r, const Node *n) {
    switch (n->kind) {
    case N_CONST: return n->value;
    case N_NAME: return get_name(r, n->name);
    case N_LIST: return eval_items(r, V_LIST, n->items);
    case N_TUPLE: return eval_items(r, V_TUPLE, n->items);
    case N_DICT: return eval_dict(r, n->items);
    case N_ATTRIBUTE: return value_attribute(r, eval(r, n->a), n->name);
    case N_INDEX: {
        Value of = eval(r, n->a);
        return item_of(r, of, eval(r, n->b));
    }
    case N_SLICE: return eval_slice(r, n);
    case N_CALL: return eval_call(r, n);
    case N_FILTER: return eval_filter(r, n, eval(r, n->a));
    case N_TEST: return eval_test(r, n);
    case N_NOT: return value_bool(!value_truth(eval(r, n->a)));
    case N_NEGATIVE: return op_negative(r->h, eval(r, n->a));
    case N_POSITIVE: return eval_positive(r, n);
    case N_AND:
    case N_OR: return eval_logic(r, n);
    case N_BINARY: return eval_binary(r, n);
    case N_CONCAT: return eval_concat(r, n->items);
    case N_COMPARE: return eval_compare(r, n);
    case N_CHOICE: return eval_choice(r, n);
    default: return value_none();
    }
}

static Value eval(JinjaRun *r, const Node *n) {
    if (!heap_work(r->h, 1) || !heap_enter(r->h)) return value_none();
    r->h->line = n->line;
    Value v = eval_kind(r, n);
    heap_leave(r->h);
    return run_failed(r) ? value_none() : v;
}

// Applies the filters of a block to its text; the innermost filter has no operand in the tree.
static Value filter_text(JinjaRun *r, const Node *filter, Value text) {
    if (!filter || !heap_enter(r->h)) return text;
    Value v = filter_text(r, filter->a, text);
    heap_leave(r->h);
    return eval_filter(r, filter, v);
}

// ---- statements -----------------------------------------------------------------------------------------------------

static void assign(JinjaRun *r, const Node *target, Value v);

static void assign_tuple(JinjaRun *r, const Node *target, Value v) {
    Value *items;
    size_t n, n_targets = 0;
    for (const Node *at = target->items; at; at = at->next) n_targets++;
    if (value_is(v, V_UNDEFINED)) op_undefined(r->h, v);
    if (!value_items(r->h, v, &items, &n)) return;
    if (n != n_targets) {
        if (n > n_targets) heap_fail(r->h, "too many values to unpack (expected %zu)", n_targets);
        else heap_fail(r->h, "not enough values to unpack (expected %zu, got %zu)", n_targets, n);
        return;
    }
    for (const Node *at = target->items; at; at = at->next) assign(r, at, *items++);
}

static void assign(JinjaRun *r, const Node *target, Value v) {
    if (run_failed(r)) return;
    if (target->kind == N_TUPLE) assign_tuple(r, target, v);
    else if (target->kind == N_NAME) set_variable(r, r->scope, target->name, v);
    else {
        const Value *of = find_variable(r, target->name);
        if (!of || !value_is(*of, V_NAMESPACE)) heap_fail(r->h, "cannot assign attribute on non-namespace object");
        else dict_set(r->h, of->dict, value_string(r->h, target->field, true), v);
    }
}

// Keeps the items that meet the loop's own condition.
static void filter_items(JinjaRun *r, const Node *n, Value **items, size_t *count) {
    Value kept = value_new_list(r->h, V_LIST, *count);
    Scope *scope = r->scope;
    size_t k = 0;
    for (size_t i = 0; i < *count && !run_failed(r); i++) {
        enter_scope(r, scope);
        assign(r, n->a, (*items)[i]);
        if (value_truth(eval(r, n->c))) kept.list->items[k++] = (*items)[i];
    }
    r->scope = scope;
    *items = kept.list->items;
    *count = run_failed(r) ? 0 : k;
}

static Flow run_inner(JinjaRun *r, const Node *body) {
    Scope *scope = r->scope;
    enter_scope(r, scope);
    Flow flow = run_list(r, body);
    r->scope = scope;
    return flow;
}

static Flow loop_over(JinjaRun *r, const Node *n, Value items, int depth) {
    Loop *loop = heap_alloc(r->h, sizeof *loop);
    Scope *scope = r->scope;
    *loop = (Loop){.seen = {.type = V_ABSENT}, .node = n->op ? n : NULL, .scope = scope, .depth = depth};
    if (!value_items(r->h, items, &loop->items, &loop->n)) return GO_ON;
    if (n->c) filter_items(r, n, &loop->items, &loop->n);
    if (loop->n == 0) return run_inner(r, n->other);
    Flow flow = GO_ON;
    for (; loop->i < loop->n && flow != BREAK && !run_failed(r); loop->i++) {
        enter_scope(r, scope);
        set_variable(r, r->scope, str_of("loop"), (Value){.type = V_LOOP, .object = loop});
        assign(r, n->a, loop->items[loop->i]);
        flow = run_list(r, n->body);
    }
    r->scope = scope;
    return GO_ON;
}

static Flow run_for(JinjaRun *r, const Node *n) { return loop_over(r, n, eval(r, n->b), 0); }

// loop(items): runs the same loop over these items and returns its text.
static Value call_loop(JinjaRun *r, const Loop *loop, const JinjaArgs *a) {
    if (!loop->node) heap_fail(r->h, "The loop must have the 'recursive' marker to be called recursively.");
    if (a->n != 1 || a->named) heap_fail(r->h, "loop: one argument expected, found %zu", a->n);
    if (run_failed(r) || !heap_enter(r->h)) return value_none();
    TextOut own = {.h = r->h}, *out = r->out;
    Scope *scope = r->scope;
    r->out = &own;
    r->scope = loop->scope;
    loop_over(r, loop->node, a->items[0], loop->depth + 1);
    r->scope = scope;
    r->out = out;
    heap_leave(r->h);
    return value_text(r->h, text_done(&own));
}

static Flow run_if(JinjaRun *r, const Node *n) {
    for (const Node *branch = n->items; branch && !run_failed(r); branch = branch->next)
        if (!branch->a || value_truth(eval(r, branch->a))) return run_failed(r) ? GO_ON : run_list(r, branch->body);
    return GO_ON;
}

static Value new_macro(JinjaRun *r, const Node *n) {
    Macro *m = heap_alloc(r->h, sizeof *m);
    *m = (Macro){n, r->scope};
    return (Value){.type = V_MACRO, .object = m};
}

static void run_call_block(JinjaRun *r, const Node *n) {
    Value f = eval(r, n->a->a);
    JinjaArgs a = eval_arguments(r, n->a->items);
    if (!a.named) a.named = heap_alloc(r->h, sizeof *a.named);
    dict_set_str(r->h, a.named, "caller", new_macro(r, n));
    print_str(r->out, call_value(r, f, &a));
}

static void run_set_block(JinjaRun *r, const Node *n) {
    Scope *scope = r->scope;
    enter_scope(r, scope);
    MarkedText text = capture(r, n->body);
    r->scope = scope;
    assign(r, n->a, filter_text(r, n->b, value_text(r->h, text)));
}

static void run_filter_block(JinjaRun *r, const Node *n) {
    Scope *scope = r->scope;
    enter_scope(r, scope);
    MarkedText text = capture(r, n->body);
    r->scope = scope;
    print_str(r->out, filter_text(r, n->a, value_text(r->h, text)));
}

static Flow run_with(JinjaRun *r, const Node *n) {
    Scope *outer = r->scope, *inner = enter_scope(r, outer);
    for (const Node *set = n->items; set && !run_failed(r); set = set->next) {
        r->scope = outer; // values are evaluated in the outer scope
        Value v = eval(r, set->b);
        r->scope = inner;
        assign(r, set->a, v);
    }
    Flow flow = run_list(r, n->body);
    r->scope = outer;
    return flow;
}

static Flow run_node(JinjaRun *r, const Node *n) {
    switch (n->kind) {
    case N_TEXT: text_put(r->out, *n->value.text); return GO_ON;
    case N_PRINT: print_str(r->out, eval(r, n->a)); return GO_ON;
    case N_FOR: return run_for(r, n);
    case N_IF: return run_if(r, n);
    case N_SET: assign(r, n->a, eval(r, n->b)); return GO_ON;
    case N_SET_BLOCK: run_set_block(r, n); return GO_ON;
    case N_MACRO: set_variable(r, r->scope, n->name, new_macro(r, n)); return GO_ON;
    case N_CALL_BLOCK: run_call_block(r, n); return GO_ON;
    case N_FILTER_BLOCK: run_filter_block(r, n); return GO_ON;
    case N_WITH: return run_with(r, n);
    case N_SCOPE: return run_inner(r, n->body);
    case N_BREAK: return BREAK;
    case N_CONTINUE: return CONTINUE;
    default: return GO_ON;
    }
}

static Flow run_list(JinjaRun *r, const Node *first) {
    if (!heap_enter(r->h)) return GO_ON;
    Flow flow = GO_ON;
    for (const Node *n = first; n && flow == GO_ON && heap_work(r->h, 1); n = n->next) {
        r->h->line = n->line;
        flow = run_node(r, n);
    }
    heap_leave(r->h);
    return flow;
}

Status jinja_render(const Jinja *t, Heap *h, const Dict *variables, const struct tm *now, Buf *text, Buf *trusted) {
    TextOut out = {.h = h};
    JinjaRun r = {.h = h, .variables = variables, .now = now, .out = &out};
    enter_scope(&r, NULL);
    run_list(&r, t->first);
    if (!h->failed.code) {
        buf_append(text, out.bytes.data, out.bytes.n);
        buf_append(trusted, out.marks.data, out.marks.n);
    }
    text_drop(&out);
    return h->failed;
}
