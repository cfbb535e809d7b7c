// base/tempfile.c: see base/tempfile.h.
#define _GNU_SOURCE
#include "base/tempfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

enum {
    STALE = 3600, // seconds, see tempfile_remove_dead
    TRIES = 1000, // names to try; there are 36^6
};
static const char infix[] = ".quill-", letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

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
            Status st = status_error(QUILL_IO, "%s: cannot create: %s", name.data, strerror(errno));
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

// Whether `name` is a temporary file of the file `base`.
static bool is_temp_of(const char *base, const char *name) {
    size_t n = strlen(base);
    if (strncmp(name, base, n) != 0 || strncmp(name + n, infix, sizeof infix - 1) != 0) return false;
    const char *last = name + n + sizeof infix - 1;
    return strlen(last) == TEMPFILE_LETTERS && strspn(last, letters) == TEMPFILE_LETTERS;
}

// Removes the temporary files of this file that killed processes left.
static void sweep(const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char *folder = slash ? mem_copy(path, (size_t)(slash - path) + 1) : mem_copy(".", 1);
    DIR *dir = *base ? opendir(folder) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (is_temp_of(base, d->d_name)) tempfile_remove_dead(dirfd(dir), d->d_name);
    if (dir) closedir(dir);
    free(folder);
}

// ---- a file ---------------------------------------------------------------------------------------------------------

Status tempfile_open(const char *path, mode_t mode, TempFile *out) {
    *out = (TempFile){.path = path, .fd = -1};
    Buf stem = {0};
    buf_printf(&stem, "%s%s", path, infix);
    sweep(path);
    Status st = tempfile_create(stem.data, mode, &out->tmp, &out->fd);
    buf_free(&stem);
    return st;
}

// The file gets its final name before close ends the lock.
Status tempfile_publish(TempFile *d, Status written) {
    Status st = written;
    if (st.code && st.message[0]) st = status_error(st.code, "%s: %.900s", d->tmp, written.message);
    else if (!st.code && fsync(d->fd) != 0) st = status_error(QUILL_IO, "%s: cannot sync: %s", d->tmp, strerror(errno));
    if (!st.code && rename(d->tmp, d->path) != 0)
        st = status_error(QUILL_IO, "%s: cannot rename to %s: %s", d->tmp, d->path, strerror(errno));
    if (st.code) unlink(d->tmp);
    close(d->fd); // its errors have been reported by fsync
    free(d->tmp);
    *d = (TempFile){.fd = -1};
    return st;
}
