// base/mem.h: allocation that does not return on failure, for sizes that are small or already bounded.
//
// These functions never return NULL: when the system refuses, they print one line and exit with QUILL_MEMORY. Sizes
// that follow the model or the user's flags use pages_alloc (base/pages.h).
#ifndef QUILL_MEM_H
#define QUILL_MEM_H

#include <stddef.h>

void *mem_alloc(size_t n);                            // zeroed; free with free()
void *mem_resize(void *p, size_t n);                  // like realloc
char *mem_copy(const char *bytes, size_t n);          // n bytes and a NUL
void mem_refused(size_t n) __attribute__((noreturn)); // prints that n bytes were refused, and exits

#endif
