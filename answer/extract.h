// answer/extract.h: finds the first code block or JSON value in an answer (--extract).
#ifndef QUILL_EXTRACT_H
#define QUILL_EXTRACT_H

#include "base/base.h"

// Whichever comes first: the inside of a code block (between lines of ``` or ~~~; an unclosed one reaches to the end of
// the text), or a JSON object or array. data NULL: neither. Points into `text`.
Str extract_first(Str text);

#endif
