// answer/builtin_templates.h: chat templates in the binary, by name, for models whose template is missing or broken.
#ifndef QUILL_BUILTIN_TEMPLATES_H
#define QUILL_BUILTIN_TEMPLATES_H

#include "base/base.h"

const char *builtin_templates_find(const char *name); // the Jinja source; NULL: unknown name
void builtin_templates_names(Buf *out);               // "chatml, llama2, ..."

#endif
