// jinja/number.h: reads numbers from a text as Python's int() and float() do. White space around a number is not part
// of it; the caller has removed it.
#ifndef QUILL_JINJA_NUMBER_H
#define QUILL_JINJA_NUMBER_H

#include "base/base.h"

typedef enum { NUMBER_NONE, NUMBER_FITS, NUMBER_TOO_LARGE } NumberKind;

// Reads an optional sign, an optional prefix of the base (0b, 0o, 0x), and digits. Single _ may stand between digits.
// base: 2 to 36, or 0: the prefix decides, and a number without one is decimal. NUMBER_TOO_LARGE: an integer that does
// not fit into 64 bits.
NumberKind number_integer(Str s, int base, int64_t *out);

bool number_float(Str s, double *out); // inf and nan too. False: not a number, or more than 400 bytes

#endif
