// base/cgroup.c: see base/cgroup.h.
#define _GNU_SOURCE // PATH_MAX
#include "base/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

typedef struct {
    char dir[PATH_MAX]; // directory of the group
    size_t n_top;       // length of the mount point in `dir`
    bool v1;
} CgroupDir;

static bool names(const char *list, const char *controller) {
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == strlen(controller) && strncmp(list, controller, n) == 0) return true;
    }
    return false;
}

// Appends the group's path to that of the mount, if such a directory exists.
static void go_down(CgroupDir *g, const char *path) {
    size_t n = strlen(path);
    g->n_top = strlen(g->dir);
    if (n < 2 || strstr(path, "/..") || g->n_top + n >= sizeof g->dir) return;
    memcpy(g->dir + g->n_top, path, n + 1);
    if (access(g->dir, F_OK) != 0) g->dir[g->n_top] = 0;
}

// Finds the process's group for this controller. A controller is in version 1 or in version 2, never in both.
static CgroupDir find(const char *proc, const char *mount, const char *controller) {
    CgroupDir g = {0};
    char line[PATH_MAX + 256], *list, *path;
    FILE *f = fopen(proc, "r");
    while (f && !g.v1 && fgets(line, sizeof line, f)) { // "0::/user.slice", "7:cpu,cpuacct:/docker/1f"
        line[strcspn(line, "\n")] = 0;
        if (!(list = strchr(line, ':')) || !(path = strchr(list + 1, ':'))) continue;
        *list++ = *path++ = 0;
        g.v1 = names(list, controller);
        if (*list && !g.v1) continue;
        snprintf(g.dir, sizeof g.dir, "%s%s%s", mount, g.v1 ? "/" : "", g.v1 ? controller : "");
        go_down(&g, path);
    }
    if (f) fclose(f);
    if (!g.n_top) g.n_top = (size_t)snprintf(g.dir, sizeof g.dir, "%s", mount);
    return g;
}

// Continues with the parent group; false: this is the top.
static bool go_up(CgroupDir *g) {
    if (strlen(g->dir) <= g->n_top) return false;
    *strrchr(g->dir, '/') = 0;
    return true;
}

static size_t number(const CgroupDir *g, const char *file, const char *key) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", g->dir, file);
    return file_number(path, key);
}

// Bytes of the group's memory that are cached files.
static size_t cached(const CgroupDir *g) {
    size_t idle = number(g, "memory.stat", g->v1 ? "total_inactive_file " : "inactive_file "),
           active = number(g, "memory.stat", g->v1 ? "total_active_file " : "active_file ");
    return (idle == SIZE_MAX ? 0 : idle) + (active == SIZE_MAX ? 0 : active);
}

size_t cgroup_memory(const char *proc, const char *mount) {
    size_t least = SIZE_MAX;
    CgroupDir g = find(proc, mount, "memory");
    do {
        size_t limit = number(&g, g.v1 ? "memory.limit_in_bytes" : "memory.max", NULL),
               used = number(&g, g.v1 ? "memory.usage_in_bytes" : "memory.current", NULL), files = cached(&g);
        if (limit == SIZE_MAX || used == SIZE_MAX) continue;
        used -= files < used ? files : used;
        size_t left = limit > used ? limit - used : 0;
        if (left < least) least = left;
    } while (go_up(&g));
    return least;
}

// Reads the quota: *quota microseconds of CPU time in every *period microseconds. False: there is none.
static bool quota_of(const CgroupDir *g, long long *quota, long long *period) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", g->dir, g->v1 ? "cpu.cfs_quota_us" : "cpu.max");
    FILE *f = fopen(path, "r");
    if (!f) return false;
    int n = fscanf(f, "%lld %lld", quota, period); // no quota: "max 100000" in version 2, -1 in version 1
    fclose(f);
    if (g->v1 && n == 1) *period = (long long)number(g, "cpu.cfs_period_us", NULL), n++;
    return n == 2 && *quota > 0 && *period > 0;
}

int cgroup_cpus(const char *proc, const char *mount) {
    int least = INT_MAX;
    CgroupDir g = find(proc, mount, "cpu");
    do {
        long long quota, period;
        if (!quota_of(&g, &quota, &period)) continue;
        long long n = quota / period + (quota % period > 0);
        if (n < least) least = (int)n;
    } while (go_up(&g));
    return least;
}
