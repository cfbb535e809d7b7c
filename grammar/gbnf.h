// grammar/gbnf.h: parses llama.cpp's grammars (GBNF) into rules.
//
//   root ::= "yes" | "no" reason?
//   reason ::= ", because " [a-z ]{1,80} "."     # a comment
//
// A rule ends at the end of its line, except inside parentheses or if the next line begins with |. Escapes in texts and
// classes: \n \t \r \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH. A dot is any character; * + ? {n} {n,} {n,m} {,m} repeat. The
// start rule is "root". Left recursion is an error (grammar/nfa.h).
#ifndef QUILL_GBNF_H
#define QUILL_GBNF_H

#include "grammar/rules.h"

// QUILL_USAGE: a syntax error; the message has the line, the column, what was expected and what was found.
Status gbnf_parse(Str text, Rules *r);

#endif
