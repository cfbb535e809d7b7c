// answer/prompt.h: the text that a mode is given: words, -p, -f and stdin, put together.
#ifndef QUILL_PROMPT_H
#define QUILL_PROMPT_H

#include "cli/options.h"

// The parts of the options in their order, then stdin where that is a pipe, a socket or a regular file and no part has
// named it; a blank line between two. The modes that measure read stdin only where nothing else is given. Bytes of
// files and stdin stay as they are; -e reads the escapes of words and -p. *given: there was any source at all (an empty
// one counts). QUILL_IO: unreadable; QUILL_CONTEXT: more bytes than an int can count.
Status prompt_read(const Options *o, Buf *text, bool *given);
// The system message of -sys or -sysf; text->data stays NULL when there is neither.
Status prompt_system(const Options *o, Buf *text);

#endif
