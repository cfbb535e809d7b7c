// base/pages.h: memory in whole pages, for sizes that follow the model or the user's flags; huge pages.
#ifndef QUILL_PAGES_H
#define QUILL_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#define HUGE_PAGE ((size_t)2 << 20) // bytes of a huge page where pages have 4 KiB, as on x86-64

// n bytes, zeroed, page-aligned, committed when first touched. NULL: the system refuses. `huge` asks for huge pages.
// From HUGE_PAGE bytes on, the address is a multiple of HUGE_PAGE.
void *pages_alloc(size_t n, bool huge);
// Reserves n bytes of address space without memory, with the same alignment, to map something there. NULL: the system
// refuses.
void *pages_reserve(size_t n);
void pages_free(void *p, size_t n); // frees both kinds; NULL is allowed
// Moves the n bytes (whole pages) at `with` to the address `at`, read-only, in place of the mapping there; `with` is no
// longer mapped. False: nothing has changed.
bool pages_replace(const void *at, void *with, size_t n);
size_t pages_huge(const void *at, size_t n); // how many of these bytes lie in huge pages; 0: none, or unknown

#endif
