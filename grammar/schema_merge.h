// grammar/schema_merge.h: merges two JSON schemas into one that admits what both admit, and classifies keywords.
#ifndef QUILL_SCHEMA_MERGE_H
#define QUILL_SCHEMA_MERGE_H

#include <jansson.h>

#include "base/base.h"

typedef enum {
    KEY_UNKNOWN,
    KEY_REMARK, // an annotation, which restricts nothing
    KEY_ANY,    // applies to values of any type; the keywords below to one type
    KEY_OBJECT,
    KEY_ARRAY,
    KEY_STRING,
    KEY_NUMBER,
} SchemaKey;

SchemaKey schema_merge_key(const char *key);
const char *schema_merge_type(const json_t *value); // the narrowest name for "type": "integer", not "number"
// The types of JSON as bits. SCHEMA_NUMBER includes whole numbers.
enum {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_INTEGER = 4,
    SCHEMA_NUMBER = 4 + 8,
    SCHEMA_STRING = 16,
    SCHEMA_ARRAY = 32,
    SCHEMA_OBJECT = 64,
    SCHEMA_ANY = 127,
};
unsigned schema_merge_bits(const json_t *value);
// Whether a value has one of the types that `type` names; NULL: any type.
bool schema_merge_has_type(const json_t *type, const json_t *value);
// The types that a value of the schema may have. root: the document that references point into.
unsigned schema_merge_types(const json_t *root, const json_t *schema);
// The merged schema, a new reference. QUILL_USAGE: two keywords cannot be combined.
Status schema_merge(const json_t *a, const json_t *b, json_t **out);
// Whether no value can match two schemas of a list. If false, these are number *a and *b. Compares only types,
// constants, bounds and the constants of required properties.
bool schema_merge_exclusive(const json_t *all, size_t *a, size_t *b);
// The schema of an object that also requires its properties with one possible value, as a new reference: they are the
// tags of alternatives, which some writers leave out of `required` because they have a default.
json_t *schema_merge_tagged(const json_t *schema);

#endif
