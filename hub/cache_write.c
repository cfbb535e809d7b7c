// hub/cache_write.c: see hub/cache.h. Writes the cache and removes from it; hub/cache.c reads.
#define _GNU_SOURCE
#include "hub/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/note.h"
#include "base/signals.h"
#include "base/tempfile.h"

static Status make_dir(const char *path) {
    return dirs_make(path, 0777) ? OK : status_error(QUILL_IO, "%s: cannot create: %s", path, strerror(errno));
}

static Status make_own_dir(const char *path) {
    TRY(make_dir(path));
    return access(path, W_OK) == 0 ? OK : status_error(QUILL_IO, "%s: cannot write: %s", path, strerror(errno));
}

Status hub_cache_make_dirs(const char *root, const char *repo) {
    static const char *const below[] = {"/blobs", "/snapshots", "/refs"};
    Status st = OK;
    Buf path = {0}, lock = {0};
    hub_cache_folder(root, repo, &path);
    buf_printf(&lock, "%s/.locks/%s", root, file_base(path.data));
    size_t n = path.n;
    for (size_t i = 0; i < ARRAY_LEN(below) && !st.code; i++) {
        path.n = n;
        buf_str(&path, below[i]);
        st = make_own_dir(path.data);
    }
    if (!st.code) st = make_own_dir(lock.data);
    buf_free(&path);
    buf_free(&lock);
    return st;
}

// ---- links ----------------------------------------------------------------------------------------------------------

// Creates the link under a temporary name and renames it, so that readers see either the old link or the new one.
static bool replace_link(const char *target, const char *path) {
    Buf temp = {0};
    buf_printf(&temp, "%s.quill-%ld", path, (long)getpid());
    unlink(temp.data);
    bool done = symlink(target, temp.data) == 0;
    int e = errno;
    if (done && rename(temp.data, path) != 0) {
        e = errno;
        unlink(temp.data);
        done = false;
    }
    buf_free(&temp);
    errno = e;
    return done;
}

Status hub_cache_link(const char *folder, const char *commit, const char *path, const char *blob) {
    Buf link = {0}, target = {0}, dir = {0}, whole = {0};
    buf_printf(&link, "%s/snapshots/%s/%s", folder, commit, path);
    buf_printf(&whole, "%s/blobs/%s", folder, blob);
    buf_str(&target, "../../");
    for (const char *c = path; *c; c++)
        if (*c == '/') buf_str(&target, "../");
    buf_printf(&target, "blobs/%s", blob);
    buf_append(&dir, link.data, (size_t)(file_base(link.data) - link.data) - 1);
    Status st = make_dir(dir.data);
    bool done = st.code || replace_link(target.data, link.data);
    bool without = !done && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS); // FAT, some network mounts
    if (without) done = rename(whole.data, link.data) == 0;
    if (!done) st = status_error(QUILL_IO, "%s: cannot link to %s: %s", link.data, target.data, strerror(errno));
    buf_free(&link);
    buf_free(&target);
    buf_free(&dir);
    buf_free(&whole);
    return st;
}

Status hub_cache_set_main(const char *folder, const char *commit) {
    Buf path = {0}, now = {0};
    TempFile temp;
    struct stat info;
    buf_printf(&path, "%s/refs/main", folder);
    bool there = stat(path.data, &info) == 0, same = false;
    Status st = OK;
    if (there && !S_ISREG(info.st_mode)) // a pipe would block
        st = status_error(QUILL_IO, "%s: a file expected, something else found; remove it", path.data);
    else if (there) same = !file_read(path.data, &now).code && str_is(str_of_buf(&now), commit);
    if (!same && !st.code) st = tempfile_open(path.data, 0666, &temp);
    if (!same && !st.code) st = tempfile_publish(&temp, fd_write_all(temp.fd, commit, strlen(commit)));
    buf_free(&path);
    buf_free(&now);
    return st;
}

// ---- locks ----------------------------------------------------------------------------------------------------------

static void lock_path(const char *root, const char *repo, const char *blob, Buf *out) {
    Buf folder = {0};
    hub_cache_folder(root, repo, &folder);
    buf_printf(out, "%s/.locks/%s/%s.lock", root, file_base(folder.data), blob);
    buf_free(&folder);
}

// Whether the locked file still has this name: another process may have removed it before the lock was taken.
static bool has_name(int fd, const char *path) {
    struct stat own, named;
    return fstat(fd, &own) == 0 && stat(path, &named) == 0 && fd_same_file(&own, &named);
}

// Returns 1: locked; 0: another process has the lock; -1: an error, in errno.
static int try_lock(const char *path, int *fd) {
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (*fd < 0) return -1;
    int got = flock(*fd, LOCK_EX | LOCK_NB) == 0 ? 1 : errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
    if (got == 1 && !has_name(*fd, path)) got = 0;
    if (got == 1) return 1;
    int e = errno;
    close(*fd);
    *fd = -1;
    errno = e;
    return got;
}

