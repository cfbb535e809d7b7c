// jinja/format.h: Python's str.format: {} {0} {name}, with !r or !s, and a specification after a colon.
//
// Specifications: [[fill]align][sign][#][0][width][, or _][.precision][type], with the types s d b o x X e E f F g G %.
#ifndef QUILL_JINJA_FORMAT_H
#define QUILL_JINJA_FORMAT_H

#include "jinja/run.h"

// Fails for a field without an argument, and for a specification that Python or this file does not know.
MarkedText format_braces(Heap *h, MarkedText format, const JinjaArgs *a);

#endif
