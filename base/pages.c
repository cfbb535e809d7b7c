// base/pages.c: see base/pages.h.
#define _GNU_SOURCE
#include "base/pages.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sizes.h"
#include "base/str.h"

// Maps HUGE_PAGE bytes more than asked for and unmaps what lies before and after the aligned part: Linux before 6.7
// aligns no mapping to huge pages, and later ones do not for files of some file systems. NULL: refused.
static uint8_t *map_anonymous(size_t n, int protection) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), more = n >= HUGE_PAGE ? HUGE_PAGE : 0, all;
    if (!size_add(n ? n : 1, more + page - 1, &all)) return NULL;
    all = all / page * page;
    uint8_t *p = mmap(NULL, all, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t front = more ? round_up((uintptr_t)p, more) - (uintptr_t)p : 0;
    if (front) munmap(p, front);
    if (front < more) munmap(p + all - (more - front), more - front);
    return p + front;
}

void *pages_alloc(size_t n, bool huge) {
    void *p = map_anonymous(n, PROT_READ | PROT_WRITE);
    if (p && huge) madvise(p, n, MADV_HUGEPAGE);
    return p;
}

void *pages_reserve(size_t n) { return map_anonymous(n, PROT_NONE); }

void pages_free(void *p, size_t n) {
    if (p) munmap(p, n ? n : 1);
}

bool pages_replace(const void *at, void *with, size_t n) {
    unsigned char there;
    if (mprotect(with, n, PROT_READ) == 0 &&
        mremap(with, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at) != MAP_FAILED)
        return true;
    if (mincore((void *)at, 1, &there) != 0) mem_refused(n); // mremap unmapped `at`, then failed
    return false;
}

// smaps counts whole mappings, so all that overlap the range are added up. pages_replace makes a separate mapping.
size_t pages_huge(const void *at, size_t n) {
    static const char *const fields[] = {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"};
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f) return 0;
    uintptr_t first = (uintptr_t)at, last = first + n;
    char line[512];
    size_t huge = 0;
    for (bool within = false; fgets(line, sizeof line, f);) {
        unsigned long from, to, kib;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) within = from < last && to > first;
        for (size_t i = 0; within && i < ARRAY_LEN(fields); i++)
            if (str_has_prefix(str_of(line), fields[i]) && sscanf(line + strlen(fields[i]), "%lu", &kib) == 1)
                huge += (size_t)kib * 1024;
    }
    fclose(f);
    return huge < n ? huge : n;
}
