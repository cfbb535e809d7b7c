// files/hugepages.h: moves a mapped model file into huge pages while it is in use, piece by piece.
//
// Weights in 4 KiB pages cost a walk of the page tables every 4 KiB, which in a virtual machine takes a fifth of the
// time of decoding. This unit changes the pages under the mapping; the addresses and the bytes stay. Two ways:
// - MADV_COLLAPSE (Linux 6.1) makes the page cache's own pages huge; other processes share them.
// - Otherwise the bytes are copied into memory of this process. That is done only if the free memory holds the copy and
//   the cached file, so that the file stays cached for the next process.
// The work is timed: on a system that gives out memory slowly (a virtual machine that returns free pages to its host)
// it stops early, and the rest of the file stays in small pages. On file systems that cache files in huge pages, a
// file that quill reads first lies in such pages already (file_map).
#ifndef QUILL_HUGEPAGES_H
#define QUILL_HUGEPAGES_H

#include "files/gguf.h"
#include "base/threads.h"

typedef struct {
    // given by the caller
    const Gguf *gguf;
    ThreadPool *pool;
    size_t spare;    // bytes of memory to leave free, for example for the KV cache
    double patience; // seconds that the whole file may take; a part of it may take its share. 0: no limit
    // state, zero at first
    int map;        // the next piece: number of its mapping
    size_t at;      // and the offset there
    size_t done;    // bytes converted so far
    double seconds; // time they took
    enum { HUGEPAGES_FIRST, HUGEPAGES_COLLAPSE, HUGEPAGES_COPY, HUGEPAGES_OVER } how;
} HugePages;

// Converts up to about `most` bytes; SIZE_MAX: the whole file. No other thread may read the weights meanwhile. False:
// nothing is left to do, or this system cannot do it.
bool hugepages_convert(HugePages *s, size_t most);

#endif
