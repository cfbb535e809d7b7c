// grammar/gbnf.h: llama.cpp's grammars (GBNF) as rules.
//
//   root ::= "yes" | "no" reason?
//   reason ::= ", because " [a-z ]{1,80} "."     # a comment
//
// A rule ends with its line, except inside parentheses, and where the next line begins with |. Texts and classes know
// \n \t \r \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH; . is any character; * + ? {n} {n,} {n,m} {,m} repeat. The rule "root" is
// where an answer begins. Rules that begin with themselves are refused (grammar/nfa.h).
#ifndef QUILL_GBNF_H
#define QUILL_GBNF_H

#include "grammar/rules.h"

// QUILL_USAGE: line, column, what was expected, what was found.
Status gbnf_parse(Str text, Rules *r);

#endif
