// grammar/schema.h: JSON Schema (2020-12) as rules: answers are JSON that the schema admits.
//
// type, properties, required, additionalProperties, enum, const; items, prefixItems, minItems, maxItems; minLength,
// maxLength, pattern, format (date, time, date-time, email, uuid, ipv4, uri); minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf; anyOf, oneOf, allOf; $ref to a part of the schema, also to one that it lies in, $defs.
// Titles and other remarks are passed over. Any other keyword is an error that names it.
//
// An answer has its properties in the schema's order, and only those that are named unless additionalProperties says
// more (or no property is named). It may have one space behind : and , or none. oneOf is taken where its alternatives
// exclude each other.
#ifndef QUILL_SCHEMA_H
#define QUILL_SCHEMA_H

#include "grammar/rules.h"

// compact: no space anywhere. QUILL_USAGE: no JSON (line, column), or what is wrong with a keyword, and where it
// stands.
Status schema_parse(Str text, bool compact, Rules *r);

#endif
