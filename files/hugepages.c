// files/hugepages.c: see files/hugepages.h.
#define _GNU_SOURCE
#include "files/hugepages.h"

#include <string.h>
#include <sys/mman.h>

#if !defined(MADV_COLLAPSE) // in headers of Linux 6.1 and later
#define MADV_COLLAPSE 25
#endif

enum { AT_ONCE = 16 << 20 }; // bytes of one piece; while a piece is copied, it takes twice its memory

// Adjacent huge pages of one mapping.
typedef struct {
    const uint8_t *from;
    uint8_t *to; // the copy
    size_t n;
} PageRun;

static void copy_page(void *arg, int task, int thread) {
    (void)thread;
    const PageRun *p = arg;
    size_t at = (size_t)task * HUGE_PAGE;
    memcpy(p->to + at, p->from + at, HUGE_PAGE);
}

// Makes one huge page. Errors are ignored: a page that the system cannot make huge stays as it was.
static void collapse_page(void *arg, int task, int thread) {
    (void)thread;
    const PageRun *p = arg;
    madvise((void *)(p->from + (size_t)task * HUGE_PAGE), HUGE_PAGE, MADV_COLLAPSE);
}

static bool copy(ThreadPool *pool, PageRun p) {
    p.to = pages_alloc(p.n, true);
    if (!p.to) return false;
    threads_run(pool, copy_page, &p, (int)(p.n / HUGE_PAGE));
    if (pages_replace(p.from, p.to, p.n)) return true;
    pages_free(p.to, p.n);
    return false;
}

// The next piece: up to `most` bytes of one mapping; n == 0: none is left.
static PageRun next_piece(HugePages *s, size_t most) {
    int n_maps;
    const FileMap *maps = gguf_maps(s->gguf, &n_maps);
    for (; s->map < n_maps; s->map++, s->at = 0) {
        const FileMap *m = &maps[s->map];
        size_t first = s->at ? s->at : round_up((uintptr_t)m->data, HUGE_PAGE) - (uintptr_t)m->data;
        size_t left = first < m->n ? (m->n - first) / HUGE_PAGE * HUGE_PAGE : 0;
        if (left == 0) continue;
        PageRun p = {.from = m->data + first, .n = left < most ? left : most};
        s->at = first + p.n;
        return p;
    }
    return (PageRun){0};
}

// Whether free memory has room for a copy of the rest, the whole cached file, and the bytes to leave free.
static bool affordable(const HugePages *s) {
    size_t file = gguf_file_bytes(s->gguf), need;
    return size_add(file, file - s->done, &need) && size_add(need, s->spare, &need) && memory_available() >= need;
}

// Touches every page first: a huge page of the page cache is mapped as one only after that.
static bool huge_already(const Gguf *g) {
    int n_maps;
    const FileMap *maps = gguf_maps(g, &n_maps);
    for (int i = 0; i < n_maps; i++)
        for (size_t at = 0; at < maps[i].n; at += HUGE_PAGE) (void)*(const volatile uint8_t *)(maps[i].data + at);
    size_t file = gguf_file_bytes(g);
    return gguf_huge_bytes(g) > file - file / 8;
}

// Converts one huge page to find out which of the two ways works on this system.
static void try_one(HugePages *s) {
    s->how = HUGEPAGES_OVER;
    if (gguf_file_bytes(s->gguf) > memory_available()) return; // the cache cannot hold the whole file
    if (huge_already(s->gguf)) return;
    PageRun p = next_piece(s, HUGE_PAGE);
    if (p.n == 0) return;
    if (madvise((void *)p.from, p.n, MADV_COLLAPSE) == 0) s->how = HUGEPAGES_COLLAPSE;
    else if (affordable(s) && copy(s->pool, p) && pages_huge(p.from, p.n) > 0) s->how = HUGEPAGES_COPY;
    s->done = p.n;
}

static bool too_slow(const HugePages *s) {
    double share = (double)(s->done + AT_ONCE) / (double)gguf_file_bytes(s->gguf);
    return s->patience > 0 && s->seconds > s->patience * share;
}

static bool move(HugePages *s, PageRun p) {
    if (p.n == 0 || (s->how == HUGEPAGES_COPY && !affordable(s))) return false;
    if (s->how == HUGEPAGES_COPY) return copy(s->pool, p);
    threads_run(s->pool, collapse_page, &p, (int)(p.n / HUGE_PAGE));
    return true;
}

bool hugepages_convert(HugePages *s, size_t most) {
    if (s->how == HUGEPAGES_FIRST) try_one(s);
    for (size_t done = 0; done < most && s->how != HUGEPAGES_OVER;) {
        PageRun p = next_piece(s, AT_ONCE);
        double start = clock_now();
        bool moved = move(s, p);
        s->seconds += clock_now() - start;
        s->done += p.n;
        done += p.n;
        if (!moved || too_slow(s)) s->how = HUGEPAGES_OVER;
    }
    return s->how != HUGEPAGES_OVER;
}
