// answer/marks.h: the marks of a model's format, as rules: control tokens where the vocabulary has some of these names
// ("<|channel|>analysis" begins with one), bytes otherwise.
#ifndef QUILL_MARKS_H
#define QUILL_MARKS_H

#include "grammar/rules.h"
#include "tokenizer.h"

// Of the tokenizer t; NULL: no mark is a control token. Appends the bytes that the automaton reads for a mark
// (grammar/vocabulary.h).
void marks_bytes(const Tokenizer *t, Str mark, Buf *out);
int marks_rule(const Tokenizer *t, Str mark, Rules *r);

#endif
