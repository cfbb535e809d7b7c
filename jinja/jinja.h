// jinja/jinja.h: chat templates: the dialect of Jinja that they are written in, run with transformers' settings.
//
//   Jinja *t;
//   TRY(jinja_parse(source, &t));
//   Heap *h = heap_new(room, steps);                    // the values live in it, the caller's variables too
//   Value vars = value_dict(h); dict_set_str(h, vars.dict, "messages", ...);
//   Status st = jinja_render(t, h, vars.dict, &now, &text, &trusted);
//   heap_free(h); jinja_free(t);
//
// The reference is Jinja2 3.1 in its immutable sandbox with trim_blocks, lstrip_blocks, loop controls and
// transformers' tojson, raise_exception and strftime_now. What is there: jinja/parse.h (statements),
// jinja/filters.c, jinja/calls.c (methods and functions). A template sees its variables and nothing else. Steps, memory
// and depth are bounded; whatever is wrong with a template becomes an error that names the line.
#ifndef QUILL_JINJA_H
#define QUILL_JINJA_H

#include <time.h>

#include "jinja/value.h"

typedef struct Jinja Jinja; // read-only once parsed

Status jinja_parse(Str source, Jinja **out); // QUILL_MODEL: no template. The source need not stay.
void jinja_free(Jinja *t);                   // NULL is fine

// Appends the text and, byte for byte, whether it may hold control tokens: 1 for what the template or a trusted value
// wrote, 0 for what came with the others. `now` is what strftime_now gives. QUILL_MODEL: the template fails on these
// variables; its own words are in the message.
Status jinja_render(const Jinja *t, Heap *h, const Dict *variables, const struct tm *now, Buf *text, Buf *trusted);

#endif
