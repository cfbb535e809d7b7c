// base/output.h: writes to stdout, for every mode.
#ifndef QUILL_OUTPUT_H
#define QUILL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

// Writes n bytes to stdout. A reader that has closed the pipe (| head) is no error: *gone becomes true, and later calls
// write nothing. QUILL_IO, and the errors of fd_write_all for signals.
Status output_write(const void *bytes, size_t n, bool *gone);
// The same for a stdout that was redirected to the file `name`, for messages.
Status output_write_to(const char *name, const void *bytes, size_t n, bool *gone);
// Writes the text and frees it, for output in one piece. Errors as output_write.
Status output_buf(Buf *out);

#endif
