// base/fd.h: reading and writing descriptors, of those that block and of those that do not.
//
// A wait ends when a signal of base/signals.h comes. Then there is nothing to say: the Status has the code 128 + the
// signal's number, and no message.
#ifndef QUILL_FD_H
#define QUILL_FD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"
#include "base/str.h"

// As read(2), but waits until there are bytes or the end. -1 and EINTR: a signal of base/signals.h has come; others do
// not end the wait.
ssize_t fd_read(int fd, void *out, size_t n);
// Appends everything until the end; `name` stands in messages. QUILL_IO; QUILL_CONTEXT: more bytes than an int counts;
// a signal came while it waited.
Status fd_read_all(int fd, const char *name, Buf *out);
// Writes all n bytes, and waits where there is no room. QUILL_IO, errno kept; a signal has come, and the reader has
// taken nothing for two seconds.
Status fd_write_all(int fd, const void *bytes, size_t n);
// Whether fd is a terminal that understands escape sequences; TERM=dumb does not.
bool fd_is_capable_terminal(int fd);
Status fd_stopped(void); // the Status of a wait that a signal ended; sets errno to EINTR

#endif
