// base/memory.h: how much memory this process can still allocate, and its peak so far.
#ifndef QUILL_MEMORY_H
#define QUILL_MEMORY_H

#include <stddef.h>

// Bytes that can be used now without swapping: the smaller of the system's free memory and the limit of a control
// group. SIZE_MAX: unknown.
size_t memory_available(void);
size_t memory_peak(void); // bytes, the process's peak resident set

#endif
