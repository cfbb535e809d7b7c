// grammar/schema.c: see grammar/schema.h.
#include "grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/signals.h"
#include "grammar/automaton.h"
#include "grammar/json_format.h"
#include "grammar/json_number.h"
#include "grammar/json_pointer.h"
#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema_merge.h"

enum {
    DEEPEST = 100,
    MOST_COUNT = 100000,    // the largest minLength, maxItems and others
    MOST_TEMPORARY = 20000, // the most schemas made by merging
    MOST_VISITS = 100000,   // the most schemas read, each counted as often as it is read: about 200 MB of rules. A
                            // schema of 1 MB that is read once has fewer; references and merges read some again
    MOST_NODES = 1 << 22,   // the most nodes visited to test the values of enums: about a second
    MOST_PROPERTIES = 1000, // the most properties of an object
    MOST_ONE_OF = 200,      // the most alternatives of oneOf
    LONGEST_NAME = 500,     // the most bytes of a property's name beside additionalProperties
};

// What all walks of a schema have done together: each value of an enum may need one of its own (admits).
typedef struct {
    int visits, temporary;
    int64_t nodes;
} SchemaWork;

typedef struct {
    Rules *r;
    SchemaWork *work;
    const json_t *root;
    json_t *made;      // an array of schemas that were merged
    const char *scope; // prefix of the names of rules
    const char *end;   // SchemaPart.end while the value itself is read, otherwise NULL: values inside are JSON
    int any, comma, colon;
    Buf path; // the path of the part that is being read, as #/properties/x
    int depth;
    Status failed;
} SchemaWalk;

static int value_of(SchemaWalk *w, const json_t *schema);

