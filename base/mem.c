// base/mem.c: see base/mem.h.
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

void mem_refused(size_t n) {
    fprintf(stderr, "quill: out of memory: the system refused %zu more bytes\n", n);
    exit(QUILL_MEMORY);
}

void *mem_alloc(size_t n) {
    void *p = calloc(1, n ? n : 1);
    if (!p) mem_refused(n);
    return p;
}

void *mem_resize(void *p, size_t n) {
    void *q = realloc(p, n ? n : 1);
    if (!q) mem_refused(n);
    return q;
}

char *mem_copy(const char *bytes, size_t n) {
    char *p = mem_alloc(n + 1);
    if (n) memcpy(p, bytes, n);
    return p;
}
