// base/streams.c: see base/streams.h.
#define _GNU_SOURCE
#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

static Status fill_closed(void) {
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDWR};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
            return status_error(QUILL_INTERNAL,
                                "a standard stream is closed, and /dev/null cannot be opened in its place: %s; start "
                                "quill with stdin, stdout and stderr open",
                                strerror(errno));
    return OK;
}

static Status lost; // why the first of the failed writes to stdout failed

static ssize_t put_out(void *cookie, const char *bytes, size_t n) {
    int fd = (int)(intptr_t)cookie;
    Status st = fd_write_all(fd, bytes, n);
    if (!st.code) return (ssize_t)n;
    bool failed = st.code == QUILL_IO, closed_pipe = failed && errno == EPIPE;
    if (failed) st = status_error(QUILL_IO, "stdout: %s", strerror(errno));
    if (fd == STDOUT_FILENO && !closed_pipe && !lost.code) lost = st;
    return 0;
}

static FILE *open_stream(int fd, int buffering) {
    FILE *f = fopencookie((void *)(intptr_t)fd, "w", (cookie_io_functions_t){.write = put_out});
    if (!f) mem_refused(BUFSIZ);
    setvbuf(f, NULL, buffering, BUFSIZ);
    return f;
}

Status streams_open(void) {
    Status st = fill_closed();
    stdout = open_stream(STDOUT_FILENO, _IOFBF);
    stderr = open_stream(STDERR_FILENO, _IONBF);
    return st;
}

Status streams_flush(void) {
    fflush(stdout);
    return lost;
}