static int fail(SchemaWalk *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(SchemaWalk *w, const char *format, ...) {
    if (w->failed.code) return 0;
    char text[500];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->failed = status_error(QUILL_USAGE, "at %.200s: %s", w->path.data, text);
    return 0;
}

static int pass(SchemaWalk *w, Status st) {
    if (st.code) fail(w, "%.400s", st.message);
    if (st.code > 128) w->failed.code = st.code; // a signal
    return 0;
}

// The same for an error of a walk inside this one, whose places begin at this one's.
static void pass_inner(SchemaWalk *w, Status st) {
    if (st.code && !w->failed.code)
        w->failed = status_error(st.code, "at %.200s%.700s", w->path.data, st.message + strlen("at #"));
}

static void visit(SchemaWalk *w) {
    if (signals_caught()) pass(w, status_error(128 + signals_caught(), "stopped by a signal"));
    if (++w->work->visits > MOST_VISITS)
        fail(w, "fewer schemas expected, found more than %d, each counted as often as it applies", (int)MOST_VISITS);
}

// Reads a part of the schema; the path says where.
static int part_of(SchemaWalk *w, const char *step, const char *name, const json_t *schema) {
    size_t had = w->path.n;
    buf_printf(&w->path, "/%s%s%.60s", step, name ? "/" : "", name ? name : "");
    int e = value_of(w, schema);
    if (!w->failed.code) w->path.data[w->path.n = had] = 0;
    return e;
}

static json_t *keep(SchemaWalk *w, json_t *made) {
    jsonio_append(w->made, made);
    if (++w->work->temporary > MOST_TEMPORARY)
        fail(w, "fewer combinations of anyOf and allOf expected, found more than %d", (int)MOST_TEMPORARY);
    return made;
}

static json_t *merged(SchemaWalk *w, const json_t *a, const json_t *b) {
    json_t *out = NULL;
    Status st = schema_merge(a, b, &out);
    pass(w, st);
    return keep(w, out ? out : json_object());
}

static json_t *without(SchemaWalk *w, const json_t *schema, const char *key) {
    json_t *out = json_copy((json_t *)schema);
    json_object_del(out, key);
    return keep(w, out);
}

// ---- any JSON -------------------------------------------------------------------------------------------------------

static int text(SchemaWalk *w, const char *s) { return json_text_literal(w->r, s); }
static int any_string(SchemaWalk *w) { return json_text_quoted(w->r, rules_repeat(w->r, json_text_char(w->r), 0, -1)); }

// `least` to `most` parts, separated by commas, in brackets.
static int listed(SchemaWalk *w, const char *open, int one, const char *close) {
    Rules *r = w->r;
    int more = rules_repeat(r, rules_pair(r, w->comma, one), 0, -1);
    return rules_seq(r, (int[]){text(w, open), rules_repeat(r, rules_pair(r, one, more), 0, 1), text(w, close)}, 3);
}

static int any_value(SchemaWalk *w) {
    if (w->end) return rules_until(w->r, w->end, strlen(w->end)); // any text, not only JSON
    if (w->any < 0) {
        w->any = rules_anonymous(w->r, -1);
        int call = rules_call(w->r, w->any), number = 0;
        pass(w, json_number_rules(w->r, &(NumberBounds){0}, &number));
        int member = rules_seq(w->r, (int[]){any_string(w), w->colon, call}, 3);
        int ways[] = {text(w, "null"), text(w, "true"),           text(w, "false"),           number,
                      any_string(w),   listed(w, "[", call, "]"), listed(w, "{", member, "}")};
        rules_define(w->r, w->any, rules_alt(w->r, ways, ARRAY_LEN(ways)));
    }
    return rules_call(w->r, w->any);
}

// ---- keywords -------------------------------------------------------------------------------------------------------

static const json_t *get(const json_t *schema, const char *key) { return json_object_get(schema, key); }

static int count_of(SchemaWalk *w, const json_t *schema, const char *key, int fallback) {
    const json_t *j = get(schema, key);
    if (!j) return fallback;
    double v = json_number_value(j);
    if (!json_is_number(j) || v < 0 || v > MOST_COUNT || v != floor(v))
        return fail(w, "%s: a whole number from 0 to %d expected", key, (int)MOST_COUNT);
    return (int)v;
}

static bool number_of(SchemaWalk *w, const json_t *schema, const char *key, double *out) {
    const json_t *j = get(schema, key);
    if (j && !json_is_number(j)) fail(w, "%s: a number expected", key);
    if (j) *out = json_number_value(j);
    return j != NULL;
}

// ---- strings and numbers --------------------------------------------------------------------------------------------

static int regex_of(SchemaWalk *w, const char *key, const char *regex, size_t n, bool search) {
    int e = 0;
    Status st = regex_parse((Str){regex, n}, search, w->end ? NULL : json_text_ranges, NULL, w->r, &e);
    if (st.code) fail(w, "%s: %.400s", key, st.message);
    return e;
}

static int string_of(SchemaWalk *w, const json_t *schema) {
    int least = count_of(w, schema, "minLength", 0), most = count_of(w, schema, "maxLength", -1), parts[3], n = 0;
    const json_t *pattern = get(schema, "pattern"), *format = get(schema, "format");
    if (most >= 0 && most < least) return rules_alt(w->r, NULL, 0);
    if (pattern && !json_is_string(pattern)) return fail(w, "pattern: a text expected");
    if (format && !json_is_string(format)) return fail(w, "format: a text expected");
    if (pattern) parts[n++] = regex_of(w, "pattern", json_string_value(pattern), json_string_length(pattern), true);
    if (format) {
        const char *regex = json_format_regex(json_string_value(format)); // NULL: a name that restricts nothing
        if (regex) parts[n++] = regex_of(w, "format", regex, strlen(regex), false);
    }
    CharRange all = {0, 0x10ffff};
    if (w->end && n == 0 && least == 0 && most < 0) return rules_until(w->r, w->end, strlen(w->end));
    int one = w->end ? rules_class(w->r, &all, 1) : n ? json_text_ranges(w->r, &all, 1, NULL) : json_text_char(w->r);
    if (n == 0 || least > 0 || most >= 0) parts[n++] = rules_repeat(w->r, one, least, most);
    int e = parts[0];
    for (int i = 1; i < n; i++) e = rules_both(w->r, e, parts[i]);
    if (!w->end) return json_text_quoted(w->r, e);
    return rules_pair(w->r, rules_both(w->r, e, rules_without(w->r, w->end, strlen(w->end))), text(w, w->end));
}

static int number_rules(SchemaWalk *w, const json_t *schema, bool integer) {
    NumberBounds b = {.integer = integer};
    double open;
    b.has_low = number_of(w, schema, "minimum", &b.low);
    b.has_high = number_of(w, schema, "maximum", &b.high);
    if (number_of(w, schema, "exclusiveMinimum", &open) && (!b.has_low || open >= b.low))
        b.has_low = b.low_open = true, b.low = open;
    if (number_of(w, schema, "exclusiveMaximum", &open) && (!b.has_high || open <= b.high))
        b.has_high = b.high_open = true, b.high = open;
    bool multiple = number_of(w, schema, "multipleOf", &b.multiple);
    if (multiple && b.multiple <= 0) return fail(w, "multipleOf: a number above 0 expected");
    if (b.has_low && b.has_high && b.low > b.high) return rules_alt(w->r, NULL, 0);
    int e = 0;
    pass(w, json_number_rules(w->r, &b, &e));
    return e;
}

// ---- objects --------------------------------------------------------------------------------------------------------

typedef struct {
    Str name;
    int member; // the rule of "name": value
    bool required;
} Property;

bool schema_requires(const json_t *schema, const char *name) {
    const json_t *required = get(schema, "required");
    size_t i;
    json_t *one;
    json_array_foreach(required, i, one) {
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0) return true;
    }
    return false;
}

