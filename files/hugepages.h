// files/hugepages.h: puts a mapped model file into huge pages while it is used, a piece at a time.
//
// A file that lies in the page cache in small pages costs a walk of the page tables every 4 KiB, which in a virtual
// machine takes a fifth of what decoding reads. The addresses and the bytes stay; only the pages under them change.
// Where the system does that to the file's own pages (MADV_COLLAPSE) they stay shared with other processes; otherwise
// the bytes are copied into memory of this process, and only where the file fits into what is free twice over, so that
// it stays cached for the next one. A system that hands out memory slowly, as a virtual machine does that gives its
// free pages back to the host, is noticed early and left alone. Files that were first read through quill lie in huge
// pages already, where the file system has them (file_map).
#ifndef QUILL_HUGEPAGES_H
#define QUILL_HUGEPAGES_H

#include "files/gguf.h"
#include "base/threads.h"

typedef struct {
    // given by the caller
    const Gguf *gguf;
    ThreadPool *pool;
    size_t spare;    // bytes of free memory that others will want
    double patience; // seconds that all of it may take, and a part in proportion; 0: any time
    // kept here
    int map;        // what comes next: this mapping of the file,
    size_t at;      // from this byte on
    size_t done;    // bytes so far
    double seconds; // that they took
    enum { HUGEPAGES_FIRST, HUGEPAGES_COLLAPSE, HUGEPAGES_COPY, HUGEPAGES_OVER } how;
} HugePages;

// Settles up to `most` bytes, or all there is to settle with SIZE_MAX. Nobody may read the weights meanwhile. False:
// all is done that can be, or will not be done here.
bool hugepages_convert(HugePages *s, size_t most);

#endif
