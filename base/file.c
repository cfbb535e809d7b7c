// base/file.c: see base/file.h.
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guard.h"
#include "base/pages.h"
#include "base/signals.h"

const char *file_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

Status file_open(const char *path, int flags, int *fd, struct stat *info) {
    *info = (struct stat){0};
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags); // a FIFO without a writer must not hang
    int e = 0;
    Status st = OK;
    if (*fd < 0 || fstat(*fd, info) != 0) {
        e = errno;
        st = status_error(QUILL_IO, "%.700s: cannot %s: %s", path, *fd < 0 ? "open" : "stat", strerror(e));
    } else if (!S_ISREG(info->st_mode))
        st = status_error(QUILL_IO, "%.700s: expected a regular file, found %s", path,
                          S_ISDIR(info->st_mode) ? "a directory" : "a device, pipe or socket");
    if (st.code && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    errno = e;
    return st;
}

Status file_map(const char *path, FileMap *out) {
    int fd;
    struct stat info;
    *out = (FileMap){0};
    TRY(file_open(path, 0, &fd, &info));
    if (info.st_size > 0) {
        size_t n = (size_t)info.st_size;
        uint8_t *p = pages_reserve(n);
        if (!p || mmap(p, n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            int e = errno;
            pages_free(p, n);
            close(fd);
            return status_error(QUILL_IO, "%s: cannot map %lld bytes: %s", path, (long long)info.st_size, strerror(e));
        }
        madvise(p, n, MADV_HUGEPAGE);
        *out = (FileMap){p, n};
        guard_add(p, n, path);
    }
    close(fd);
    return OK;
}

void file_want(const void *bytes, size_t n) {
    enum { PART = 128 << 10 }; // the system may read less of a larger part: as much as it reads ahead of a fault
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)bytes & ~(page - 1), last = ((uintptr_t)bytes + n - 1) & ~(page - 1);
    unsigned char there[2] = {0, 0};
    if (n == 0 || mincore((void *)first, page, &there[0]) != 0 || mincore((void *)last, page, &there[1]) != 0) return;
    if (there[0] & there[1] & 1) return;
    for (uintptr_t at = first; at <= last; at += PART)
        madvise((void *)at, last - at < PART ? last - at + page : PART, MADV_WILLNEED);
}

void file_unmap(FileMap *m) {
    if (m->data) {
        guard_remove(m->data);
        munmap((void *)m->data, m->n);
    }
    *m = (FileMap){0};
}

Status file_read(const char *path, Buf *out) {
    if (strcmp(path, "-") == 0) return fd_read_all(STDIN_FILENO, "stdin", out);
    int fd = open(path, O_RDONLY | O_CLOEXEC); // waits for a FIFO's writer
    if (fd < 0 && errno == EINTR && signals_caught()) return fd_stopped();
    if (fd < 0) return status_error(QUILL_IO, "%s: cannot open: %s", path, strerror(errno));
    Status st = fd_read_all(fd, path, out);
    close(fd);
    return st;
}

Status file_read_of(const char *option, const char *path, Buf *out) {
    Status st = file_read(path, out);
    return st.code ? status_error(st.code, "%s: %.900s", option, st.message) : OK;
}

size_t file_number(const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    if (!f) return SIZE_MAX;
    char line[256];
    size_t value = SIZE_MAX;
    while (fgets(line, sizeof line, f)) {
        if (key && !str_has_prefix(str_of(line), key)) continue;
        unsigned long long v;
        if (sscanf(line + (key ? strlen(key) : 0), " %llu", &v) == 1) value = (size_t)v;
        break;
    }
    fclose(f);
    return value;
}