static int member_of(SchemaWalk *w, Str name, int value) {
    json_t *key = jsonio_text(name);
    int e = rules_seq(w->r, (int[]){json_text_value(w->r, key), w->colon, value}, 3);
    json_decref(key);
    return e;
}

// The value of a property that is not listed: a rule, since several of them may share it. *rule: -1 at first.
static int additional_value(SchemaWalk *w, const json_t *additional, int *rule) {
    if (!additional || json_is_true(additional)) return any_value(w);
    if (*rule < 0) {
        int made = rules_anonymous(w->r, -1), e = part_of(w, "additionalProperties", NULL, additional);
        rules_define(w->r, *rule = made, e);
    }
    return rules_call(w->r, *rule);
}

// Properties that are required but not listed are treated like additional ones.
static int add_unnamed(SchemaWalk *w, const json_t *schema, const json_t *additional, int *rule, Property *p, int n) {
    size_t i;
    json_t *one;
    json_array_foreach(get(schema, "required"), i, one) {
        if (!json_is_string(one)) return fail(w, "required: a list of names expected");
        Str name = {json_string_value(one), json_string_length(one)};
        bool named = false;
        for (int k = 0; k < n; k++) named |= str_eq(p[k].name, name);
        if (named) continue;
        p[n++] = (Property){name, member_of(w, name, additional_value(w, additional, rule)), true};
    }
    return n;
}

// Members in order, each optional one with or without, then `more` others.
static int members(SchemaWalk *w, const Property *p, int n, int more) {
    Rules *r = w->r;
    int rest = more < 0 ? rules_seq(r, NULL, 0) : rules_repeat(r, rules_pair(r, w->comma, more), 0, -1);
    int first = more < 0 ? rules_seq(r, NULL, 0) : rules_repeat(r, rules_pair(r, more, rest), 0, 1);
    for (int i = n - 1; i >= 0; i--) {
        int here = rules_pair(r, p[i].member, rest), behind = rules_pair(r, w->comma, p[i].member);
        first = p[i].required ? here : rules_alt(r, (int[]){here, first}, 2);
        rest = rules_pair(r, p[i].required ? behind : rules_repeat(r, behind, 0, 1), rest);
    }
    return rules_seq(r, (int[]){text(w, "{"), first, text(w, "}")}, 3);
}

