// grammar/schema_merge.c: see grammar/schema_merge.h.
#include "grammar/schema_merge.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/jsonio.h"
#include "grammar/json_pointer.h"

static const struct {
    const char *name;
    SchemaKey key;
} keywords[] = {
    {"type", KEY_ANY},
    {"enum", KEY_ANY},
    {"const", KEY_ANY},
    {"anyOf", KEY_ANY},
    {"oneOf", KEY_ANY},
    {"allOf", KEY_ANY},
    {"$ref", KEY_ANY},
    {"properties", KEY_OBJECT},
    {"required", KEY_OBJECT},
    {"additionalProperties", KEY_OBJECT},
    {"propertyNames", KEY_OBJECT},
    {"items", KEY_ARRAY},
    {"prefixItems", KEY_ARRAY},
    {"minItems", KEY_ARRAY},
    {"maxItems", KEY_ARRAY},
    {"pattern", KEY_STRING},
    {"format", KEY_STRING},
    {"minLength", KEY_STRING},
    {"maxLength", KEY_STRING},
    {"minimum", KEY_NUMBER},
    {"maximum", KEY_NUMBER},
    {"exclusiveMinimum", KEY_NUMBER},
    {"exclusiveMaximum", KEY_NUMBER},
    {"multipleOf", KEY_NUMBER},
    {"$schema", KEY_REMARK},
    {"$id", KEY_REMARK},
    {"$comment", KEY_REMARK},
    {"$defs", KEY_REMARK},
    {"definitions", KEY_REMARK},
    {"title", KEY_REMARK},
    {"description", KEY_REMARK},
    {"default", KEY_REMARK},
    {"examples", KEY_REMARK},
    {"example", KEY_REMARK},
    {"discriminator", KEY_REMARK},
    {"nullable", KEY_REMARK},
    {"id", KEY_REMARK},
    {"deprecated", KEY_REMARK},
    {"readOnly", KEY_REMARK},
    {"writeOnly", KEY_REMARK},
    {"strict", KEY_REMARK},
    {"contentEncoding", KEY_REMARK},
    {"contentMediaType", KEY_REMARK},
};

SchemaKey schema_merge_key(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (strcmp(key, keywords[i].name) == 0) return keywords[i].key;
    return strncmp(key, "x-", 2) == 0 ? KEY_REMARK : KEY_UNKNOWN;
}

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

static json_t *all_of(json_t *a, json_t *b) {
    if (json_is_true(a)) return json_incref(b);
    if (json_is_true(b)) return json_incref(a);
    if (json_is_false(a) || json_is_false(b)) return json_false();
    json_t *both = json_object(), *list = json_array();
    jsonio_append(list, json_incref(a));
    jsonio_append(list, json_incref(b));
    jsonio_put(both, "allOf", list);
    return both;
}

static bool list_has(const json_t *list, const json_t *value) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        if (json_equal(one, value)) return true;
    }
    return false;
}

// The type names that both allow; a single name counts as a list with that name.
static json_t *merge_types(json_t *a, json_t *b) {
    json_t *x = json_is_array(a) ? json_incref(a) : json_array(), *y = json_is_array(b) ? json_incref(b) : json_array();
    if (!json_is_array(a)) jsonio_append(x, json_incref(a));
    if (!json_is_array(b)) jsonio_append(y, json_incref(b));
    json_t *out = json_array(), *one, *integer = json_string("integer"), *number = json_string("number");
    size_t i;
    json_array_foreach(x, i, one) {
        bool narrower = json_equal(one, number) && list_has(y, integer) && !list_has(x, integer);
        bool wider = json_equal(one, integer) && list_has(y, number);
        if (list_has(y, one) || wider) jsonio_append(out, json_incref(one));
        else if (narrower) jsonio_append(out, json_incref(integer));
    }
    json_decref(x);
    json_decref(y);
    json_decref(integer);
    json_decref(number);
    return out;
}

static json_t *common_values(json_t *a, json_t *b) {
    json_t *out = json_array(), *one;
    size_t i;
    json_array_foreach(a, i, one) {
        if (list_has(b, one)) jsonio_append(out, json_incref(one));
    }
    return out;
}

static json_t *joined(json_t *a, json_t *b) {
    json_t *out = json_copy(a), *one;
    size_t i;
    json_array_foreach(b, i, one) {
        if (!list_has(out, one)) jsonio_append(out, json_incref(one));
    }
    return out;
}

// The schema for properties that a schema does not list; true: any value.
static json_t *additional_of(const json_t *schema) {
    json_t *a = json_object_get(schema, "additionalProperties");
    return a ? a : json_true();
}

