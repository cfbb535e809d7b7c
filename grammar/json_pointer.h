// grammar/json_pointer.h: references inside a JSON document.
#ifndef QUILL_JSON_POINTER_H
#define QUILL_JSON_POINTER_H

#include <jansson.h>

// The part of `root` that a reference names: # and a JSON pointer (RFC 6901) as a part of a URI, such as
// "#/$defs/name". NULL: there is none, or `reference` is of another form.
const json_t *json_pointer(const json_t *root, const char *reference);

#endif
