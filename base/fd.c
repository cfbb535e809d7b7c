// base/fd.c: see base/fd.h.
#define _GNU_SOURCE
#include "base/fd.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/signals.h"

Status fd_stopped(void) {
    errno = EINTR;
    return signals_status();
}

// Waits until the descriptor is ready for reading or writing, has failed, or a signal has come.
static void wait_until(int fd, short ready) {
    struct pollfd p = {.fd = fd, .events = ready};
    poll(&p, 1, -1);
}

ssize_t fd_read(int fd, void *out, size_t n) {
    for (;;) {
        ssize_t got = read(fd, out, n);
        if (got >= 0 || (errno != EINTR && errno != EAGAIN)) return got;
        if (errno == EAGAIN) wait_until(fd, POLLIN);
        if (!signals_caught()) continue;
        errno = EINTR;
        return -1;
    }
}

// Endless input (yes | quill) must not fill memory.
static Status too_long(const char *name, bool file) {
    return status_error(QUILL_CONTEXT, "%s: a text of at most %d bytes expected%s, found more", name,
                        file ? INT_MAX : FD_STREAM_MOST, file ? "" : " from a pipe or a device");
}

Status fd_read_all(int fd, const char *name, Buf *out) {
    struct stat info;
    bool file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    size_t most = file ? INT_MAX : out->n + FD_STREAM_MOST;
    buf_append(out, "", 0);
    if (file && info.st_size - lseek(fd, 0, SEEK_CUR) > INT_MAX) return too_long(name, true);
    for (;;) {
        buf_reserve(out, 65536);
        ssize_t n = fd_read(fd, out->data + out->n, out->cap - out->n - 1);
        if (n < 0 && errno == EINTR) return fd_stopped();
        if (n < 0) return status_error(QUILL_IO, "%s: cannot read: %s", name, strerror(errno));
        out->n += (size_t)n;
        out->data[out->n] = 0;
        if (n == 0) return OK;
        if (out->n > most) return too_long(name, file);
    }
}

enum { PATIENCE = 2000 }; // milliseconds to wait for the reader after a signal

// Waits up to PATIENCE until PIPE_BUF bytes can be written. False: they cannot.
static bool soon_room(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, PATIENCE) > 0;
}

Status fd_write_all(int fd, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n > 0) {
        bool ending = signals_caught() != 0;
        if (ending && !soon_room(fd)) return fd_stopped();
        ssize_t w = write(fd, p, ending && n > PIPE_BUF ? PIPE_BUF : n);
        if (w < 0 && errno == EAGAIN) wait_until(fd, POLLOUT);
        if (w < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (w < 0) {
            int e = errno;
            Status st = status_error(QUILL_IO, "cannot write %zu bytes: %s", n, strerror(e));
            errno = e;
            return st;
        }
        p += w;
        n -= (size_t)w;
    }
    return OK;
}

bool fd_is_capable_terminal(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

bool fd_same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}