static json_t *merge_properties(const json_t *a, const json_t *b) {
    json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties"), *out = json_object(), *value;
    const char *key;
    json_object_foreach(pa, key, value) {
        json_t *other = json_object_get(pb, key);
        jsonio_put(out, key, all_of(value, other ? other : additional_of(b)));
    }
    json_object_foreach(pb, key, value) {
        if (!json_object_get(pa, key)) jsonio_put(out, key, all_of(value, additional_of(a)));
    }
    return out;
}

static bool has_items(const json_t *schema) {
    return json_object_get(schema, "items") || json_object_get(schema, "prefixItems");
}

// The schema of element i; true: any value.
static json_t *item_of(const json_t *schema, size_t i) {
    json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    if (i < json_array_size(prefix)) return json_array_get(prefix, i);
    return items ? items : json_true();
}

// Puts into m what a and b say about elements.
static void merge_items(const json_t *a, const json_t *b, json_t *m) {
    json_t *pa = json_object_get(a, "prefixItems"), *pb = json_object_get(b, "prefixItems"), *prefix = json_array();
    size_t n = json_array_size(pa) > json_array_size(pb) ? json_array_size(pa) : json_array_size(pb);
    for (size_t i = 0; i < n; i++) jsonio_append(prefix, all_of(item_of(a, i), item_of(b, i)));
    if (n) jsonio_put(m, "prefixItems", prefix);
    else json_decref(prefix);
    if (json_object_get(a, "items") || json_object_get(b, "items"))
        jsonio_put(m, "items", all_of(item_of(a, SIZE_MAX), item_of(b, SIZE_MAX)));
}

// One keyword that both have; NULL: the two have no common form.
static json_t *merge_key(const char *key, json_t *a, json_t *b) {
    if (json_equal(a, b)) return json_incref(a);
    double x = json_number_value(a), y = json_number_value(b);
    if (is(key, "type")) return merge_types(a, b);
    if (is(key, "enum") && json_is_array(a) && json_is_array(b)) return common_values(a, b);
    if (is(key, "required") && json_is_array(a) && json_is_array(b)) return joined(a, b);
    if (is(key, "additionalProperties") || is(key, "propertyNames")) return all_of(a, b);
    if (strncmp(key, "min", 3) == 0 || is(key, "exclusiveMinimum")) return json_incref(x > y ? a : b);
    if (strncmp(key, "max", 3) == 0 || is(key, "exclusiveMaximum")) return json_incref(x < y ? a : b);
    if (is(key, "multipleOf") && x > 0 && y > 0 && fmod(x, y) == 0) return json_incref(a);
    if (is(key, "multipleOf") && x > 0 && y > 0 && fmod(y, x) == 0) return json_incref(b);
    return NULL;
}

// Treats `const` as an enum with one value.
static json_t *plain_copy(const json_t *schema) {
    json_t *out = json_object(), *value;
    const char *key;
    bool fixed = json_object_get(schema, "const");
    json_object_foreach((json_t *)schema, key, value) {
        if (schema_merge_key(key) == KEY_REMARK || (fixed && is(key, "enum"))) continue;
        if (!is(key, "const")) jsonio_share(out, key, value);
        else {
            json_t *list = json_array(), *had = json_object_get(schema, "enum");
            if (!had || list_has(had, value)) jsonio_append(list, json_incref(value));
            jsonio_put(out, "enum", list);
        }
    }
    return out;
}

// Keywords that list schemas or point to one are not merged: the second one's become one of allOf.
static void put_aside(json_t *out, const char *key, json_t *value) {
    json_t *list = json_object_get(out, "allOf"), *one = json_object();
    jsonio_share(one, key, value);
    list = list ? json_copy(list) : json_array();
    jsonio_append(list, one);
    jsonio_put(out, "allOf", list);
}

Status schema_merge(const json_t *a, const json_t *b, json_t **out) {
    *out = NULL;
    if (!json_is_object(a) || !json_is_object(b)) {
        *out = all_of((json_t *)a, (json_t *)b);
        return OK;
    }
    const json_t *lists[] = {json_object_get(a, "allOf"), json_object_get(b, "allOf")};
    for (int i = 0; i < 2; i++)
        if (lists[i] && !json_is_array(lists[i])) return status_error(QUILL_USAGE, "allOf: a list of schemas expected");
    json_t *m = plain_copy(a), *other = plain_copy(b), *value;
    const char *key;
    bool objects = json_object_get(a, "properties") || json_object_get(b, "properties");
    bool elements = has_items(a) && has_items(b);
    if (objects) jsonio_put(m, "properties", merge_properties(a, b));
    if (elements) merge_items(a, b, m);
    json_object_foreach(other, key, value) {
        json_t *had = json_object_get(m, key), *both;
        bool aside = is(key, "anyOf") || is(key, "oneOf") || is(key, "$ref") || is(key, "pattern");
        if (is(key, "properties") || (elements && (is(key, "items") || is(key, "prefixItems")))) continue;
        if (!had) {
            jsonio_share(m, key, value);
            continue;
        }
        if (is(key, "allOf")) both = joined(had, value);
        else if (aside && !json_equal(had, value)) {
            put_aside(m, key, value);
            continue;
        } else both = merge_key(key, had, value);
        if (!both) {
            json_decref(m);
            json_decref(other);
            return status_error(QUILL_USAGE, "allOf: two different \"%.40s\" that can be joined expected, found others",
                                key);
        }
        jsonio_put(m, key, both);
    }
    json_decref(other);
    *out = m;
    return OK;
}

