// hub/cache.c: see hub/cache.h. Reads the cache; hub/cache_write.c writes and removes.
#define _GNU_SOURCE
#include "hub/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { MOST_DEPTH = 8, MOST_FILES = 100000 }; // limits for a snapshot: nested directories, files
static const char prefix[] = "models--";

void hub_cache_folder(const char *root, const char *repo, Buf *out) {
    buf_printf(out, "%s/%s", root, prefix);
    for (const char *c = repo; *c; c++) buf_append(out, *c == '/' ? "--" : c, *c == '/' ? 2 : 1);
}

// ---- names ----------------------------------------------------------------------------------------------------------

void hub_names_add(HubNames *names, const char *name) {
    names->at = mem_resize(names->at, (size_t)(names->n + 1) * sizeof *names->at);
    names->at[names->n++] = mem_copy(name, strlen(name));
}

void hub_names_free(HubNames *names) {
    for (int i = 0; i < names->n; i++) free(names->at[i]);
    free(names->at);
    *names = (HubNames){0};
}

// *out is NULL if the directory does not exist.
static Status open_dir(const char *path, DIR **out) {
    *out = opendir(path);
    if (*out || errno == ENOENT || errno == ENOTDIR) return OK;
    if (errno == ENOMEM) mem_refused(1);
    return status_error(QUILL_IO, "%s: cannot read the directory: %s", path, strerror(errno));
}

static int by_name(const void *a, const void *b) { return strcasecmp(*(char *const *)a, *(char *const *)b); }

Status hub_cache_repos(const char *root, HubNames *out) {
    DIR *dir;
    TRY(open_dir(root, &dir));
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (strncmp(d->d_name, prefix, strlen(prefix)) != 0) continue;
        HubName name;
        Buf repo = {0};
        const char *rest = d->d_name + strlen(prefix), *parts = strstr(rest, "--");
        if (parts) buf_printf(&repo, "%.*s/%s", (int)(parts - rest), rest, parts + 2);
        else buf_str(&repo, rest);
        if (hub_name_read(repo.data, true, &name) && !*name.tag) hub_names_add(out, name.repo);
        buf_free(&repo);
    }
    if (dir) closedir(dir);
    if (out->n) qsort(out->at, (size_t)out->n, sizeof *out->at, by_name);
    return OK;
}

// ---- snapshots ------------------------------------------------------------------------------------------------------

typedef struct {
    char *commit;
    bool main;
    int64_t changed;
} HubCommit;

static int newest_first(const void *a, const void *b) {
    const HubCommit *x = a, *y = b;
    if (x->main != y->main) return y->main - x->main;
    return (x->changed < y->changed) - (x->changed > y->changed);
}

static void read_main(const char *folder, char commit[65]) {
    Buf path = {0};
    buf_printf(&path, "%s/refs/main", folder);
    char text[128];
    struct stat info;
    int fd;
    ssize_t n = file_open(path.data, 0, &fd, &info).code ? 0 : fd_read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    if (sscanf(text, "%64s", commit) != 1) commit[0] = 0;
    if (fd >= 0) close(fd);
    buf_free(&path);
}

