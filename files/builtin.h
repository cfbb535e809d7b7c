// files/builtin.h: the model that is linked into the binary; quill uses it when no other model is given.
//
// The Makefile chooses it (MODEL=FILE; none with NO_MODEL=1). Its bytes are page-aligned constants of the binary: they
// are mapped with the executable and not copied, and pages that are not used are never read.
#ifndef QUILL_BUILTIN_H
#define QUILL_BUILTIN_H

#include "files/gguf.h"

#define BUILTIN_WORD "builtin" // its name for -m and QUILL_MODEL; a file of this name is given as ./builtin

bool builtin_there(void);
const char *builtin_name(void);  // "quill-stories (built into the binary)", also the name of its view; or "none"
Status builtin_open(Gguf **out); // QUILL_MODEL: this binary has none

#endif