// ---- the types of values --------------------------------------------------------------------------------------------

const char *schema_merge_type(const json_t *value) {
    static const char *const names[] = {
        [JSON_OBJECT] = "object", [JSON_ARRAY] = "array",  [JSON_STRING] = "string", [JSON_INTEGER] = "integer",
        [JSON_REAL] = "number",   [JSON_TRUE] = "boolean", [JSON_FALSE] = "boolean", [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}

// SCHEMA_ of a type's name; 0: another name.
static unsigned type_bits(const char *name) {
    static const struct {
        const char *name;
        unsigned bits;
    } all[] = {{"null", SCHEMA_NULL},     {"boolean", SCHEMA_BOOLEAN}, {"integer", SCHEMA_INTEGER},
               {"number", SCHEMA_NUMBER}, {"string", SCHEMA_STRING},   {"array", SCHEMA_ARRAY},
               {"object", SCHEMA_OBJECT}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (name && is(name, all[i].name)) return all[i].bits;
    return 0;
}

// The types that `type` names: one name or a list.
static unsigned named_types(const json_t *type) {
    const json_t *one;
    size_t i;
    unsigned types = type_bits(json_string_value(type));
    json_array_foreach(type, i, one) types |= type_bits(json_string_value(one));
    return types;
}

unsigned schema_merge_bits(const json_t *value) { return type_bits(schema_merge_type(value)); }

enum { MOST_VISITS = 10000 }; // schemas that types_at reads; of further ones any type counts

// The types whose own keywords a schema has: strings for minLength. Any type if it has no such keyword.
static unsigned types_of_keywords(const json_t *schema) {
    static const unsigned bits[] = {[KEY_OBJECT] = SCHEMA_OBJECT,
                                    [KEY_ARRAY] = SCHEMA_ARRAY,
                                    [KEY_STRING] = SCHEMA_STRING,
                                    [KEY_NUMBER] = SCHEMA_NUMBER};
    const char *key;
    json_t *value;
    unsigned all = 0;
    json_object_foreach((json_t *)schema, key, value) {
        SchemaKey kind = schema_merge_key(key);
        if (kind >= KEY_OBJECT) all |= bits[kind];
    }
    return all ? all : SCHEMA_ANY;
}

static unsigned types_at(const json_t *root, const json_t *schema, int depth, int *visits) {
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum"), *one;
    const json_t *fixed = json_object_get(schema, "const"), *all = json_object_get(schema, "allOf");
    static const char *const ways[] = {"anyOf", "oneOf"};
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    unsigned types = json_is_false(schema) ? 0 : SCHEMA_ANY, some = 0;
    size_t i;
    if (depth > 8 || ++*visits > MOST_VISITS || !json_is_object(schema)) return types;
    if (ref) types &= types_at(root, json_pointer(root, ref), depth + 1, visits);
    json_array_foreach(all, i, one) types &= types_at(root, one, depth + 1, visits);
    for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
        const json_t *way = json_object_get(schema, ways[k]);
        some = 0;
        json_array_foreach(way, i, one) some |= types_at(root, one, depth + 1, visits);
        if (way) types &= some;
    }
    if (type) types &= named_types(type);
    some = 0;
    json_array_foreach(list, i, one) some |= schema_merge_bits(one);
    if (list) types &= some;
    if (fixed) types &= schema_merge_bits(fixed);
    if (!type && !list && !fixed && types == SCHEMA_ANY) types = types_of_keywords(schema);
    return types;
}

unsigned schema_merge_types(const json_t *root, const json_t *schema) { return types_at(root, schema, 0, &(int){0}); }

bool schema_merge_has_type(const json_t *type, const json_t *value) {
    bool fraction = json_is_real(value) && floor(json_real_value(value)) != json_real_value(value);
    return !type || named_types(type) & (fraction ? SCHEMA_NUMBER & ~SCHEMA_INTEGER : schema_merge_bits(value));
}

// ---- schemas that exclude each other --------------------------------------------------------------------------------

static json_t *values_of(const json_t *schema) { // a new list; NULL: it names no values
    json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    if (list) return json_incref(list);
    if (!one) return NULL;
    list = json_array();
    jsonio_append(list, json_incref(one));
    return list;
}

static bool disjoint_values(const json_t *a, const json_t *b) {
    json_t *x = values_of(a), *y = values_of(b), *common = x && y ? common_values(x, y) : NULL;
    bool disjoint = common && json_array_size(common) == 0;
    json_decref(x);
    json_decref(y);
    json_decref(common);
    return disjoint;
}

// The types of a schema's values, as a new reference: those that it names, or those of its constants; NULL: any.
static json_t *types_of(const json_t *schema) {
    json_t *type = json_object_get(schema, "type"), *values = values_of(schema), *value;
    size_t i;
    if (!values) return json_incref(type);
    json_t *types = json_array();
    json_array_foreach(values, i, value) jsonio_append(types, json_string(schema_merge_type(value)));
    json_decref(values);
    return types;
}

static bool disjoint_types(const json_t *a, const json_t *b) {
    json_t *x = types_of(a), *y = types_of(b), *common = x && y ? merge_types(x, y) : NULL;
    bool disjoint = common && json_array_size(common) == 0;
    json_decref(x);
    json_decref(y);
    json_decref(common);
    return disjoint;
}

static bool has_only_type(const json_t *schema, const char *name) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && is(type, name);
}

// Whether all strings or lists that match a are shorter than those that match b.
static bool shorter(const json_t *a, const json_t *b) {
    static const struct {
        const char *type, *most, *least;
    } all[] = {{"string", "maxLength", "minLength"}, {"array", "maxItems", "minItems"}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        json_t *most = json_object_get(a, all[i].most), *least = json_object_get(b, all[i].least);
        bool both = has_only_type(a, all[i].type) && has_only_type(b, all[i].type);
        if (both && most && least && json_number_value(most) < json_number_value(least)) return true;
    }
    return false;
}

static bool is_number(const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && (is(type, "integer") || is(type, "number"));
}

// Whether all numbers that match a are less than those that match b.
static bool below(const json_t *a, const json_t *b) {
    json_t *high = json_object_get(a, "maximum"), *open = json_object_get(a, "exclusiveMaximum");
    json_t *low = json_object_get(b, "minimum"), *low_open = json_object_get(b, "exclusiveMinimum");
    if (!is_number(a) || !is_number(b)) return false;
    bool lower = high && low && json_number_value(high) < json_number_value(low);
    bool touching = (high && low_open && json_number_value(high) <= json_number_value(low_open)) ||
                    (open && low && json_number_value(open) <= json_number_value(low)) ||
                    (open && low_open && json_number_value(open) <= json_number_value(low_open));
    return lower || touching;
}

static bool requires(const json_t *schema, const char *name) {
    json_t *text = json_string(name);
    bool found = list_has(json_object_get(schema, "required"), text);
    json_decref(text);
    return found;
}

static bool disjoint(const json_t *a, const json_t *b);

// shared: also compares the properties that both have, which needs to be done once for a pair of schemas.
static bool disjoint_properties(const json_t *a, const json_t *b, bool shared) {
    const char *key;
    json_t *value, *pb = json_object_get(b, "properties");
    if (!has_only_type(a, "object") || !has_only_type(b, "object")) return false;
    json_object_foreach(json_object_get(a, "properties"), key, value) {
        json_t *other = json_object_get(pb, key);
        bool closed = !other && json_is_false(json_object_get(b, "additionalProperties"));
        if (requires(a, key) && closed) return true;
        bool both = shared && other && requires(a, key) && requires(b, key);
        if (both && disjoint(value, other)) return true;
    }
    return false;
}

static bool disjoint(const json_t *a, const json_t *b) {
    if (json_is_false(a) || json_is_false(b)) return true;
    return disjoint_types(a, b) || disjoint_values(a, b) || below(a, b) || below(b, a) || shorter(a, b) ||
           shorter(b, a) || disjoint_properties(a, b, true) || disjoint_properties(b, a, false);
}

bool schema_merge_exclusive(const json_t *all, size_t *a, size_t *b) {
    for (*b = 0; *b < json_array_size(all); ++*b)
        for (*a = 0; *a < *b; ++*a)
            if (!disjoint(json_array_get(all, *b), json_array_get(all, *a))) return false;
    return true;
}

json_t *schema_merge_tagged(const json_t *schema) {
    const char *key;
    json_t *value;
    if (!json_is_object(schema)) return json_incref((json_t *)schema);
    json_t *out = json_copy((json_t *)schema), *had = json_object_get(schema, "required");
    json_t *required = had ? json_copy(had) : json_array();
    json_object_foreach(json_object_get(schema, "properties"), key, value) {
        bool tag = json_object_get(value, "const") || json_array_size(json_object_get(value, "enum")) == 1;
        if (tag && !requires(schema, key)) jsonio_append(required, json_string(key));
    }
    if (json_array_size(required)) jsonio_put(out, "required", required);
    else json_decref(required);
    return out;
}
