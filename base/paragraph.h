// base/paragraph.h: text in lines of at most 80 columns, for what is printed beside the answer: --help, --verbose.
#ifndef QUILL_PARAGRAPH_H
#define QUILL_PARAGRAPH_H

#include <stdio.h>

enum { PARAGRAPH_WIDTH = 80 };

// Prints `text` and a newline. The cursor is in column `at` (0: at the beginning of a line); lines after the first
// begin in column `indent`. Breaks at single spaces alone; a word that is longer than a line stays whole, and so
// does a number with its unit.
void paragraph_print(FILE *out, const char *text, int at, int indent);
// An item of --verbose, to stderr: the label, and the text in a column of its own.
void paragraph_item(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
