// base/dirs.c: see base/dirs.h.
#define _GNU_SOURCE
#include "base/dirs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Makes every missing directory of the path.
static bool make_dirs(char *path, mode_t mode) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) return false;
    }
    return mkdir(path, mode) == 0 || errno == EEXIST;
}

// $variable/quill or ~/fallback/quill.
static bool own_dir(const char *variable, const char *fallback, mode_t mode, char *out, size_t cap) {
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int n;
    if (xdg && xdg[0] == '/') n = snprintf(out, cap, "%s/quill", xdg);
    else if (home && home[0] == '/') n = snprintf(out, cap, "%s/%s/quill", home, fallback);
    else return false;
    return (size_t)n < cap && make_dirs(out, mode);
}

bool dirs_cache(char *out, size_t cap) { return own_dir("XDG_CACHE_HOME", ".cache", 0777, out, cap); }
bool dirs_state(char *out, size_t cap) { return own_dir("XDG_STATE_HOME", ".local/state", 0700, out, cap); }