static Status add_commits(const char *path, const char *main, HubCommit **all, int *n) {
    DIR *dir;
    Status st = open_dir(path, &dir);
    for (struct dirent *d; dir && !st.code && (d = readdir(dir));) {
        struct stat info;
        if (d->d_name[0] == '.' || !hub_name_is_safe_path(d->d_name)) continue;
        if (fstatat(dirfd(dir), d->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            st = status_error(QUILL_IO, "%s/%s: cannot stat: %s", path, d->d_name, strerror(errno));
        if (st.code || !S_ISDIR(info.st_mode)) continue;
        *all = mem_resize(*all, (size_t)(*n + 1) * sizeof **all);
        (*all)[(*n)++] = (HubCommit){mem_copy(d->d_name, strlen(d->d_name)), strcmp(d->d_name, main) == 0,
                                     (int64_t)info.st_mtim.tv_sec};
    }
    if (dir) closedir(dir);
    return st;
}

Status hub_cache_snapshots(const char *folder, HubNames *out) {
    char main[65];
    Buf path = {0};
    HubCommit *all = NULL;
    int n = 0;
    read_main(folder, main);
    buf_printf(&path, "%s/snapshots", folder);
    Status st = add_commits(path.data, main, &all, &n);
    if (n) qsort(all, (size_t)n, sizeof *all, newest_first);
    for (int i = 0; i < n; i++) {
        hub_names_add(out, all[i].commit);
        free(all[i].commit);
    }
    free(all);
    buf_free(&path);
    return st;
}

// The name of the blob that a link points to; NULL: it points elsewhere, or is not a link.
static char *blob_of(const char *path) {
    char target[1200];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0) return NULL;
    target[n] = 0;
    const char *base = file_base(target), *dir = base - strlen("blobs/");
    bool inside = dir >= target && strncmp(dir, "blobs/", 6) == 0 && *base && *base != '.' && !strchr(base, '/');
    return inside ? mem_copy(base, strlen(base)) : NULL;
}

static void add_file(const char *path, const char *below, const struct stat *info, HubFiles *out) {
    HubFile *f = hub_files_add(out, below, (uint64_t)info->st_size);
    f->blob = blob_of(path);
    f->used = (int64_t)(info->st_atim.tv_sec > info->st_mtim.tv_sec ? info->st_atim.tv_sec : info->st_mtim.tv_sec);
}

static Status walk(const char *top, const char *below, int depth, HubFiles *out);

// Adds a file, or walks a directory; links to directories are not followed. A dangling link counts as a missing file.
static Status walk_entry(const char *top, const char *path, const char *below, int depth, HubFiles *out) {
    struct stat own, info;
    if (!hub_name_is_safe_path(below) || lstat(path, &own) != 0) return OK;
    if (S_ISDIR(own.st_mode)) return depth < MOST_DEPTH ? walk(top, below, depth + 1, out) : OK;
    if (stat(path, &info) == 0) {
        if (S_ISREG(info.st_mode)) add_file(path, below, &info, out);
        return OK;
    }
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return OK;
    return status_error(QUILL_IO, "%s: cannot stat: %s", path, strerror(errno));
}

static Status walk(const char *top, const char *below, int depth, HubFiles *out) {
    Buf path = {0};
    DIR *dir;
    buf_printf(&path, "%s%s%s", top, *below ? "/" : "", below);
    Status st = open_dir(path.data, &dir);
    size_t n = path.n;
    for (struct dirent *d; dir && !st.code && (d = readdir(dir)) && out->n < MOST_FILES;) {
        Buf name = {0};
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) continue;
        buf_printf(&name, "%s%s%s", below, *below ? "/" : "", d->d_name);
        path.n = n;
        buf_printf(&path, "/%s", d->d_name);
        st = walk_entry(top, path.data, name.data, depth, out);
        buf_free(&name);
    }
    if (dir) closedir(dir);
    buf_free(&path);
    return st;
}

Status hub_cache_files(const char *folder, const char *commit, HubFiles *out) {
    Buf top = {0};
    buf_printf(&top, "%s/snapshots/%s", folder, commit);
    snprintf(out->commit, sizeof out->commit, "%.64s", commit);
    Status st = walk(top.data, "", 0, out);
    hub_files_sort(out);
    buf_free(&top);
    return st;
}

// Bytes of the blobs whose names have this ending.
static Status blob_bytes(const char *folder, const char *ending, uint64_t *out) {
    Buf path = {0};
    DIR *dir;
    *out = 0;
    buf_printf(&path, "%s/blobs", folder);
    Status st = open_dir(path.data, &dir);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct stat info;
        if (str_has_suffix(str_of(d->d_name), ending) && fstatat(dirfd(dir), d->d_name, &info, 0) == 0 &&
            S_ISREG(info.st_mode))
            *out += (uint64_t)info.st_size;
    }
    if (dir) closedir(dir);
    buf_free(&path);
    return st;
}

Status hub_cache_incomplete(const char *folder, uint64_t *out) { return blob_bytes(folder, ".incomplete", out); }

Status hub_cache_bytes(const char *folder, uint64_t *out) {
    HubNames commits = {0};
    Status st = blob_bytes(folder, "", out);
    if (!st.code) st = hub_cache_snapshots(folder, &commits);
    for (int i = 0; i < commits.n && !st.code; i++) {
        HubFiles files = {0};
        st = hub_cache_files(folder, commits.at[i], &files);
        for (int k = 0; k < files.n; k++) *out += files.at[k].blob ? 0 : files.at[k].size;
        hub_files_free(&files);
    }
    hub_names_free(&commits);
    return st;
}