// propertyNames may say no more than that names are strings.
static void check_names(SchemaWalk *w, const json_t *names) {
    const char *key;
    json_t *value;
    if (!names || json_is_true(names)) return;
    if (!json_is_object(names)) fail(w, "propertyNames: a schema expected");
    json_object_foreach((json_t *)names, key, value) {
        bool plain =
            strcmp(key, "type") == 0 && json_is_string(value) && strcmp(json_string_value(value), "string") == 0;
        if (!plain && schema_merge_key(key) != KEY_REMARK)
            fail(w, "propertyNames: \"type\": \"string\" alone expected, found \"%.40s\"", key);
    }
}

static int object_of(SchemaWalk *w, const json_t *schema) {
    const json_t *properties = get(schema, "properties"), *required = get(schema, "required");
    const json_t *additional = get(schema, "additionalProperties");
    check_names(w, get(schema, "propertyNames"));
    if (properties && !json_is_object(properties)) return fail(w, "properties: an object expected");
    if (required && !json_is_array(required)) return fail(w, "required: a list of names expected");
    if (json_object_size(properties) > MOST_PROPERTIES || json_array_size(required) > MOST_PROPERTIES)
        return fail(w, "properties: %d at most expected, found more", (int)MOST_PROPERTIES);
    size_t most = json_object_size(properties) + json_array_size(required) + 1;
    Property *p = mem_alloc(most * sizeof *p);
    Str *names = mem_alloc(most * sizeof *names);
    int n = 0, n_names = 0, more = -1, rule = -1;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)properties, key, value) {
        bool needed = schema_requires(schema, key);
        names[n_names++] = str_of(key);
        if (json_is_false(value) && !needed) continue;
        p[n++] = (Property){str_of(key), member_of(w, str_of(key), part_of(w, "properties", key, value)), needed};
        if (w->failed.code) break;
    }
    if (!w->failed.code) n = add_unnamed(w, schema, additional, &rule, p, n);
    for (int i = 0; i < n; i++) {
        bool known = false;
        for (int k = 0; k < n_names; k++) known |= str_eq(names[k], p[i].name);
        if (!known) names[n_names++] = p[i].name;
    }
    bool open = additional ? !json_is_false(additional) : !properties;
    for (int i = 0; open && i < n_names; i++)
        if (names[i].n > LONGEST_NAME)
            fail(w, "names of %d bytes at most expected beside additionalProperties", (int)LONGEST_NAME);
    if (open && !w->failed.code) {
        int other = additional_value(w, additional, &rule);
        int name = n_names ? json_text_other_key(w->r, names, n_names) : any_string(w);
        more = rules_seq(w->r, (int[]){name, w->colon, other}, 3);
    }
    int e = w->failed.code ? 0 : members(w, p, n, more);
    free(p);
    free(names);
    return e;
}

// ---- arrays ---------------------------------------------------------------------------------------------------------

static int array_of(SchemaWalk *w, const json_t *schema) {
    const json_t *prefix = get(schema, "prefixItems"), *items = get(schema, "items");
    int least = count_of(w, schema, "minItems", 0), most = count_of(w, schema, "maxItems", -1);
    if (prefix && !json_is_array(prefix)) return fail(w, "prefixItems: a list expected");
    if (json_is_array(items)) return fail(w, "items: one schema expected, found a list; prefixItems has lists");
    int k = (int)json_array_size(prefix);
    bool more = items ? !json_is_false(items) : (k == 0 || least > k);
    if (!more && (most < 0 || most > k)) most = k;
    if (most >= 0 && most < least) return rules_alt(w->r, NULL, 0);
    Rules *r = w->r;
    int other = !more ? 0 : items && !json_is_true(items) ? part_of(w, "items", NULL, items) : any_value(w);
    int tail = rules_seq(r, NULL, 0), first = other;
    if (most < 0 || most > int_max(k, 1))
        tail = rules_repeat(r, rules_pair(r, w->comma, other), int_max(0, least - int_max(k, 1)),
                            most < 0 ? -1 : most - int_max(k, 1));
    for (int i = k - 1; i >= 0 && !w->failed.code; i--) {
        char at[16];
        snprintf(at, sizeof at, "%d", i);
        first = part_of(w, "prefixItems", at, json_array_get(prefix, (size_t)i));
        if (i == 0) break;
        int here = rules_seq(r, (int[]){w->comma, first, tail}, 3);
        if (most >= 0 && i >= most) tail = rules_seq(r, NULL, 0);
        else tail = i < least ? here : rules_repeat(r, here, 0, 1);
    }
    if (w->failed.code) return 0;
    int inside = most == 0 ? rules_seq(r, NULL, 0) : rules_pair(r, first, tail);
    if (least == 0 && most != 0) inside = rules_repeat(r, inside, 0, 1);
    return rules_seq(r, (int[]){text(w, "["), inside, text(w, "]")}, 3);
}

