// batch/feed.c: see batch/feed.h.
#define _GNU_SOURCE
#include "batch/feed.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/signals.h"

enum { AT_ONCE = 1 << 16 }; // the most bytes of one read

Status feed_open(const char *path, Feed *f) {
    *f = (Feed){.name = "stdin", .fd = STDIN_FILENO};
    if (!path || strcmp(path, "-") == 0) return OK;
    f->name = path;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0) return status_error(QUILL_IO, "%s: cannot open: %s", path, strerror(errno));
    return OK;
}

void feed_close(Feed *f) {
    if (f->fd > STDIN_FILENO) close(f->fd);
    buf_free(&f->held);
}

// ---- the bytes read so far ------------------------------------------------------------------------------------------

// Takes the next line from the held bytes; at the end of the input the rest is a line. False: its end has not arrived.
static bool take_line(Feed *f, Str *line) {
    const char *end = f->held.n > f->seen ? memchr(f->held.data + f->seen, '\n', f->held.n - f->seen) : NULL;
    f->seen = f->held.n;
    if (!end && !(f->ended && f->held.n > f->begin)) return false;
    size_t stop = end ? (size_t)(end - f->held.data) : f->held.n;
    *line = (Str){f->held.data + f->begin, stop - f->begin};
    f->begin = f->seen = end ? stop + 1 : stop;
    f->n_lines++;
    return true;
}

// Drops the bytes of a line that is too long and whose end has not arrived.
static void pass_over(Feed *f) {
    f->held.n = f->begin = f->seen = f->shown = 0;
    f->passing = true;
}

// ---- reading --------------------------------------------------------------------------------------------------------

static Status read_more(Feed *f, double wait) {
    if (f->begin > 0) { // remove the lines that were returned
        memmove(f->held.data, f->held.data + f->begin, f->held.n - f->begin);
        f->held.n -= f->begin;
        f->seen -= f->begin;
        f->shown = f->shown > f->begin ? f->shown - f->begin : 0;
        f->begin = 0;
    }
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    struct timespec t = {.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)};
    if (ppoll(&p, 1, &t, NULL) <= 0) return OK; // no input, or a signal
    char bytes[AT_ONCE];
    ssize_t n = read(f->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return OK;
    if (n < 0)
        return status_error(QUILL_IO, "%s: cannot read after line %lld: %s", f->name, (long long)f->n_lines,
                            strerror(errno));
    f->ended = n == 0 && !signals_came(); // after a signal the rest of the input is no line
    buf_append(&f->held, bytes, (size_t)n);
    return OK;
}

static FeedResult look(Feed *f, Str *line) {
    while (take_line(f, line)) {
        bool passed = f->passing || line->n > FEED_LONGEST;
        f->passing = false;
        if (passed) return FEED_TOO_LONG;
        if (str_trim(*line).n > 0) return FEED_LINE;
    }
    if (f->ended && f->passing) { // the last line was too long and had no \n
        f->passing = false;
        f->n_lines++;
        return FEED_TOO_LONG;
    }
    if (f->held.n - f->begin > FEED_LONGEST || f->passing) pass_over(f);
    return f->ended ? FEED_END : FEED_NOTHING;
}

Status feed_next(Feed *f, double wait, Str *line, FeedResult *result) {
    *result = look(f, line);
    if (*result != FEED_NOTHING) return OK;
    TRY(read_more(f, wait));
    if (!signals_came()) *result = look(f, line);
    return OK;
}

bool feed_ahead(Feed *f, size_t most, Str *line) {
    for (bool reads = !f->ended && !f->passing;; reads = false) {
        size_t from = f->shown > f->begin ? f->shown : f->begin;
        const char *end = f->held.n > from ? memchr(f->held.data + from, '\n', f->held.n - from) : NULL;
        if (end) {
            *line = (Str){f->held.data + from, (size_t)(end - f->held.data) - from};
            f->shown = from + line->n + 1;
            return true;
        }
        if (!reads || f->held.n - f->begin >= most || read_more(f, 0).code) return false; // feed_next has the error
    }
}
