// base/tempfile.c: see base/tempfile.h.
#define _GNU_SOURCE
#include "base/tempfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/signals.h"
#include "base/str.h"

enum {
    STALE = 3600, // seconds, see tempfile_remove_dead
    TRIES = 1000, // names to try; there are 36^6
    LINKS = 40,   // the most symbolic links in a row, as in Linux
    AT_ONCE = 8,  // temporary files that a signal removes; a mode writes one or two at once
};
static const char infix[] = ".quill-tmp-", letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

// ---- creating -------------------------------------------------------------------------------------------------------

static void draw_letters(char *out) {
    uint8_t bytes[TEMPFILE_LETTERS];
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes) { // not seeded yet, early after boot
        uint64_t now = (uint64_t)(clock_now() * 1e9) ^ (uint64_t)getpid() << 24;
        memcpy(bytes, &now, sizeof bytes);
    }
    for (int i = 0; i < TEMPFILE_LETTERS; i++) out[i] = letters[bytes[i] % (sizeof letters - 1)];
}

// Creates a file under a name that is not taken; -1 and errno on failure.
static int create(char *path, char *last, mode_t mode) {
    int fd = -1;
    for (int i = 0; i < TRIES && fd < 0 && (i == 0 || errno == EEXIST); i++) {
        draw_letters(last);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    return fd;
}

// Between creating and locking, the file looks as if its writer were dead, and another process may lock and remove it.
// This process waits for that lock, sees that the file has no name any more, and creates another one.
Status tempfile_create(const char *stem, mode_t mode, char **path, int *fd) {
    Buf name = {0};
    buf_printf(&name, "%s%0*d", stem, TEMPFILE_LETTERS, 0);
    for (;;) {
        struct stat info;
        *fd = create(name.data, name.data + name.n - TEMPFILE_LETTERS, mode);
        if (*fd < 0) {
            Status st = status_error(QUILL_IO, "cannot create: %s", strerror(errno));
            buf_free(&name);
            *path = NULL;
            return st;
        }
        while (flock(*fd, LOCK_EX) != 0 && errno == EINTR) {
        }
        if (fstat(*fd, &info) != 0 || info.st_nlink > 0) break;
        close(*fd);
    }
    *path = name.data;
    return OK;
}

// ---- where the file is ----------------------------------------------------------------------------------------------

// The folder of a path; the caller frees it.
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? mem_copy(path, (size_t)(slash - path) + 1) : mem_copy(".", 1);
}

