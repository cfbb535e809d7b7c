// jinja/jinja.h: an interpreter for chat templates, which are written in Jinja, with transformers' settings.
//
//   Jinja *t;
//   TRY(jinja_parse(source, &t));
//   Heap *h = heap_new(room, steps);                    // the values live in it, the caller's variables too
//   Value vars = value_dict(h); dict_set_str(h, vars.dict, "messages", ...);
//   Status st = jinja_render(t, h, vars.dict, &now, &text, &trusted);
//   heap_free(h); jinja_free(t);
//
// The reference is Jinja2 3.1 in its immutable sandbox with trim_blocks, lstrip_blocks, loop controls and
// transformers' tojson, raise_exception and strftime_now. Supported are the statements in jinja/parse.h, the filters
// and tests in jinja/filters.c, and the methods and functions in jinja/calls.c. A template can read only its variables.
// Steps, memory and depth are bounded. Every error of a template names the line.
#ifndef QUILL_JINJA_H
#define QUILL_JINJA_H

#include <time.h>

#include "jinja/value.h"

typedef struct Jinja Jinja; // read-only once parsed

Status jinja_parse(Str source, Jinja **out); // QUILL_MODEL: a syntax error. The source is copied
void jinja_free(Jinja *t);                   // NULL is fine

// Appends the rendered text, and for each byte whether it may be part of a control token: 1 if the template or a
// trusted value wrote it, 0 if it comes from other values. `now` is the time of strftime_now. QUILL_MODEL: the template
// fails with these variables; the message has the text of raise_exception.
Status jinja_render(const Jinja *t, Heap *h, const Dict *variables, const struct tm *now, Buf *text, Buf *trusted);

#endif
