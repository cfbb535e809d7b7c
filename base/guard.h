// base/guard.h: mapped files that are cut while they are in use.
//
// A read beyond the new end of a mapped file raises SIGBUS, which would kill the process without a word; so does a disk
// that fails. For registered ranges a handler puts zeros in place of what is gone, remembers the file's name and lets
// the process go on: the loops look at guard_lost, give up what was computed since, write out what was done before, and
// end with an error that names the file. SIGBUS elsewhere does what it did before.
#ifndef QUILL_GUARD_H
#define QUILL_GUARD_H

#include <stddef.h>

#include "base/status.h"

// Registers n bytes (n > 0) mapped from the file `name`, which is copied. While no other thread reads the range.
void guard_add(const void *at, size_t n, const char *name);
void guard_remove(const void *at); // the same address; before the range is unmapped
// QUILL_MODEL once bytes of a file were gone; it stays so.
Status guard_lost(void);
// What to do before a SIGBUS elsewhere kills the process; async-signal-safe.
void guard_at_crash(void (*then)(void));

#endif