static bool is_in_proc(const char *path) {
    struct statfs system;
    char *folder = folder_of(path);
    bool is = statfs(folder, &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
    free(folder);
    return is;
}

// The path at the end of a chain of symbolic links, at which there may be no file yet; the caller frees it. NULL: the
// path leads to an open descriptor.
static char *follow(const char *path) {
    char *at = mem_copy(path, strlen(path)), to[4096];
    for (int i = 0; i < LINKS; i++) {
        ssize_t n = readlink(at, to, sizeof to);
        if (n < 0 || n == sizeof to) return at;
        Buf next = {0};
        char *folder = folder_of(at);
        bool open = is_in_proc(at);
        if (to[0] != '/') buf_printf(&next, "%s/", folder);
        buf_append(&next, to, (size_t)n);
        free(folder);
        free(at);
        at = next.data;
        if (!open) continue;
        free(at);
        return NULL;
    }
    return at;
}

static Status cannot_create(const char *path) {
    return status_error(QUILL_IO, "%.800s: cannot create: %s", path, strerror(errno));
}

// Finds out->target, and the mode of a file that is there already; NULL: it is written directly.
static Status locate(const char *path, mode_t *mode, TempFile *out) {
    struct stat info;
    *out = (TempFile){.path = path, .fd = -1};
    if (!*path) return status_error(QUILL_USAGE, "the name of a file to write expected, found an empty one");
    bool there = stat(path, &info) == 0;
    if (!there && errno != ENOENT) return cannot_create(path);
    const char *found = !there                   ? NULL
                        : S_ISDIR(info.st_mode)  ? "a directory"
                        : S_ISBLK(info.st_mode)  ? "a block device"
                        : S_ISSOCK(info.st_mode) ? "a socket"
                                                 : NULL;
    if (found) return status_error(QUILL_IO, "%.800s: a file to write expected, found %s", path, found);
    if (there && !S_ISREG(info.st_mode)) return OK;
    if (there) *mode = info.st_mode & 0777;
    out->target = follow(path);
    return OK;
}

Status tempfile_check(const char *path) {
    TempFile d;
    mode_t mode = 0;
    TRY(locate(path, &mode, &d));
    char *folder = d.target ? folder_of(d.target) : NULL;
    Status st = folder && access(folder, W_OK | X_OK) != 0 ? cannot_create(path) : OK;
    free(folder);
    free(d.target);
    return st;
}

// ---- sweeping -------------------------------------------------------------------------------------------------------

bool tempfile_remove_dead(int dir, const char *name) {
    struct stat info;
    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return false;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    bool dead = locked || (errno != EWOULDBLOCK && info.st_mtim.tv_sec < time(NULL) - STALE);
    if (dead) unlinkat(dir, name, 0); // while locked: see tempfile_create
    if (fd >= 0) close(fd);
    return dead;
}

// Whether `name` is a temporary file of the file `base`. Its infix is no name that a user gives a copy, as
// .quill-backup might be.
static bool is_temp_of(const char *base, const char *name) {
    size_t n = strlen(base);
    if (strncmp(name, base, n) != 0 || strncmp(name + n, infix, sizeof infix - 1) != 0) return false;
    const char *last = name + n + sizeof infix - 1;
    return strlen(last) == TEMPFILE_LETTERS && strspn(last, letters) == TEMPFILE_LETTERS;
}

// Removes the temporary files of this file that killed processes left.
static void sweep(const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char *folder = folder_of(path);
    DIR *dir = *base ? opendir(folder) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (is_temp_of(base, d->d_name)) tempfile_remove_dead(dirfd(dir), d->d_name);
    if (dir) closedir(dir);
    free(folder);
}

// ---- signals --------------------------------------------------------------------------------------------------------

static _Atomic(char *) unfinished[AT_ONCE]; // TempFile.tmp of the open files; NULL: a free place

// Puts a path into a place that has the value `from`.
static void put_unfinished(char *from, char *to) {
    for (int i = 0; i < AT_ONCE; i++) {
        char *expected = from;
        if (atomic_compare_exchange_strong(&unfinished[i], &expected, to)) return;
    }
}

// Called by a signal handler.
static void remove_unfinished(void) {
    for (int i = 0; i < AT_ONCE; i++) {
        const char *path = atomic_load(&unfinished[i]);
        if (path) unlink(path);
    }
}

// ---- a file ---------------------------------------------------------------------------------------------------------

static Status open_directly(TempFile *d) {
    do d->fd = open(d->path, O_WRONLY | O_APPEND | O_CLOEXEC); // waits for a FIFO's reader
    while (d->fd < 0 && errno == EINTR && !signals_caught());
    if (d->fd >= 0) return OK;
    if (errno == EINTR) return fd_stopped();
    return status_error(QUILL_IO, "%.800s: cannot open: %s", d->path, strerror(errno));
}

Status tempfile_open(const char *path, mode_t mode, TempFile *out) {
    mode_t old = (mode_t)-1;
    TRY(locate(path, &old, out));
    if (!out->target) return open_directly(out);
    Buf stem = {0};
    buf_printf(&stem, "%s%s", out->target, infix);
    sweep(out->target);
    signals_before_kill(remove_unfinished);
    signals_hold(true);
    Status st = tempfile_create(stem.data, old == (mode_t)-1 ? mode : old, &out->tmp, &out->fd);
    if (!st.code) put_unfinished(NULL, out->tmp);
    signals_hold(false);
    buf_free(&stem);
    if (!st.code && old != (mode_t)-1) fchmod(out->fd, old); // bits that the umask took
    if (!st.code) return OK;
    free(out->target);
    out->target = NULL;
    return status_error(st.code, "%.800s: %s", path, st.message);
}

// The file gets its final name before close ends the lock.
Status tempfile_publish(TempFile *d, Status written) {
    Status st = written;
    const char *failed = NULL;
    if (st.code == QUILL_IO) st = status_error(QUILL_IO, "%.500s: %.500s", d->path, written.message);
    else if (!st.code && d->tmp && fsync(d->fd) != 0) failed = "sync";
    else if (!st.code && d->tmp && rename(d->tmp, d->target) != 0) failed = "rename";
    if (failed) st = status_error(QUILL_IO, "%.800s: cannot %s: %s", d->path, failed, strerror(errno));
    if (st.code && d->tmp) unlink(d->tmp);
    if (d->tmp) put_unfinished(d->tmp, NULL);
    if (close(d->fd) != 0 && !d->tmp && !st.code) // after fsync there is no error
        st = status_error(QUILL_IO, "%.800s: cannot close: %s", d->path, strerror(errno));
    free(d->tmp);
    free(d->target);
    *d = (TempFile){.fd = -1};
    return st;
}
