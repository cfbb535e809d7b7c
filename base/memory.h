// base/memory.h: how much memory this process can take and has taken.
#ifndef QUILL_MEMORY_H
#define QUILL_MEMORY_H

#include <stddef.h>

// Bytes that can be used now without swapping: what the system has left or a control group allows, whichever is less.
// SIZE_MAX: unknown.
size_t memory_available(void);
size_t memory_peak(void); // bytes, the process's peak resident set

#endif
