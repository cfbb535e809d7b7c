// answer/marks.h: writes a mark of a model's format as grammar rules. The parts of it that are names of control tokens
// in the vocabulary become control tokens ("<|channel|>analysis" begins with one), the rest bytes.
#ifndef QUILL_MARKS_H
#define QUILL_MARKS_H

#include "grammar/rules.h"
#include "tokenizer.h"

// Appends the bytes that the automaton reads for a mark (grammar/vocabulary.h). t NULL: no control tokens.
void marks_bytes(const Tokenizer *t, Str mark, Buf *out);
int marks_rule(const Tokenizer *t, Str mark, Rules *r);

#endif
