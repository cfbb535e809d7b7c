// term/programs.c: see term/programs.h.
#define _GNU_SOURCE
#include "term/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs a program with these descriptors as its stdin and stdout. Returns its exit code; -1: it cannot be run. Meanwhile
// quill ignores Ctrl-C, which only the program receives.
static int run_program(const char *const argv[], int in, int out) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t usual;
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGQUIT);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGXFSZ);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
    sigaction(SIGINT, &ignore, &interrupt);
    sigaction(SIGQUIT, &ignore, &quit);
    pid_t child;
    int error = posix_spawnp(&child, argv[0], &actions, &attributes, (char *const *)argv, environ);
    int code = error ? -1 : wait_for(child);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGQUIT, &quit, NULL);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

// Creates a temporary file with the text; `path` is its name. -1: failed.
static int file_of(Str text, char path[1024]) {
    const char *dir = getenv("TMPDIR");
    snprintf(path, 1024, "%s/quill-XXXXXX.txt", dir && *dir ? dir : "/tmp");
    int fd = mkostemps(path, 4, O_CLOEXEC);
    if (fd < 0 || fd_write_all(fd, text.data, text.n).code == 0) return fd;
    close(fd);
    unlink(path);
    return -1;
}

// ---- the editor -----------------------------------------------------------------------------------------------------

Status programs_edit(Buf *text) {
    const char *visual = getenv("VISUAL"), *editor = getenv("EDITOR");
    const char *chosen = visual && *visual ? visual : editor && *editor ? editor : "vi";
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return status_error(QUILL_USAGE, "%.200s: a terminal on stdin and stderr expected, none found", chosen);
    char path[1024];
    int fd = file_of(str_of_buf(text), path);
    if (fd < 0) return status_error(QUILL_IO, "%s: cannot write: %s", path, strerror(errno));
    close(fd);
    Buf command = {0};
    buf_printf(&command, "%s \"$1\"", chosen); // a shell command, since $EDITOR may contain arguments
    int code =
        run_program((const char *const[]){"sh", "-c", command.data, "sh", path, NULL}, STDIN_FILENO, STDERR_FILENO);
    buf_free(&command);
    Buf edited = {0};
    Status st = OK;
    if (code != 0)
        st = status_error(QUILL_USAGE,
                          "%.200s: exit code 0 expected, found %d; no message was sent; $EDITOR names the editor",
                          chosen, code);
    else st = file_read(path, &edited);
    unlink(path);
    if (!st.code) {
        text->n = 0;
        buf_append(text, edited.data, edited.n);
        if (text->n && text->data[text->n - 1] == '\n') text->data[--text->n] = 0; // editors end the last line
    }
    buf_free(&edited);
    return st;
}

// ---- the clipboard --------------------------------------------------------------------------------------------------

static void base64(Str text, Buf *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = (const unsigned char *)text.data;
    for (size_t i = 0; i < text.n; i += 3) {
        size_t n = text.n - i < 3 ? text.n - i : 3;
        unsigned bits = (unsigned)s[i] << 16 | (n > 1 ? (unsigned)s[i + 1] << 8 : 0) | (n > 2 ? s[i + 2] : 0u);
        char four[4];
        for (size_t k = 0; k < 4; k++) four[k] = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
        buf_append(out, four, 4);
    }
}

static bool by_program(const char *const argv[], Str text) {
    char path[1024];
    int fd = file_of(text, path), none = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) unlink(path);
    bool done = fd >= 0 && none >= 0 && lseek(fd, 0, SEEK_SET) == 0 && run_program(argv, fd, none) == 0;
    if (fd >= 0) close(fd);
    if (none >= 0) close(none);
    return done;
}

Status programs_copy(Str text, const char **how) {
    static const char *const wayland[] = {"wl-copy", NULL}, *const x11[] = {"xclip", "-selection", "clipboard", NULL};
    const char *const *const programs[] = {getenv("WAYLAND_DISPLAY") ? wayland : NULL, getenv("DISPLAY") ? x11 : NULL};
    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        if (programs[i] && by_program(programs[i], text)) {
            *how = programs[i][0];
            return OK;
        }
    *how = "the terminal";
    if (!isatty(STDERR_FILENO))
        return status_error(QUILL_IO, "no clipboard: wl-copy, xclip or a terminal on stderr expected, none found");
    Buf sequence = {0};
    buf_str(&sequence, "\033]52;c;");
    base64(text, &sequence);
    buf_str(&sequence, "\a");
    Status st = fd_write_all(STDERR_FILENO, sequence.data, sequence.n);
    buf_free(&sequence);
    return st;
}
