// files/builtin.h: the model that is linked into the binary, used where no other is named.
//
// The Makefile says which (MODEL, none with NO_MODEL=1). Its bytes lie page-aligned among the binary's constants: the
// executable's own mapping is the model's, so that nothing is copied or written and unused pages are never read.
#ifndef QUILL_BUILTIN_H
#define QUILL_BUILTIN_H

#include "files/gguf.h"

#define BUILTIN_WORD "builtin" // what -m and QUILL_MODEL call it; a file of that name is ./builtin

bool builtin_there(void);
const char *builtin_name(void);  // "quill-stories (built into the binary)", its view's name too; "none"
Status builtin_open(Gguf **out); // QUILL_MODEL: this binary has none

#endif
