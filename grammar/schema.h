// grammar/schema.h: converts a JSON Schema (2020-12) into rules: answers are JSON that the schema admits.
//
// Keywords: type, properties, required, additionalProperties, propertyNames, enum, const; items, prefixItems, minItems,
// maxItems; minLength, maxLength, pattern, format (grammar/json_format.h); minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf; anyOf, oneOf, allOf; $defs, $ref to a part of the schema, also recursively. Titles and
// other annotations are ignored. Any other keyword is an error that names it.
//
// An answer has its properties in the schema's order. Other properties are allowed only if additionalProperties says so
// or the schema has no `properties`. After : and , it has one space or none. oneOf is supported if its alternatives
// exclude each other; properties with one possible value, which may tell them apart, are then required.
#ifndef QUILL_SCHEMA_H
#define QUILL_SCHEMA_H

#include <jansson.h>

#include "grammar/rules.h"

// One of several schemas in one set of rules.
typedef struct {
    const json_t *root;   // the document that references point into
    const json_t *schema; // root, or a part of it
    const char *scope;    // a prefix for names of rules, different for each schema of these rules
    const char *end;      // not NULL: a text that follows the value and belongs to the expression; a string value is
                          // then written without quotes and escapes
    bool compact;
} SchemaPart;

// Makes an expression for the schema. Errors as schema_parse.
Status schema_part(const SchemaPart *part, Rules *r, int *expr);

// Resolves references and allOf at the root: *out is a new reference, also after an error. Errors as schema_parse.
Status schema_flat(const json_t *root, json_t **out);

bool schema_requires(const json_t *schema, const char *name); // whether `required` lists the property

// compact: no spaces. QUILL_USAGE: the text is not JSON (line, column), or a keyword is wrong or unsupported (its
// position in the schema), or reading it takes too long. 128 + a signal that was caught meanwhile.
Status schema_parse(Str text, bool compact, Rules *r);

#endif
