// prompt.c: see prompt.h.
#define _GNU_SOURCE
#include "prompt.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Only pipes and regular files: a terminal, a socket or a device may never end, or belong to somebody else.
static bool stdin_is_text(void) {
    struct stat info;
    return fstat(STDIN_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
}

// fd_read_all with a limit, so that `yes | quill` is an error and not the end of the machine's memory.
static Status read_limited(int fd, const char *name, Buf *out) {
    char chunk[65536];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return status_error(QUILL_IO, "%s: cannot read: %s", name, strerror(errno));
        if (n == 0) return OK;
        if ((size_t)n > INT_MAX - out->n)
            return status_error(QUILL_CONTEXT, "%s: a prompt of at most %d bytes expected, found more", name, INT_MAX);
        buf_append(out, chunk, (size_t)n);
    }
}

static Status read_file(const char *path, Buf *out) {
    if (strcmp(path, "-") == 0) return read_limited(STDIN_FILENO, "stdin", out);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return status_error(QUILL_IO, "%s: cannot open: %s", path, strerror(errno));
    Status st = read_limited(fd, path, out);
    close(fd);
    return st;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

void prompt_unescape(const char *s, Buf *out) {
    static const char from[] = "nrtabfv0\\'\"", to[] = "\n\r\t\a\b\f\v\0\\'\"";
    for (; *s; s++) {
        const char *known = *s == '\\' && s[1] ? strchr(from, s[1]) : NULL;
        if (known) {
            buf_append(out, &to[known - from], 1);
            s++;
        } else if (s[0] == '\\' && s[1] == 'x' && hex_digit(s[2]) >= 0) {
            int value = hex_digit(s[2]), second = hex_digit(s[3]);
            if (second >= 0) value = value * 16 + second;
            buf_append(out, &(char){(char)value}, 1);
            s += second >= 0 ? 3 : 2;
        } else buf_append(out, s, 1);
    }
    buf_append(out, "", 0);
}

// Puts a blank line between two sources; an empty one adds nothing.
static void join(Buf *all, const Buf *part) {
    if (all->n && part->n) buf_str(all, "\n\n");
    buf_append(all, part->data, part->n);
}

Status prompt_read(const Options *o, Buf *text, bool *given) {
    *given = o->prompt || o->file;
    if (o->prompt && o->escape) prompt_unescape(o->prompt, text);
    else if (o->prompt) buf_str(text, o->prompt);
    Buf part = {0};
    Status st = OK;
    // A file named is the whole source, and the modes that measure take one source: only a prompt in words is joined
    // with what is piped in.
    bool wants_stdin = !o->file && (o->mode == MODE_RUN || !o->prompt);
    if (o->file) {
        st = read_file(o->file, &part);
        join(text, &part);
        part.n = 0;
    }
    if (!st.code && wants_stdin && !o->no_stdin && stdin_is_text()) {
        *given = true;
        st = read_limited(STDIN_FILENO, "stdin", &part);
        join(text, &part);
    }
    buf_free(&part);
    return st;
}

Status prompt_system(const Options *o, Buf *text) {
    if (o->system) buf_str(text, o->system);
    else if (o->system_file) {
        buf_append(text, "", 0);
        return read_file(o->system_file, text);
    }
    return OK;
}
