// answer/call_value.h: reads the values of arguments that a model wrote in a notation of its own, close to JSON or to
// Python's literals.
#ifndef QUILL_CALL_VALUE_H
#define QUILL_CALL_VALUE_H

#include <jansson.h>

#include "base/base.h"

// Reads the value at the beginning of a text: JSON; also True, False, None, strings in single quotes or between two
// `quote`, and objects whose keys are such strings or bare. The bytes CALL_HIDDEN and CALL_SHOWN around marks are
// skipped. Returns its length; 0: there is no value. *out: the caller frees it.
size_t call_value_read(Str text, Str quote, json_t **out);

#endif
