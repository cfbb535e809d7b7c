// base/streams.h: stdin, stdout and stderr of the process.
#ifndef QUILL_STREAMS_H
#define QUILL_STREAMS_H

#include "base/status.h"

// Opens /dev/null in place of each standard stream that is closed, so that no file opened later becomes one of them:
// reading stdin and writing to stdout fail, as they did. stdout and stderr then write with fd_write_all, as answers do:
// it waits for room in a non-blocking descriptor. QUILL_INTERNAL: there is no /dev/null.
Status streams_open(void);
// Flushes stdout. QUILL_IO: this or an earlier write has failed; a signal has ended one. A closed pipe (EPIPE) is no
// error.
Status streams_flush(void);

#endif
