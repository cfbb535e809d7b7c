// grammar/schema_merge.h: two JSON schemas as one that admits what both admit; what a schema's keywords are.
#ifndef QUILL_SCHEMA_MERGE_H
#define QUILL_SCHEMA_MERGE_H

#include <jansson.h>

#include "base/base.h"

typedef enum {
    KEY_UNKNOWN,
    KEY_REMARK, // changes nothing
    KEY_ANY,    // of any type
    KEY_OBJECT,
    KEY_ARRAY,
    KEY_STRING,
    KEY_NUMBER,
} SchemaKey;

SchemaKey schema_merge_key(const char *key);
// Both schemas at once, as a new reference. QUILL_USAGE: two keywords that have no common form.
Status schema_merge(const json_t *a, const json_t *b, json_t **out);
// Whether no value can fit both, as far as types, constants, bounds and required constants of properties tell.
bool schema_merge_disjoint(const json_t *a, const json_t *b);

#endif
