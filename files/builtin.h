// files/builtin.h: the model that is linked into the binary; quill uses it when no other model is given.
//
// The Makefile chooses it (MODEL; none with NO_MODEL=1). Its bytes are page-aligned constants of the binary: they are
// mapped with the executable, nothing is copied, and unused pages are never read.
#ifndef QUILL_BUILTIN_H
#define QUILL_BUILTIN_H

#include "files/gguf.h"

#define BUILTIN_WORD "builtin" // what -m and QUILL_MODEL call it; a file of that name is ./builtin

bool builtin_there(void);
const char *builtin_name(void);  // "quill-stories (built into the binary)", its view's name too; "none"
Status builtin_open(Gguf **out); // QUILL_MODEL: this binary has none

#endif