Status hub_cache_lock(const char *root, const char *repo, const char *blob, bool quiet, int *fd) {
    Buf path = {0};
    Status st = OK;
    double start = clock_now();
    bool said = false;
    lock_path(root, repo, blob, &path);
    for (;;) {
        int got = try_lock(path.data, fd);
        if (got == 1) break;
        if (got < 0 && (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP))
            break; // no locks; the hash protects
        if (got < 0) st = status_error(QUILL_IO, "%s: cannot lock: %s", path.data, strerror(errno));
        if (signals_caught()) st = fd_stopped();
        if (st.code) break;
        if (!said && clock_now() - start > 1) {
            note_print(quiet, "%s: waiting for another process that fetches it", repo);
            said = true;
        }
        poll(NULL, 0, 50);
    }
    buf_free(&path);
    return st;
}

bool hub_cache_is_busy(const char *root, const char *repo) {
    Buf folder = {0}, path = {0};
    hub_cache_folder(root, repo, &folder);
    buf_printf(&path, "%s/.locks/%s", root, file_base(folder.data));
    DIR *dir = opendir(path.data);
    bool busy = false;
    for (struct dirent *d; dir && !busy && (d = readdir(dir));) {
        int fd = str_has_suffix(str_of(d->d_name), ".lock") ? openat(dirfd(dir), d->d_name, O_RDWR | O_CLOEXEC) : -1;
        busy = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (fd >= 0) close(fd);
    }
    if (dir) closedir(dir);
    buf_free(&folder);
    buf_free(&path);
    return busy;
}

// ---- removing -------------------------------------------------------------------------------------------------------

static int remove_one(const char *path, const struct stat *info, int what, struct FTW *at) {
    (void)info, (void)what, (void)at;
    return remove(path);
}

static Status remove_tree(const char *path) {
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return OK;
    if (errno == ENOMEM) mem_refused(1);
    return status_error(QUILL_IO, "%s: cannot remove: %s", path, strerror(errno));
}

Status hub_cache_remove_repo(const char *root, const char *repo) {
    Buf folder = {0}, locks = {0};
    hub_cache_folder(root, repo, &folder);
    buf_printf(&locks, "%s/.locks/%s", root, file_base(folder.data));
    Status st = remove_tree(folder.data);
    if (!st.code) st = remove_tree(locks.data);
    buf_free(&folder);
    buf_free(&locks);
    return st;
}

// Opens the directory of the file `path` below `folder`. Neither the folder nor a directory below it may be a link.
static int open_parent(const char *folder, const char *path) {
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int dir = open(folder, flags);
    for (const char *slash; dir >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        char *part = mem_copy(path, (size_t)(slash - path));
        int next = openat(dir, part, flags), e = errno;
        free(part);
        close(dir);
        errno = e;
        dir = next;
    }
    return dir;
}

static Status remove_file(const char *folder, const char *below, const char *name) {
    Buf path = {0};
    buf_printf(&path, "%s/%s", below, name);
    Status st = OK;
    int dir = open_parent(folder, path.data);
    bool behind_link = dir < 0 && errno == ENOTDIR;
    if ((dir < 0 || unlinkat(dir, file_base(path.data), 0) != 0) && errno != ENOENT)
        st = status_error(QUILL_IO, "%s/%s: cannot remove: %s", folder, path.data,
                          behind_link ? "a directory of the cache on its way is a link, which rm does not follow"
                                      : strerror(errno));
    if (dir >= 0) close(dir);
    buf_free(&path);
    return st;
}

static Status is_linked(const char *folder, const HubNames *commits, const char *blob, bool *found) {
    Status st = OK;
    *found = false;
    for (int i = 0; i < commits->n && !*found && !st.code; i++) {
        HubFiles files = {0};
        st = hub_cache_files(folder, commits->at[i], &files);
        for (int k = 0; k < files.n; k++) *found |= files.at[k].blob && strcmp(files.at[k].blob, blob) == 0;
        hub_files_free(&files);
    }
    return st;
}

static Status remove_blob(const char *folder, const HubNames *commits, const char *blob) {
    bool linked;
    TRY(is_linked(folder, commits, blob, &linked));
    return linked ? OK : remove_file(folder, "blobs", blob);
}

// Removes one file from every snapshot, and the blobs that no link points to any more.
static Status remove_path(const char *folder, const HubNames *commits, const char *path) {
    Status st = OK;
    for (int i = 0; i < commits->n && !st.code; i++) {
        HubFiles files = {0};
        Buf below = {0};
        st = hub_cache_files(folder, commits->at[i], &files);
        const HubFile *f = st.code ? NULL : hub_files_find(&files, path);
        buf_printf(&below, "snapshots/%s", commits->at[i]);
        if (f) st = remove_file(folder, below.data, path);
        if (f && f->blob && !st.code) st = remove_blob(folder, commits, f->blob);
        hub_files_free(&files);
        buf_free(&below);
    }
    return st;
}

Status hub_cache_remove_files(const char *folder, const HubNames *paths) {
    HubNames commits = {0};
    Status st = hub_cache_snapshots(folder, &commits);
    for (int i = 0; i < paths->n && !st.code; i++) st = remove_path(folder, &commits, paths->at[i]);
    hub_names_free(&commits);
    return st;
}
