// base/cgroup.h: what the control groups that hold this process leave it: its own and all above it, of version 2 or 1
// (cgroups(7); Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
//
// `proc` says which group it is, `mount` is where their files are: the two names below, elsewhere in tests. Inside a
// container the mount's top may be the process's own group, whatever `proc` calls it: what is not found there is taken
// for the top.
#ifndef QUILL_CGROUP_H
#define QUILL_CGROUP_H

#include <stddef.h>

#define CGROUP_PROC "/proc/self/cgroup"
#define CGROUP_MOUNT "/sys/fs/cgroup"

// Bytes that may be taken yet. Cached pages of files count as free: they go when somebody asks. SIZE_MAX: no limit.
size_t cgroup_memory(const char *proc, const char *mount);
int cgroup_cpus(const char *proc,
                const char *mount); // processors that the quota pays for, rounded up; INT_MAX: no quota

#endif
