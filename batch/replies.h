// batch/replies.h: writes the output line of a job, in quill's format or in that of OpenAI's batch files.
#ifndef QUILL_REPLIES_H
#define QUILL_REPLIES_H

#include "batch/batch_line.h"

// Appends one line of JSON for a line that is done: answered or failed.
void replies_write(const BatchContext *context, const BatchLine *line, Buf *out);

#endif
