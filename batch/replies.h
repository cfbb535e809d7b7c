// batch/replies.h: what a batch says of a line: in our form, or as OpenAI's batch files have it.
#ifndef QUILL_REPLIES_H
#define QUILL_REPLIES_H

#include "batch/batch_line.h"

// One line of JSON for a line that is answered, or that has failed; appended to `out`.
void replies_write(const BatchContext *context, const BatchLine *line, Buf *out);

#endif
