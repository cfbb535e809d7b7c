// cli/escape.h: prints text in the syntax of roff or of a shell.
#ifndef QUILL_ESCAPE_H
#define QUILL_ESCAPE_H

typedef struct {
    char c;
    const char *as;
} CliEscape;
// Prints text to stdout and replaces some characters; the list of escapes ends with {0, NULL}.
void cli_put(const char *text, const CliEscape *escapes);

#endif
