// base/dirs.c: see base/dirs.h.
#define _GNU_SOURCE
#include "base/dirs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

bool dirs_make(const char *path, mode_t mode) {
    char *part = mem_copy(path, strlen(path));
    bool made = true;
    for (char *slash = strchr(part + 1, '/'); slash && made; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        made = mkdir(part, 0777) == 0 || errno == EEXIST;
        *slash = '/';
    }
    made = made && (mkdir(part, mode) == 0 || errno == EEXIST);
    int e = errno;
    free(part);
    errno = e;
    return made;
}

// $variable/quill or ~/fallback/quill.
static bool own_dir(const char *variable, const char *fallback, mode_t mode, char *out, size_t cap) {
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int n;
    if (xdg && xdg[0] == '/') n = snprintf(out, cap, "%s/quill", xdg);
    else if (home && home[0] == '/') n = snprintf(out, cap, "%s/%s/quill", home, fallback);
    else n = 0, *out = 0;
    errno = ENAMETOOLONG;
    return n > 0 && (size_t)n < cap && dirs_make(out, mode);
}

bool dirs_cache(char *out, size_t cap) { return own_dir("XDG_CACHE_HOME", ".cache", 0777, out, cap); }
bool dirs_state(char *out, size_t cap) { return own_dir("XDG_STATE_HOME", ".local/state", 0700, out, cap); }
