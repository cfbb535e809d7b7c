// answer/builtin_templates.h: templates of our own for models whose template is missing or broken, by name.
#ifndef QUILL_BUILTIN_TEMPLATES_H
#define QUILL_BUILTIN_TEMPLATES_H

#include "base/base.h"

const char *builtin_templates_find(const char *name); // the Jinja source; NULL: no such
void builtin_templates_names(Buf *out);               // "chatml, llama2, ..."

#endif
