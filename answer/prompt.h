// answer/prompt.h: reads the prompt from the command line (words, -p, -f) and stdin.
#ifndef QUILL_PROMPT_H
#define QUILL_PROMPT_H

#include "answer/answer_config.h"
#include "base/base.h"

// A piece of the prompt.
typedef struct {
    char *text;       // owned; NULL: the piece is a file
    const char *file; // a path, or - for stdin
} PromptPart;

typedef struct {
    PromptPart *parts; // (n_parts) words, -p and -f, in the order in which they make up the prompt
    int n_parts;
    bool escape;      // the texts have escapes as in C
    bool no_stdin;    // never read stdin
    bool joins_stdin; // read stdin after the parts; otherwise only if there are no parts
    bool quiet;       // no note on stderr while stdin delays
} PromptConfig;

// Joins the parts in their order, then stdin if it is a pipe, a socket or a regular file and no part is "-"; with a
// blank line between two. Bytes of files and stdin are not changed. *given: there was at least one source, even if
// empty. QUILL_IO: unreadable; QUILL_CONTEXT: more bytes than an int can count.
Status prompt_read(const PromptConfig *p, Buf *text, bool *given);
// Whether stdin is a pipe, a socket or a regular file with bytes to read. Waits for nothing and reads nothing.
bool prompt_is_waiting(void);
// Appends the system message of -sys or -sysf; text->data stays NULL if neither is given.
// QUILL_USAGE: not text; QUILL_IO, QUILL_CONTEXT: as prompt_read.
Status prompt_system(const AnswerConfig *config, bool template, Buf *text);

#endif
