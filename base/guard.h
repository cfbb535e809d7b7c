// base/guard.h: survives SIGBUS when a mapped file becomes shorter or its disk fails while it is in use.
//
// Reading a missing page of a mapped file raises SIGBUS, which kills the process without a message. For registered
// ranges a handler maps zeros in place of the missing pages, stores the file's name, and the process continues. The
// loops check guard_lost: they discard what was computed since, write out what was complete before, and end with an
// error that names the file. A SIGBUS outside of these ranges is handled as before.
#ifndef QUILL_GUARD_H
#define QUILL_GUARD_H

#include <stddef.h>

#include "base/status.h"

// Registers n bytes (n > 0) mapped from the file `name`, which is copied. No other thread may read the range meanwhile.
void guard_add(const void *at, size_t n, const char *name);
void guard_remove(const void *at); // the same address; before the range is unmapped
// QUILL_MODEL, from the first missing page to the end of the process.
Status guard_lost(void);
// `then` is called before a SIGBUS outside of all ranges kills the process. It must be async-signal-safe.
void guard_at_crash(void (*then)(void));

#endif