// ---- types ----------------------------------------------------------------------------------------------------------

enum { N_TYPES = 7 }; // null, boolean, integer, number, string, array, object

static int json_of(SchemaWalk *w, const json_t *schema, const char *type) {
    if (strcmp(type, "null") == 0) return text(w, "null");
    if (strcmp(type, "boolean") == 0) return rules_alt(w->r, (int[]){text(w, "true"), text(w, "false")}, 2);
    if (strcmp(type, "integer") == 0) return number_rules(w, schema, true);
    if (strcmp(type, "number") == 0) return number_rules(w, schema, false);
    if (strcmp(type, "array") == 0) return array_of(w, schema);
    if (strcmp(type, "object") == 0) return object_of(w, schema);
    return fail(w, "type: null, boolean, integer, number, string, array or object expected, found \"%.40s\"", type);
}

static int type_of(SchemaWalk *w, const json_t *schema, const char *type) {
    if (!type) return fail(w, "type: a name or a list of names expected");
    if (strcmp(type, "string") == 0) return string_of(w, schema);
    const char *end = w->end;
    w->end = NULL; // parts of the value are JSON
    int e = json_of(w, schema, type);
    w->end = end;
    return end ? rules_pair(w->r, e, text(w, end)) : e;
}

// A value of an enum as it is written.
static int value_text(SchemaWalk *w, const json_t *value) {
    if (!w->end) return json_text_value(w->r, value);
    if (json_is_string(value) && strstr(json_string_value(value), w->end))
        return fail(w, "enum or const: texts without \"%s\" expected", w->end);
    int e = json_is_string(value) ? rules_text(w->r, json_string_value(value), json_string_length(value))
                                  : json_text_value(w->r, value);
    return rules_pair(w->r, e, text(w, w->end));
}

static bool speaks_of_values(const json_t *schema) { // whether keywords besides type and enum restrict values
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        if (schema_merge_key(key) != KEY_REMARK && strcmp(key, "enum") != 0 && strcmp(key, "type") != 0) return true;
    }
    return false;
}

// schema_part for a schema inside `depth` others.
static Status walk_part(const SchemaPart *part, SchemaWork *work, int depth, Rules *r, int *expr);

// Builds the automaton of an enum's value (admits). False: no text fits.
static bool build(SchemaWalk *w, const Rules *rules, Nfa *nfa) {
    if (w->failed.code) return false;
    Status st = nfa_build(rules, NULL, nfa);
    w->work->nodes += nfa->n_nodes + nfa->work;
    if (st.code > 128) pass(w, st);
    if (w->work->nodes > MOST_NODES) fail(w, "enum: fewer values, or simpler keywords beside them, expected");
    return !st.code && !w->failed.code;
}

// Whether the keywords beside an enum admit one of its values: its text is one of theirs.
static bool admits(SchemaWalk *w, const json_t *schema, const json_t *value) {
    if (w->failed.code) return false;
    json_t *rest = json_copy((json_t *)without(w, schema, "enum"));
    if (json_is_number(value) && !json_number_within(rest, json_number_value(value))) {
        json_decref(rest);
        return false;
    }
    jsonio_put(rest, "type", json_string(json_is_integer(value) ? "number" : schema_merge_type(value)));
    Rules rules;
    Nfa nfa = {0};
    Buf text = {0};
    int e = 0;
    bool taken = false;
    rules_start(&rules);
    SchemaPart part = {.root = w->root, .schema = keep(w, rest), .scope = w->scope, .compact = true};
    rules_rule(&rules, str_of("root"));
    // the other keywords may refer to the schema that contains the enum
    pass_inner(w, walk_part(&part, w->work, w->depth, &rules, &e));
    rules_define(&rules, 0, e);
    jsonio_print(value, JSON_ENCODE_ANY | JSON_COMPACT, &text);
    if (build(w, &rules, &nfa)) {
        Automaton *a = automaton_new(&nfa);
        int state = automaton_start(a);
        for (size_t i = 0; i < text.n; i++) state = automaton_step(a, state, (uint8_t)text.data[i]);
        taken = automaton_state(a, state)->accepts;
        automaton_free(a);
    }
    nfa_free(&nfa);
    rules_free(&rules);
    buf_free(&text);
    return taken;
}

