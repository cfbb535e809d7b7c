// hf/regex.h: translates regular expressions of the tokenizers library for PCRE2. The library uses Oniguruma with
// Ruby's syntax. Patterns of tokenizers can differ from PCRE2 in \s, \w, \h, sets inside of sets, and the option m.
#ifndef QUILL_HF_REGEX_H
#define QUILL_HF_REGEX_H

#include "base/base.h"

// Appends the translated pattern to *out. name: the file's path, for messages. QUILL_MODEL: PCRE2 would understand a
// part of it differently, and it cannot be translated.
Status hf_regex(const char *name, const char *pattern, Buf *out);

#endif
