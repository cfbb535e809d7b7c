// jinja/print.h: values as text: Python's str(), repr() and % operator, and JSON as transformers' tojson writes it.
#ifndef QUILL_JINJA_PRINT_H
#define QUILL_JINJA_PRINT_H

#include "jinja/text.h"

void print_str(TextOut *out, Value v);
void print_repr(TextOut *out, Value v);
MarkedText value_str(Heap *h, Value v); // a string as it is

// indent < 0: one line. The separators NULL: ", " and ": ", the first without its space where lines are indented.
typedef struct {
    int indent;
    bool ascii, sort_keys;
    const MarkedText *between, *after_key;
} JsonStyle;
MarkedText value_json(Heap *h, Value v, const JsonStyle *style); // fails for what JSON has no form for

// format % arguments: a tuple of them, a dict for %(name)s, or the one there is. d i u x X o f F e E g G s r.
MarkedText print_percent(Heap *h, MarkedText format, Value arguments);

#endif