// The values of an enum that the other keywords admit.
static int values_of(SchemaWalk *w, const json_t *schema, const json_t *list) {
    if (!json_is_array(list)) return fail(w, "enum: a list of values expected");
    bool more = speaks_of_values(schema);
    int *ways = mem_alloc((json_array_size(list) + 1) * sizeof *ways), n = 0;
    size_t i;
    json_t *value;
    json_array_foreach(list, i, value) {
        if (schema_merge_has_type(get(schema, "type"), value) && (!more || admits(w, schema, value)))
            ways[n++] = value_text(w, value);
    }
    int e = rules_alt(w->r, ways, n);
    free(ways);
    return e;
}

// A schema without a type: values of the types that its keywords apply to; any value if there are none.
static int untyped(SchemaWalk *w, const json_t *schema) {
    int ways[4], n = 0;
    static const char *const of[] = {
        [KEY_OBJECT] = "object", [KEY_ARRAY] = "array", [KEY_STRING] = "string", [KEY_NUMBER] = "number"};
    for (int kind = KEY_OBJECT; kind <= KEY_NUMBER; kind++) {
        const char *key;
        json_t *value;
        bool found = false;
        json_object_foreach((json_t *)schema, key, value) found |= schema_merge_key(key) == (SchemaKey)kind;
        if (found) ways[n++] = type_of(w, schema, of[kind]);
    }
    return n ? rules_alt(w->r, ways, n) : any_value(w);
}

static int typed(SchemaWalk *w, const json_t *schema) {
    const json_t *type = get(schema, "type"), *list = get(schema, "enum");
    if (list) return values_of(w, schema, list);
    if (!type) return untyped(w, schema);
    if (!json_is_array(type)) return type_of(w, schema, json_string_value(type));
    int ways[N_TYPES], n = 0;
    size_t i;
    json_t *one;
    json_array_foreach(type, i, one) {
        for (size_t k = 0; k < i; k++)
            if (json_equal(one, json_array_get(type, k))) return fail(w, "type: each name once expected");
        if (n == N_TYPES) return fail(w, "type: %d names at most expected", (int)N_TYPES);
        ways[n++] = type_of(w, schema, json_string_value(one));
    }
    return rules_alt(w->r, ways, n);
}

// ---- references and combinations ------------------------------------------------------------------------------------

static const json_t *target_of(SchemaWalk *w, const json_t *ref) {
    const char *s = json_string_value(ref);
    if (!s || s[0] != '#' || (s[1] && s[1] != '/'))
        return fail(w, "$ref: a part of this schema expected, as \"#/$defs/name\""), NULL;
    const json_t *at = json_pointer(w->root, s);
    if (!at) fail(w, "$ref: a part that is there expected, found \"%.100s\"", s);
    return at;
}

// A call of the rule of a reference's target. kind: tells apart rules of the same reference.
static int rule_of(SchemaWalk *w, const char *ref, const char *kind, const json_t *target) {
    Buf name = {0};
    buf_printf(&name, "%s%s%s", w->scope, ref, kind);
    int rule = rules_rule(w->r, str_of_buf(&name));
    buf_free(&name);
    if (w->r->rules[rule].expr == -1) {
        rules_define(w->r, rule, -2); // marks the rule as being defined
        size_t had = w->path.n;
        buf_printf(&w->path, " -> %.100s", ref);
        int e = value_of(w, target);
        if (!w->failed.code) w->path.data[w->path.n = had] = 0;
        rules_define(w->r, rule, e);
    }
    return rules_call(w->r, rule);
}

