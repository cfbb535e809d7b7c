// prompt.c: see prompt.h.
#define _GNU_SOURCE
#include "prompt.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Only pipes and regular files: a terminal, a socket or a device may never end, or belong to somebody else.
static bool stdin_is_text(void) {
    struct stat info;
    return fstat(STDIN_FILENO, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
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
    bool joins = o->mode == MODE_RUN || o->mode == MODE_PREFILL;
    bool wants_stdin = !o->file && (joins || !o->prompt);
    if (o->file) {
        st = file_read(o->file, &part);
        join(text, &part);
        part.n = 0;
    }
    if (!st.code && wants_stdin && !o->no_stdin && stdin_is_text()) {
        *given = true;
        st = fd_read_all(STDIN_FILENO, "stdin", &part);
        join(text, &part);
    }
    buf_free(&part);
    return st;
}

Status prompt_system(const Options *o, Buf *text) {
    if (o->system) buf_str(text, o->system);
    else if (o->system_file) {
        buf_append(text, "", 0);
        return file_read(o->system_file, text);
    }
    return OK;
}
