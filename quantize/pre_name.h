// quantize/pre_name.h: finds the name that other programs know for a tokenizer's own patterns.
#ifndef QUILL_PRE_NAME_H
#define QUILL_PRE_NAME_H

#include "base/base.h"

// The value of tokenizer.ggml.pre whose patterns cut texts as these do: all texts of three signs out of many kinds, and
// some longer ones. whole: a piece that is a token is not merged. *exact: false if only texts without accents and marks
// are cut in the same way. NULL: there is none. The name is static.
const char *pre_name(const Str *patterns, size_t n, bool whole, bool *exact);

#endif
