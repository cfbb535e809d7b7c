// grammar/regex.h: regular expressions as rules.
//
// Characters, ., classes with ranges and [^...], \d \w \s \D \W \S (of ASCII), \p{L} and the other categories of
// Unicode, escapes \n \t \r \f \v \0 \xHH \uHHHH \u{H...}, groups, (?:...), (?<name>...), |, ?, *, +, {n}, {n,}, {n,m},
// and these with a ? behind. ^ and $ stand where an expression or one of its alternatives begins and ends. The dot is
// every character but a newline. What no automaton has is an error: references, look-around, \b.
#ifndef QUILL_REGEX_H
#define QUILL_REGEX_H

#include "grammar/rules.h"

// A text as it is written elsewhere: a character inside a JSON string, say. Returns an expression.
typedef int RegexWriter(Rules *r, const CharRange *ranges, int n, void *arg);

// The whole text matches; root is defined by it. QUILL_USAGE: what was expected, with the column.
Status regex_parse_root(Str text, Rules *r);
// As an expression. `search`: any text may stand in front and behind where there is no ^ and $. write: NULL: characters
// are themselves.
Status regex_parse(Str text, bool search, RegexWriter *write, void *arg, Rules *r, int *expr);

#endif
