// base/paragraph.h: text in lines of at most 80 columns: --help, --verbose.
#ifndef QUILL_PARAGRAPH_H
#define QUILL_PARAGRAPH_H

#include <stdio.h>

enum { PARAGRAPH_WIDTH = 80 };

// Prints `text` and a newline. The cursor is in column `at` (0: at the beginning of a line); lines after the first
// begin in column `indent`. Lines break only at single spaces; a word longer than a line is not divided, nor is a
// number separated from its unit.
void paragraph_print(FILE *out, const char *text, int at, int indent);
// Prints an item of --verbose to stderr: the label, and the text in a separate column.
void paragraph_item(const char *label, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
