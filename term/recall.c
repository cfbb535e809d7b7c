// term/recall.c: see term/recall.h.
#define _GNU_SOURCE
#include "term/recall.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tempfile.h"

static bool file_name(char out[1100]) {
    const char *named = getenv("QUILL_HISTORY");
    if (named) return *named && snprintf(out, 1100, "%s", named) < 1100;
    char dir[1024];
    return dirs_state(dir, sizeof dir) && snprintf(out, 1100, "%s/history", dir) > 0;
}

// The beginning of the last RECALL_MAX lines.
static const char *last_lines(Str text) {
    int n = RECALL_MAX;
    const char *at = text.data + text.n;
    if (at > text.data) at--; // skips the end of the last line
    while (at > text.data)
        if (*--at == '\n' && --n == 0) return at + 1;
    return at;
}

// Whether the file ends in the middle of a line, as after a full disk.
static bool is_cut(int fd) {
    char last;
    off_t n = lseek(fd, 0, SEEK_END);
    return n > 0 && pread(fd, &last, 1, n - 1) == 1 && last != '\n';
}

static void append(const char *path, const char *bytes, size_t n) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
    if (fd < 0) return;
    Buf line = {0};
    if (is_cut(fd)) buf_str(&line, "\n");
    buf_append(&line, bytes, n);
    Status st = fd_write_all(fd, line.data, line.n); // in one write, so that parallel sessions do not mix lines
    buf_free(&line);                                 // errors are ignored: the history is optional
    (void)st;
    close(fd);
}

// Rewrites the file with only the last RECALL_MAX lines if they are less than half of it.
static void trim(const char *path, Str text) {
    const char *kept = last_lines(text);
    size_t n = (size_t)(text.data + text.n - kept);
    if (n > text.n / 2) return;
    TempFile other;
    if (tempfile_open(path, 0600, &other).code) return;
    Status st = fd_write_all(other.fd, kept, n);
    struct stat now; // another session may have appended to the file since it was read
    bool whole = stat(path, &now) == 0 && (size_t)now.st_size == text.n;
    if (!st.code && !whole) st = status_error(QUILL_IO, "another session has written to it");
    st = tempfile_publish(&other, st); // after an error the file stays as it is
    (void)st;
}

void recall_parse(Str text, void (*take)(void *arg, Str message), void *arg) {
    Buf line = {0}, message = {0};
    const char *end = text.data + text.n;
    for (const char *at = last_lines(text); at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        line.n = message.n = 0;
        buf_append(&line, at, (size_t)(stop - at));
        utf8_unescape(&message, line.data); // stops at a NUL, which recall_line never writes
        if (message.n) take(arg, str_of_buf(&message));
        at = stop + (stop < end);
    }
    buf_free(&message);
    buf_free(&line);
}

void recall_each(void (*take)(void *arg, Str message), void *arg) {
    char path[1100];
    Buf file = {0};
    if (file_name(path) && access(path, R_OK) == 0 && file_read(path, &file).code == 0 && file.n > 0) {
        Str text = {file.data, file.n};
        trim(path, text);
        recall_parse(text, take, arg);
    }
    buf_free(&file);
}

void recall_line(Str message, Buf *out) {
    utf8_escape(out, message.data, message.n);
    buf_str(out, "\n");
}

void recall_add(Str message) {
    char path[1100];
    if (!file_name(path)) return;
    Buf line = {0};
    recall_line(message, &line);
    append(path, line.data, line.n);
    buf_free(&line);
}