// Whether `name` is the only keyword of a schema, apart from annotations.
static bool has_only(const json_t *schema, const char *name) {
    const char *key;
    json_t *value;
    bool alone = true;
    json_object_foreach((json_t *)schema, key, value) alone &=
        schema_merge_key(key) == KEY_REMARK || strcmp(key, name) == 0;
    return alone;
}

static int reference(SchemaWalk *w, const json_t *schema) {
    const json_t *ref = get(schema, "$ref"), *target = target_of(w, ref);
    if (!target) return 0;
    if (!has_only(schema, "$ref")) return value_of(w, merged(w, without(w, schema, "$ref"), target));
    return w->end ? value_of(w, target) : rule_of(w, json_string_value(ref), "", target);
}

// Resolves references and allOf as far as comparing alternatives needs it.
static const json_t *resolved(SchemaWalk *w, const json_t *schema) {
    for (int i = 0; i < 20 && json_is_object(schema) && !w->failed.code; i++) {
        const json_t *ref = get(schema, "$ref");
        if (!ref) return schema;
        const json_t *target = target_of(w, ref);
        schema = target ? merged(w, without(w, schema, "$ref"), target) : schema;
    }
    return schema;
}

// NULL: the alternatives of oneOf exclude each other. If they do so only by tags: the alternatives with these required.
static const json_t *one_of(SchemaWalk *w, const json_t *list) {
    json_t *plain = keep(w, json_array()), *tagged = keep(w, json_array()), *one;
    size_t i, a, b;
    json_array_foreach((json_t *)list, i, one) {
        if (w->failed.code) return NULL;
        const json_t *schema = resolved(w, one);
        jsonio_append(plain, json_incref((json_t *)schema));
        jsonio_append(tagged, schema_merge_tagged(schema));
    }
    if (schema_merge_exclusive(plain, &a, &b)) return NULL;
    if (schema_merge_exclusive(tagged, &a, &b)) return tagged;
    fail(w,
         "oneOf: alternatives that exclude each other expected (by type, const, or a property with different "
         "constants), found overlap of %zu and %zu; use anyOf",
         a, b);
    return NULL;
}

static int alternatives(SchemaWalk *w, const json_t *schema, const char *key) {
    const json_t *list = get(schema, key), *base = without(w, schema, key);
    size_t n = json_array_size(list);
    if (n == 0) return fail(w, "%s: a list of schemas expected", key);
    if (n > MOST_ONE_OF && strcmp(key, "oneOf") == 0)
        return fail(w, "oneOf: %d alternatives at most expected, found more", (int)MOST_ONE_OF);
    const json_t *tagged = strcmp(key, "oneOf") == 0 ? one_of(w, list) : NULL;
    int *ways = mem_alloc(n * sizeof *ways);
    for (size_t i = 0; i < n && !w->failed.code; i++) {
        const json_t *one = json_array_get(list, i), *ref = get(one, "$ref");
        char at[24];
        snprintf(at, sizeof at, "%zu", i);
        if (tagged) one = json_array_get(tagged, i);
        if (tagged && ref && !w->end && has_only(json_array_get(list, i), "$ref") && has_only(base, "")) {
            ways[i] = rule_of(w, json_string_value(ref), " tagged", one); // it may contain itself
            continue;
        }
        bool bare = json_object_size(base) == 0 || !(json_is_object(one) || json_is_true(one));
        ways[i] = w->failed.code ? 0 : part_of(w, key, at, bare ? one : merged(w, base, one));
    }
    int e = w->failed.code ? 0 : rules_alt(w->r, ways, (int)n);
    free(ways);
    return e;
}

