// grammar/schema.h: JSON Schema (2020-12) as rules: answers are JSON that the schema admits.
//
// type, properties, required, additionalProperties, enum, const; items, prefixItems, minItems, maxItems; minLength,
// maxLength, pattern, format (grammar/json_format.h); minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf; anyOf, oneOf, allOf; $ref to a part of the schema, also to one that it lies in, $defs.
// Titles and other remarks are passed over. Any other keyword is an error that names it.
//
// An answer has its properties in the schema's order, and only those that are named unless additionalProperties says
// more (or no property is named). It may have one space behind : and , or none. oneOf is taken where its alternatives
// exclude each other.
#ifndef QUILL_SCHEMA_H
#define QUILL_SCHEMA_H

#include <jansson.h>

#include "grammar/rules.h"

// A schema among others in one set of rules.
typedef struct {
    const json_t *root;   // what references point into
    const json_t *schema; // root, or a part of it
    const char *scope;    // that no other schema of these rules has
    const char *end;      // not NULL: a text that follows the value and is part of the expression; strings come as they
                          // are, without quotes
    bool compact;
} SchemaPart;

// QUILL_USAGE: as schema_parse's.
Status schema_part(const SchemaPart *part, Rules *r, int *expr);

// compact: no space anywhere. QUILL_USAGE: no JSON (line, column), or what is wrong with a keyword, and where it
// stands.
Status schema_parse(Str text, bool compact, Rules *r);

#endif
