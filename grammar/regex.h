// grammar/regex.h: parses regular expressions into rules.
//
// Supported: characters, ., classes with ranges and [^...], \d \w \s \D \W \S (ASCII), \p{L} and the other categories
// of Unicode, escapes \n \t \r \f \v \0 \xHH \uHHHH \u{H...}, groups, (?:...), (?<name>...), |, ?, *, +, {n}, {n,},
// {n,m}, and these followed by ?. ^ and $ may stand at the beginning and the end of an expression or of one of its
// alternatives. The dot is every character except a newline. Errors, since no finite automaton can match them:
// references, look-around, \b.
#ifndef QUILL_REGEX_H
#define QUILL_REGEX_H

#include "grammar/rules.h"

// Makes the expression for one character of these ranges as it appears in the output, for example in a JSON string.
typedef int RegexWriter(Rules *r, const CharRange *ranges, int n, void *arg);

// Defines the rule "root": the whole answer must match. QUILL_USAGE: what was expected, with the column.
Status regex_parse_root(Str text, Rules *r);
// Parses the text into an expression. `search`: any text may precede and follow the match, except where ^ and $ stand.
// write: NULL: characters appear as themselves.
Status regex_parse(Str text, bool search, RegexWriter *write, void *arg, Rules *r, int *expr);

#endif
