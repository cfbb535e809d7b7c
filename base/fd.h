// base/fd.h: reads and writes descriptors, blocking and non-blocking ones.
//
// A signal of base/signals.h ends a wait. The Status then has the code 128 + the signal's number, and no message.
#ifndef QUILL_FD_H
#define QUILL_FD_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/status.h"
#include "base/str.h"

// Like read(2), but waits until there are bytes or the end of the input. -1 with EINTR: a signal of base/signals.h has
// arrived; other signals do not end the wait.
ssize_t fd_read(int fd, void *out, size_t n);
// Appends everything up to the end; messages call it `name`. QUILL_IO; QUILL_CONTEXT: a regular file of more bytes than
// an int can count, or more than FD_STREAM_MOST bytes from anything else, which may never end; a signal, as above.
enum { FD_STREAM_MOST = 256 << 20 }; // a prompt for a context of 2^20 tokens has some 4 MB
Status fd_read_all(int fd, const char *name, Buf *out);
// Writes all n bytes, and waits if there is no room. QUILL_IO, with errno unchanged; a signal, if the reader has taken
// nothing for two seconds.
Status fd_write_all(int fd, const void *bytes, size_t n);
// Whether fd is a terminal that understands escape sequences; TERM=dumb does not.
bool fd_is_capable_terminal(int fd);
Status fd_stopped(void); // the Status of a wait that a signal ended; sets errno to EINTR

// Whether two results of stat are of one file, whatever its names are.
bool fd_same_file(const struct stat *a, const struct stat *b);

#endif
