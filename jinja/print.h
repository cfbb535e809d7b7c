// jinja/print.h: prints values: Python's str(), repr() and % operator, and JSON in the form of transformers' tojson.
#ifndef QUILL_JINJA_PRINT_H
#define QUILL_JINJA_PRINT_H

#include "jinja/text.h"

void print_str(TextOut *out, Value v);
void print_repr(TextOut *out, Value v);
MarkedText value_str(Heap *h, Value v); // Python's str(); a string is returned unchanged

// indent < 0: everything in one line. Separators that are NULL are ", " (with indentation ",") and ": ". `by`, if not
// NULL, is one step of the indentation in place of `indent` spaces.
typedef struct {
    int indent;
    const MarkedText *by;
    bool ascii, sort_keys;
    const MarkedText *between, *after_key;
} JsonStyle;
MarkedText value_json(Heap *h, Value v, const JsonStyle *style); // fails for values that JSON cannot represent

// format % arguments. arguments: a tuple, a dict for %(name)s, or a single value. Conversions: d i u x X o f F e E g G
// s r.
MarkedText print_percent(Heap *h, MarkedText format, Value arguments);

#endif
