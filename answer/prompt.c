// answer/prompt.c: see answer/prompt.h.
#define _GNU_SOURCE
#include "answer/prompt.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

// Reads stdin only from a pipe, a regular file or a socket (node.js gives its children sockets). A terminal or a device
// may never end, or may be meant for another process.
static bool stdin_is_text(void) {
    struct stat info;
    if (fstat(STDIN_FILENO, &info) != 0) return false;
    return S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode);
}

bool prompt_is_waiting(void) {
    struct stat info;
    int n = 0;
    if (!stdin_is_text() || fstat(STDIN_FILENO, &info) != 0) return false;
    if (S_ISREG(info.st_mode)) return info.st_size > lseek(STDIN_FILENO, 0, SEEK_CUR);
    return ioctl(STDIN_FILENO, FIONREAD, &n) == 0 && n > 0;
}

// Appends a source, after a blank line if neither is empty.
static void join(Buf *all, const Buf *part) {
    if (all->n && part->n) buf_str(all, "\n\n");
    buf_append(all, part->data, part->n);
}

// ---- reading --------------------------------------------------------------------------------------------------------

enum { PATIENCE = 3 }; // seconds until a note on stderr says that quill waits for input

static void say_waiting(int number) {
    static const char what[] = "quill: note: still reading the prompt, until stdin (or the file of -f) ends; Ctrl-C "
                               "stops quill, --no-stdin ignores stdin\n";
    (void)number;
    int before = errno;
    ssize_t n = write(STDERR_FILENO, what, sizeof what - 1);
    (void)n;
    errno = before;
}

// Sets an alarm that prints the note. False: an alarm was set before quill started (perl -e 'alarm 9; exec ...'); it
// stays, and there is no note.
static bool watch_waiting(void) {
    struct sigaction action = {.sa_handler = say_waiting, .sa_flags = SA_RESTART};
    unsigned left = alarm(0);
    if (left > 0) {
        alarm(left);
        return false;
    }
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    alarm(PATIENCE);
    return true;
}

static void end_waiting(void) {
    alarm(0);
    signal(SIGALRM, SIG_DFL);
}

static Status read_part(const PromptPart *p, bool escape, Buf *text) {
    if (p->file) return file_read(p->file, text);
    if (escape) utf8_unescape(text, p->text);
    else buf_str(text, p->text);
    return OK;
}

static Status read_parts(const PromptConfig *p, Buf *text, bool *given) {
    static const PromptPart in = {.file = "-"};
    bool named = false;
    Buf part = {0};
    Status st = OK;
    *given = p->n_parts > 0;
    for (int i = 0; i < p->n_parts && !st.code; i++) {
        st = read_part(&p->parts[i], p->escape, &part);
        join(text, &part);
        part.n = 0;
        if (p->parts[i].file && strcmp(p->parts[i].file, "-") == 0) named = true;
    }
    if (!st.code && !named && !p->no_stdin && (p->joins_stdin || !*given) && stdin_is_text()) {
        *given = true;
        st = read_part(&in, false, &part);
        join(text, &part);
    }
    buf_free(&part);
    return st;
}

Status prompt_read(const PromptConfig *p, Buf *text, bool *given) {
    bool watched = !p->quiet && watch_waiting();
    Status st = read_parts(p, text, given);
    if (watched) end_waiting();
    return st;
}

Status prompt_system(const AnswerConfig *config, bool template, Buf *text) {
    if (!template && config->system_usual) return OK;
    if (config->system) buf_str(text, config->system);
    else if (config->system_file) {
        buf_append(text, "", 0);
        return file_read_of("-sysf", config->system_file, text);
    }
    return OK;
}
