// tests/rig/directory.h: a directory that a test fills, and a check of its files.
#ifndef QUILL_DIRECTORY_H
#define QUILL_DIRECTORY_H

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

// Removes a directory with its files and its empty directories.
static inline void remove_directory(const char *path) {
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlinkat(dirfd(d), e->d_name, 0) != 0)
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    closedir(d);
    rmdir(path);
}

// Number of entries whose names begin with a text.
static inline int count_entries(const char *path, const char *beginning) {
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, beginning, strlen(beginning)) == 0;
    if (d) closedir(d);
    return n;
}

#endif
