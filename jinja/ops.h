// jinja/ops.h: Python's operators on values: arithmetic, concatenation, subscripts, slices.
//
// Integers have 64 bits; results that do not fit are errors. Errors go to the heap, with Python's wording.
#ifndef QUILL_JINJA_OPS_H
#define QUILL_JINJA_OPS_H

#include "jinja/value.h"

Value op_binary(Heap *h, int op, Value a, Value b); // N_BINARY's op (jinja/parse.h)
Value op_negative(Heap *h, Value v);
bool op_compare(Heap *h, int op, Value a, Value b);               // N_OPERAND's op
bool op_integer(Heap *h, const char *who, Value v, int64_t *out); // false: v is not an integer, and the heap has failed

// of[key] of lists, strings and dicts; undefined if there is no such item. *found false: `of` has no subscripts in
// Python.
Value op_index(Heap *h, Value of, Value key, bool *found);
Value op_slice(Heap *h, Value of, const Value parts[3]); // V_NONE or V_ABSENT where a part is left out

void op_undefined(Heap *h, Value v); // fails with the message of the undefined value

#endif
