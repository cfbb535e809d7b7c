// answer/extract.h: what a program wants of a free answer: its first code block, or its first JSON value.
#ifndef QUILL_EXTRACT_H
#define QUILL_EXTRACT_H

#include "base/base.h"

// The first of: the inside of a code block (between lines of ``` or ~~~; one that is not closed reaches to the end), or
// a JSON object or array. data NULL: there is none.
Str extract_first(Str text);

#endif
