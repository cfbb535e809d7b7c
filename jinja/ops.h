// jinja/ops.h: what Python's operators do with values: arithmetic, joining, subscripts, slices.
//
// Integers have 64 bits; what does not fit fails. Errors go to the heap, with Python's words.
#ifndef QUILL_JINJA_OPS_H
#define QUILL_JINJA_OPS_H

#include "jinja/value.h"

Value op_binary(Heap *h, int op, Value a, Value b); // N_BINARY's op (jinja/parse.h)
Value op_negative(Heap *h, Value v);
bool op_compare(Heap *h, int op, Value a, Value b);               // N_OPERAND's op
bool op_integer(Heap *h, const char *who, Value v, int64_t *out); // an argument that has to be one; false: failed

// of[key] of lists, strings and dicts, undefined where there is none. *found false: not a subscript that Python knows.
Value op_index(Heap *h, Value of, Value key, bool *found);
Value op_slice(Heap *h, Value of, const Value parts[3]); // V_NONE or V_ABSENT where a part is left out

void op_undefined(Heap *h, Value v); // fails with what the undefined value says

#endif