// A schema without its allOf: joined with all schemas of the list.
static const json_t *joined(SchemaWalk *w, const json_t *schema) {
    const json_t *list = get(schema, "allOf"), *at = without(w, schema, "allOf");
    if (!json_is_array(list)) return fail(w, "allOf: a list of schemas expected"), at;
    size_t i;
    json_t *one, *patterns = keep(w, json_array());
    json_array_foreach(list, i, one) {
        const json_t *part = resolved(w, one);
        bool pattern = json_is_object(part) && get(part, "pattern") && get(at, "pattern");
        if (pattern) jsonio_append(patterns, json_incref((json_t *)get(part, "pattern")));
        if (w->failed.code) return at;
        at = merged(w, at, pattern ? without(w, part, "pattern") : part);
    }
    if (json_array_size(patterns)) fail(w, "allOf: one pattern expected, found several");
    return at;
}

static bool keywords_are_known(SchemaWalk *w, const json_t *schema) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        if (schema_merge_key(key) == KEY_UNKNOWN) fail(w, "the keyword \"%.60s\" is not supported", key);
    }
    return !w->failed.code;
}

static int object_schema(SchemaWalk *w, const json_t *schema) {
    if (!keywords_are_known(w, schema)) return 0;
    if (get(schema, "const")) return value_of(w, merged(w, schema, keep(w, json_object())));
    if (get(schema, "anyOf")) return alternatives(w, schema, "anyOf");
    if (get(schema, "oneOf")) return alternatives(w, schema, "oneOf");
    if (get(schema, "allOf")) return value_of(w, joined(w, schema));
    if (get(schema, "$ref")) return reference(w, schema);
    return typed(w, schema);
}

static int value_of(SchemaWalk *w, const json_t *schema) {
    if (w->failed.code) return 0;
    visit(w);
    if (json_is_true(schema)) return any_value(w);
    if (json_is_false(schema)) return rules_alt(w->r, NULL, 0);
    if (!json_is_object(schema)) return fail(w, "a schema expected: an object, true or false");
    if (++w->depth > DEEPEST)
        fail(w, "schemas at most %d deep expected, found deeper ones, or a reference in allOf to itself", (int)DEEPEST);
    int e = w->failed.code ? 0 : object_schema(w, schema);
    w->depth--;
    return e;
}

static Status walk_part(const SchemaPart *part, SchemaWork *work, int depth, Rules *r, int *expr) {
    SchemaWalk w = {.r = r,
                    .work = work,
                    .root = part->root,
                    .made = json_array(),
                    .scope = part->scope,
                    .end = part->end,
                    .any = -1,
                    .depth = depth};
    buf_str(&w.path, "#");
    const char *space = part->compact ? "" : " ";
    w.comma = rules_pair(r, text(&w, ","), rules_repeat(r, text(&w, space), 0, 1));
    w.colon = rules_pair(r, text(&w, ":"), rules_repeat(r, text(&w, space), 0, 1));
    *expr = value_of(&w, part->schema);
    json_decref(w.made);
    buf_free(&w.path);
    return w.failed;
}

Status schema_flat(const json_t *root, json_t **out) {
    SchemaWalk w = {.work = &(SchemaWork){0}, .root = root, .made = json_array(), .any = -1};
    const json_t *schema = root;
    buf_str(&w.path, "#");
    for (int i = 0; i < DEEPEST && !w.failed.code && (get(schema, "$ref") || get(schema, "allOf")); i++)
        schema = get(schema, "allOf") ? joined(&w, schema) : resolved(&w, schema);
    *out = json_incref((json_t *)schema);
    json_decref(w.made);
    buf_free(&w.path);
    return w.failed;
}

Status schema_part(const SchemaPart *part, Rules *r, int *expr) {
    return walk_part(part, &(SchemaWork){0}, 0, r, expr);
}

Status schema_parse(Str source, bool compact, Rules *r) {
    json_error_t error;
    json_t *root = jsonio_read(source, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!root)
        return status_error(QUILL_USAGE, "line %d, column %d: a JSON schema expected, found: %.150s", error.line,
                            int_max(1, error.column), error.text);
    int rule = rules_rule(r, str_of("root")), e = 0;
    Status st = schema_part(&(SchemaPart){root, root, "", NULL, compact}, r, &e);
    rules_define(r, rule, e);
    json_decref(root);
    return st;
}
