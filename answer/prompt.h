// answer/prompt.h: the text that a mode is given: words, -p, -f and stdin, put together.
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
    bool no_stdin;    // stdin is never read
    bool joins_stdin; // stdin follows the parts; otherwise it is read where there are no parts
    bool quiet;       // nothing is said on stderr when stdin lets wait
} PromptConfig;

// The parts in their order, then stdin where that is a pipe, a socket or a regular file and no part has named it; a
// blank line between two. Bytes of files and stdin stay as they are. *given: there was any source at all (an empty one
// counts). QUILL_IO: unreadable; QUILL_CONTEXT: more bytes than an int can count.
Status prompt_read(const PromptConfig *p, Buf *text, bool *given);
// The system message of -sys or -sysf; text->data stays NULL when there is neither.
Status prompt_system(const AnswerConfig *config, Buf *text);

#endif
